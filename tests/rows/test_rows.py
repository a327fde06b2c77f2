"""Rows of every type: to Arrow, to Spark and to SQL literals, and back; and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import functools
import math
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from stepping_spark.base.errors import InputError
from stepping_spark.relations import transfer
from stepping_spark.relations.codec import conform, decode, encode, infer
from stepping_spark.relations.transfer import frame_of
from stepping_spark.rows.atoms import (
    BOOL,
    DATETIME,
    DECIMAL,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    LOCAL_DATETIME,
    LONGEST,
    NAN,
    STR,
    LocalDateTime,
    Precision,
    RowType,
)
from stepping_spark.rows.data import Data, Pair
from stepping_spark.rows.schema import Schema, ZSetType
from stepping_spark.rows.sql_text import literal
from stepping_spark.rows.types import ListOf, Optional, Struct, quote, row_type
from stepping_spark.zsets.spark import ZSetPython

T = TypeVar("T")
UTC = dt.UTC
STRANGE = [
    "",
    "it's",
    'say "x"',
    "back\\slash \\n",
    "a\0b",
    "a\nb\r\t\x1a",
    "naïve 🙂 ſ",
    "$x ${env:HOME}",
    "\x0012 / /*+ NOW */",
]


class Color(enum.Enum):
    RED = "red"
    QUOTED = "it's"


class A(Data):
    x: int
    name: str | None = None


class B(Data):
    a: A
    maybe: A | None
    numbers: list[float]


# For each field type of the interface, values that are hard to carry.
EVERY: dict[str, tuple[Any, list[Any]]] = {
    "bool": (bool, [True, False]),
    "int": (int, [0, -1, INT_MIN, INT_MAX]),
    "float": (float, [0.0, -1.5, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, NAN]),
    "str": (str, STRANGE),
    "bytes": (bytes, [b"", b"\x00\xff'\\"]),
    "Decimal": (Decimal, [Decimal("-99999999999999999999.999999999999999999"), Decimal("1e-18")]),
    "Decimal(10, 2)": (
        Annotated[Decimal, Precision(10, 2)],
        [Decimal("-12345678.90"), Decimal("0.00")],
    ),
    "Decimal(38, 0)": (Annotated[Decimal, Precision(38, 0)], [Decimal("9" * 38)]),
    "date": (dt.date, [dt.date.min, dt.date(1582, 10, 10), dt.date(2024, 2, 29), dt.date.max]),
    "datetime": (
        dt.datetime,
        [
            dt.datetime(1, 1, 1, tzinfo=UTC),
            dt.datetime(1883, 11, 18, 16, 59, 59, 999999, tzinfo=UTC),
            dt.datetime(2024, 11, 3, 5, 30, 0, 1, tzinfo=UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ],
    ),
    "LocalDateTime": (
        LocalDateTime,
        # The second one is not on any clock in New York.
        [dt.datetime.min, dt.datetime(2024, 3, 10, 2, 30, 0, 7), dt.datetime.max],
    ),
    "timedelta": (
        dt.timedelta,
        [
            dt.timedelta(0),
            dt.timedelta(microseconds=-1),
            dt.timedelta(days=-3, seconds=7, microseconds=5),
            LONGEST,
            -LONGEST,
        ],
    ),
    "UUID": (uuid.UUID, [uuid.UUID(int=0), uuid.UUID("12345678-1234-5678-9abc-def012345678")]),
    "Enum": (Color, [Color.RED, Color.QUOTED]),
    "list": (list[int], [(), (1, 2, 1), (INT_MIN,)]),
    "list of None": (list[str | None], [(None,), ("a", None, "it's")]),
    "list of lists": (list[list[float]], [((), (NAN, 0.0)), ()]),
    "list of datetimes": (list[dt.datetime], [(dt.datetime(2024, 7, 1, tzinfo=UTC),), ()]),
    "tuple": (tuple[int, str, float], [(1, "a", NAN)]),
    "tuple of tuples": (tuple[tuple[int, LocalDateTime], bool], [((1, dt.datetime.min), True)]),
    "Data": (A, [A(x=1, name="it's"), A(x=2)]),
    "nested Data": (
        B,
        [B(a=A(x=1), maybe=None, numbers=[1.0, NAN]), B(a=A(x=1), maybe=A(x=2), numbers=[])],
    ),
    "Pair": (Pair[A, str], [Pair(left=A(x=1), right="r")]),
    "Pair with a side that may be missing": (
        Pair[int, Pair[A, Color] | None],
        [Pair(left=1, right=None), Pair(left=1, right=Pair(left=A(x=1), right=Color.RED))],
    ),
    "list of Data": (list[A], [(A(x=1), A(x=2, name="b")), ()]),
    "ZSetPython": (ZSetPython[str], [ZSetPython(), ZSetPython({"b": 2, "a": -1, "it's": 1})]),
    "ZSetPython of Pairs": (
        ZSetPython[Pair[int, dt.timedelta | None]],
        [ZSetPython({Pair(left=1, right=None): 1, Pair(left=1, right=dt.timedelta(-1)): 3})],
    ),
    "ZSetPython of ZSetPython": (
        ZSetPython[ZSetPython[float]],
        [ZSetPython({ZSetPython({NAN: 1}): 2, ZSetPython(): 1})],
    ),
}
CASES = [pytest.param(t, values, id=name) for name, (t, values) in EVERY.items()]


def pairs_of(values: list[Any]) -> list[tuple[Any, int]]:
    return [(v, n) for n, v in enumerate(values, 1)]


def nullable(t: RowType) -> RowType:
    return t if isinstance(t, Optional) else Optional(t)


def beside(t: RowType) -> RowType:
    """A row with a field of the type, and one with a value or NULL."""
    return Struct("Pair", (("left", t), ("right", nullable(t))), Pair)


def same(found: Any, expected: Any) -> bool:
    """Equal, of the same types, and drawn alike: 1 is not 1.0 here."""
    return [found] == [expected] and repr(found) == repr(expected)


# There and back


@pytest.mark.parametrize(("annotation", "values"), CASES)
def test_a_row_of_every_type_goes_to_arrow_and_comes_back(annotation: Any, values: Any) -> None:
    t = ZSetType(row_type(annotation))
    table = encode(pairs_of(values), t, "here")
    assert table.schema.equals(t.schema.arrow)
    table.validate(full=True)
    assert same(list(decode(table, t)), pairs_of(values))


@pytest.mark.parametrize(("annotation", "values"), CASES)
def test_a_field_of_every_type_goes_to_arrow_and_comes_back(annotation: Any, values: Any) -> None:
    t = ZSetType(beside(row_type(annotation)))
    rows = [Pair(left=v, right=other) for v in values for other in (v, None)]
    assert same(list(decode(encode(pairs_of(rows), t, "here"), t)), pairs_of(rows))


@pytest.mark.parametrize(("annotation", "values"), CASES)
def test_none_is_a_row_where_the_type_allows_it(annotation: Any, values: Any) -> None:
    t = ZSetType(nullable(row_type(annotation)))
    rows = [None, *values]
    assert same(list(decode(encode(pairs_of(rows), t, "here"), t)), pairs_of(rows))
    if not isinstance(row_type(annotation), Optional):
        with pytest.raises(InputError, match=r"here: expected .*, found None"):
            encode([(None, 1)], ZSetType(row_type(annotation)), "here")


@pytest.mark.parametrize(("annotation", "values"), CASES)
def test_a_table_without_rows_has_the_schema_of_its_type(annotation: Any, values: Any) -> None:
    t = ZSetType(row_type(annotation))
    table = encode([], t, "here")
    assert table.schema.equals(t.schema.arrow)
    assert list(decode(table, t)) == []


micros = st.timedeltas(min_value=-LONGEST, max_value=LONGEST)
decimals = st.decimals(
    min_value=-(10**19), max_value=10**19, places=18, allow_nan=False, allow_infinity=False
)
rows_of_everything = st.builds(
    lambda *fields: fields,
    st.booleans(),
    st.integers(INT_MIN, INT_MAX),
    st.floats(),
    st.text(),
    st.binary(),
    decimals,
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(),
    micros,
    st.uuids(),
    st.sampled_from(Color),
    st.none() | st.integers(-5, 5),
    st.lists(st.none() | st.floats()),
    st.builds(A, x=st.integers(-3, 3), name=st.none() | st.text()),
    st.dictionaries(st.text(max_size=2), st.integers(-3, 3)).map(ZSetPython),
)
EVERYTHING = ZSetType(
    row_type(
        tuple[
            bool,
            int,
            float,
            str,
            bytes,
            Decimal,
            dt.date,
            dt.datetime,
            LocalDateTime,
            dt.timedelta,
            uuid.UUID,
            Color,
            int | None,
            list[float | None],
            A,
            ZSetPython[str],
        ]
    )
)


@given(st.lists(st.tuples(rows_of_everything, st.integers(INT_MIN, INT_MAX)), max_size=4))
def test_rows_at_random_go_to_arrow_and_come_back(pairs: list[tuple[Any, int]]) -> None:
    found = list(decode(encode(pairs, EVERYTHING, "here"), EVERYTHING))
    assert [n for _, n in found] == [n for _, n in pairs]
    wholes = [ZSetPython([(row, 1)]) for row, _ in pairs]
    assert [ZSetPython([(row, 1)]) for row, _ in found] == wholes


# Spark


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kathmandu"])
def zoned(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """A session in one of several time zones, which are to make no difference."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def wide() -> tuple[ZSetType, list[tuple[Any, int]]]:
    """A row type with a field of every type, and rows with every value, and with NULLs."""
    fields = tuple(
        (f"_{i}", beside(row_type(annotation)))
        for i, (annotation, _) in enumerate(EVERY.values(), 1)
    )
    rows = [
        tuple(
            Pair(left=values[n % len(values)], right=values[n % len(values)] if n % 2 else None)
            for _, values in EVERY.values()
        )
        for n in range(2 * max(len(values) for _, values in EVERY.values()))
    ]
    return ZSetType(Struct("tuple", fields, tuple)), pairs_of(rows)


def assert_same(table: pa.Table, t: ZSetType, expected: list[tuple[Any, int]]) -> None:
    assert table.schema.equals(t.schema.arrow)
    for (row, n), (expected_row, expected_n) in zip(decode(table, t), expected, strict=True):
        for name, found, value in zip(EVERY, row, expected_row, strict=True):
            assert same(found, value), name
        assert n == expected_n


@pytest.mark.spark
def test_every_type_goes_to_spark_and_comes_back(zoned: SparkSession) -> None:
    t, pairs = wide()
    frame = frame_of(encode(pairs, t, "here"), t.schema, zoned)
    shuffled = frame.repartition(2, "_1").orderBy("_count_")
    assert_same(conform(shuffled.toArrow(), t.schema), t, pairs)


@pytest.mark.turn(3)
@pytest.mark.spark
def test_many_rows_of_every_type_go_to_spark_in_batches_and_in_order(zoned: SparkSession) -> None:
    t, pairs = wide()
    few = encode(pairs, t, "here")
    times = transfer.ROWS_IN_PLAN // few.num_rows + 1
    before = {name: zoned.conf.get(name) for name in (transfer.LOCAL, transfer.BATCH)}
    frame = frame_of(pa.concat_tables([few] * times), t.schema, zoned)
    assert {name: zoned.conf.get(name) for name in before} == before
    assert "ExistingRDD" in frame._jdf.queryExecution().executedPlan().toString()
    found = conform(frame.toArrow(), t.schema)
    for i in (0, times // 2, times - 1):
        assert_same(found.slice(i * few.num_rows, few.num_rows), t, pairs)
    assert found.num_rows == times * few.num_rows


def test_batches_of_many_rows_are_neither_tiny_nor_large() -> None:
    numbers = pa.table({"n": pa.array(range(100_000), pa.int64())})
    assert transfer.batch_rows(numbers, tasks=4) == 25_000
    assert transfer.batch_rows(numbers, tasks=200) == 10_000
    texts = pa.table({"t": ["x" * 100_000] * 1_000})
    assert transfer.batch_rows(texts, tasks=4) == 167  # 96 MB in six batches


@pytest.mark.spark
def test_a_slice_of_a_table_goes_to_spark_as_it_is(spark: SparkSession) -> None:
    t, pairs = wide()
    frame = frame_of(encode(pairs, t, "here").slice(3), t.schema, spark).orderBy("_count_")
    assert_same(conform(frame.toArrow(), t.schema), t, pairs[3:])


@pytest.mark.spark
def test_a_literal_of_every_type_is_the_value_in_spark(zoned: SparkSession) -> None:
    columns: dict[str, tuple[RowType, Any]] = {}
    for name, (annotation, values) in EVERY.items():
        t = nullable(row_type(annotation))
        columns |= {f"{name} {n}": (t, v) for n, v in enumerate([*values, None])}
    texts = [f"{literal(t.encode(v, n), t)} AS {quote(n)}" for n, (t, v) in columns.items()]
    frame = zoned.sql(f"SELECT {', '.join(texts)}")
    schema = Schema(tuple((n, t) for n, (t, _) in columns.items()), ())
    declared = zoned.createDataFrame([], schema.ddl).schema
    table = conform(frame.toArrow(), schema)
    for field, expected in zip(frame.schema, declared, strict=True):
        assert field.dataType.simpleString() == expected.dataType.simpleString()
    for name, (t, value) in columns.items():
        assert same(t.decode(table.column(name).to_pylist()[0]), value), name


def test_what_spark_may_give_is_brought_to_the_schema() -> None:
    schema = ZSetType(
        row_type(tuple[str, dt.datetime, Decimal, list[str | None], A, dt.timedelta, int])
    ).schema
    moment = dt.datetime(2024, 7, 1, 12, tzinfo=UTC)
    item = pa.field("element", pa.large_string(), nullable=False)
    columns: list[tuple[pa.Field[Any], list[Any]]] = [
        (pa.field("_1", pa.dictionary(pa.int32(), pa.string()), nullable=False), ["a", "b"]),
        (pa.field("_2", pa.timestamp("ns", "America/New_York"), nullable=False), [moment] * 2),
        (pa.field("_3", pa.decimal128(10, 2)), [Decimal("1.50"), None]),
        (pa.field("_4", pa.large_list(item)), [["x"], []]),
        (
            pa.field(
                "_5",
                pa.struct(
                    [
                        pa.field("x", pa.int32(), nullable=False, metadata={"k": "v"}),
                        pa.field("name", pa.large_string()),
                    ]
                ),
                nullable=False,
            ),
            [{"x": 1, "name": None}] * 2,
        ),
        (pa.field("_6", pa.duration("s")), [dt.timedelta(seconds=-1)] * 2),
        (pa.field("_7", pa.int16()), [1, 2]),
        (pa.field("_count_", pa.int32(), nullable=False), [1, 2]),
    ]
    given = pa.Table.from_arrays(
        [pa.array(values, f.type) for f, values in reversed(columns)],
        schema=pa.schema([f for f, _ in reversed(columns)], metadata={"k": "v"}),
    )
    table = conform(given, schema)
    assert table.schema.equals(schema.arrow, check_metadata=True)
    assert table.to_pylist()[0] == {
        "_1": "a",
        "_2": moment,
        "_3": Decimal("1.50"),
        "_4": ["x"],
        "_5": {"x": 1, "name": None},
        "_6": dt.timedelta(seconds=-1),
        "_7": 1,
        "_count_": 1,
    }


# Values that do not fit


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (bool, 1, "expected bool, found 1 (int)"),
        (int, True, "expected int, found True (bool)"),
        (int, 1.0, "expected int, found 1.0 (float)"),
        (int, "abc", "expected int, found 'abc' (str)"),
        (int, 2**63, "9223372036854775808 is beyond the 64 bits of an int column"),
        (float, "1", "expected float, found '1' (str)"),
        (float, True, "expected float, found True (bool)"),
        (float, 2**53 + 1, "9007199254740993 is beyond the integers that a float column holds"),
        (float, 10**400, "is beyond the integers that a float column holds exactly"),
        (str, b"a", "expected str, found b'a' (bytes)"),
        (str, "\ud800", "'\\ud800' is not Unicode text: surrogates not allowed at character 0"),
        (bytes, "a", "expected bytes, found 'a' (str)"),
        (Decimal, 1.5, "expected Decimal, found 1.5 (float)"),
        (Decimal, Decimal("NaN"), "expected Decimal, found Decimal('NaN') (Decimal)"),
        (Decimal, Decimal("1e200"), "1E+200 does not fit Decimal(38, 18)"),
        (Decimal, Decimal("1e-19"), "1E-19 does not fit Decimal(38, 18)"),
        (Annotated[Decimal, Precision(4, 2)], Decimal("100"), "100 does not fit Decimal(4, 2)"),
        (dt.date, dt.datetime(2024, 1, 1), "expected date, found datetime.datetime(2024"),
        (dt.datetime, dt.date(2024, 1, 1), "expected datetime, found datetime.date(2024, 1, 1)"),
        (dt.datetime, dt.datetime(2024, 1, 1), "has no time zone; give it one"),
        (
            dt.datetime,
            dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            "is before year 1 or after year 9999 in UTC",
        ),
        (LocalDateTime, dt.datetime(2024, 1, 1, tzinfo=UTC), "has a time zone; a st.LocalDateTime"),
        (dt.timedelta, 1, "expected timedelta, found 1 (int)"),
        (dt.timedelta, dt.timedelta.max, "is beyond the 64 bits of microseconds of an interval"),
        (uuid.UUID, "12345678-1234-5678-9abc-def012345678", "expected UUID, found '12345678"),
        (Color, "red", "expected Color, found 'red' (str)"),
        (list[int], 1, "expected list[int], found 1 (int)"),
        (list[int], (1, "a"), "here[1]: expected int, found 'a' (str)"),
        (tuple[int, str], (1,), "expected tuple[int, str], found (1,) (tuple)"),
        (tuple[int, str], (1, 2), "here, field '_2': expected str, found 2 (int)"),
        (A, Pair(left=1, right=2), "here: expected A, found Pair(left=1, right=2) (Pair)"),
        (A, A(x="1"), "here, field 'x': expected int, found '1' (str)"),  # type: ignore[arg-type]
        (Pair[int, A], Pair(left=1, right=2), "here, field 'right': expected A, found 2 (int)"),
        (ZSetPython[int], {1: 1}, "expected ZSetPython[int], found {1: 1} (dict)"),
        (ZSetPython[int], ZSetPython({"a": 1}), "expected int, found 'a' (str)"),
        (str, ["long" * 200], f"expected str, found ['{'long' * 49}lo… (list)"),
    ],
)
def test_a_value_that_does_not_fit_is_one_clear_error(
    annotation: Any, value: Any, said: str
) -> None:
    with pytest.raises(InputError) as e:
        encode([(value, 1)], ZSetType(row_type(annotation)), "here")
    assert said in str(e.value)
    assert str(e.value).startswith("here")


@pytest.mark.parametrize("count", [True, 1.0, None, "1", 2**63])
def test_a_count_that_is_no_64_bit_int_is_one_clear_error(count: Any) -> None:
    with pytest.raises(InputError, match="input 'a', a count: "):
        encode([("row", count)], ZSetType(STR), "input 'a'")


def test_a_row_of_a_subclass_is_refused_as_its_other_fields_would_be_lost() -> None:
    class More(A):
        y: int

    with pytest.raises(InputError, match=r"expected A, found .*More"):
        encode([(More(x=1, y=2), 1)], ZSetType(row_type(A)), "here")


@pytest.mark.parametrize(
    "row",
    [
        Pair(left="\ud800", right=dt.timedelta(0)),
        Pair(left="a", right=dt.timedelta.max),
        Pair(left="a", right=dt.timedelta.min),
    ],
)
def test_what_arrow_cannot_take_is_refused_among_many_rows_too(row: Any) -> None:
    fine = Pair(left="a", right=dt.timedelta(0))
    with pytest.raises(InputError, match=r"here, field '(left|right)'"):
        encode(
            [(fine, 1), (row, 1), (fine, 1)], ZSetType(row_type(Pair[str, dt.timedelta])), "here"
        )


def test_an_int_is_taken_for_a_float_or_a_decimal() -> None:
    assert FLOAT.encode(3, "here") == 3.0
    assert DECIMAL.encode(3, "here") == 3


# Data and Pair


def test_data_is_frozen_hashable_and_keyword_only() -> None:
    a = A(x=1, name="b")
    assert a == A(name="b", x=1)
    assert hash(a) == hash(A(name="b", x=1))
    assert repr(a) == "A(x=1, name='b')" or repr(a).endswith("A(x=1, name='b')")
    with pytest.raises(AttributeError):
        a.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        A(1, "b")  # type: ignore[call-arg]


def test_a_subclass_adds_fields_to_those_of_its_base() -> None:
    class More(A):
        y: float

    assert [n for n, _ in row_type(More).fields] == ["x", "name", "y"]  # type: ignore[attr-defined]


def test_rows_with_nan_are_equal_also_inside_lists_and_tuples() -> None:
    class Floats(Data):
        x: float
        xs: list[list[float]]
        t: tuple[float, str]

    def row() -> Floats:
        nan = float("nan")
        return Floats(x=nan, xs=[[nan], [1.0]], t=(nan, "a"))

    assert row() == row()
    assert len({row(), row()}) == 1


def test_the_zeros_of_floats_are_one() -> None:
    assert repr(Pair(left=-0.0, right=(-0.0,))) == repr(Pair(left=0.0, right=(0.0,)))


def test_a_field_type_that_cannot_be_stored_is_an_error_when_the_class_is_made() -> None:
    with pytest.raises(TypeError) as e:

        class Bad(Data):
            fine: int
            things: dict[str, int]

    said = str(e.value)
    assert said.startswith("Bad.things: dict[str, int] cannot be stored in a Spark column; ")
    assert "these can: bool, int, float, str, bytes, Decimal, date" in said


@pytest.mark.parametrize(
    ("annotation", "instead"),
    [
        (dict, list[tuple[str, int]]),
        (dict[str, list[int]], list[tuple[str, list[int]]]),
        (list[dict[int, str]], list[tuple[int, str]]),
        (set, list[int]),
        (frozenset[str], list[str]),
        (complex, tuple[float, float]),
        (bytearray, bytes),
    ],
)
def test_an_error_of_a_field_type_names_one_that_can_be_stored(
    annotation: Any, instead: Any
) -> None:
    shown = instead.__name__ if isinstance(instead, type) else str(instead)
    with pytest.raises(TypeError, match=f"use {re.escape(shown)}; these can: "):
        type("Bad", (Data,), {"__annotations__": {"things": annotation}})
    type("Good", (Data,), {"__annotations__": {"things": instead}})


@pytest.mark.parametrize(
    ("annotation", "instead"),
    [
        (dt.time, "a timedelta"),
        (int | str, "a field for each"),
        (Literal["a"], "the type of the values"),
        (list, "list[int], or another"),
        (tuple, "tuple[int, str], or other"),
    ],
)
def test_an_error_of_a_field_type_says_what_is_similar(annotation: Any, instead: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"use {instead}")):
        type("Bad", (Data,), {"__annotations__": {"things": annotation}})


class Number(enum.Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (complex, "complex cannot be stored"),
        (object, "object cannot be stored"),
        (set[int], "set[int] cannot be stored"),
        (list, "list cannot be stored"),
        (list[complex], "complex cannot be stored"),
        (int | str, "int | str cannot be stored"),
        (Any, "Any cannot be stored"),
        (ZSetPython, "ZSetPython cannot be stored"),
        (Number, "Number: only Enums whose values are strings can be stored"),
        (Annotated[int, Precision(3, 1)], "st.Precision belongs on a Decimal"),
        (Pair, "give the 2 types of its fields in brackets"),
    ],
)
def test_a_type_that_no_column_can_hold_is_a_type_error(annotation: Any, said: str) -> None:
    with pytest.raises(TypeError) as e:
        row_type(annotation)
    assert said in str(e.value)


def test_a_precision_may_stand_inside_or_outside_of_what_is_nullable() -> None:
    inside = Annotated[Decimal, Precision(9, 2)] | None
    outside = Annotated[Decimal | None, Precision(9, 2)]
    assert row_type(inside) == row_type(outside)
    assert row_type(list[outside]).ddl == "ARRAY<DECIMAL(9, 2)>"
    assert row_type(inside) != row_type(Annotated[Decimal, Precision(9, 2)])


@pytest.mark.parametrize("digits", [(0, 0), (39, 1), (5, 6), (5, -1)])
def test_a_precision_that_spark_has_not_is_a_type_error(digits: tuple[int, int]) -> None:
    with pytest.raises(TypeError, match="1 to 38 digits"):
        Precision(*digits)


class Town(Data):
    name: str
    people: int = 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Town(), "Town: no value for 'name'"),  # type: ignore[call-arg]
        (lambda: Town(name="a", size=1), "Town: no field 'size'"),  # type: ignore[call-arg]
        (
            lambda: Town(size=1, mayor="b"),  # type: ignore[call-arg]
            "Town: no field 'size', 'mayor', no value for 'name'",
        ),
        (lambda: Town("a", 1), "Town: 2 positional arguments"),  # type: ignore[call-arg]
    ],
)
def test_a_row_with_other_values_than_its_fields_says_what_they_are(make: Any, said: str) -> None:
    with pytest.raises(TypeError) as e:
        make()
    rest = "Town has the fields name: str, people: int (may be left out): write Town("
    assert str(e.value).startswith(f"{said}; {rest}")


def test_a_type_error_of_a_class_of_its_own_stays_as_it_is() -> None:
    class Even(Data):
        x: int

        def __post_init__(self) -> None:
            raise TypeError("odd")

    with pytest.raises(TypeError, match=r"^odd$"):
        Even(x=1)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (3, "write x: int = 3"),
        (None, "write x: … | None = None"),
        ((1,), "write x: … = (1,)"),
        (int, "write x: int"),
        (list[int], "write x: list[int]"),
        (int | None, "write x: int | None"),
        (ListOf, None),
        (len, None),
        (property(lambda self: 1), None),
        (classmethod(lambda cls: 1), None),
        (Color, None),
    ],
)
def test_a_value_without_a_type_is_no_field_and_says_so(value: Any, remedy: str | None) -> None:
    if remedy is None:
        assert type("A", (Data,), {"x": value}).x is not None  # type: ignore[attr-defined]
        return
    with pytest.raises(TypeError) as e:
        type("A", (Data,), {"x": value})
    assert "A.x = " in str(e.value)
    assert remedy in str(e.value)


def test_what_a_class_has_beside_its_fields_is_let_be() -> None:
    class Kept(Data):
        x: int
        most: ClassVar[int] = 3
        _inner = 4

        class Unit(enum.Enum):
            METRE = "m"

        @property
        def twice(self) -> int:
            return 2 * self.x

        @functools.cached_property
        def thrice(self) -> int:
            return 3 * self.x

    class Again(Kept):
        y: int = Kept.most

    assert [n for n, _ in row_type(Again).fields] == ["x", "y"]  # type: ignore[attr-defined]
    row = Again(x=2)
    assert (row.y, row.most, row.twice, row.thrice, row._inner) == (3, 3, 4, 6, 4)


def test_two_fields_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(TypeError, match="fields 'name' and 'Name' are one column to Spark"):

        class Bad(Data):
            name: str
            Name: str


def test_a_field_that_begins_with_an_underscore_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Bad\._count_: names that begin with '_' are kept"):

        class Bad(Data):
            _count_: int


def test_a_list_as_a_default_is_refused_with_the_tuple_that_does_it() -> None:
    with pytest.raises(TypeError, match=r"A\.x: the default \[1\].*write x = \(1,\)"):

        class A(Data):
            x: list[int] = [1]  # noqa: RUF012


@pytest.mark.parametrize("default", [{"a": 1}, {1}], ids=["dict", "set"])
def test_a_default_that_can_be_changed_and_is_no_list_is_to_be_left_out(default: Any) -> None:
    with pytest.raises(TypeError, match=r"A\.x: the default .*; leave the default out$"):

        class A(Data):
            x: list[int] = default


def test_a_type_that_is_not_defined_yet_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Node\.next: the type names 'Node', which is not defined"):

        class Node(Data):
            value: int
            next: Node | None


def test_a_type_written_as_text_is_found_where_the_class_is_made() -> None:
    class Inner(Data):
        x: int

    class Outer(Data):
        inner: "Inner | None"  # noqa: UP037

    assert str(row_type(Outer).fields[0][1]) == "Inner | None"  # type: ignore[attr-defined]


# Types of rows that do not say theirs


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True], BOOL),
        ([1, None], Optional(INT)),
        ([None], Optional(STR)),
        ([], STR),
        ([dt.datetime(2024, 1, 1)], LOCAL_DATETIME),
        ([dt.datetime(2024, 1, 1, tzinfo=UTC)], DATETIME),
        ([Decimal("1.5")], DECIMAL),
        ([Decimal("1e30")], row_type(Annotated[Decimal, Precision(38, 0)])),
        ([Decimal("1e25"), Decimal("0.25")], row_type(Annotated[Decimal, Precision(38, 2)])),
        ([Color.RED], row_type(Color)),
        ([A(x=1)], row_type(A)),
        ([(1, "a"), (2, None)], row_type(tuple[int, str | None])),
        ([(1,), (2, 3)], ListOf(INT)),
        (
            [Pair(left=A(x=1), right=None), Pair(left=A(x=1), right=1)],
            row_type(Pair[A, int | None]),
        ),
        ([ZSetPython({1: 1}), ZSetPython()], row_type(ZSetPython[int])),
    ],
)
def test_rows_say_what_type_they_are(values: list[Any], expected: RowType) -> None:
    assert infer(values, "here") == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, "a"], "here: the rows are of several types: int and str"),
        ([1, 1.0], "here: the rows are of several types: float and int"),
        ([(1, 2), (1, "a")], "here, field '_2': the rows are of several types: int and str"),
        ([1j], "here: complex cannot be stored in a Spark column"),
        ([Decimal("1e30"), Decimal("1e-30")], "Spark's have 38 in all: round them"),
        ([Decimal("inf")], "a Decimal that is NaN or infinite"),
    ],
)
def test_rows_of_no_common_type_are_one_clear_error(values: list[Any], said: str) -> None:
    with pytest.raises(InputError) as e:
        infer(values, "here")
    assert said in str(e.value)


def test_a_decimal_of_any_context_is_kept_whole() -> None:
    value = Decimal("12345678901234567890.123456789012345678")
    with decimal.localcontext(decimal.Context(prec=5)):
        t = ZSetType(DECIMAL)
        assert list(decode(encode([(value, 1)], t, "here"), t)) == [(value, 1)]


# -- names


def made(class_name: str, *fields: str) -> type[Data]:
    """A row class that a program makes, whose names Python's grammar has not checked."""
    return type(class_name, (Data,), {"__annotations__": dict.fromkeys(fields, int)})


@pytest.mark.parametrize(
    "name", ["x y", "1x", "x: int = print('run')", "class", "", "x\n", "x=__import__('os')", "ſ"]
)
def test_what_is_no_name_is_refused_before_it_becomes_a_part_of_a_program(name: str) -> None:
    with pytest.raises(TypeError, match=r"is not a name for a field of A; use letters"):
        made("A", "good", name)
    with pytest.raises(TypeError, match=r"is not a name for a row class; use letters"):
        made(name, "x")


SAME = [("a", "A"), ("ı", "i"), ("ς", "σ"), ("İ", "i"), ("ẞ", "ß")]
DIFFERENT = [("ß", "SS"), ("ß", "ss"), ("é", "e")]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_fields_that_are_one_to_spark_are_refused(one: str, other: str) -> None:
    with pytest.raises(TypeError, match="are one column to Spark, which ignores case; rename one"):
        made("A", one, other)


def test_spark_takes_just_those_names_for_one(spark: SparkSession) -> None:
    for one, other in SAME + DIFFERENT:
        text = f"SELECT x.`{one}` FROM (SELECT named_struct('{one}', 1, '{other}', 2) AS x)"
        if (one, other) in SAME:
            with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE_TO_FIELDS"):
                spark.sql(text)
        else:
            made("A", one, other)
            assert spark.sql(text).collect() == [(1,)]
