"""What a sink refuses is known before the commit, or has a way on; what may pass is tried again."""

from __future__ import annotations

import inspect
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import stepping_spark as st
from stepping_spark.base.errors import SinkError, SourceError, StoreError
from stepping_spark.base.limits import Limits
from stepping_spark.cli import main
from stepping_spark.pipeline.dbt.seeds import Seed
from stepping_spark.pipeline.inputs import Feed
from stepping_spark.pipeline.rounds import Stopping, is_transient, pause_after
from stepping_spark.pipeline.spark_sources import MicroBatchSource
from tests.cases import Z


def names(people: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(people)


class Picky:
    """A sink that refuses a name: before the commit, or when it is written."""

    def __init__(self, refused: str, *, before: bool) -> None:
        self.refused = refused
        self.before = before
        self.steps: dict[int, Any] = {}
        self.step = 0
        self.prepared: list[int] = []

    def open(self, columns: pa.Schema, owner: str) -> None: ...

    def close(self) -> None: ...

    def last_step(self) -> int | None:
        return self.step

    def prepare(self, step: int, change: Any) -> None:
        self.prepared.append(step)
        if self.before:
            self._look(change)

    def write(self, step: int, change: Any) -> None:
        self._look(change)
        self.steps[step] = change.to_python()
        self.step = step

    def _look(self, change: Any) -> None:
        for name, n in change.iter():
            if name == self.refused and n > 0:
                raise SinkError(f"the name {name!r} cannot be written")


def test_a_refusal_before_the_commit_commits_nothing_and_a_corrected_source_goes_on(
    tmp_path: Path,
) -> None:
    """Finding 26."""
    picky, other = Picky("bob", before=True), Picky("", before=True)
    items = [(1, Z({"ann": 1})), (2, Z({"bob": 1, "eve": 1}))]
    with st.Pipeline(
        names, store=f"parquet:{tmp_path / 's'}", people=items, into=[other, picky]
    ) as made:
        with pytest.raises(SinkError, match="'bob' cannot be written"):
            made.run()
        assert made.stepper.store.last_step() == 1
        assert set(other.steps) == {1}
        items[1] = (2, Z({"eve": 1}))
        assert made.run() == 1
    assert picky.steps == other.steps == {1: Z({"ann": 1}), 2: Z({"eve": 1})}


def test_a_sink_is_not_asked_about_a_step_without_rows() -> None:
    picky = Picky("", before=True)
    items = [(1, Z({"ann": 1})), (2, Z({"ann": 1})), (3, Z({"ann": -2}))]
    st.Pipeline(names, store="memory", people=items, into=picky).run()
    assert picky.prepared == [1, 3]


def test_a_refusal_after_the_commit_says_how_to_take_the_step_back(tmp_path: Path) -> None:
    """Finding 26: the remedy is tried."""
    picky = Picky("bob", before=False)
    items = [(1, Z({"ann": 1})), (2, Z({"bob": 1}))]
    state = tmp_path / "s"
    pipeline = st.Pipeline(names, store=f"parquet:{state}", people=items, into=picky)
    with pipeline as made, pytest.raises(SinkError) as e:
        made.run()
    assert str(e.value) == (
        "the name 'bob' cannot be written. Step 2 is committed, and waits for this sink: the next "
        "run writes it. If the sink can never take it, take the step back, and correct the rows "
        f"in the source: stepping-spark state rewind {state} --to 1"
    )
    waiting = pipeline.dry_run()
    assert waiting.step == 2
    command = str(e.value).rpartition("stepping-spark ")[2].split()
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, done.output) == (0, "The state is at step 1; step 2 is dropped.\n")
    items[1] = (2, Z({"eve": 1}))
    with pipeline as made:
        assert made.run() == 1
    assert picky.steps == {1: Z({"ann": 1}), 2: Z({"eve": 1})}


def test_the_first_step_can_be_taken_back_too(tmp_path: Path) -> None:
    picky = Picky("bob", before=False)
    items = [(1, Z({"bob": 1}))]
    pipeline = st.Pipeline(names, store=f"parquet:{tmp_path}", people=items, into=picky)
    with pipeline as made, pytest.raises(SinkError, match="--to 0"):
        made.run()
    done = CliRunner().invoke(main, ["state", "rewind", str(tmp_path), "--to", "0"])
    assert (done.exit_code, done.output) == (0, "The state is at step 0; step 1 is dropped.\n")
    done = CliRunner().invoke(main, ["state", "rewind", str(tmp_path), "--to", "0"])
    assert done.output == "The state is at step 0 already.\n"
    items[0] = (1, Z({"eve": 1}))
    with pipeline as made:
        assert made.run() == 1
    assert picky.steps == {1: Z({"eve": 1})}


def test_a_step_that_another_sink_has_is_not_taken_back(tmp_path: Path) -> None:
    picky, other = Picky("bob", before=False), Picky("", before=False)
    items = [(1, Z({"ann": 1})), (2, Z({"bob": 1}))]
    with st.Pipeline(
        names, store=f"parquet:{tmp_path / 's'}", people=items, into=[other, picky]
    ) as made:
        for _ in range(2):  # the second time it is the last step again
            with pytest.raises(SinkError, match="taken back, because another sink has it"):
                made.run()
        picky.refused = ""
        made.run()
    assert picky.steps == other.steps


def test_a_dry_run_says_which_sink_waits_for_the_last_step(tmp_path: Path) -> None:
    """Finding 26. A sink is named by its place, however long that is."""
    source, tables = tmp_path / "people", tmp_path / ("t" * 100)
    source.mkdir()
    tables.mkdir()
    (source / "a").write_text('{"_value_": "ann"}\n')

    def pipeline() -> st.Pipeline:
        return st.Pipeline(
            names,
            store=f"parquet:{tmp_path / 's'}",
            people=st.Files(source, "json"),
            into=st.Files(tables / "names"),
        )

    with pipeline() as made:
        made.run()
    shutil.copytree(tables / "names", tables / "copy")
    (source / "b").write_text('{"_value_": "bob"}\n')
    with pipeline() as made:
        made.run()
    shutil.rmtree(tables / "names")
    (tables / "copy").rename(tables / "names")
    found = pipeline().dry_run()
    assert found.waits == (("names", repr(st.Files(tables / "names"))),)
    assert f"step 2 waits for names: Files('{tables}/names', 'parquet')" in str(found)


@pytest.mark.parametrize("to", ["2", "7"])
def test_a_step_that_is_not_kept_cannot_be_gone_back_to(tmp_path: Path, to: str) -> None:
    items = [(i, Z({f"n{i}": 1})) for i in range(1, 6)]
    with st.Pipeline(names, store=f"parquet:{tmp_path}", people=items) as made:
        made.run()
    done = CliRunner().invoke(main, ["state", "rewind", str(tmp_path), "--to", to])
    assert done.exit_code == 2
    assert "is not kept; the steps that can be opened are" in done.stderr


def test_an_error_of_a_function_says_in_which_step_it_was() -> None:
    def fail(step: int, change: Any) -> None:
        raise ValueError("boom")

    made = st.Pipeline(names, store="memory", people=[(1, Z({"ann": 1}))], into=fail)
    with pytest.raises(ValueError, match="boom") as e:
        made.run()
    (note,) = e.value.__notes__
    assert "of view 'names': step 1 is committed" in note


# -- retries


class Shaky:
    """A source whose server stumbles so many times."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures = failures
        self.error = error
        self.opened = 0

    def open(self, columns: pa.Schema) -> None:
        self.opened += 1

    def close(self) -> None: ...

    def behind(self, after: Any) -> int | None:
        return None

    def read(self, after: Any, portion: st.Portion) -> st.Batch | None:
        if self.failures:
            self.failures -= 1
            raise SourceError("the server does not answer") from self.error
        return st.Batch(1, (Z({"ann": 1}),)) if after is None else None


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a pipeline would have waited."""
    found: list[float] = []
    monkeypatch.setattr(Stopping, "wait", lambda _, seconds: found.append(seconds))
    return found


@pytest.mark.parametrize("store", ["memory", "parquet"])
def test_a_pipeline_that_follows_its_sources_tries_again(
    tmp_path: Path, pauses: list[float], store: str
) -> None:
    """Finding 34."""
    source = Shaky(3, ConnectionResetError("cut"))
    seen: dict[int, Any] = {}
    place = store if store == "memory" else f"parquet:{tmp_path / 's'}"
    made = st.Pipeline(names, store=place, people=source, into=seen.__setitem__)
    assert made.run(every="1h", max_steps=1) == 1
    assert seen == {1: Z({"ann": 1})}
    assert pauses == [1, 2, 4]
    assert source.opened == 4
    assert 'stepping_spark_retries_total{pipeline="names"} 3.0' in made.metrics()
    made.close()


def test_it_ends_when_too_many_attempts_in_a_row_have_failed(pauses: list[float]) -> None:
    """Finding 34."""
    source = Shaky(9, TimeoutError("late"))
    made = st.Pipeline(names, store="memory", people=source)
    with pytest.raises(SourceError, match="does not answer"):
        made.run(every="1h", retries=2)
    assert pauses == [1, 2]
    assert made.run(every="1h", retries=7, max_steps=1) == 1


class Away(Shaky):
    """A source whose table is away for some looks, once it was read."""

    def read(self, after: Any, portion: st.Portion) -> st.Batch | None:
        if after == 1 and not self.failures:
            return st.Batch(2, (Z({"bob": 1}),))
        return super().read(after, portion) if after else st.Batch(1, (Z({"ann": 1}),))


def test_a_table_that_was_there_and_is_away_may_come_back(pauses: list[float]) -> None:
    seen: dict[int, Any] = {}
    away = Away(2, FileNotFoundError("gone"))
    made = st.Pipeline(names, store="memory", people=away, into=seen.__setitem__)
    assert made.run(every="1h", max_steps=2) == 2
    assert (seen[2], pauses) == (Z({"bob": 1}), [1, 2])
    with pytest.raises(SourceError):  # it was never there
        st.Pipeline(names, store="memory", people=Shaky(1, away.error)).run(every="1h")
    assert len(pauses) == 2


def test_without_every_and_for_what_does_not_pass_the_first_error_is_the_end(
    pauses: list[float],
) -> None:
    with pytest.raises(SourceError):
        st.Pipeline(names, store="memory", people=Shaky(1, ConnectionError())).run()
    for lasting in (ValueError("bad"), FileNotFoundError("gone"), PermissionError("no")):
        with pytest.raises(SourceError):
            st.Pipeline(names, store="memory", people=Shaky(1, lasting)).run(every="1h")
    assert not pauses


def test_pauses_grow_up_to_a_minute() -> None:
    assert [pause_after(n) for n in (1, 2, 3, 6, 7, 20)] == [1, 2, 4, 32, 60, 60]


def test_errors_of_connections_are_known_at_any_depth() -> None:
    inner = StoreError("lost")
    inner.__cause__ = ConnectionAbortedError()
    outer = SinkError("cannot be written")
    outer.__cause__ = inner
    assert is_transient(outer)
    assert not is_transient(SinkError("wrong rows"))


@pytest.mark.parametrize(
    ("state", "passes"), [(None, True), ("57P01", True), ("54000", False), ("23505", False)]
)
def test_an_error_of_postgres_passes_if_it_is_one_of_the_server(
    state: str | None, passes: bool
) -> None:
    error = SinkError("cannot be written")
    error.__cause__ = (
        psycopg.OperationalError() if state is None else psycopg.errors.lookup(state)()
    )
    assert is_transient(error) is passes


@pytest.mark.parametrize("source", ["delta", "files", "seed", "items", "batches"])
@pytest.mark.parametrize("numbers", [1, 2, 3, 4, 5])
def test_a_position_of_another_kind_of_source_is_refused(
    tmp_path: Path, source: str, numbers: int
) -> None:
    """Sources that have as many numbers know others by these."""
    table = pa.table({"_value_": ["ann"]})
    deltalake.write_deltalake(
        tmp_path / "t", table, configuration={"delta.enableChangeDataFeed": "true"}
    )
    (tmp_path / "f").mkdir()
    pq.write_table(table, tmp_path / "f" / "a.parquet")
    (tmp_path / "s.csv").write_text("_value_\nann\n")
    given: Any = {
        "delta": st.DeltaTable(tmp_path / "t"),
        "files": st.Files(tmp_path / "f"),
        "seed": Seed(tmp_path / "s.csv", tmp_path, {}, ","),
        "items": [(1, Z({"ann": 1}))],
        "batches": MicroBatchSource(cast("Any", None), "", None),
    }[source]
    feed = Feed("people", st.compile(names).inputs[0].type, given, Limits())
    expected = {"delta": (2, 4), "files": (2, 4), "seed": (2,), "items": (1,), "batches": (2,)}
    if numbers not in expected[source]:
        with pytest.raises(SourceError, match="position of another kind of source"):
            feed.open(tuple(range(1, numbers + 1)))


def test_another_kind_of_source_under_the_same_name_is_refused(tmp_path: Path) -> None:
    given: list[Any] = [[(1, Z({"ann": 1}))], st.Files(tmp_path / "f")]
    (tmp_path / "f").mkdir()
    pq.write_table(pa.table({"_value_": ["bob"]}), tmp_path / "f" / "a.parquet")
    for first, second in (given, given[::-1]):
        store = f"parquet:{tmp_path / first.__class__.__name__}"
        st.Pipeline(names, store=store, people=first).run()
        with pytest.raises(SourceError, match=r"another kind of source.* start with a new store"):
            st.Pipeline(names, store=store, people=second).run()


TABLES: dict[Any, dict[str, Any]] = {
    st.DeltaTable: {"path": "orders"},
    st.Files: {"path": "orders"},
    st.IcebergTable: {"name": "shop.orders"},
    st.Postgres: {"url": "postgresql://localhost/shop", "table": "orders"},
    st.CatalogTable: {"name": "shop.orders"},
    st.Items: {"items": []},
    st.Pipeline: {"query": names, "store": "memory", "people": []},
}


@pytest.mark.parametrize("value", [5, 2.5, "text", b"bytes", ["x", 1], {"x": 1}, object()])
@pytest.mark.parametrize(
    ("table", "argument"),
    [
        (table, argument)
        for table in TABLES
        for argument, p in inspect.signature(table).parameters.items()
        if p.kind != p.VAR_KEYWORD
    ],
)
def test_an_argument_of_a_wrong_type_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Any, argument: str, value: object
) -> None:
    """It may also be right: a name is a text."""
    monkeypatch.chdir(tmp_path)
    given = {**TABLES[table], argument: value}
    if argument in ("renamed", "copy_of", "refresh"):
        given["evolve"] = True
    with suppress(st.SteppingError):
        made = table(**given)
        if table is st.Pipeline:
            made.run()
        else:
            st.Pipeline(names, store="memory", people=made)
