"""A table of a view that is made anew, renamed, or beside the old one: for each kind of sink."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import QueryBuilder
from pyiceberg.catalog import load_catalog

import stepping_spark as st
from stepping_spark.cli import main
from stores.location import place_of
from stores.parquet.manifest import Log
from stores.postgres.catalog import Catalog

ALL = "SELECT * FROM t"

Rows = list[tuple[str, int]]


class Order(st.Data):
    country: str
    cents: int


@dataclass(frozen=True)
class Kind:
    """A kind of tables: the sink of a name, its rows, and what somebody else does to it."""

    sink: Callable[[str], Any]
    rows: Callable[[str], Rows]
    remove: Callable[[str], None]
    rename: Callable[[str, str], Any]
    damage: Callable[[str], Any]


def sorted_rows(table: pa.Table) -> Rows:
    return sorted((row["country"], row["cents"]) for row in table.to_pylist())


def in_delta(place: Path) -> Kind:
    return Kind(
        lambda name: st.DeltaTable(str(place / name), key="country"),
        lambda name: sorted_rows(deltalake.DeltaTable(str(place / name)).to_pyarrow_table()),
        lambda name: shutil.rmtree(place / name),
        lambda name, new: (place / name).rename(place / new),
        lambda name: deltalake.DeltaTable(str(place / name)).delete("country = 'de'"),
    )


def in_marked(place: Path) -> Kind:
    def sink(name: str) -> Any:
        return st.DeltaTable(str(place / name), key="country", deletion_vectors=True)

    def rows(name: str) -> Rows:
        return sorted_rows(pa.table(QueryBuilder().register("t", table(name)).execute(ALL)))

    def table(name: str) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(place / name))

    return replace(in_delta(place), sink=sink, rows=rows)


def in_iceberg(place: Path) -> Kind:
    lake = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{place}/lake.db", warehouse=f"file://{place}/lake"
    )
    return Kind(
        lambda name: st.IcebergTable(f"shop.{name}", catalog=lake, key="country"),
        lambda name: sorted_rows(lake.load_table(f"shop.{name}").scan().to_arrow()),
        lambda name: lake.drop_table(f"shop.{name}"),
        lambda name, new: lake.rename_table(f"shop.{name}", f"shop.{new}"),
        lambda name: lake.load_table(f"shop.{name}").delete("country = 'de'"),
    )


def in_files(place: Path) -> Kind:
    return Kind(
        lambda name: st.Files(str(place / name)),
        lambda name: sorted_rows(pq.read_table(max((place / name).glob("*.parquet")))),
        lambda name: shutil.rmtree(place / name),
        lambda name, new: (place / name).rename(place / new),
        lambda name: [path.write_bytes(b"") for path in (place / name).glob("*.parquet")],
    )


def in_postgres(url: str) -> Kind:
    schema = f"s{uuid4().hex}"

    def asked(text: str) -> Any:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(text)

    asked(f"CREATE SCHEMA {schema}")
    return Kind(
        lambda name: st.Postgres(url, schema=schema, table=name, key="country"),
        lambda name: sorted(asked(f"SELECT country, cents FROM {schema}.{name}").fetchall()),
        lambda name: asked(f"DROP TABLE {schema}.{name}"),
        lambda name, new: asked(f"ALTER TABLE {schema}.{name} RENAME TO {new}"),
        lambda name: asked(f"DELETE FROM {schema}.{name} WHERE country = 'de'"),
    )


IN_FILES = {"delta": in_delta, "marked": in_marked, "iceberg": in_iceberg, "files": in_files}


@pytest.fixture(params=[*IN_FILES, "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "postgres":
        return in_postgres(request.getfixturevalue("postgres").url)
    return IN_FILES[request.param](tmp_path)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    rows = pa.table({"country": ["de", "de", "fr"], "cents": [5, 10, 7]})
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(str(tmp_path / "orders"), rows, configuration=feed)
    return tmp_path / "orders"


OLD, NEW = [("de", 15), ("fr", 7)], [("de", 10), ("fr", 7)]
LATER = [("de", 10), ("fr", 7), ("it", 9)]


def pipeline(
    orders: Path, sink: Any, *, more: int = 0, state: str = "state", query: Any = None, **given: Any
) -> st.Pipeline:
    text = f"SELECT country, sum(cents) AS cents FROM orders WHERE cents > {more} GROUP BY 1"
    return st.Pipeline(
        {"sums": query or st.sql(text, orders=Order)},
        store=f"parquet:{orders.parent / state}",
        orders=st.DeltaTable(str(orders)),
        into={"sums": sink},
        **{"evolve": True, **given},
    )


def run(orders: Path, sink: Any, *, more: int = 0, state: str = "state") -> None:
    with pipeline(orders, sink, more=more, state=state) as running:
        running.run()


def test_a_table_that_is_removed_gets_all_rows_of_its_view(orders: Path, kind: Kind) -> None:
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == OLD
    kind.remove("sums")
    pipeline(orders, kind.sink("sums")).dry_run()
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == OLD
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    run(orders, kind.sink("sums"))
    kind.remove("sums")
    run(orders, kind.sink("sums"), more=6)
    assert kind.rows("sums") == LATER
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == [("de", 15), ("fr", 7), ("it", 9)]


@pytest.mark.parametrize("more", [0, 6], ids=["the same query", "another query"])
def test_a_table_that_is_removed_while_its_view_is_empty_is_there_again(
    orders: Path, kind: Kind, more: int
) -> None:
    run(orders, kind.sink("sums"))
    deltalake.DeltaTable(str(orders)).delete()
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == []
    kind.remove("sums")
    run(orders, kind.sink("sums"), more=more)
    with pipeline(orders, kind.sink("sums"), more=more, evolve=False) as running:
        assert running.run() == 0
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    with pipeline(orders, kind.sink("sums"), more=more, evolve=False) as running:
        assert running.run() == 1
    assert kind.rows("sums") == [("it", 9)]


def test_a_table_that_is_removed_may_have_other_columns(orders: Path, kind: Kind) -> None:
    def other() -> st.Pipeline:
        text = "SELECT country, cents * 1.5D AS cents FROM orders WHERE cents > 6"
        return pipeline(orders, kind.sink("sums"), query=st.sql(text, orders=Order))

    run(orders, kind.sink("sums"))
    with other() as running, pytest.raises(st.SteppingError, match="cents") as refused:
        running.run()
    assert re.search("remove .*fills it", str(refused.value))
    kind.remove("sums")
    with other() as running:
        running.run()
    assert kind.rows("sums") == [("de", 15.0), ("fr", 10.5)]


class Priced(st.Data):
    country: str
    cents: int
    factor: int | None


def few(orders: st.ZSet[Order]) -> st.ZSet[Order]:
    return st.filter(orders, lambda o: o.cents > 6)


def few_priced(orders: st.ZSet[Priced]) -> st.ZSet[Priced]:
    return st.filter(orders, lambda o: o.cents > 6)


def test_a_table_that_is_removed_may_have_a_column_more_of_the_same_query(
    orders: Path, kind: Kind
) -> None:
    with pipeline(orders, kind.sink("sums"), query=few) as running:
        running.run()
    rows = pa.table({"country": ["it"], "cents": [5], "factor": [2]})
    deltalake.write_deltalake(str(orders), rows, mode="append", schema_mode="merge")
    kind.remove("sums")
    with pipeline(orders, kind.sink("sums"), query=few_priced) as running:
        running.run()
    assert kind.rows("sums") == [("de", 10), ("fr", 7)]


def test_a_table_with_another_name_gets_all_rows_and_the_old_one_stays(
    orders: Path, kind: Kind
) -> None:
    run(orders, kind.sink("sums"))
    run(orders, kind.sink("totals"), more=6)
    assert (kind.rows("sums"), kind.rows("totals")) == (OLD, NEW)
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    run(orders, kind.sink("totals"), more=6)
    assert (kind.rows("sums"), kind.rows("totals")) == (OLD, LATER)


def test_a_table_that_was_renamed_goes_on_under_its_new_name(orders: Path, kind: Kind) -> None:
    run(orders, kind.sink("sums"))
    kind.rename("sums", "totals")
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    for evolve in (True, False):
        looked = pipeline(orders, kind.sink("totals"), evolve=evolve).dry_run()
        assert not list(looked.filled)
    with pipeline(orders, kind.sink("totals"), evolve=False) as running:
        assert running.run() == 1  # and no step of its own
    assert kind.rows("totals") == [("de", 15), ("fr", 7), ("it", 9)]
    with pipeline(orders, kind.sink("totals"), evolve=False) as running:
        assert running.run() == 0


def test_a_table_is_refreshed(orders: Path, kind: Kind) -> None:
    def refreshed(**more: Any) -> st.Pipeline:
        return pipeline(orders, kind.sink("sums"), refresh=["sums"], **more)

    with refreshed() as running:
        running.run()  # there is nothing yet, and it is loaded
    run(orders, kind.sink("sums"))
    kind.damage("sums")
    assert [view for view, _ in refreshed().dry_run().filled] == ["sums"]
    with refreshed() as running:
        running.run()
        assert kind.rows("sums") == OLD
        assert running.run() == 0  # once
        assert running.stepper.store.last_step() == 2
    with refreshed(more=6) as running:
        running.run()  # the query changes, too
    assert kind.rows("sums") == NEW
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    run(orders, kind.sink("sums"), more=6)
    assert kind.rows("sums") == LATER
    with refreshed(more=1_000) as running:
        running.run()
    assert kind.rows("sums") == []


def as_changes(kind: Kind, name: str) -> Any:
    """The sink of a name, which gets the changes of the view."""
    sink = kind.sink(name)
    sink.key, sink.changes = (), True
    return sink


def test_a_table_of_changes_that_somebody_else_has_changed_is_made_anew(
    orders: Path, kind: Kind
) -> None:
    """As the error says: the table is removed, and an evolution fills it."""
    sink = as_changes(kind, "sums")
    if isinstance(sink, st.Files | st.Postgres):
        pytest.skip("rows of changes may be removed by those who have read them")
    run(orders, sink)
    if isinstance(sink, st.DeltaTable):  # deltalake deletes no row of a table of changes
        rows = QueryBuilder().register("t", deltalake.DeltaTable(sink.path)).execute(ALL)
        deltalake.write_deltalake(sink.path, rows, mode="append")
    else:
        kind.damage("sums")
    with pytest.raises(st.SteppingError, match="remove the table and run with --evolve"):
        run(orders, as_changes(kind, "sums"))
    kind.remove("sums")
    run(orders, as_changes(kind, "sums"))
    assert kind.rows("sums") == OLD


def test_rows_that_somebody_changes_after_a_refresh_are_noticed(orders: Path, kind: Kind) -> None:
    run(orders, kind.sink("sums"))
    with pipeline(orders, kind.sink("sums"), refresh=["sums"]) as running:
        running.run()
    kind.damage("sums")
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    for evolve in (False, True):
        changed = pipeline(orders, kind.sink("sums"), evolve=evolve)
        with pytest.raises(st.SinkError), changed as running:
            running.run()
    with pipeline(orders, kind.sink("sums"), refresh=["sums"]) as running:
        running.run()
    assert kind.rows("sums") == [("de", 15), ("fr", 7), ("it", 9)]


def test_a_refresh_that_was_cut_off_goes_on(
    orders: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(orders, kind.sink("sums"))
    kind.damage("sums")
    running = pipeline(orders, kind.sink("sums"), refresh=["sums"])
    sink = type(kind.sink("sums").sink())

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, running:
        patch.setattr(sink, "write", broken)
        with pytest.raises(KeyboardInterrupt):
            running.run()
    with pipeline(orders, kind.sink("sums"), evolve=False) as running:
        running.run()
        assert running.stepper.store.last_step() == 2
    assert kind.rows("sums") == OLD


def test_what_cannot_be_refreshed_is_refused(orders: Path, tmp_path: Path) -> None:
    kind, log = in_delta(tmp_path), st.DeltaTable(str(tmp_path / "log"), changes=True)
    for sink, name, message in (
        (kind.sink("sums"), "totals", "refresh= names 'totals'.* those that can are of 'sums'"),
        (log, "sums", "none can. A table with changes=True has the history"),
        (print, "sums", "none can"),
    ):
        with pytest.raises(st.InputError, match=message):
            pipeline(orders, sink, refresh=name)
    with pytest.raises(st.InputError, match="write evolve=True"):
        pipeline(orders, kind.sink("sums"), refresh="sums", evolve=False)


@pytest.fixture(params=["parquet", "postgres"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The place of a state, by its name: of each kind of store in turn."""
    if request.param == "parquet":
        return lambda name: f"parquet:{tmp_path / f'{name} state'}"
    url, number = request.getfixturevalue("postgres").url, uuid4().hex
    return lambda name: f"{url}?schema={name} {number}"


def beside(
    orders: Path, states: Callable[[str], str], sink: Any, name: str = "green", **more: Any
) -> st.Pipeline:
    """The old pipeline, blue, or the new one, whose state begins as a copy."""
    lowest = 0 if name == "blue" else 6
    text = f"SELECT country, sum(cents) AS cents FROM orders WHERE cents > {lowest} GROUP BY 1"
    copy = {} if name == "blue" else {"evolve": True, "copy_of": states("blue")}
    return st.Pipeline(
        {"sums": st.sql(text, orders=Order)},
        store=states(name),
        orders=st.DeltaTable(str(orders)),
        into={"sums": sink},
        **{**copy, **more},
    )


@pytest.mark.turn(2)
def test_old_and_new_tables_are_beside_each_other_until_the_old_pipeline_ends(
    orders: Path, kind: Kind, states: Callable[[str], str]
) -> None:
    with beside(orders, states, kind.sink("blue"), "blue") as blue:
        blue.run()
        green = beside(orders, states, kind.sink("green"))
        found = green.dry_run()
        assert f"a copy of {place_of(states('blue'))}" in str(found)
        assert [view for view, _ in found.filled] == ["sums"]
        with green:
            green.run()  # the old one is not closed: its writer may go on
        assert (kind.rows("blue"), kind.rows("green")) == (OLD, NEW)
        rows = pa.table({"country": ["it"], "cents": [9]})
        deltalake.write_deltalake(str(orders), rows, mode="append")
        blue.run()
    with beside(orders, states, kind.sink("green")) as green:
        green.run()  # with the same arguments, which a service has each time that it starts
    assert (kind.rows("blue"), kind.rows("green")) == ([("de", 15), ("fr", 7), ("it", 9)], LATER)
    assert place_of(states("green")).state().verify().problems == []


def test_a_copy_writes_into_no_table_of_the_old_pipeline(
    orders: Path, states: Callable[[str], str], tmp_path: Path
) -> None:
    kind = in_delta(tmp_path)
    with beside(orders, states, kind.sink("blue"), "blue") as blue:
        blue.run()
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with pytest.raises(st.SinkError), beside(orders, states, kind.sink("blue")) as green:
            look(green)
    assert kind.rows("blue") == OLD
    with beside(orders, states, kind.sink("blue"), "blue") as blue:
        assert blue.run() == 0


def test_a_copy_that_was_not_finished_is_made_again(
    orders: Path, states: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = in_delta(tmp_path)
    with beside(orders, states, kind.sink("blue"), "blue") as blue:
        blue.run()

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Log, "write", broken)
        patch.setattr(Catalog, "make", broken)
        with pytest.raises(KeyboardInterrupt):
            beside(orders, states, kind.sink("green")).run()
    with beside(orders, states, kind.sink("green")) as green:
        green.run()
    assert kind.rows("green") == NEW


def test_what_cannot_be_copied_is_refused(orders: Path, postgres: Any, tmp_path: Path) -> None:
    kind, files, url = in_delta(tmp_path), f"parquet:{tmp_path / 'state'}", postgres.url

    def of(copy: str, store: str = files, **more: Any) -> st.Pipeline:
        sink = kind.sink("green")
        return beside(orders, lambda _: store, sink, copy_of=copy, **more)

    for copy, store, message in (
        ("memory", files, "a state in memory cannot be copied"),
        (files, "memory", "which is in memory"),
        (files, files, "store= is that state itself"),
        ("nope:", files, "copy_of=: 'nope' is not a kind of store"),
    ):
        with pytest.raises(st.InputError, match=message):
            of(copy, store)
    with pytest.raises(st.InputError, match="write evolve=True"):
        of(f"{files} 2", evolve=False)
    for copy, store in ((f"{files} 2", files), (f"{url}?schema=no", f"{url}?schema=new")):
        with pytest.raises(st.StoreUnavailable, match="there is no state"):
            of(copy, store).run()
        with pytest.raises(st.StoreUnavailable, match="there is no"):
            of(copy, store).dry_run()
    assert not [path.name for path in tmp_path.iterdir() if path.name != "orders"]
    with beside(orders, lambda _: files, kind.sink("blue"), "blue") as blue:
        blue.run()
    with pytest.raises(st.StoreUnavailable, match="is neither"):
        of(files, f"{url}?schema=s{uuid4().hex}").run()


def test_the_command_begins_with_a_copy(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(orders.parent)
    for name, lowest in (("blue", 0), ("green", 6)):
        text = f"SELECT country, sum(cents) AS cents FROM orders WHERE cents > {lowest} GROUP BY 1"
        Path(f"{name}.py").write_text(
            "import stepping_spark as st\n"
            "class Order(st.Data):\n    country: str\n    cents: int\n"
            f"pipeline = st.Pipeline({{'sums': st.sql({text!r}, orders=Order)}}, "
            f"store='parquet:{name} state', orders=st.DeltaTable('orders'), "
            f"into={{'sums': st.DeltaTable({name!r}, key='country')}})\n"
        )

    def command(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["run", *arguments])

    assert command("blue.py").exit_code == 0
    copy = ["green.py", "--evolve", "--copy-of", "parquet:blue state"]
    shown = command(*copy, "--dry-run", "--count")
    assert "all rows of sums go into" in shown.output, shown.output
    assert "view sums: changes, 1 row leaves and 1 comes, from" in shown.output, shown.output
    assert not Path("green").exists()
    for arguments in (["green.py", "--copy-of", "parquet:blue state"], ["blue.py", "--count"]):
        refused = command(*arguments)
        assert (refused.exit_code, "is for --evolve" in refused.output) == (2, True)
    for _ in range(2):
        done = command(*copy)
        assert done.exit_code == 0, done.output
    kind = in_delta(orders.parent)
    assert (kind.rows("blue"), kind.rows("green")) == (OLD, NEW)
