"""Operators that Arrow computes on the driver, against Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.expressions.arrow_evaluator import evaluator, unknown_zone
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Call, Field, Literal
from stepping_spark.expressions.operations import result_type
from stepping_spark.expressions.spark_to_arrow import SparkFunction, function_of
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.sql_text import literal
from stepping_spark.rows.types import Optional, row_type

TIMES = [dt.datetime(1960, 1, 1), dt.datetime(2024, 1, 1, 1, 1, 1, 5)]
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
CASES: list[tuple[Any, tuple[str, ...], list[Any]]] = [
    (int, ("+", "-", "*", *COMPARISONS), [0, 1, -1, 7, 2**31, -(2**31)]),
    (str, COMPARISONS, ["", "a", "Z", "é", "e\u0301", "\U0001f600", "\uffff", "ab"]),
    (bool, ("&", "|"), [True, False]),
    (dt.date, COMPARISONS, [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]),
    (dt.datetime, COMPARISONS, [t.replace(tzinfo=dt.UTC) for t in TIMES]),
    (st.LocalDateTime, COMPARISONS, TIMES),
    (dt.timedelta, COMPARISONS, [dt.timedelta(days=-1, microseconds=1), dt.timedelta(0)]),
    (Annotated[Decimal, st.Precision(10, 2)], COMPARISONS, [Decimal("1.25"), Decimal("-1")]),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "names", "values"), CASES, ids=lambda v: str(v)[:20])
def test_arrow_says_of_two_values_what_spark_says(
    spark: SparkSession, annotation: Any, names: tuple[str, ...], values: list[Any]
) -> None:
    t = Optional(row_type(annotation))
    pairs = list(itertools.product([*values, None], repeat=2))
    rows = [tuple(t.encode(v, "a test") for v in pair) for pair in pairs]
    a, b = Field(t, ("a",)), Field(t, ("b",))
    one = Literal(t.inner, values[-1])
    calls = [
        Call(result_type(n, (t, t), ""), n, args) for n in names for args in ((a, b), (one, b))
    ]
    calls += [Call(result_type(n, (t,), ""), n, (a,)) for n in ("isNull", "isNotNull")]
    unary = {"int": "neg", "bool": "~"}.get(str(t.inner))
    if unary is not None:
        calls.append(Call(result_type(unary, (t,), ""), unary, (a,)))
    assert all(map(is_known, calls))
    texts = ", ".join(
        f"({i}, {', '.join(literal(v, t) for v in row)})" for i, row in enumerate(rows)
    )
    shown = ", ".join(f"{e.sql('t')} AS e{i}" for i, e in enumerate(calls))
    found = spark.sql(f"SELECT {shown} FROM VALUES {texts} AS t(i, a, b) ORDER BY i").collect()
    table = pa.table({n: pa.array([r[i] for r in rows], t.arrow) for i, n in enumerate("ab")})
    for i, e in enumerate(calls):
        compute = evaluator(e)
        assert compute is not None
        computed = compute(table, unknown_zone)
        assert computed is not None
        assert computed.to_pylist() == [row[i] for row in found], str(e)


@pytest.mark.parametrize(
    ("op", "a", "b"), [("+", 2**63 - 1, 1), ("-", -2, 2**63 - 1), ("*", 2**32, 2**31)]
)
def test_what_is_beyond_64_bits_is_left_to_spark(op: str, a: int, b: int) -> None:
    e = Call(INT, op, (Field(INT, ("a",)), Field(INT, ("b",))))
    compute = evaluator(e)
    assert compute is not None
    assert compute(pa.table({"a": [1, a], "b": [1, b]}), unknown_zone) is None
    assert compute(pa.table({"a": [1], "b": [1]}), unknown_zone) is not None


def decimal_of(precision: int, scale: int) -> Any:
    return row_type(cast("Any", Annotated[Decimal, st.Precision(precision, scale)]))


def decimals_in(t: Any) -> list[Decimal]:
    """Those of the most digits, and others."""
    most, least = (Decimal((sign, (9,) * t.precision, -t.scale)) for sign in (0, 1))
    halves = [Decimal(n).scaleb(-t.scale) for n in (5, -5, 15, 25, 1)]
    return [most, least, Decimal(0), *(x for x in halves if least <= x <= most)]


FLOATS = [0.0, -0.0, 1.5, -3.0, math.inf, -math.inf, math.nan, 5e-324, 1e308]
INTS = [0, 1, -1, 2**53 + 1, -(2**63), 2**63 - 1, 10]
ARITHMETIC = ("+", "-", "*")
MIXED: list[tuple[Any, Any, tuple[str, ...]]] = [
    *((decimal_of(*a), decimal_of(*b), (*ARITHMETIC, *COMPARISONS)) for a, b in (
        ((15, 2), (15, 2)), ((10, 0), (4, 4)), ((18, 6), (18, 3)), ((1, 0), (36, 2)),
    )),
    (decimal_of(38, 2), decimal_of(20, 2), COMPARISONS),
    (decimal_of(12, 2), INT, (*ARITHMETIC, *COMPARISONS)),
    (INT, decimal_of(17, 4), (*ARITHMETIC, *COMPARISONS)),
    (row_type(float), row_type(float), (*ARITHMETIC, *COMPARISONS, "eqNullSafe", "isin")),
    (row_type(float), INT, (*ARITHMETIC, *COMPARISONS, "eqNullSafe")),
    (INT, row_type(float), (*ARITHMETIC, *COMPARISONS)),
    *((decimal_of(*a), row_type(float), (*ARITHMETIC, "/", "%", *COMPARISONS, "eqNullSafe", "isin"))
      for a in ((15, 2), (16, 0), (38, 38), (38, 10))),
    (row_type(float), decimal_of(15, 15), (*ARITHMETIC, "/", "%", *COMPARISONS, "isin")),
    (INT, INT, ("eqNullSafe", "isin", "coalesce")),
    (row_type(str), row_type(str), ("eqNullSafe", "isin", "coalesce")),
    (row_type(bytes), row_type(bytes), COMPARISONS),
    (row_type(bool), row_type(bool), ("==", "!=", "eqNullSafe", "coalesce")),
]  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "int": INTS,
    "float": FLOATS,
    "str": ["", "a", "b"],
    "bytes": [b"", b"\x00", b"\xff", b"a"],
    "bool": [True, False],
}


def shown(x: Any) -> Any:
    """A value as text where equality would not tell zeros apart, or NaN from itself."""
    return repr(x) if isinstance(x, float) else x


def shown_as_one_zero(x: Any) -> Any:
    """The same, where rows have one zero."""
    return shown(x + 0.0 if isinstance(x, float) else x)


def check(spark: SparkSession, calls: list[Any], rows: list[tuple[Any, ...]], *types: Any) -> int:
    """Compare each expression row by row: a row that Spark fails for is left to Spark.

    How many values were compared.
    """
    columns, known = [], []
    for e in calls:
        compute = evaluator(e)
        assert compute is not None, str(e)
        made: dict[int, Any] = {}
        for i, row in enumerate(rows):
            arrays = [pa.array([v], t.arrow) for v, t in zip(row, types, strict=True)]
            found = compute(pa.table(arrays, names=list("ab"[: len(types)])), unknown_zone)
            if found is not None:
                made[i] = found[0].as_py()
        known.append(made)
        columns.append(f"CASE WHEN i IN ({', '.join(map(str, made))}) THEN {e.sql('t')} END")
    texts = ", ".join(
        f"({i}, {', '.join(literal(v, t) for v, t in zip(row, types, strict=True))})"
        for i, row in enumerate(rows)
    )
    names = ", ".join("ab"[: len(types)])
    text = f"SELECT {', '.join(columns)} FROM VALUES {texts} AS t(i, {names}) ORDER BY i"
    said = spark.sql(text).collect()
    for j, (e, made) in enumerate(zip(calls, known, strict=True)):
        wanted = {i: shown(said[i][j]) for i in made}
        assert {i: shown(v) for i, v in made.items()} == wanted, str(e)
        for i in made:
            values = (t.decode(v) for t, v in zip(types, rows[i], strict=True))
            found = e.value(SimpleNamespace(**dict(zip("ab", values, strict=False))))
            encoded = e.type.encode(found, "a test")
            assert shown_as_one_zero(encoded) == shown_as_one_zero(said[i][j]), f"{e} of {rows[i]}"
    return sum(map(len, known))


@pytest.mark.turn(2)
@pytest.mark.parametrize(("one", "other", "names"), MIXED, ids=str)
def test_arrow_says_of_two_types_what_spark_says(
    spark: SparkSession, one: Any, other: Any, names: tuple[str, ...]
) -> None:
    types = Optional(one), Optional(other)
    a, b = (Field(t, (n,)) for n, t in zip("ab", types, strict=True))
    values = [VALUES.get(t.name) or decimals_in(t) for t in (one, other)]
    rows = list(itertools.product(*([*some, None] for some in values)))
    encoded = [tuple(t.encode(v, "a test") for v, t in zip(r, types, strict=True)) for r in rows]
    constant = Literal(other, values[1][-1])
    calls = []
    for name in names:
        t = types[0] if name == "coalesce" else result_type(name, types, "")
        calls += [Call(t, name, (a, b)), Call(t, name, (a, constant))]
    most = len(calls) * len(rows)
    assert most / 2 < check(spark, calls, encoded, *types) <= most  # less what is beyond 64 bits


def test_arrow_says_of_one_value_what_spark_says(spark: SparkSession) -> None:
    for t, names in (
        (row_type(float), ("neg", "to_float")),
        (INT, ("to_float", "to_int")),
        (decimal_of(15, 2), ("neg",)),
        (row_type(dt.datetime), ("minute",)),
        (row_type(cast("Any", st.LocalDateTime)), ("minute", "local_minute")),
    ):
        given = {"to_float": row_type(float), "minute": INT, "local_minute": INT}
        zone = dt.UTC if t == row_type(dt.datetime) else None
        times = [x.replace(tzinfo=zone) for x in (*TIMES, dt.datetime(1, 1, 1, 0, 0, 59))]
        some = VALUES.get(str(t)) or (decimals_in(t) if "Decimal" in str(t) else times)
        rows = [(Optional(t).encode(v, "a test"),) for v in (*some, None)]
        a = Field(Optional(t), ("a",))
        calls = [Call(Optional(given.get(n, t)), n, (a,)) for n in names]
        assert check(spark, calls, rows, Optional(t)) == len(calls) * len(rows)


def test_decimals_are_rounded_as_spark_rounds_them(spark: SparkSession) -> None:
    for t, to in (
        (decimal_of(15, 4), decimal_of(15, 2)),
        (decimal_of(38, 18), decimal_of(38, 4)),
        (decimal_of(5, 1), decimal_of(4, 0)),
        (INT, decimal_of(25, 3)),
        (decimal_of(3, 0), decimal_of(38, 18)),
    ):
        a = Field(Optional(t), ("a",))
        values = VALUES.get(str(t)) or decimals_in(t)
        rows = [(Optional(t).encode(v, "a test"),) for v in (*values, None)]
        compared = check(spark, [Call(Optional(to), "to_decimal", (a,))], rows, Optional(t))
        assert compared >= len(rows) - 2  # those of the most digits may not fit


def test_a_negative_that_spark_rounds_is_left_to_spark(spark: SparkSession) -> None:
    """Java has 34 digits there. Plain Python rounds to as many."""
    t = decimal_of(38, 3)
    numbers = ("9" * 34, "9" * 35, "1" * 33 + "65", "1" * 33 + "75", "1" * 38)
    values = [Decimal(f"{sign}{n}e-3") for n in numbers for sign in ("", "-")]
    neg = Call(t, "neg", (Field(t, ("_value_",)),))
    size = function_of("abs", [Field(t, ("_value_",))])
    assert isinstance(size, SparkFunction)
    texts = ", ".join(f"(CAST('{v}' AS {t.ddl}))" for v in values)
    said = spark.sql(f"SELECT -x AS neg, abs(x) AS size FROM VALUES {texts} AS t(x)").collect()
    computed = []
    for e in (neg, size):
        compute = evaluator(e)
        assert compute is not None
        tables = [pa.table({"_value_": pa.array([v], t.arrow)}) for v in values]
        computed.append([compute(table, unknown_zone) for table in tables])
    for column, wanted in zip(computed, ("neg", "size"), strict=True):
        for found, row in zip(column, said, strict=True):
            assert found is None or found[0].as_py() == row[wanted]
    asks = [[found is None for found in column] for column in computed]
    assert asks[0] == [len(n) > 34 for n in numbers for _ in "+-"]
    assert asks[1] == [len(n) > 34 and sign == "-" for n in numbers for sign in "+-"]
    assert [neg.value(v) for v in values] == [row.neg for row in said]
    assert said[2].neg != values[3]


def test_ints_are_compared_as_floats_among_floats(spark: SparkSession) -> None:
    types = INT, INT, row_type(float)
    a, b, c = (Field(Optional(t), (n,)) for n, t in zip("abc", types, strict=True))
    rows = [(2**53 + 1, 2**53, 0.5), (1, 2, 1.0), (1, 2, None), (None, 1, 1.0), (3, 4, math.nan)]
    e = Call(Optional(row_type(bool)), "isin", (a, b, c))
    texts = ", ".join(
        f"({', '.join(literal(v, Optional(t)) for v, t in zip(row, types, strict=True))})"
        for row in rows
    )
    said = spark.sql(f"SELECT {e.sql('t')} AS x FROM VALUES {texts} AS t(a, b, c)").collect()
    columns = [
        pa.array(column, t.arrow) for column, t in zip(zip(*rows, strict=True), types, strict=True)
    ]
    compute = evaluator(e)
    assert compute is not None
    computed = compute(pa.table(columns, names=["a", "b", "c"]), unknown_zone)
    assert computed is not None
    assert computed.to_pylist() == [row.x for row in said]
    assert computed.to_pylist()[0] is True
    assert e.value(SimpleNamespace(a=2**53 + 1, b=2**53, c=0.5)) is True


def test_arrow_moves_days_as_spark_does(spark: SparkSession) -> None:
    day, by = Optional(row_type(dt.date)), Optional(INT)
    a, b = Field(day, ("a",)), Field(by, ("b",))
    days = [dt.date.min, dt.date.max, dt.date(2024, 2, 29), None]
    rows = [(day.encode(d, ""), n) for d in days for n in (0, 1, -1, 366, 3_652_058, None)]
    calls = [Call(day, op, (a, b)) for op in ("+", "-")]
    assert 30 < check(spark, calls, rows, day, by) < 48  # others are before year 1, or after 9999
    compute = evaluator(calls[0])
    assert compute is not None
    far = pa.table([pa.array([dt.date(2024, 1, 1)]), pa.array([2**40])], names=["a", "b"])
    assert compute(far, unknown_zone) is None


def test_what_is_rounded_otherwise_is_left_to_spark() -> None:
    d, whole = Field(decimal_of(38, 18), ("d",)), Field(decimal_of(38, 0), ("w",))
    for op, a, b in (("%", d, d), ("isin", d, whole)):
        assert not is_known(Call(result_type(op, (a.type, b.type), ""), op, (a, b)))


def test_arrow_says_of_remainders_what_spark_says(spark: SparkSession) -> None:
    for t, other in ((INT, INT), (row_type(float), row_type(float)), (INT, row_type(float))):
        types = Optional(t), Optional(other)
        divisors = [v for v in VALUES[str(other)] if v != 0]
        rows = list(itertools.product([*VALUES[str(t)], None], [*divisors, None]))
        a, b = (Field(x, (n,)) for n, x in zip("ab", types, strict=True))
        kind = result_type("%", types, "")
        calls = [Call(kind, "%", (a, b)), Call(kind, "%", (a, Literal(other, divisors[-1])))]
        most = len(calls) * len(rows)
        assert most - 1 <= check(spark, calls, rows, *types) <= most  # the least int, and -1


@pytest.mark.parametrize("t", [INT, row_type(float)], ids=str)
def test_a_remainder_of_zero_is_left_to_spark(t: Any) -> None:
    compute = evaluator(Call(t, "%", (Field(t, ("a",)), Field(t, ("b",)))))
    assert compute is not None
    zero = pa.table([pa.array([1, 1], t.arrow), pa.array([1, 0], t.arrow)], names=["a", "b"])
    assert compute(zero, unknown_zone) is None


def test_division_by_zero_is_left_to_spark() -> None:
    e = Call(row_type(float), "/", (Field(INT, ("a",)), Field(INT, ("b",))))
    compute = evaluator(e)
    assert compute is not None
    assert compute(pa.table({"a": [1, 1], "b": [1, 0]}), unknown_zone) is None
    assert compute(pa.table({"a": [1, 7], "b": [3, -2]}), unknown_zone).to_pylist() == [1 / 3, -3.5]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_an_overflow_means_what_the_session_says(spark: SparkSession, ansi: str) -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.map(a, f=lambda x: x + 1)

    before = str(spark.conf.get("spark.sql.ansi.enabled"))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        graph = st.compile(query)
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
        change = (st.ZSetPython({2**63 - 1: 1, 5: 2}),)
        if ansi == "true":
            with pytest.raises(st.StepError, match="overflow"):
                stepper.step(change)
        else:
            (out,) = stepper.step(change)
            assert out == st.ZSetPython({-(2**63): 1, 6: 2})
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
