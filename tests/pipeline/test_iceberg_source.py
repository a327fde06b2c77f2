"""Iceberg tables as sources: every type, every name, and columns that change."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import stepping_spark as st
from stepping_spark.base.errors import SourceError
from stepping_spark.pipeline import Portion, Position
from stepping_spark.pipeline.iceberg.source import told_fields
from stepping_spark.rows.names import arrow_field
from stepping_spark.rows.types import row_type
from tests.pipeline.iceberg_writers import delete_equal

IDS = pa.schema([pa.field("id", pa.int64())])
USERS = pa.schema([*IDS, pa.field("name", pa.string())])
ALL = Portion()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what the test has read with."""
    yield
    for reader in Reader.made:
        reader.source.close()
    Reader.made.clear()


def table(lake: Catalog, *types: tuple[str, IcebergType]) -> Table:
    fields = [NestedField(i, name, t) for i, (name, t) in enumerate(types, 1)]
    return lake.create_table("shop.t", Schema(*fields))


def users(lake: Catalog) -> Table:
    return table(lake, ("id", LongType()), ("name", StringType()))


class Reader:
    """Reads a table as a pipeline does, each time in a new process if it must be."""

    made: ClassVar[list[Reader]] = []

    def __init__(self, lake: Catalog, columns: pa.Schema, *, anew: bool = False) -> None:
        self._table, self._columns, self._anew = (
            st.IcebergTable("shop.t", catalog=lake),
            columns,
            anew,
        )
        self.source: Any = self._table.source()
        self.source.open(columns)
        self.made.append(self)
        self.position: Position | None = None
        self.rows: Counter[str] = Counter()

    def read(self, portion: Portion = ALL) -> None:
        """Read until there is nothing new."""
        while True:
            if self._anew:
                self.source.close()
                self.source = self._table.source()
                self.source.open(self._columns)
            batch = self.source.read(self.position, portion)
            if batch is None:
                return
            for change in batch.changes:
                assert change.schema.names == [*self._columns.names, "_count_"]
                kept = pa.schema([*self._columns, change.schema.field("_count_")])
                for row in change.cast(kept).to_pylist():
                    count = row.pop("_count_")
                    self.rows[repr(row)] += count
            self.rows = Counter({row: n for row, n in self.rows.items() if n})
            self.position = batch.position


def rows(**columns: Any) -> pa.Table:
    return pa.table(columns)


def there(found: Table, columns: pa.Schema) -> Counter[str]:
    """What is in a table, as pyiceberg reads it."""
    made = found.refresh().scan().to_arrow().select(columns.names).cast(columns)
    return Counter(map(repr, made.to_pylist()))


# -- names of columns


def test_a_column_is_found_by_its_exact_name_and_two_candidates_are_an_error(lake: Catalog) -> None:
    # finding 10
    found = table(lake, ("ID", LongType()), ("id", LongType()), ("NAME", StringType()))
    found.append(rows(ID=[1], id=[2], NAME=["a"]))
    reader = Reader(lake, USERS)
    reader.read()
    assert reader.rows == Counter({"{'id': 2, 'name': 'a'}": 1})
    other = Reader(lake, pa.schema([pa.field("Id", pa.int64())]))
    with pytest.raises(SourceError, match=r"field Id is column 'Id', and there are 'ID' and 'id'"):
        other.read()


def test_columns_may_have_any_name(lake: Catalog) -> None:
    # finding 25
    columns = pa.schema(
        [
            arrow_field("count", row_type(int), "_count_"),
            arrow_field("a_b", row_type(str), "a.b"),
            arrow_field("quoted", row_type(str), 'it\'s "quoted"'),
            arrow_field("again", row_type(int), "_count_"),
        ]
    )
    types = [("_count_", LongType()), ("a.b", StringType()), ('it\'s "quoted"', StringType())]
    found = table(lake, *types, ("a", LongType()))
    more: dict[str, list[Any]] = {"_count_": [7], "a.b": ["x"], 'it\'s "quoted"': ["y"], "a": [1]}
    reader = Reader(lake, columns)
    for _ in range(2):
        found.append(pa.table(more))
        reader.read()
    assert reader.rows == Counter({"{'count': 7, 'a_b': 'x', 'quoted': 'y', 'again': 7}": 2})
    assert reader.source.schema().names == ["_count_", "a.b", 'it\'s "quoted"', "a"]


# -- types


TYPES: dict[str, tuple[IcebergType, pa.DataType, Any, pa.DataType, Any]] = {
    "boolean": (BooleanType(), pa.bool_(), True, pa.bool_(), True),
    "int": (IntegerType(), pa.int32(), -(2**31), pa.int32(), -(2**31)),
    "long": (LongType(), pa.int64(), 2**63 - 1, pa.int64(), 2**63 - 1),
    "float": (FloatType(), pa.float32(), 1.5, pa.float32(), 1.5),
    "double": (DoubleType(), pa.float64(), 5e-324, pa.float64(), 5e-324),
    "decimal": (
        *(DecimalType(38, 18), pa.decimal128(38, 18), Decimal("9." + "9" * 18)),
        *(pa.decimal128(38, 18), Decimal("9." + "9" * 18)),
    ),
    "string": (StringType(), pa.string(), "it's \0 é", pa.string(), "it's \0 é"),
    "binary": (BinaryType(), pa.binary(), b"\0\xff", pa.binary(), b"\0\xff"),
    "fixed": (FixedType(3), pa.binary(3), b"\0\1\2", pa.binary(), b"\0\1\2"),
    "uuid": (UUIDType(), pa.uuid(), UUID(int=7).bytes, pa.string(), str(UUID(int=7))),
    "date": (DateType(), pa.date32(), dt.date.max, pa.date32(), dt.date.max),
    "time": (
        TimeType(),
        pa.time64("us"),
        dt.time(1, 2, 3, 4),
        pa.time64("us"),
        dt.time(1, 2, 3, 4),
    ),
    "timestamp": (
        *(TimestampType(), pa.timestamp("us"), dt.datetime(1, 1, 1)),
        *(pa.timestamp("us"), dt.datetime(1, 1, 1)),
    ),
    "timestamptz": (
        *(TimestamptzType(), pa.timestamp("us", "UTC"), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)),
        *(pa.timestamp("us", "UTC"), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)),
    ),
}


def array(values: list[Any], t: Any) -> Any:
    """Values in Arrow; it makes no UUIDs within structs and lists by itself."""
    mask = pa.array([value is None for value in values])
    if pa.types.is_struct(t):
        parts = [array([v and v[f.name] for v in values], f.type) for f in t]
        return pa.StructArray.from_arrays(parts, fields=list(t), mask=mask)
    if pa.types.is_list(t):
        items = [item for value in values for item in value or ()]
        ends = itertools.accumulate((len(value or ()) for value in values), initial=0)
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), array(items, t.value_type), type=t, mask=mask
        )
    return pa.array(values, t)


@pytest.mark.parametrize("name", TYPES)
def test_each_type_of_iceberg_is_read_two_deep(lake: Catalog, name: str) -> None:
    t, arrow, value, given, expected = TYPES[name]
    inner = NestedField(100, "a b", t)
    types: dict[str, tuple[IcebergType, pa.DataType, Any, pa.DataType, Any]] = {
        "c": (t, arrow, value, given, expected),
        "l": (
            ListType(101, StructType(inner), element_required=False),
            pa.list_(pa.struct([("a b", arrow)])),
            [{"a b": value}, None],
            pa.list_(pa.struct([("a b", given)])),
            [{"a b": expected}, None],
        ),
        "s": (
            StructType(NestedField(100, "a b", ListType(101, t, element_required=False))),
            pa.struct([("a b", pa.list_(arrow))]),
            {"a b": [value, None]},
            pa.struct([("a b", pa.list_(given))]),
            {"a b": [expected, None]},
        ),
        "m": (
            ListType(100, ListType(101, t, element_required=False), element_required=False),
            pa.list_(pa.list_(arrow)),
            [[], [value], None],
            pa.list_(pa.list_(given)),
            [[], [expected], None],
        ),
    }
    for column, (kind, written, put, read, got) in types.items():
        found = lake.create_table(f"shop.{column}", Schema(NestedField(1, column, kind)))
        nothing: Any = None if column != "l" else []
        found.append(pa.table({column: array([put, nothing], written)}))
        source: Any = st.IcebergTable(f"shop.{column}", catalog=lake).source()
        source.open(pa.schema([pa.field(column, read)]))
        batch = source.read(None, ALL)
        (change,) = batch.changes
        assert change.column(column).to_pylist() == [got, nothing]
        told = source.schema().field(column).type
        assert change.schema.field(column).type == told
        assert str(told).replace("element", "item") == str(read)


def test_types_that_rows_do_not_have_are_told_and_not_read(lake: Catalog) -> None:
    keyed = MapType(10, StringType(), 11, LongType(), value_required=False)
    found = table(lake, ("id", LongType()), ("m", keyed))
    found.append(pa.table({"id": [1], "m": pa.array([{"a": 1}], pa.map_(pa.string(), pa.int64()))}))
    reader = Reader(lake, IDS)
    reader.read()
    assert reader.rows == Counter({"{'id': 1}": 1})
    assert pa.types.is_map(reader.source.schema().field("m").type)
    more = [NestedField(1, "n", TimestampNanoType()), NestedField(2, "g", GeometryType())]
    told = pa.schema(told_fields(Schema(*more)))
    assert told.field("n").type == pa.timestamp("ns")
    assert told.names == ["n", "g"]


# -- columns that change


def test_a_column_that_was_added_since_the_last_snapshot_is_null(lake: Catalog) -> None:
    # finding 21
    found = table(lake, ("id", LongType()))
    found.append(rows(id=[1]))
    with found.update_schema() as update:
        update.add_column("name", StringType())
    reader = Reader(lake, USERS)
    reader.read()
    assert reader.rows == Counter({"{'id': 1, 'name': None}": 1})
    found.append(rows(id=[2], name=["b"]))
    found.overwrite(rows(id=[1], name=["a"]), overwrite_filter="id = 1")
    reader.read()
    assert reader.rows == there(found, USERS)


@pytest.mark.parametrize("portion", [ALL, Portion(versions=1), Portion(versions=1, rows=1)])
def test_columns_may_be_added_dropped_renamed_reordered_and_widened(
    lake: Catalog, portion: Portion
) -> None:
    inner = StructType(NestedField(10, "x", IntegerType()))
    found = table(lake, ("id", IntegerType()), ("old", LongType()), ("s", inner))
    narrow = pa.struct([("x", pa.int32())])
    ids = pa.array([1, 2], pa.int32())
    found.append(rows(id=ids, old=[1, 1], s=pa.array([{"x": 1}, None], narrow)))
    wide = pa.struct([("y", pa.string()), ("x", pa.int64())])
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("s", narrow)])
    readers = [Reader(lake, columns), Reader(lake, columns, anew=True)]
    for reader in readers:
        reader.read(portion)
    with found.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column(("s", "x"), LongType())
        update.add_column(("s", "y"), StringType())
        update.delete_column("old")
        update.move_first("s")
    found.append(rows(s=pa.array([{"y": "a", "x": 7}], wide), id=[2**40]))
    found.delete("id = 1")
    for reader in readers:
        reader.read(portion)
        assert sum(reader.rows.values()) == 2
    with found.update_schema() as update:
        update.rename_column("id", "number")
    found.append(rows(s=pa.array([None], wide), number=[3]))
    for reader in readers:
        with pytest.raises(SourceError, match=r"at snapshot \d+ there is no column id; the col"):
            reader.read(portion)


def test_a_renamed_column_is_followed_under_its_new_name_at_any_depth(lake: Catalog) -> None:
    inner = StructType(NestedField(10, "x", LongType()))
    found = table(lake, ("id", LongType()), ("s", inner))
    t = pa.struct([("x", pa.int64())])
    found.append(rows(id=[1], s=pa.array([{"x": 1}], t)))
    reader = Reader(lake, pa.schema([*IDS, pa.field("s", t)]))
    reader.read()
    with found.update_schema() as update:
        update.rename_column("id", "number")
        update.rename_column(("s", "x"), "y")
    other = pa.struct([("y", pa.int64())])
    found.append(rows(number=[2], s=pa.array([{"y": 2}], other)))
    found.delete("number = 1")
    with pytest.raises(SourceError, match="there is no column id; the columns are number, s"):
        reader.read()
    later = Reader(lake, pa.schema([pa.field("number", pa.int64()), pa.field("s", other)]))
    later.position = reader.position
    later.read()
    assert later.rows == Counter(
        {"{'number': 1, 's': {'y': 1}}": -1, "{'number': 2, 's': {'y': 2}}": 1}
    )


def test_a_part_of_a_struct_that_is_gone_is_an_error_and_no_null(lake: Catalog) -> None:
    inner = StructType(NestedField(10, "x", LongType()), NestedField(11, "y", LongType()))
    found = table(lake, ("s", inner))
    t = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    found.append(rows(s=pa.array([{"x": 1, "y": 2}], t)))
    reader = Reader(lake, pa.schema([pa.field("s", t)]))
    reader.read()
    with found.update_schema() as update:
        update.delete_column(("s", "y"))
    found.append(rows(s=pa.array([{"x": 1}], pa.struct([("x", pa.int64())]))))
    with pytest.raises(SourceError, match=r"in column s there is no column y; the columns are x"):
        reader.read()


# -- what pyiceberg does not read, or would lose


def test_equality_deletes_are_refused(lake: Catalog) -> None:
    found = users(lake)
    found.append(rows(id=[1, 2], name=["a", "b"]))
    reader = Reader(lake, USERS)
    reader.read()
    delete_equal(found, rows(id=[1]))
    with pytest.raises(SourceError, match=r"reads no equality deletes: rewrite the data files"):
        reader.read()


def test_null_for_a_list_of_structs_is_refused(lake: Catalog) -> None:
    inner = StructType(NestedField(10, "x", LongType()))
    found = table(lake, ("id", LongType()), ("l", ListType(11, inner, element_required=False)))
    t = pa.list_(pa.struct([("x", pa.int64())]))
    found.append(rows(id=[1], l=pa.array([[{"x": 1}]], t)))
    columns = pa.schema([*IDS, pa.field("l", t)])
    reader, other = Reader(lake, columns), Reader(lake, IDS)
    reader.read()
    path = str(next(iter(found.scan().plan_files())).file.file_path)
    foreign = rows(id=[2], l=pa.array([None], t))
    pa.parquet.write_table(foreign, path.removeprefix("file://") + ".other")
    with found.transaction() as transaction:
        transaction.set_properties(
            {"schema.name-mapping.default": found.schema().name_mapping.model_dump_json()}
        )
        transaction.add_files([path + ".other"])
    with pytest.raises(SourceError, match=r"has NULL for a list of structs; pyiceberg would read"):
        reader.read()
    other.read()
    assert other.rows == Counter({"{'id': 1}": 1, "{'id': 2}": 1})


def test_a_field_that_was_renamed_in_lists_of_lists_is_refused(lake: Catalog) -> None:
    inner = StructType(NestedField(10, "x", LongType()))
    deep = ListType(12, ListType(11, inner, element_required=False), element_required=False)
    found = table(lake, ("l", deep))
    t = pa.list_(pa.list_(pa.struct([("x", pa.int64())])))
    found.append(pa.table({"l": pa.array([[[{"x": 1}]]], t)}))
    reader = Reader(lake, pa.schema([pa.field("l", t)]))
    reader.read()
    assert reader.rows == Counter({"{'l': [[{'x': 1}]]}": 1})
    with found.update_schema() as update:
        update.rename_column(("l", "element", "element", "x"), "y")
    found.append(
        pa.table({"l": pa.array([[]], t)}).cast(
            pa.schema([pa.field("l", pa.list_(pa.list_(pa.struct([("y", pa.int64())]))))])
        )
    )
    renamed = pa.list_(pa.list_(pa.struct([("y", pa.int64())])))
    other = Reader(lake, pa.schema([pa.field("l", renamed)]))
    with pytest.raises(SourceError, match="has other names for the fields in lists of lists"):
        other.read()


# -- catalogs


def test_what_a_loaded_catalog_knows_is_not_shown(lake: Catalog) -> None:
    lake.properties["token"] = "hunter2"
    lake.properties["uri"] = "https://ann:sesame@db/lake"

    def broken(name: str) -> Table:
        raise RuntimeError("cannot log in with hunter2 or sesame")

    lake.load_table = broken  # type: ignore[assignment, method-assign]
    source = st.IcebergTable("shop.t", catalog=lake).source()
    source.open(IDS)
    with pytest.raises(SourceError, match=r"cannot log in with \*\*\* or \*\*\*"):
        source.read(None, ALL)
