"""Aggregates over frames that Spark's window functions have under other names, or not at all."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, cast

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.cases import constants
from tests.every_store import MakeStore

Money = Annotated[Decimal, st.Precision(12, 2)]


class Sale(st.Data):
    id: int
    shop: str | None
    day: int
    size: int | None
    amount: float
    price: Money | None
    rush: bool | None


class Row(st.Data):
    id: int
    middle: float | None
    low: float | None
    high: float
    every: bool | None
    some: bool | None
    any: int | None
    spread: float | None
    of_all: float | None
    var: float | None
    both: float | None


ROWS: dict[str, Any] = {
    "middle": st.win.median(lambda s: s.size, rows=(-3, 1)),
    "low": st.win.percentile(lambda s: s.price, 0.1, range=(-2, 0)),
    "high": st.win.percentile(lambda s: s.amount, 0.9),
    "every": st.win.bool_and(lambda s: s.rush, rows=(-1, 1)),
    "some": st.win.bool_or(lambda s: s.rush, range=(None, -1)),
    "any": st.win.any_value(lambda s: s.size, rows=(1, 2)),
    "spread": st.win.stddev(lambda s: s.size, rows=(-4, 0)),
    "of_all": st.win.variance(lambda s: s.amount, population=True),
    "var": st.win.variance(lambda s: s.price, rows=(None, None)),
    "both": st.win.corr(lambda s: s.size, lambda s: s.amount, rows=(-6, 6)),
}


def over_frames(s: st.ZSet[Sale]) -> st.ZSet[Row]:
    return st.window(s, by=lambda s: s.shop, order=lambda s: s.day, into=Row, **ROWS)


ORDER = "PARTITION BY shop ORDER BY day, id, shop, size, amount, price, rush"
SQL = f"""
    SELECT id, percentile(size, 0.5) OVER ({ORDER} ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING),
        percentile(price, 0.1) OVER (o RANGE BETWEEN 2 PRECEDING AND CURRENT ROW),
        percentile(amount, 0.9) OVER o,
        bool_and(rush) OVER ({ORDER} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING),
        bool_or(rush) OVER (o RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
        min(size) OVER ({ORDER} ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING),
        stddev(size) OVER ({ORDER} ROWS BETWEEN 4 PRECEDING AND CURRENT ROW),
        var_pop(amount) OVER o, variance(price) OVER (PARTITION BY shop),
        corr(size, amount) OVER ({ORDER} ROWS BETWEEN 6 PRECEDING AND 6 FOLLOWING)
    FROM sales
""".replace("(o ", "(PARTITION BY shop ORDER BY day ").replace(
    "OVER o", "OVER (PARTITION BY shop ORDER BY day)"
)


def sale(draw: random.Random, number: int) -> Sale:
    return Sale(
        id=number,
        shop=draw.choice(("a", "b", None)),
        day=draw.randrange(12),
        size=draw.choice((None, *range(-2, 5))),
        amount=draw.choice((0.0, 1.5, -2.25, 0.1)),
        price=draw.choice((None, Decimal(draw.randrange(-500, 500)).scaleb(-2))),
        rush=draw.choice((None, True, False)),
    )


def changes(seed: int, steps: int) -> Any:
    """Changes of sales, each with what is there then."""
    draw = random.Random(seed)
    there: list[Sale] = []
    for step in range(steps):
        gone = [there.pop(draw.randrange(len(there))) for _ in range(len(there) // 3)]
        came = [sale(draw, 20 * step + i) for i in range(15)]
        there += [*came, came[0]]  # one row counts twice
        pairs = [(s, 1) for s in came] + [(came[0], 1)] + [(s, -1) for s in gone]
        yield st.ZSetPython(pairs), list(there)


def rounded(rows: Any) -> Counter[Any]:
    """Rows with floats to nine digits: Spark adds them up in another order."""
    found: Counter[Any] = Counter()
    for row, n in rows:
        cells = (float(f"{x:.9g}") + 0.0 if isinstance(x, float) else x for x in row)
        found[tuple("NaN" if x != x else x for x in cells)] += n
    return Counter({row: n for row, n in found.items() if n})


@pytest.mark.parametrize(
    ("local_rows", "steps"),
    [pytest.param(0, 2, marks=pytest.mark.long), (2_000_000, 4)],
)
def test_aggregates_over_frames_are_those_of_spark_sql(
    local_rows: int, steps: int, spark: SparkSession
) -> None:
    graph = st.compile(over_frames)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    found: Counter[Any] = Counter()
    for change, there in changes(4, steps):
        (out,) = stepper.step((change,))
        for row, n in out.iter():
            found[row] += n
        ddl = "id bigint, shop string, day bigint, size bigint, amount double, "
        rows = [tuple(vars(s).values()) for s in there]
        frame = spark.createDataFrame(rows, ddl + "price decimal(12, 2), rush boolean")
        frame.createOrReplaceTempView("sales")
        expected = rounded((tuple(r), 1) for r in spark.sql(SQL).collect())
        assert rounded((vars(row).values(), n) for row, n in found.items()) == expected


@constants(cut_rows=0)
def test_they_are_those_of_plain_python_in_every_store(make_store: MakeStore) -> None:
    graph = st.compile(over_frames)
    stepper = st.Stepper(graph, make_store(graph))
    reference = st.reference(graph)
    for change, _ in changes(9, 4):
        assert stepper.step((change,)) == reference.step((change,))


class Moments(st.Data):
    n: int
    mean: float
    spread: float | None
    middle: float


def moments(a: st.ZSet[tuple[int, float]]) -> st.ZSet[Moments]:
    return st.window(
        a,
        order=lambda r: r[0],
        into=Moments,
        n=lambda r: r[0],
        mean=st.win.avg(lambda r: r[1], rows=(-1, 0)),
        spread=st.win.stddev(lambda r: r[1], rows=(-1, 0)),
        middle=st.win.median(lambda r: r[1], rows=(None, 0)),
    )


@pytest.mark.parametrize("local_rows", [0, 2_000_000])
def test_large_and_odd_numbers_leave_a_frame_as_if_they_had_not_been_there(
    local_rows: int, spark: SparkSession
) -> None:
    graph = st.compile(moments)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    numbers = [1e16, 1.0, 3.0, math.nan, math.inf, 5.0, 6.0]
    change: Any = st.ZSetPython([(r, 1) for r in enumerate(numbers)])
    (out,) = stepper.step((change,))
    rows = {row.n: row for row, _ in out.iter()}
    assert (rows[2].mean, rows[2].spread) == (2.0, math.sqrt(2.0))
    assert math.isnan(cast(float, rows[3].spread))
    assert (rows[6].mean, rows[6].spread) == (5.5, math.sqrt(0.5))
    assert [rows[i].middle for i in (0, 1, 2, 6)] == [1e16, 5000000000000001.0, 3.0, 6.0]
    assert (out,) == st.reference(graph).step((change,))


class Plain(st.Data):
    id: int
    n: float | None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: st.win.percentile(lambda s: s.size, 90), "n: a percentile is a number from 0 to"),
        (lambda: st.win.percentile(lambda s: s.size, cast(Any, "x")), "found 'x'; write 0.9"),
        (lambda: st.win.median(lambda s: s.shop), "str | None cannot be added up"),
        (lambda: st.win.bool_and(lambda s: s.size), "int | None is not a bool"),
        (lambda: st.win.corr(lambda s: s.size, lambda s: s.shop), "cannot be added up"),
        (lambda: st.agg.median(lambda s: s.size), r"write n=st\.win\.median\("),
        (lambda: st.agg.mode(lambda s: s.size), r"st\.agg\.mode has no frames.*st\.aggregate"),
    ],
)
def test_what_does_not_fit_is_refused_where_the_query_is_compiled(
    function: Callable[[], Any], said: str
) -> None:
    def query(s: st.ZSet[Sale]) -> st.ZSet[Plain]:
        return st.window(s, order=lambda s: s.day, into=Plain, n=function())

    with pytest.raises(st.CompileError, match=said):
        st.compile(query)


def test_an_aggregate_that_no_frame_has_is_told_with_what_to_do_instead() -> None:
    with pytest.raises(AttributeError, match=r"join the rows with st\.aggregate"):
        getattr(st.win, "collect_list")  # noqa: B009


def test_percentiles_are_those_of_spark_to_the_last_digit(spark: SparkSession) -> None:
    """Of a group too: between two values Spark goes from the lower one on."""
    draw = random.Random(2)
    numbers = [draw.uniform(-1, 1) * 10 ** draw.randrange(-5, 17) for _ in range(200)]
    numbers += [-math.inf, 1.0, 1.0, math.inf]

    class Share(st.Data):
        n: int
        low: float

    def query(a: st.ZSet[tuple[int, float]]) -> tuple[st.ZSet[Share], st.ZSet[Share]]:
        low: Any = st.agg.percentile(lambda r: r[1], 0.37)
        of_frame: Any = st.win.percentile(lambda r: r[1], 0.37, rows=(None, None))
        return (
            st.aggregate(a, by=lambda r: r[0], into=Share, low=low),
            st.window(a, by=lambda r: r[0], into=Share, n=lambda r: r[0], low=of_frame),
        )

    rows = [(i // 2, x) for i, x in enumerate(numbers)]
    spark.createDataFrame(rows, "n long, x double").createOrReplaceTempView("numbers")
    text = "SELECT n, percentile(x, 0.37D) FROM numbers GROUP BY n"
    expected = {n: repr(low) for n, low in spark.sql(text).collect()}
    graph = st.compile(query)
    for local_rows in (0, 2_000_000):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        change: Any = st.ZSetPython([(r, 1) for r in rows])
        for out in stepper.step((change,)):
            assert {row.n: repr(row.low) for row, _ in out.iter()} == expected
