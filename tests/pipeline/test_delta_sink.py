"""Delta tables as sinks: every type, every name, and what is refused before a step is committed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.table import TableOptimizer

import stepping_spark as st
from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.changes import ByKey, TableForm
from stepping_spark.pipeline.delta import sink as delta_sink
from stepping_spark.rows.names import arrow_schema
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from tests.cases import Z
from tests.pipeline.delta_writers import commit, metadata, protocol
from tests.pipeline.field_types import FIELDS, NAMES, Odd, nested, odd
from tests.pipeline.shop import Note, View, as_it_is, pipeline, read
from tests.pipeline.test_delta import rows_of


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_each_type_goes_into_a_table_and_out_of_it_two_deep(
    tmp_path: Path, name: str
) -> None:
    # finding 15
    made, rows = nested(name)
    table = st.DeltaTable(tmp_path / "table", key="id")
    if name == "timedelta":
        for look in (st.Pipeline.dry_run, st.Pipeline.run):
            with pytest.raises(SinkError, match="column plain: Delta has no durations"):
                look(pipeline(made, [], table))
        return
    first, rest = rows[0], rows[1:]
    items = [(1, Z(dict.fromkeys(rows, 1))), (2, Z({first: -1})), (3, Z({first: 1}))]
    pipeline(made, [*items, (4, Z(dict.fromkeys(rest, -1)))], table).run()
    if name == "zset":  # such a column is written, and not read as a row
        assert len(rows_of(tmp_path / "table")) == 1
    else:
        assert read(table, made) == Z({first: 1})
    feed = st.DeltaTable(tmp_path / "feed", key="id", changes=True)
    pipeline(made, items, feed).run()
    assert len(rows_of(tmp_path / "feed")) == len(rows) + 2


@pytest.mark.parametrize(
    ("t", "said"),
    [
        (list[dt.timedelta], r"column x\[\]: Delta has no durations"),
        (st.Pair[int, list[dt.timedelta]], r"column x\.right\[\]: Delta has no durations"),
    ],
)
def test_a_type_that_delta_does_not_have_is_refused_in_any_depth(
    tmp_path: Path, t: Any, said: str
) -> None:
    # findings 15 and 16
    made: Any = type("Row", (st.Data,), {"__annotations__": {"id": int, "x": t}})
    table = st.DeltaTable(tmp_path / "table", key="id")
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with pytest.raises(SinkError, match=said):
            look(pipeline(made, [], table))
    assert not (tmp_path / "table").exists()


# -- names


@pytest.mark.parametrize("diff", ["feed", "snapshot"])
def test_columns_may_have_any_name_at_any_depth(tmp_path: Path, diff: str) -> None:
    # finding 25
    path = tmp_path / "table"
    table = st.DeltaTable(path, key=("number", "kind"), diff=diff)
    items = [
        (1, Z({odd(1, "a"): 1, odd(2, None): 1, odd(3, "c"): 1})),
        (2, Z({odd(2, None): -1, odd(4, None): 1})),
        (3, Z({odd(1, "a"): -1})),
    ]
    view = View()
    state = f"parquet:{tmp_path / 'state'}"
    for n in range(1, 4):
        pipeline(Odd, items[:n], table, store=state).run()
        with st.Pipeline(
            as_it_is(Odd), store=f"parquet:{tmp_path / 'other'}", rows=table, into={"view": view}
        ) as second:
            second.run()
    assert view.rows == Z({odd(3, "c"): 1, odd(4, None): 1})
    found = DeltaTable(str(path)).schema()
    assert [field.name for field in found.fields] == NAMES
    assert '"an x, in side"' in found.to_json()
    counted = st.DeltaTable(tmp_path / "counted", columns={"id": "the id, counted", "text": "Text"})
    pipeline(Note, [(1, Z({Note(id=1, text=None): 2}))], counted).run()
    assert rows_of(tmp_path / "counted") == [{"the id, counted": 1, "Text": None, "_count_": 2}]


# -- what is refused before a step is committed


@pytest.mark.parametrize("key", ["id", ()])
def test_a_table_that_was_made_append_only_says_so_before_the_commit(
    tmp_path: Path, key: Any
) -> None:
    # finding 21
    a, b = Note(id=1, text="a"), Note(id=2, text="b")
    path, state = tmp_path / "table", f"parquet:{tmp_path / 'state'}"
    table = st.DeltaTable(path, key=key)
    with pipeline(Note, [(1, Z({a: 1}))], table, store=state) as running:
        running.run()
    DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "true"})
    with pipeline(Note, [(1, None), (2, Z({b: 1}))], table, store=state) as running:
        running.run()
    items = [(1, None), (2, None), (3, Z({a: -1}))]
    with pipeline(Note, items, table, store=state) as running:
        with pytest.raises(SinkError, match=r"append-only \(delta\.appendOnly\)"):
            running.run()
        assert running.stepper.store.last_step() == 2
    DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "false"})
    with pipeline(Note, items, table, store=state) as running:
        running.run()
    assert len(rows_of(path)) == 1


def test_a_count_more_in_an_append_only_table_says_what_it_is(tmp_path: Path) -> None:
    # finding 21
    a, path = Note(id=1, text="a"), tmp_path / "table"
    table = st.DeltaTable(path)
    with pipeline(Note, [(1, Z({a: 1})), (2, Z({a: 1}))], table) as running:
        running.run(max_steps=1)
        DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "true"})
        with pytest.raises(SinkError, match=r"append-only \(delta\.appendOnly\)"):
            running.run()


class At(st.Data):
    id: int
    days: list[dt.date]
    at: dt.datetime


@pytest.mark.parametrize(
    ("days", "at", "said"),
    [
        ([2**30], 0, r"column days has date32\[day\] 1073741824 since 1970"),
        ([0], 2**60, r"column at has timestamp\[us, tz=UTC\] 1152921504606846976 since 1970"),
    ],
)
def test_years_that_tables_do_not_have_are_refused_before_the_commit(
    tmp_path: Path, days: list[int], at: int, said: str
) -> None:
    # finding 14
    t = ZSetType(row_type(At))
    sink = st.DeltaTable(tmp_path / "table", key="id").sink()
    sink.open(arrow_schema(t.schema.columns), "me")
    beyond = pa.table(
        [
            pa.array([1]),
            pa.array([days], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
            pa.array([at]).cast(pa.timestamp("us", "UTC")),
            pa.array([1]),
        ],
        names=["id", "days", "at", "_count_"],
    )

    class Change(st.ZSetSpark[Any]):
        def __init__(self) -> None:
            pass

        def in_spark_if_many(self, most: int) -> None:
            return None

        def to_arrow(self) -> pa.Table:
            return beyond

    for write in (sink.prepare, sink.write):
        with pytest.raises(SinkError, match=said):
            write(1, Change())


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"id": pa.array([], pa.int32()), "text": pa.array([], pa.string())}, "id is int32 in the"),
        ({"id": pa.array([], pa.int64()), "text": pa.array([], pa.binary())}, "text is binary in"),
    ],
)
def test_a_table_that_is_there_with_other_types_is_refused(
    tmp_path: Path, there: dict[str, Any], said: str
) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table(there))
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with pytest.raises(SinkError, match=said):
            look(pipeline(Note, [], st.DeltaTable(tmp_path / "table", key="id")))


def test_a_step_is_computed_once_for_its_check_and_for_its_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[pa.Table] = []
    split = TableForm.split

    def counted(form: TableForm, change: pa.Table) -> ByKey:
        times.append(change)
        return split(form, change)

    monkeypatch.setattr(TableForm, "split", counted)
    table = st.DeltaTable(tmp_path / "table", key="id")
    pipeline(Note, [(1, Z({Note(id=1, text="a"): 1}))], table).run()
    assert len(times) == 1


KEYS: dict[str, Any] = {
    "int": (int, lambda i: i),
    "text": (str, lambda i: f"it's é \\ {i:05d}"),
    "date": (dt.date, lambda i: dt.date(1, 1, 1) + dt.timedelta(i)),
    "time": (
        dt.datetime,
        lambda i: dt.datetime(1, 1, 1, 0, 0, 0, 1, dt.UTC) + dt.timedelta(i),
    ),
    "local": (st.LocalDateTime, lambda i: dt.datetime(9999, 1, 1) - dt.timedelta(i)),
}


@pytest.mark.parametrize("name", KEYS)
def test_new_keys_are_looked_up_in_the_files_that_may_hold_them(tmp_path: Path, name: str) -> None:
    t, value = KEYS[name]
    made: Any = type("Row", (st.Data,), {"__annotations__": {"k": t | None, "n": int}})
    path = tmp_path / "table"
    steps = [(n, Z({made(k=value(100 * n + i), n=i): 1 for i in range(100)})) for n in range(1, 6)]
    first, last = made(k=value(1_000), n=0), made(k=value(105), n=0)
    table = st.DeltaTable(path, key="k")
    items = [*steps, (6, Z({first: 1})), (7, Z({made(k=None, n=1): 1}))]
    with pipeline(made, [*items, (8, Z({last: 1}))], table) as running:
        running.run(max_steps=5)
        hidden = {file: file.read_bytes() for file in path.glob("*.parquet")}
        for file in hidden:
            file.unlink()
        assert running.run(max_steps=1) == 1  # no file may hold the key
        for file, data in hidden.items():
            file.write_bytes(data)
        assert running.run(max_steps=1) == 1
        with pytest.raises(SinkError, match="several rows with the key k"):
            running.run()


@pytest.mark.parametrize("features", ["deletionVectors", "columnMapping"])
def test_a_table_that_others_made_with_newer_features_is_written(
    tmp_path: Path, features: str
) -> None:
    path = tmp_path / "table"
    mapped = {"id": "c1", "text": "c2"} if features == "columnMapping" else None
    properties = {} if mapped else {"delta.enableDeletionVectors": "true"}
    fields = metadata({"id": "long", "text": "string"}, properties=properties, physical=mapped)
    commit(path, protocol([features], ["changeDataFeed"]), fields)
    a, b, c = (Note(id=i, text=x) for i, x in enumerate("abc"))
    items = [(1, Z({a: 1})), (2, Z({b: 1})), (3, Z({a: -1, c: 1}))]
    table = st.DeltaTable(path, key="id")
    pipeline(Note, items, table).run()
    assert read(table, Note) == Z({b: 1, c: 1})


# -- old files


@pytest.mark.parametrize("vacuum", [False, True])
def test_small_files_are_merged_and_old_ones_removed_whichever_process_writes(
    tmp_path: Path, vacuum: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_sink, "MERGED_EVERY", 4)
    path, state = tmp_path / "table", f"parquet:{tmp_path / 'state'}"
    items = [(i, Z({Note(id=i, text="a"): 1})) for i in range(1, 10)]
    most = 0
    for n in range(1, 10):  # each step is one of a pipeline of its own, as cron starts them
        table = st.DeltaTable(path, key="id", vacuum=vacuum)
        pipeline(Note, items[:n], table, store=state).run()
        if n == 1:
            none = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
            DeltaTable(str(path)).alter.set_table_properties(none)
        most = max(most, len(DeltaTable(str(path)).file_uris()))
    assert most == 4
    assert len(DeltaTable(str(path)).file_uris()) == 2
    assert len([*path.glob("*.parquet")]) == (2 if vacuum else 11)
    assert read(st.DeltaTable(path), Note) == Z({Note(id=i, text="a"): 1 for i in range(1, 10)})


@pytest.mark.parametrize(
    ("error", "warns"),
    [(OSError("Permission denied"), True), (CommitFailedError("a concurrent transaction"), False)],
)
def test_a_table_that_cannot_be_tidied_is_written_and_a_warning_says_so(
    tmp_path: Path,
    error: Exception,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(delta_sink, "MERGED_EVERY", 4)
    monkeypatch.setattr(TableOptimizer, "compact", refuse)
    path = tmp_path / "table"
    items = [(i, Z({Note(id=i, text="a"): 1})) for i in range(1, 10)]
    pipeline(Note, items, st.DeltaTable(path, key="id")).run()
    assert read(st.DeltaTable(path), Note) == Z({Note(id=i, text="a"): 1 for i in range(1, 10)})
    warnings = [r.getMessage() for r in caplog.records if "could not be tidied" in r.getMessage()]
    assert bool(warnings) == warns
    assert all(str(path) in text and "Permission denied" in text for text in warnings)


def test_a_folder_that_cannot_be_made_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise TableNotFoundError(f"Could not create local directory: {tmp_path}\nError: Os {{ … }}")

    monkeypatch.setattr(DeltaTable, "create", refuse)
    asked = r"it could not be made: Could not create .*; let this user write there, or give anoth"
    with pytest.raises(st.SinkError, match=asked):
        pipeline(Note, [], st.DeltaTable(tmp_path / "table", key="id")).run()


def test_a_checkpoint_that_cannot_be_written_is_a_warning_and_no_step_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: DeltaTable) -> NoReturn:
        raise OSError("Permission denied")

    path = tmp_path / "table"
    items = [(i, Z({Note(id=i, text="a"): 1})) for i in range(1, 8)]
    table = st.DeltaTable(path, key="id", deletion_vectors=True)
    state = f"parquet:{tmp_path / 'state'}"
    with pipeline(Note, items[:1], table, store=state) as first:
        first.run()
    DeltaTable(str(path)).alter.set_table_properties({"delta.checkpointInterval": "2"})
    monkeypatch.setattr(DeltaTable, "create_checkpoint", refuse)
    with pipeline(Note, items, table, store=state) as following:
        following.run()
    assert read(st.DeltaTable(path), Note) == Z({Note(id=i, text="a"): 1 for i in range(1, 8)})
    warnings = [r.getMessage() for r in caplog.records if "no checkpoint" in r.getMessage()]
    assert warnings
    assert all(str(path) in text and "Permission denied" in text for text in warnings)
