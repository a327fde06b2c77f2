"""Operators that Arrow computes on the driver, against Spark."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.expressions.arrow import evaluator
from stepping_spark.expressions.arrow_calls import is_known
from stepping_spark.expressions.expr import Call, Field, Literal
from stepping_spark.expressions.operations import result_type
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.literals import literal
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
        computed = compute(table)
        assert computed is not None
        assert computed.to_pylist() == [row[i] for row in found], str(e)


@pytest.mark.parametrize(
    ("op", "a", "b"), [("+", 2**63 - 1, 1), ("-", -2, 2**63 - 1), ("*", 2**32, 2**31)]
)
def test_what_is_beyond_64_bits_is_left_to_spark(op: str, a: int, b: int) -> None:
    e = Call(INT, op, (Field(INT, ("a",)), Field(INT, ("b",))))
    compute = evaluator(e)
    assert compute is not None
    assert compute(pa.table({"a": [1, a], "b": [1, b]})) is None
    assert compute(pa.table({"a": [1], "b": [1]})) is not None


def test_floats_and_division_are_left_to_spark() -> None:
    x, n = Field(row_type(float), ("x",)), Field(INT, ("n",))
    for op, e in (("==", x), ("<", x), ("+", x), ("/", n), ("%", n)):
        assert not is_known(Call(result_type(op, (e.type, e.type), ""), op, (e, e)))


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
