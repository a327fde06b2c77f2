"""Arrow tables as Z-sets, and Z-sets as Arrow tables."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.codec import encode
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from tests.cases import Z
from tests.queries import Color, Order, Some, Thing
from tests.strategies import zsets_of

KEY = uuid.UUID(int=7)


class Inner(st.Data):
    a: int
    key: uuid.UUID | None


class Aliased(st.Data):
    id: Annotated[int, st.Column("_id")]


class Outer(st.Data):
    inner: Inner
    maybe: Inner | None
    many: list[int | None]


class Wide(st.Data):
    n: int
    x: float
    word: str
    raw: bytes
    price: Annotated[Decimal, st.Precision(10, 2)]
    at: dt.datetime
    local: st.LocalDateTime
    span: dt.timedelta
    color: Color
    key: uuid.UUID | None


@pytest.mark.parametrize("rows", [Order, Thing, Some, tuple[int, str | None], int, str | None])
@given(data=hs.data())
def test_a_zset_is_the_same_after_it_was_a_table(rows: Any, data: hs.DataObject) -> None:
    z = data.draw(zsets_of(rows))
    table = encode(z.iter(), ZSetType(row_type(rows)), "z")
    found = st.ZSetSpark.from_arrow(table, rows, count="_count_")
    assert found == z
    assert found.to_arrow().num_rows == len(list(z.iter()))
    assert st.ZSetSpark.from_arrow(found.to_arrow(), rows, count="_count_") == z


def test_other_types_and_orders_of_columns_are_converted() -> None:
    at = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    columns: dict[str, Array] = {
        "Key": pa.array(["00000000-0000-0000-0000-000000000007".upper(), None], pa.large_string()),
        "color": pa.array(["red", "blau"]).dictionary_encode(),
        "span": pa.array([dt.timedelta(seconds=1)] * 2, pa.duration("s")),
        "local": pa.array([at.replace(tzinfo=None)] * 2, pa.timestamp("ms")),
        "at": pa.array([at] * 2, pa.timestamp("ns", tz="Europe/Oslo")),
        "price": pa.array([Decimal("1.5")] * 2, pa.decimal128(4, 1)),
        "raw": pa.array([b"ab"] * 2, pa.binary(2)),
        "word": pa.array(["a", "b"], pa.string_view()),
        "x": pa.array([0.5, 2.0], pa.float32()),
        "n": pa.array([1, 2], pa.uint8()),
        "weight": pa.array([1, -1], pa.int8()),
    }
    shared: dict[str, Any] = {
        "raw": b"ab",
        "price": Decimal("1.5"),
        "at": at,
        "local": at.replace(tzinfo=None),
        "span": dt.timedelta(seconds=1),
    }
    one = Wide(n=1, x=0.5, word="a", color=Color.RED, key=KEY, **shared)
    two = Wide(n=2, x=2.0, word="b", color=Color.BLUE, key=None, **shared)
    found = st.ZSetSpark.from_arrow(pa.table(columns), Wide, count="Weight")
    assert found == Z({one: 1, two: -1})


def test_rows_within_rows_and_lists_are_found_by_name() -> None:
    inner: dict[str, Any] = {"key": None, "A": 1}
    outers: list[dict[str, Any]] = [
        {"many": [1, None], "maybe": None, "inner": inner},
        {"many": [], "maybe": {"key": str(KEY), "A": 2}, "inner": inner},
    ]
    of_inner = pa.struct([("key", pa.string()), ("A", pa.int32())])
    types = pa.schema({"many": pa.large_list(pa.int16()), "maybe": of_inner, "inner": of_inner})
    table = pa.Table.from_pylist(outers, types)
    expected = Z(
        {
            Outer(inner=Inner(a=1, key=None), maybe=None, many=[1, None]): 1,
            Outer(inner=Inner(a=1, key=None), maybe=Inner(a=2, key=KEY), many=[]): 1,
        }
    )
    assert st.ZSetSpark.from_arrow(table, Outer) == expected
    assert st.ZSetSpark.from_arrow(table.slice(1), Outer) == Z({list(expected.iter())[-1][0]: 1})


def test_a_column_is_found_by_its_exact_name_first_and_others_are_left_out() -> None:
    """Findings 10 and 35."""
    table = pa.table({"A": [1], "a": [2], "key": [None], "more": [3]})
    assert st.ZSetSpark.from_arrow(table, Inner) == Z({Inner(a=2, key=None): 1})


class Named(st.Data):
    number: Annotated[int, st.Column("Sample Number")]
    inner: Annotated[list[Aliased] | None, st.Column("a.b")]
    kind: Annotated[str, st.Column("class")] = ""


def test_a_field_may_have_a_column_of_any_name() -> None:
    """Finding 25."""
    items = pa.array([[{"_id": 1}], None], pa.list_(pa.struct([("_id", pa.int64())])))
    table = pa.table({"Sample Number": [1, 2], "a.b": items, "class": ["x", "y"]})
    one = Named(number=1, inner=[Aliased(id=1)], kind="x")
    found = st.ZSetSpark.from_arrow(table, Named)
    assert found == Z({one: 1, Named(number=2, inner=None, kind="y"): 1})


WIDER: list[tuple[Array, Any, list[Any]]] = [
    (pa.array([1, 2**53]), float, [1.0, 2.0**53]),
    (pa.array([1, 2], pa.int8()), float, [1.0, 2.0]),
    (pa.array([1, 2]), Decimal, [Decimal(1), Decimal(2)]),
    (pa.array([0.5], pa.float32()), float, [0.5]),
    (pa.array([Decimal("1.5")]), Annotated[Decimal, st.Precision(10, 2)], [Decimal("1.5")]),
    (pa.array([1], pa.timestamp("s")), st.LocalDateTime, [dt.datetime(1970, 1, 1, 0, 0, 1)]),
]


@pytest.mark.parametrize(("column", "of", "rows"), WIDER)
def test_narrow_columns_are_widened(column: Array, of: Any, rows: list[Any]) -> None:
    """Findings 3 and 35: int to float, narrow to wide."""
    assert st.ZSetSpark.from_arrow(pa.table({"x": column}), of) == Z(dict.fromkeys(rows, 1))


def test_a_slice_of_chunks_keeps_its_rows() -> None:
    table = pa.concat_tables([pa.table({"n": [[1], [2, 3]]}), pa.table({"n": [[4]]})])
    found = st.ZSetSpark.from_arrow(table.slice(1, 2), list[int])
    assert found == Z({(2, 3): 1, (4,): 1})


NO_TABLE: Any = {"x": [1]}
Bad = Callable[[], object]
BAD: dict[str, tuple[Bad, str]] = {
    "no table": (lambda: st.ZSetSpark.from_arrow(NO_TABLE, int), "expected a pyarrow Table"),
    "missing": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"a": [1]}), Inner),
        "there is no column key; the columns are a; change the row class or the text",
    ),
    "no count": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"a": [1], "key": [None], "_count_": [1]}), Inner),
        "there is a column '_count_'; say count='_count_', or drop it",
    ),
    "two that differ in case": (
        lambda: st.ZSetSpark.from_arrow(
            pa.table({"A": [1], "b": [1], "KEY": [1], "Key": [1]}), Inner
        ),
        "field key is column 'key', and there are 'KEY' and 'Key', which differ in case only",
    ),
    "twice": (
        lambda: st.ZSetSpark.from_arrow(
            pa.Table.from_arrays([pa.array([1])] * 3, names=["a", "key", "a"]), Inner
        ),
        "column 'a' is there twice",
    ),
    "another type": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": ["1"]}), int),
        "column '_value_': expected int (int64), found string; cast it",
    ),
    "too large": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": pa.array([2**63], pa.uint64())}), int),
        "column '_value_': expected int (int64), found 9223372036854775808 (uint64)",
    ),
    "too fine": (
        lambda: st.ZSetSpark.from_arrow(
            pa.table({"x": pa.array([1], pa.timestamp("ns"))}), st.LocalDateTime
        ),
        "found Timestamp('1970-01-01 00:00:00.000000001') (timestamp[ns])",
    ),
    "no zone": (
        lambda: st.ZSetSpark.from_arrow(
            pa.table({"x": pa.array([1], pa.timestamp("us"))}), dt.datetime
        ),
        "expected datetime (timestamp[us, tz=UTC]), found timestamp[us]",
    ),
    "NULL": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": [1, None]}), int),
        "column '_value_': expected int, found NULL; filter such rows out",
    ),
    "an int that a float cannot hold": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": [2**53 + 1]}), float),
        "expected float (double), found 9007199254740993 (int64)",
    ),
    "a year beyond 9999": (
        lambda: st.ZSetSpark.from_arrow(
            pa.table({"x": pa.array([2**48], pa.timestamp("ms"))}), st.LocalDateTime
        ),
        "expected a year from 1 to 9999, found",
    ),
    "a day beyond 9999": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": pa.array([2932897], pa.date32())}), dt.date),
        "expected a year from 1 to 9999, found",
    ),
    "NULL within": (
        lambda: st.ZSetSpark.from_arrow(
            pa.table(
                {"inner": [{"a": None, "key": None}], "maybe": [None], "many": [[1]]},
                pa.schema(
                    {
                        "inner": pa.struct([("a", pa.int64()), ("key", pa.string())]),
                        "maybe": pa.null(),
                        "many": pa.list_(pa.int64()),
                    }
                ),
            ),
            Outer,
        ),
        "column 'inner'.a: expected int, found NULL",
    ),
    "no UUID": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": ["7"]}), uuid.UUID),
        "expected a UUID, found '7'",
    ),
    "no member": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": ["green"]}), Color),
        "expected one of red, blau, found 'green'",
    ),
    "no such count": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": [1]}), int, count="n"),
        "there is no count column 'n'; the columns are x",
    ),
    "count of text": (
        lambda: st.ZSetSpark.from_arrow(pa.table({"x": [1], "n": ["1"]}), int, count="n"),
        "count column 'n': expected an integer type, found string",
    ),
    "NULL as count": (
        lambda: st.ZSetSpark.from_arrow(
            pa.table({"x": [1], "n": pa.array([None], pa.int64())}), int, count="n"
        ),
        "count column 'n': expected int, found NULL",
    ),
}


@pytest.mark.parametrize(("call", "said"), BAD.values(), ids=BAD.keys())
def test_a_table_that_does_not_fit_is_an_error_that_says_where(call: Bad, said: str) -> None:
    with pytest.raises(st.InputError, match=rf"^from_arrow.*{re.escape(said)}"):
        call()


def test_a_step_takes_a_table_as_it_takes_rows() -> None:
    def query(a: st.ZSet[Inner]) -> st.ZSet[int]:
        return st.map(a, f=lambda i: i.a)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    table = pa.table({"a": [1, 1, 2], "key": [None, None, str(KEY)], "n": [1, 1, -1]})
    (out,) = stepper.step((st.ZSetSpark.from_arrow(table, Inner, count="n"),))
    assert out == Z({1: 2, 2: -1})
    assert out.to_arrow().sort_by("_value_").to_pydict() == {"_value_": [1, 2], "_count_": [2, -1]}
    with pytest.raises(st.InputError, match=r"from_arrow\(table, T\)"):
        stepper.step((table,))  # type: ignore[arg-type]


def test_a_dataframe_becomes_a_table_of_its_rows(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id % 2 AS x, 1L AS n FROM range(5)")
    found = st.ZSetSpark.from_dataframe(frame, int, count="n")
    assert st.ZSetSpark.from_arrow(found.to_arrow(), int, count="_count_") == Z({0: 3, 1: 2})


def test_a_small_z_set_gives_a_table_as_a_large_one_does() -> None:
    rows = Z({1: 2, 5: -1})
    table = rows.to_arrow().sort_by("_value_")
    assert table.to_pydict() == {"_value_": [1, 5], "_count_": [2, -1]}
    assert st.ZSetSpark.from_arrow(table, int, count="_count_").to_arrow().schema == table.schema
    with pytest.raises(st.InputError, match=r"to_arrow: an empty ZSetPython .* ZSetPython\(of=T\)"):
        Z[int]().to_arrow()
