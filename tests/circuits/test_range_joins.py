"""Points in intervals, against Spark SQL."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.expressions.expr import Field
from stepping_spark.language import linear
from stepping_spark.language.range_joins import WIDE, bands
from stepping_spark.rows.atoms import INT
from tests.against_sql import held_to_sql

Z = st.ZSet
NOON = dt.datetime(1969, 12, 31, 23, 59, 58, tzinfo=dt.UTC)


class Point(st.Data):
    k: str | None
    n: int | None
    x: float
    d: Decimal
    day: dt.date
    time: dt.datetime
    local: st.LocalDateTime


class Span(st.Data):
    k: str | None
    n: int
    x: float | None
    d: Decimal
    day: dt.date
    time: dt.datetime
    local: st.LocalDateTime
    long: int


def moment(source: random.Random) -> dt.datetime:
    return NOON + dt.timedelta(milliseconds=source.randrange(4000))


def common(source: random.Random) -> dict[str, Any]:
    time = moment(source)
    return {
        "k": source.choice(("a", "b", None)),
        "n": source.choice((-7, -1, 0, 3, 8, 2**62)),
        "x": source.choice((-0.5, 0.0, 2.5, 1e300, float("inf"), float("nan"))),
        "d": Decimal(source.randrange(-20, 20)) / 10,
        "day": dt.date(1969, 12, 25) + dt.timedelta(days=source.randrange(20)),
        "time": time,
        "local": time.replace(tzinfo=None),
    }


def point(source: random.Random) -> Point:
    return Point(**{**common(source), "n": source.choice((None, -8, -7, 0, 2, 9, 2**62))})


def span(source: random.Random) -> Span:
    some = {**common(source), "x": source.choice((-0.5, 0.0, 2.5, 1e300, None))}
    return Span(**some, long=source.choice((-1, 0, 3, 10, 900)))


def milliseconds(n: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=n)


def query_with(ops: Any) -> Any:
    def keys(pairs: Any) -> Any:
        return st.map(
            pairs, f=lambda p: (p.left.k, p.left.n, p.left.time, p.right.k, p.right.n, p.right.long)
        )

    def query(a: Z[Point], b: Z[Span]) -> Any:
        return (
            keys(
                ops.range_join(
                    a,
                    b,
                    at=lambda p: p.n,
                    low=lambda s: s.n,
                    high=lambda s: s.n + s.long % 900,
                    width=4,
                    how="left",
                )
            ),
            keys(
                ops.range_join(
                    a,
                    b,
                    at=lambda p: p.x,
                    low=lambda s: s.x,
                    high=lambda s: s.x + s.long,
                    width=2.0,
                    bounds="(]",
                    on_left=lambda p: p.k,
                    on_right=lambda s: s.k,
                )
            ),
            keys(
                ops.range_join(
                    a,
                    b,
                    at=lambda p: p.d,
                    low=lambda s: s.d,
                    high=lambda s: s.d + s.long,
                    width=1,
                    bounds="[)",
                    where=lambda p: p.left.n < p.right.n,
                    how="left",
                )
            ),
            keys(
                ops.range_join(
                    a,
                    b,
                    at=lambda p: p.day,
                    low=lambda s: s.day,
                    high=lambda s: s.day + s.long,
                    width=dt.timedelta(days=3),
                )
            ),
            keys(
                ops.range_join(
                    a,
                    b,
                    at=lambda p: p.time,
                    low=lambda s: s.time,
                    high=lambda s: s.time + milliseconds(700),
                    width=milliseconds(300),
                    bounds="()",
                )
            ),
            keys(
                ops.range_join(
                    a,
                    b,
                    at=lambda p: p.local,
                    low=lambda s: s.local - milliseconds(60),
                    high=lambda s: s.local,
                    width=milliseconds(1),
                )
            ),
        )

    return query


SHOWN = "SELECT a.k, a.n, a.time, b.k, b.n, b.long FROM a"
SQL = {
    "ints": f"{SHOWN} LEFT JOIN b ON a.n >= b.n AND a.n <= b.n + b.long % 900",
    "floats": f"{SHOWN} JOIN b ON a.k = b.k AND a.x > b.x AND a.x <= b.x + b.long",
    "Decimals": f"{SHOWN} LEFT JOIN b ON a.d >= b.d AND a.d < b.d + b.long AND a.n < b.n",
    "days": f"{SHOWN} JOIN b ON a.day BETWEEN b.day AND date_add(b.day, CAST(b.long AS INT))",
    "times": f"""
        {SHOWN} JOIN b ON a.time > b.time AND a.time < b.time + INTERVAL '0.7' SECOND
    """,
    "local times": f"""
        {SHOWN} JOIN b ON a.local BETWEEN b.local - INTERVAL '0.06' SECOND AND b.local
    """,
}


@pytest.mark.parametrize(
    ("local_rows", "optimize"),
    [
        (2_000_000, True),
        pytest.param(0, True, marks=pytest.mark.long),
        pytest.param(0, False, marks=pytest.mark.long),
    ],
)
def test_they_are_those_of_sql(spark: SparkSession, local_rows: int, optimize: bool) -> None:
    graph: Any = st.compile(query_with(st), optimize=optimize)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    held_to_sql(spark, graph, lambda: stepper, SQL, {"a": point, "b": span}, steps=3)


def test_the_lifted_circuit_is_that_of_whole_values() -> None:
    whole: Any = st.compile(st.incrementalize(query_with(linear)))
    assert whole == st.compile(query_with(st))


def test_an_interval_of_many_bands_is_in_the_one_of_all_points() -> None:
    ends = (Field(INT, ("_1",)), Field(INT, ("_2",)))
    interval = bands(INT, *ends, 10, point=False)
    assert [p.right for p in interval.of(7, -11, 9)] == [-2, -1, 0]
    assert [p.right for p in interval.of(7, 0, 640)] == [WIDE]
    assert interval.of(7, 3, 2) == (st.Pair(left=7, right=0),)
    assert interval.of(7, 13, 2) == ()
    assert interval.of(7, None, 2) == ()


def test_a_pair_meets_once_at_the_ends_of_64_bits_too(spark: SparkSession) -> None:
    def query(a: Z[int], b: Z[tuple[int, int]]) -> Z[st.Pair[int, tuple[int, int]]]:
        return st.range_join(a, b, at=lambda n: n, low=lambda i: i[0], high=lambda i: i[1], width=1)

    graph = st.compile(query)
    least, most = -(2**63), 2**63 - 1
    points = st.ZSetPython([(n, 1) for n in (least, least + 1, least + 2, 0, most)])
    spans = [(least, least), (least, least + 2), (least, most), (0, most), (most, most)]
    intervals = st.ZSetPython([(s, 1) for s in spans])
    for local_rows in (st.Limits.local_rows, 0):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        (out,) = stepper.step((points, intervals))
        inside = [
            st.Pair(left=n, right=(low, high))
            for n, _ in points.iter()
            for low, high in spans
            if low <= n <= high
        ]
        assert out == st.ZSetPython([(p, 1) for p in inside])


def refused(**changed: Any) -> str:
    def query(a: Z[Point], b: Z[Span]) -> Any:
        arguments: Any = {
            "at": lambda p: p.n,
            "low": lambda s: s.n,
            "high": lambda s: s.n + 1,
            "width": 4,
        }
        return st.range_join(a, b, **arguments | changed)

    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    return str(e.value)


def test_what_has_no_bands_is_refused() -> None:
    assert "width=0: the width of a band of int is a number greater than zero" in refused(width=0)
    assert "of type int, float, Decimal, date" in refused(at=lambda p: p.k)
    assert "at, low and high are of one type" in refused(at=lambda p: p.x)
    assert "bounds='[['; it is '[]'" in refused(bounds="[[")
    assert "come together" in refused(on_left=lambda p: p.k)
    days: Any = {"at": lambda p: p.day, "low": lambda s: s.day, "high": lambda s: s.day}
    assert "of a band of date is a timedelta" in refused(**days, width=3)
