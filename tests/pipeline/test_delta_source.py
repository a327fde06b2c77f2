"""Delta tables as sources: every type, every name, and what other writers do with a table."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import stepping_spark as st
from stepping_spark.base.errors import SourceError
from stepping_spark.pipeline import Portion, Position
from stepping_spark.rows.names import arrow_field
from stepping_spark.rows.types import row_type
from tests.cases import Z
from tests.pipeline.delta_writers import (
    actions_of,
    add,
    commit,
    metadata,
    protocol,
    remove,
    without,
)
from tests.pipeline.shop import View, names

FEED = {"delta.enableChangeDataFeed": "true"}
LONG_AND_TEXT = {"id": "long", "name": "string"}
BOTH = ["feed", "snapshot"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Where a table will be."""
    return tmp_path / "table"


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what the test has read with."""
    yield
    for reader in Reader.made:
        reader.source.close()
    Reader.made.clear()


class Reader:
    """Reads a table as a pipeline does, each time in a new process if it must be."""

    made: ClassVar[list[Reader]] = []

    def __init__(self, path: Path, columns: pa.Schema, *, diff: str, anew: bool = False) -> None:
        self._table, self._columns, self._anew = st.DeltaTable(path, diff=diff), columns, anew
        self.source = self._table.source()
        self.source.open(columns)
        self.made.append(self)
        self.position: Position | None = None
        self.rows: Counter[str] = Counter()

    def read(self, portion: Portion | None = None) -> int:
        """Read until there is nothing new; how often there was something."""
        times = 0
        while True:
            if self._anew:
                self.source.close()
                self.source = self._table.source()
                self.source.open(self._columns)
            batch = self.source.read(self.position, portion or Portion())
            if batch is None:
                return times
            times += 1
            for change in batch.changes:
                assert isinstance(change, pa.Table)
                assert change.schema.names == [*self._columns.names, "_count_"]
                kept = pa.schema([*self._columns, change.schema.field("_count_")])
                for row in change.cast(kept).to_pylist():
                    count = row.pop("_count_")
                    self.rows[repr(row)] += count
            self.rows = Counter({row: n for row, n in self.rows.items() if n})
            self.position = batch.position


def there(path: Path, columns: pa.Schema) -> Counter[str]:
    """What is in a table, as deltalake reads it."""
    rows = pa.table(DeltaTable(str(path)).scan(columns=columns.names).read_all())
    return Counter(map(repr, rows.cast(columns).to_pylist()))


def schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(types)


def rows(**columns: Any) -> pa.Table:
    return pa.table(columns)


IDS = schema(id=pa.int64())
USERS = schema(id=pa.int64(), name=pa.string())


# -- names of columns


@pytest.mark.parametrize("diff", BOTH)
def test_a_column_is_found_in_any_case_for_delta_has_no_two_that_differ_in_case(
    table: Path, diff: str
) -> None:
    # finding 10
    write_deltalake(str(table), rows(ID=[2], naMe=["a"]), configuration=FEED)
    reader = Reader(table, USERS, diff=diff)
    reader.read()
    write_deltalake(str(table), rows(ID=[4], naMe=["b"]), mode="append")
    reader.read()
    assert reader.rows == Counter({"{'id': 2, 'name': 'a'}": 1, "{'id': 4, 'name': 'b'}": 1})
    both: dict[str, object] = {"id": "long", "ID": "long"}
    other = table / "other"
    commit(other, protocol([], ["changeDataFeed"]), metadata(both), add(other, rows(id=[1])))
    with pytest.raises(SourceError, match="case-insensitive"):
        Reader(other, IDS, diff=diff).read()


# -- partitions

ODD = ["a b", "a:b", "é", "50%", "1+1", "a/b", "a=b", "it's", 'a"b', "a%20b", "#?", "\\", "\n"]


@pytest.mark.parametrize("diff", BOTH)
def test_partitions_may_have_any_text(table: Path, diff: str) -> None:
    # finding 20
    values: list[str | None] = [*ODD, "", None, "plain"]
    written = rows(id=list(range(len(values))), name=pa.array(values, pa.string()))
    write_deltalake(str(table), written, partition_by=["name"], configuration=FEED)
    readers = [Reader(table, USERS, diff=diff, anew=anew) for anew in (False, True)]
    portion = Portion(versions=3, rows=5)
    for reader in readers:
        reader.read(portion)
        assert reader.rows == there(table, USERS)
    for i, value in enumerate(values):
        more = rows(id=[100 + i], name=pa.array([value], pa.string()))
        write_deltalake(str(table), more, mode="append")
    DeltaTable(str(table)).delete("id IN (0, 2, 13, 14, 15, 103)")
    for reader in readers:
        reader.read(portion)
        assert reader.rows == there(table, USERS)


PARTITIONS: dict[str, pa.Array[Any]] = {
    "int": pa.array([-1, None, 2], pa.int32()),
    "bool": pa.array([True, None, False]),
    "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "time": pa.array(
        [dt.datetime(2024, 1, 1, 12, 30, 0, 5, dt.UTC), None], pa.timestamp("us", "UTC")
    ),
    "local": pa.array([dt.datetime(2024, 1, 1, 12, 30), None], pa.timestamp("us")),
    "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "float": pa.array([0.1, None, -1e10]),
}


@pytest.mark.parametrize("diff", BOTH)
@pytest.mark.parametrize("kind", PARTITIONS)
def test_partitions_may_be_of_any_type(table: Path, kind: str, diff: str) -> None:
    # finding 20
    keys = PARTITIONS[kind]
    columns = schema(id=pa.int64(), k=keys.type)

    def written(first: int) -> pa.Table:
        return rows(id=range(first, first + len(keys)), k=keys)

    write_deltalake(str(table), written(0), partition_by=["k"], configuration=FEED)
    reader = Reader(table, columns, diff=diff)
    reader.read()
    write_deltalake(str(table), written(10), mode="append")
    DeltaTable(str(table)).delete("id = 0")
    reader.read()
    assert reader.rows == there(table, columns)
    assert sum(reader.rows.values()) == 2 * len(keys) - 1


@pytest.mark.parametrize(("diff", "n"), [("feed", 1), ("snapshot", 501)])
def test_a_version_is_read_by_its_files_and_compared_in_the_partitions_that_changed(
    table: Path, diff: str, n: int
) -> None:
    written = rows(id=list(range(1_000)), name=[f"a {i % 4}" for i in range(1_000)])
    write_deltalake(str(table), written, partition_by=["name"], configuration=FEED)
    reader = Reader(table, USERS, diff=diff)
    reader.read()
    write_deltalake(str(table), rows(id=[5_000], name=["a 1"]), mode="append")
    batch = reader.source.read(reader.position, Portion())
    assert batch is not None
    (change,) = batch.changes
    assert isinstance(change, pa.Table)
    assert change.num_rows == n


def test_a_full_disk_for_pieces_is_said(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(str(table), rows(id=list(range(100))), configuration=FEED)
    reader = Reader(table, IDS, diff="feed")

    def full(path: str, mode: str) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa, "OSFile", full)
    with pytest.raises(SourceError, match=r"No space left on device.* TMPDIR, or raise max_bytes"):
        reader.read(Portion(rows=10))


# -- columns and types that change


WIDER: dict[str, tuple[pa.Array[Any], pa.Array[Any]]] = {
    "int": (pa.array([1, 2], pa.int32()), pa.array([2**40, 2], pa.int64())),
    "float": (pa.array([1.5, 2.0], pa.float32()), pa.array([0.1, 2.0], pa.float64())),
    "decimal": (
        pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
        pa.array([Decimal("1.25"), None], pa.decimal128(12, 3)),
    ),
    "null": (pa.array(["x", None], pa.string()), pa.array(["x", "y"], pa.string())),
    "struct": (
        pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
        pa.array([{"b": "x", "a": 1}, None], pa.struct([("b", pa.string()), ("a", pa.int64())])),
    ),
    "list": (
        pa.array([[{"a": 1}], []], pa.list_(pa.struct([("a", pa.int32())]))),
        pa.array(
            [[{"a": 2**40, "b": "x"}], []],
            pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ),
    ),
}


@pytest.mark.parametrize("diff", BOTH)
@pytest.mark.parametrize("kind", WIDER)
def test_a_column_whose_type_becomes_wider_is_followed(table: Path, kind: str, diff: str) -> None:
    # finding 16
    narrow, wide = WIDER[kind]
    part = pa.struct([("a", pa.int64())])
    wanted = {"struct": part, "list": pa.list_(part)}.get(kind, wide.type)
    columns = schema(id=pa.int64(), x=wanted)
    write_deltalake(str(table), rows(id=[1, 2], x=narrow), configuration=FEED)
    readers = [
        (Reader(table, columns, diff=diff), Portion()),
        (Reader(table, columns, diff=diff, anew=True), Portion(versions=1)),
        (Reader(table, columns, diff=diff, anew=True), Portion(versions=1, rows=1)),
    ]
    for reader, portion in readers:
        reader.read(portion)
    write_deltalake(str(table), rows(id=[3, 4], x=narrow), mode="append")
    write_deltalake(str(table), rows(id=[1, 2], x=wide), mode="overwrite", schema_mode="overwrite")
    write_deltalake(str(table), rows(id=[5, 6], x=wide), mode="append")
    for reader, portion in readers:
        reader.read(portion)
        assert sum(reader.rows.values()) == 4
        assert reader.rows == there(table, columns)


@pytest.mark.parametrize("diff", BOTH)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.array([1]), pa.array(["x"])),
        (pa.array(["x"]), pa.array([b"x"])),
        (pa.array([dt.date(2024, 1, 1)]), pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))),
        (pa.array([[1]]), pa.array([1])),
        (pa.array([2**60]), pa.array([0.5])),
    ],
    ids=["text", "bytes", "time", "list", "float"],
)
def test_a_column_whose_type_becomes_another_is_an_error_that_names_it(
    table: Path, old: pa.Array[Any], new: pa.Array[Any], diff: str
) -> None:
    # finding 16
    write_deltalake(str(table), rows(id=[1], x=old), configuration=FEED)
    reader = Reader(table, schema(id=pa.int64(), x=old.type), diff=diff)
    reader.read()
    write_deltalake(str(table), rows(id=[1], x=new), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match=r"version.*start with a new store"):
        reader.read()


@pytest.mark.parametrize("diff", BOTH)
def test_columns_may_be_added_dropped_and_reordered(table: Path, diff: str) -> None:
    write_deltalake(str(table), rows(id=[1], name=["a"], more=[1]), configuration=FEED)
    reader = Reader(table, USERS, diff=diff)
    reader.read()
    write_deltalake(str(table), rows(id=[2], name=["b"], more=[2]), mode="append")
    for columns in (
        rows(name=["c"], extra=pa.array([None], pa.int32()), id=[3]),
        rows(id=[4], name=["d"]),
        rows(name=["e"], id=[5], more=["text"]),
    ):
        write_deltalake(str(table), columns, mode="overwrite", schema_mode="overwrite")
        write_deltalake(str(table), columns, mode="append")
    reader.read()
    assert reader.rows == there(table, USERS)
    write_deltalake(str(table), rows(id=[6]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match="there is no column name; the columns are id"):
        reader.read()


def with_null(*ids: int) -> Counter[str]:
    return Counter(repr({"id": i, "name": None}) for i in ids)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("diff", BOTH)
def test_a_field_is_null_in_rows_from_before_its_column_was_added(
    table: Path, diff: str, together: bool
) -> None:
    write_deltalake(str(table), rows(id=[1, 2]), configuration=FEED)
    before = Reader(table, IDS, diff=diff)
    before.read()
    write_deltalake(str(table), rows(id=[3]), mode="append")
    more = rows(id=[4], name=["d"])
    write_deltalake(str(table), more, mode="append", schema_mode="merge")
    DeltaTable(str(table)).delete("id = 1")
    later = Reader(table, USERS, diff=diff)
    later.position, later.rows = before.position, with_null(1, 2)
    later.read(None if together else Portion(versions=1))
    assert later.rows == there(table, USERS)
    assert later.rows > with_null(2, 3)


@pytest.mark.parametrize("diff", BOTH)
def test_a_field_is_null_before_its_column_was_added_to_a_mapping(table: Path, diff: str) -> None:
    physical = {"id": "c1", "name": "c2"}
    first = add(table, rows(c1=[1, 2]))
    made = metadata({"id": "long"}, physical=physical)
    commit(table, protocol(["columnMapping"], ["changeDataFeed"]), made, first)
    before = Reader(table, IDS, diff=diff)
    before.read()
    with_name = metadata({"id": "long", "name": "string"}, physical=physical)
    commit(table, with_name, add(table, rows(c1=[3], c2=["c"])))
    later = Reader(table, USERS, diff=diff)
    later.position, later.rows = before.position, with_null(1, 2)
    later.read()
    assert later.rows == there(table, USERS)


@pytest.mark.parametrize("diff", BOTH)
def test_all_fields_may_be_null_in_rows_from_before(table: Path, diff: str) -> None:
    write_deltalake(str(table), rows(id=[1, 2]), configuration=FEED)
    before = Reader(table, IDS, diff=diff)
    before.read()
    more = rows(id=[4], name=["d"])
    write_deltalake(str(table), more, mode="append", schema_mode="merge")
    DeltaTable(str(table)).delete("id = 1")
    names = schema(name=pa.string())
    later = Reader(table, names, diff=diff)
    later.position, later.rows = before.position, Counter({repr({"name": None}): 2})
    later.read()
    assert later.rows == there(table, names)


def test_a_field_that_the_newest_version_lacks_is_no_null(table: Path) -> None:
    write_deltalake(str(table), rows(id=[1]), configuration=FEED)
    before = Reader(table, IDS, diff="feed")
    before.read()
    write_deltalake(str(table), rows(id=[2]), mode="append")
    later = Reader(table, USERS, diff="feed")
    later.position = before.position
    with pytest.raises(SourceError, match="there is no column name; the columns are id"):
        later.read()


def test_a_view_goes_on_when_a_column_that_it_does_not_read_is_added(
    table: Path, tmp_path: Path
) -> None:
    def run() -> Any:
        view = st.sql("SELECT name, sum(id) AS n FROM users GROUP BY name")
        into = st.DeltaTable(tmp_path / "view", key="name")
        state = f"parquet:{tmp_path / 'state'}"
        with st.Pipeline(view, store=state, users=st.DeltaTable(table), into=into) as pipeline:
            pipeline.run()
        view_rows = DeltaTable(str(tmp_path / "view")).to_pyarrow_table().to_pylist()
        return {row["name"]: row["n"] for row in view_rows}

    write_deltalake(str(table), rows(id=[1, 2], name=["a", "b"]), configuration=FEED)
    assert run() == {"a": 1, "b": 2}
    more = rows(id=[3], name=["a"], more=[1])
    write_deltalake(str(table), more, mode="append", schema_mode="merge")
    assert run() == {"a": 4, "b": 2}
    write_deltalake(str(table), more, mode="append")
    assert run() == {"a": 7, "b": 2}


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SELECT count(*) AS n FROM t", [{"n": 0}], [{"n": 2}]),
        ("SELECT 1 AS n WHERE NOT EXISTS (SELECT id FROM t)", [{"n": 1}], []),
        ("SELECT k, count(id) AS n FROM VALUES (1), (3) AS v(k) LEFT JOIN t ON id = k GROUP BY k",
         [{"k": 1, "n": 0}, {"k": 3, "n": 0}], [{"k": 1, "n": 1}, {"k": 3, "n": 0}]),
        ("SELECT id FROM t", [], [{"id": 1}, {"id": 2}]),
    ],
)  # fmt: skip
def test_a_view_of_an_empty_table_has_the_rows_that_sql_gives_it(
    table: Path, tmp_path: Path, text: str, before: list[Any], after: list[Any]
) -> None:
    def run() -> tuple[int, list[Any]]:
        state, source = f"parquet:{tmp_path / 'state'}", st.DeltaTable(table)
        view = st.DeltaTable(tmp_path / "view")
        with st.Pipeline(st.sql(text), store=state, t=source, into=view) as pipeline:
            steps = pipeline.run()
        view_rows = DeltaTable(str(tmp_path / "view")).to_pyarrow_table().drop_columns(["_count_"])
        return steps, sorted(view_rows.to_pylist(), key=repr)

    write_deltalake(str(table), rows(id=pa.array([], pa.int64())), configuration=FEED)
    assert run() == (bool(before), before)
    assert run() == (0, before)
    write_deltalake(str(table), rows(id=[1, 2]), mode="append")
    assert run() == (1, after)


@pytest.mark.parametrize("diff", BOTH)
def test_columns_may_be_renamed_and_dropped_by_their_mapping(table: Path, diff: str) -> None:
    physical = {"id": "c1", "name": "c2", "a, b": "c2", "old": "c3"}
    fields = {**LONG_AND_TEXT, "old": "long"}
    first = add(table, rows(c1=[1, 2], c2=["a", "b"], c3=[1, 1]))
    made = metadata(fields, physical=physical)
    commit(table, protocol(["columnMapping"], ["changeDataFeed"]), made, first)
    reader = Reader(table, USERS, diff=diff)
    reader.read()
    commit(table, add(table, rows(c1=[3], c2=["c"], c3=[1])))
    commit(table, metadata(LONG_AND_TEXT, physical=physical))
    commit(table, remove(first), add(table, rows(c1=[1], c2=["z"])))
    reader.read()
    assert reader.rows == there(table, USERS)
    commit(table, metadata({"id": "long", "a, b": "string"}, physical=physical))
    commit(table, add(table, rows(c1=[4], c2=["d"])))
    position = reader.position
    with pytest.raises(SourceError, match="there is no column name; the columns are id, a, b"):
        reader.read()
    assert reader.position == position
    named = pa.schema([pa.field("id", pa.int64()), arrow_field("name", row_type(str), "a, b")])
    renamed = Reader(table, named, diff=diff)
    renamed.read()
    assert sum(renamed.rows.values()) == 3
    # The same pipeline, with another column for the field: what was read before is the same rows.
    later = Reader(table, named, diff=diff)
    later.rows, later.position = reader.rows, reader.position
    later.read()
    assert later.rows == renamed.rows


@pytest.mark.parametrize("diff", BOTH)
def test_a_part_of_a_struct_that_is_gone_is_an_error_and_no_null(table: Path, diff: str) -> None:
    def values(name: str) -> pa.Table:
        return rows(s=pa.array([[{name: 1}]], pa.list_(pa.struct([(name, pa.int64())]))))

    columns = schema(s=pa.list_(pa.struct([("x", pa.int64())])))
    write_deltalake(str(table), values("x"), configuration=FEED)
    reader = Reader(table, columns, diff=diff)
    reader.read()
    write_deltalake(str(table), values("y"), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match=r"version 1 in column s\[\] there is no column x; the"):
        reader.read()


def test_a_feature_that_deltalake_does_not_have_is_said(table: Path) -> None:
    widening = {"delta.enableTypeWidening": "true"}
    made = metadata({"id": "integer"}, properties=widening)
    narrow = add(table, rows(id=pa.array([1], pa.int32())))
    commit(table, protocol(["typeWidening"], ["changeDataFeed"]), made, narrow)
    with pytest.raises(SourceError, match=r"TypeWidening.*read it with st\.CatalogTable"):
        Reader(table, IDS, diff="feed").read()


# -- what other writers do


@pytest.mark.parametrize("diff", BOTH)
def test_rows_that_deletion_vectors_delete_are_followed(table: Path, diff: str) -> None:
    # finding 24
    whole = add(table, rows(id=[1, 2, 3, 4]))
    properties = {"delta.enableDeletionVectors": "true"}
    made = metadata({"id": "long"}, properties=properties)
    commit(table, protocol(["deletionVectors"], ["changeDataFeed"]), made, whole)
    reader = Reader(table, IDS, diff=diff)
    reader.read()
    for gone, left in (([1], {1, 3, 4}), ([1, 3], {1, 3}), ([0, 1, 3], {3})):
        rest = without(whole, gone)
        commit(table, remove(whole), rest)
        whole = rest
        reader.read()
        assert reader.rows == Counter({repr({"id": i}): 1 for i in left})
        late = Reader(table, IDS, diff=diff)
        late.read()
        assert late.rows == reader.rows


def replaced(table: Path, new: pa.Table, fields: Mapping[str, object], name: str) -> None:
    """Replace a table, as CREATE OR REPLACE TABLE does: its log goes on."""
    files: dict[str, Any] = {}
    for version in range(DeltaTable(str(table)).version() + 1):
        for action in actions_of(table, version):
            if "add" in action:
                files[action["add"]["path"]] = action
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    gone = [remove(file) for file in files.values()]
    commit(table, metadata(fields, table=name), *gone, add(table, new))


@pytest.mark.parametrize("diff", BOTH)
def test_a_table_that_is_replaced_is_followed(table: Path, diff: str) -> None:
    # finding 27
    write_deltalake(str(table), rows(id=[1, 2], name=["a", "b"]), configuration=FEED)
    readers = [
        (Reader(table, USERS, diff=diff), Portion()),
        (Reader(table, USERS, diff=diff, anew=True), Portion(versions=1, rows=1)),
    ]
    for reader, portion in readers:
        reader.read(portion)
    write_deltalake(str(table), rows(id=[3], name=["c"]), mode="append")
    replaced(table, rows(name=["b", "z"], id=[2, 9]), LONG_AND_TEXT, "second")
    write_deltalake(str(table), rows(name=["y"], id=[10]), mode="append")
    for reader, portion in readers:
        reader.read(portion)
        assert reader.rows == there(table, USERS)
    narrow = rows(id=pa.array([2, 7], pa.int32()), name=["b", "q"])
    replaced(table, narrow, {"id": "integer", "name": "string"}, "third")
    for reader, portion in readers:
        reader.read(portion)
        assert reader.rows == there(table, USERS)
    replaced(table, rows(id=[1]), {"id": "long"}, "fourth")
    for reader, portion in readers:
        with pytest.raises(SourceError, match="version 5 there is no column name"):
            reader.read(portion)


def test_a_table_that_is_replaced_by_the_same_rows_reads_none(table: Path) -> None:
    # finding 27
    write_deltalake(str(table), rows(id=[1, 2], name=["a", "b"]), configuration=FEED)
    reader = Reader(table, USERS, diff="feed")
    reader.read()
    before = reader.rows.copy()
    replaced(table, rows(id=[2, 1], name=["b", "a"]), LONG_AND_TEXT, "second")
    assert reader.source.behind(reader.position) == 1
    reader.read()
    assert reader.rows == before
    assert reader.source.behind(reader.position) == 0


@pytest.mark.parametrize("diff", BOTH)
def test_each_read_lists_the_log_once(
    table: Path, diff: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On an object store each listing is a request, which takes longer than a small step.
    write_deltalake(str(table), rows(id=[1, 2], name=["a", "b"]), configuration=FEED)
    reader = Reader(table, USERS, diff=diff)
    reader.read()
    for i in range(3):
        write_deltalake(str(table), rows(id=[i], name=["c"]), mode="append")
    listed = 0
    update = DeltaTable.update_incremental

    def counted(found: DeltaTable) -> None:
        nonlocal listed
        listed += 1
        update(found)

    monkeypatch.setattr(DeltaTable, "update_incremental", counted)
    assert reader.read() == 1
    assert listed == 2  # the last read finds nothing new
    assert reader.rows == there(table, USERS)


def test_a_version_that_changes_nothing_is_not_waited_for_and_its_position_is_kept(
    table: Path,
) -> None:
    # finding 35
    write_deltalake(str(table), rows(id=[1]), configuration=FEED)
    reader = Reader(table, IDS, diff="feed")
    reader.read()
    first = reader.position
    assert first is not None
    for n in range(9):
        DeltaTable(str(table)).alter.set_table_properties({"delta.checkpointInterval": str(10 + n)})
        source = st.DeltaTable(table).source()
        source.open(IDS)
        assert source.behind(first) == 0
        batch = source.read(first, Portion())
        assert batch is not None
        assert (batch.changes, batch.final) == ((), n >= 7)
    assert batch is not None
    source.confirm(batch.position)
    DeltaTable(str(table)).alter.set_table_properties({"delta.checkpointInterval": "30"})
    batch = source.read(batch.position, Portion())
    assert batch is not None
    assert not batch.final


# -- all types

U = dt.UTC
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "byte": (pa.int8(), -7),
    "short": (pa.int16(), -7),
    "integer": (pa.int32(), -7),
    "long": (pa.int64(), 2**63 - 1),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), float("inf")),
    "decimal(38,18)": (pa.decimal128(38, 18), Decimal("1." + "2" * 18)),
    "decimal(5,0)": (pa.decimal128(5, 0), Decimal(99999)),
    "boolean": (pa.bool_(), True),
    "string": (pa.string(), "it's \0 é"),
    "binary": (pa.binary(), b"\0\xff"),
    "date": (pa.date32(), dt.date(1, 1, 1)),
    "timestamp": (pa.timestamp("us", "UTC"), dt.datetime(9999, 12, 31, 23, tzinfo=U)),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime(1, 1, 1)),
}


def nested(t: pa.DataType, said: object, value: object) -> list[tuple[pa.DataType, object, object]]:
    """A type as it is, and in structs and lists two deep: in Arrow, in Delta, and a value."""

    def listed(t: pa.DataType, said: object, value: object) -> tuple[Any, Any, Any]:
        return pa.list_(t), {"type": "array", "elementType": said, "containsNull": True}, [value]

    def inside(t: pa.DataType, said: object, value: object) -> tuple[Any, Any, Any]:
        field = {"name": "a b", "type": said, "nullable": True, "metadata": {}}
        return pa.struct([("a b", t)]), {"type": "struct", "fields": [field]}, {"a b": value}

    flat = (t, said, value)
    return [flat, listed(*inside(*flat)), inside(*listed(*flat)), listed(*listed(*flat))]


@pytest.mark.parametrize("diff", BOTH)
@pytest.mark.parametrize("name", TYPES)
def test_each_type_of_delta_is_read_two_deep(table: Path, name: str, diff: str) -> None:
    t, value = TYPES[name]
    made = nested(t, name, value)
    fields = {f"c{i}": said for i, (_, said, _) in enumerate(made)}
    columns = pa.schema([pa.field(f"c{i}", found) for i, (found, _, _) in enumerate(made)])
    values = pa.table({f"c{i}": [v, None] for i, (_, _, v) in enumerate(made)}, schema=columns)
    commit(table, protocol(["timestampNtz"], ["changeDataFeed"]), metadata(fields))
    reader = Reader(table, columns, diff=diff)
    commit(table, add(table, values))
    commit(table, add(table, values))
    reader.read()
    assert reader.rows == there(table, columns)
    assert len(reader.rows) == 2
    whole = add(table, values)
    commit(table, whole)
    commit(table, remove(whole))
    found = reader.source.read(reader.position, Portion())
    assert found is not None
    (change,) = found.changes
    assert isinstance(change, pa.Table)
    assert str(change.schema.types) == str([*(str_type(t) for t in columns.types), pa.int64()])
    assert [str(t) for t in reader.source.schema().types] == [
        str(t).replace("item", "element") for t in columns.types
    ]


def str_type(t: pa.DataType) -> pa.DataType:
    """A type as Delta names its parts."""
    if isinstance(t, pa.ListType):
        return pa.list_(pa.field("element", str_type(t.value_type)))
    if isinstance(t, pa.StructType):
        return pa.struct([(f.name, str_type(f.type)) for f in t])
    return t


def test_a_type_that_arrow_does_not_have_is_an_opaque_column(table: Path) -> None:
    variant = {"type": "array", "elementType": "variant", "containsNull": True}
    fields = {"id": "long", "v": "variant", "l": variant, "m": "void"}
    commit(
        table,
        protocol(["variantType"], ["changeDataFeed"]),
        metadata(fields),
        add(table, rows(id=[1])),
    )
    reader = Reader(table, IDS, diff="feed")
    reader.read()
    assert sum(reader.rows.values()) == 1
    opaque = pa.opaque(pa.null(), type_name="variant", vendor_name="Delta")
    found = reader.source.schema()
    assert found.field("v").type == opaque
    assert found.field("l").type == pa.list_(pa.field("element", opaque))


def test_columns_that_a_batch_has_of_its_own_may_be_columns_of_the_table(table: Path) -> None:
    columns = pa.schema(
        [
            arrow_field("count", row_type(int), "_count_"),
            arrow_field("a_b", row_type(str), "a.b"),
            arrow_field("quote", row_type(str), 'it\'s "quoted"'),
            arrow_field("again", row_type(int), "_count_"),
        ]
    )
    more: dict[str, list[Any]] = {"_count_": [7], "a.b": ["x"], 'it\'s "quoted"': ["y"], "a": [1]}
    write_deltalake(str(table), pa.table(more), configuration=FEED)
    reader = Reader(table, columns, diff="feed")
    reader.read()
    write_deltalake(str(table), pa.table(more), mode="append")
    reader.read()
    assert reader.rows == Counter({"{'count': 7, 'a_b': 'x', 'quote': 'y', 'again': 7}": 2})


# -- in a pipeline


class Penguin(st.Data):
    number: Annotated[int, st.Column("Sample Number")]
    kind: str


def penguins(penguins: st.ZSet[Penguin]) -> st.ZSet[Penguin]:
    return penguins


@pytest.mark.parametrize("diff", BOTH)
def test_columns_and_rows_that_do_not_fit_are_told_to_the_table(table: Path, diff: str) -> None:
    # findings 25 and 30
    made: dict[str, list[Any]] = {"Sample Number": [1, 2, None], "class": ["a", None, "c"]}
    write_deltalake(str(table), pa.table(made), configuration=FEED)
    source = st.DeltaTable(table, diff=diff, columns={"kind": "class"}, on_invalid="drop")
    view = View()
    pipeline = st.Pipeline(penguins, store="memory", penguins=source, into={"penguins": view})
    pipeline.run()
    write_deltalake(str(table), pa.table({"Sample Number": [4], "class": ["d"]}), mode="append")
    DeltaTable(str(table)).delete("class IS NULL")
    pipeline.run()
    assert view.rows == Z({Penguin(number=1, kind="a"): 1, Penguin(number=4, kind="d"): 1})


def test_a_pipeline_goes_on_with_a_table_that_is_replaced(table: Path, tmp_path: Path) -> None:
    # findings 27 and 35
    write_deltalake(str(table), rows(id=[1, 2], name=["a", "b"]), configuration=FEED)
    seen: list[Any] = []

    def pipeline() -> st.Pipeline:
        return st.Pipeline(
            names,
            store=f"parquet:{tmp_path / 'state'}",
            users=st.DeltaTable(table),
            into={"names": lambda step, change: seen.append((step, change.to_python()))},
        )

    with pipeline() as running:
        assert running.run() == 1
    replaced(table, rows(name=["b", "z"], id=[2, 9]), LONG_AND_TEXT, "second")
    with pipeline() as running:
        assert running.dry_run().waiting == {"users": 1}
        assert running.run() == 1
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).alter.set_table_properties({"delta.checkpointInterval": "20"})
    with pipeline() as running:
        assert running.dry_run().waiting == {"users": 0}
        assert running.run() == 0
    assert seen[-1] == (2, Z({"a": -1, "z": 1}))


@pytest.mark.parametrize("rows_at_once", [None, 1])
def test_a_feed_without_the_new_rows_of_an_update_is_not_trusted(
    table: Path, rows_at_once: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    # deltalake writes no new row for one that becomes equal to another row of the table
    write_deltalake(str(table), rows(id=[2, 2, 3], name=["x", "z", "z"]), configuration=FEED)
    reader = Reader(table, USERS, diff="feed")
    reader.read()
    DeltaTable(str(table)).update({"name": "'z'"}, predicate="id = 2")
    DeltaTable(str(table)).update({"name": "'y'"}, predicate="id = 3")
    reader.read(st.Portion(rows=rows_at_once))
    assert reader.rows == there(table, USERS)
    kinds = DeltaTable(str(table)).load_cdf(1, 1).read_all()["_change_type"]
    if len(kinds) == 1:  # until deltalake writes both
        assert "the versions are compared" in caplog.text


@pytest.mark.parametrize("diff", ["feed", "snapshot"])
def test_a_column_that_an_overwrite_renamed_goes_on_under_the_name_of_its_field(
    table: Path, tmp_path: Path, diff: str
) -> None:
    def run(**given: Any) -> Any:
        view = st.sql("SELECT name, sum(id) AS n FROM users GROUP BY name")
        into = st.DeltaTable(tmp_path / "view", key="name")
        source = st.DeltaTable(table, diff=diff, **given)
        with st.Pipeline(view, store=f"parquet:{tmp_path / 'state'}", users=source, into=into) as p:
            p.run()
        view_rows = DeltaTable(str(tmp_path / "view")).to_pyarrow_table().to_pylist()
        return {row["name"]: row["n"] for row in view_rows}

    write_deltalake(str(table), rows(id=[1, 2, 3], name=["a", "a", "b"]), configuration=FEED)
    assert run() == {"a": 3, "b": 3}
    renamed = DeltaTable(str(table)).to_pyarrow_table().rename_columns(["id", "Tag"])
    write_deltalake(str(table), renamed, mode="overwrite", schema_mode="overwrite")
    write_deltalake(str(table), rows(id=[4], Tag=["b"]), mode="append")
    assert run(columns={"name": "Tag"}) == {"a": 3, "b": 7}
