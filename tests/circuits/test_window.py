"""Window functions, against Spark SQL's own, and what they say of calls that do not fit."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, cast

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st

Money = Annotated[Decimal, st.Precision(12, 2)]


class Sale(st.Data):
    id: int
    shop: str | None
    day: dt.date
    at: dt.datetime | None
    size: int | None
    amount: float | None
    price: Money


class Row(st.Data):
    id: int
    number: int
    rank: int
    dense: int
    percent: float
    share: float
    tile: int
    before: int | None
    after: float | None
    first: float | None
    second: int | None
    last: int | None
    known: int
    total: float | None
    money: Annotated[Decimal, st.Precision(22, 2)] | None
    mean: float | None
    price: Annotated[Decimal, st.Precision(16, 6)] | None
    least: float | None
    greatest: str | None


def by_size(s: st.ZSet[Sale]) -> st.ZSet[Row]:
    return st.window(
        s,
        by=lambda s: s.shop,
        order=st.win.asc(lambda s: s.size, nulls="last"),
        into=Row,
        number=st.win.row_number(),
        rank=st.win.rank(),
        dense=st.win.dense_rank(),
        percent=st.win.percent_rank(),
        share=st.win.cume_dist(),
        tile=st.win.ntile(4),
        before=st.win.lag(lambda s: s.size, 2, ignore_nulls=True),
        after=st.win.lead(lambda s: s.amount, default=-1.0),
        first=st.win.first_value(lambda s: s.amount, rows=(-3, None)),
        second=st.win.nth_value(lambda s: s.size, 2, rows=(-1, 1)),
        last=st.win.last_value(lambda s: s.id, rows=(None, 1)),
        known=st.win.count(lambda s: s.size, range=(-1, 1)),
        total=st.win.sum(lambda s: s.amount, range=(-2, 0)),
        money=st.win.sum(lambda s: s.price, rows=(1, 3)),
        mean=st.win.avg(lambda s: s.size),
        price=st.win.avg(lambda s: s.price, rows=(None, None)),
        least=st.win.min(lambda s: s.amount, rows=(-2, 2)),
        greatest=st.win.max(lambda s: s.shop, range=(None, -1)),
    )


ROW = "size NULLS LAST, id, shop, day, at, size, amount, price"
BY_SIZE = f"""
    SELECT id, row_number() OVER r, rank() OVER o, dense_rank() OVER o, percent_rank() OVER o,
        cume_dist() OVER o, ntile(4) OVER r, lag(size, 2) IGNORE NULLS OVER r,
        lead(amount, 1, -1D) OVER r,
        first_value(amount) OVER (r ROWS BETWEEN 3 PRECEDING AND UNBOUNDED FOLLOWING),
        nth_value(size, 2) OVER (r ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING),
        last_value(id) OVER (r ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING),
        count(size) OVER (o RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING),
        sum(amount) OVER (o RANGE BETWEEN 2 PRECEDING AND CURRENT ROW),
        sum(price) OVER (r ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING),
        avg(size) OVER o, avg(price) OVER (PARTITION BY shop),
        min(amount) OVER (r ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING),
        max(shop) OVER (o RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    FROM sales
    WINDOW r AS (PARTITION BY shop ORDER BY {ROW}),
        o AS (PARTITION BY shop ORDER BY size NULLS LAST)
""".replace("OVER (r ", f"OVER (PARTITION BY shop ORDER BY {ROW} ").replace(
    "OVER (o ", "OVER (PARTITION BY shop ORDER BY size NULLS LAST "
)


class Times(st.Data):
    id: int
    week: int | None
    hour: int
    ids: int | None


def by_time(s: st.ZSet[Sale]) -> st.ZSet[Times]:
    week = st.window(
        s,
        order=st.win.desc(lambda s: s.day),
        into=Sale,
        size=st.win.count(range=(0, dt.timedelta(days=7))),
    )
    return st.window(
        week,
        order=lambda s: s.at,
        into=Times,
        week=lambda s: s.size,
        hour=st.win.count(range=(dt.timedelta(hours=-1), dt.timedelta(minutes=30))),
        ids=st.win.sum(lambda s: s.id, range=(None, -dt.timedelta(seconds=1))),
    )


BY_TIME = """
    SELECT id, count(1) OVER (ORDER BY day DESC RANGE BETWEEN CURRENT ROW AND 7 FOLLOWING),
        count(1) OVER (ORDER BY at RANGE BETWEEN INTERVAL '0 01:00:00' DAY TO SECOND PRECEDING
            AND INTERVAL '0 00:30:00' DAY TO SECOND FOLLOWING),
        sum(id) OVER (ORDER BY at RANGE BETWEEN UNBOUNDED PRECEDING
            AND INTERVAL '1' SECOND PRECEDING)
    FROM sales
"""
START = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)


def sale(draw: random.Random, number: int) -> Sale:
    return Sale(
        id=draw.randrange(number + 1),
        shop=draw.choice(("a", "b", None)),
        day=START.date() + dt.timedelta(days=draw.randrange(20)),
        at=draw.choice((None, *(START + dt.timedelta(minutes=15 * i) for i in range(12)))),
        size=draw.choice((None, *range(-2, 5))),
        amount=draw.choice((None, 0.0, 1.5, -2.25, 1024.0, float("nan"))),
        price=Decimal(draw.randrange(-500, 500)).scaleb(-2),
    )


@pytest.mark.parametrize(
    ("query", "sql", "local_rows"),
    [
        (by_size, BY_SIZE, 2_000_000),
        (by_time, BY_TIME, 2_000_000),
        pytest.param(by_size, BY_SIZE, 0, marks=pytest.mark.turn(2, number=0)),
        pytest.param(by_time, BY_TIME, 0, marks=pytest.mark.turn(2, number=1)),
    ],
)
def test_the_sum_of_changes_is_what_spark_sql_says_of_the_table(
    query: Callable[..., Any], sql: str, local_rows: int, spark: SparkSession
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    draw = random.Random(11)
    there: list[Sale] = []
    found: Counter[Any] = Counter()
    for step in range(3 if local_rows else 2):
        gone = [there.pop(draw.randrange(len(there))) for _ in range(len(there) // 3)]
        came = [sale(draw, 20 * step + i) for i in range(20)]
        came.append(came[0])  # one row counts twice
        there += came
        (out,) = stepper.step((st.ZSetPython([(s, 1) for s in came] + [(s, -1) for s in gone]),))
        for row, n in out.iter():
            found[row] += n
        rows = [tuple(vars(s).values()) for s in there]
        ddl = "id bigint, shop string, day date, at timestamp, size bigint, amount double, "
        spark.createDataFrame(rows, ddl + "price decimal(12, 2)").createOrReplaceTempView("sales")
        expected = Counter(tuple(r) for r in spark.sql(sql).collect())
        told = {tuple(vars(row).values()): n for row, n in found.items() if n}
        assert shown(told) == shown(expected)


def shown(rows: Any) -> Counter[str]:
    """Rows by their text, in which one NaN is as another."""
    return Counter({repr(row): n for row, n in rows.items()})


@pytest.mark.parametrize("local_rows", [0, 2_000_000])
def test_a_running_sum_of_floats_forgets_no_digit(local_rows: int, spark: SparkSession) -> None:
    class Summed(st.Data):
        n: int
        total: float
        both: float

    def query(a: st.ZSet[tuple[int, float]]) -> st.ZSet[Summed]:
        return st.window(
            a,
            order=lambda r: r[0],
            into=Summed,
            n=lambda r: r[0],
            total=st.win.sum(lambda r: r[1], rows=(None, 0)),
            both=st.win.sum(lambda r: r[1] * 1.0, rows=(-1, 0)),
        )

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    numbers = [1e16, 1.0, -1e16, 1e-300, float("inf"), -1.0]
    (out,) = stepper.step((st.ZSetPython([(r, 1) for r in enumerate(numbers)]),))
    rows = {row.n: (row.total, row.both) for row, _ in out.iter()}
    assert [rows[i][0] for i in range(6)] == [1e16, 1e16, 1.0, 1.0, float("inf"), float("inf")]
    assert [rows[i][1] for i in range(4)] == [1e16, 1e16, -1e16, -1e16]


@pytest.mark.parametrize("local_rows", [0, 2_000_000])
def test_a_sum_of_ints_beyond_64_bits_is_an_error(local_rows: int, spark: SparkSession) -> None:
    class Summed(st.Data):
        n: int
        total: int

    def query(a: st.ZSet[int]) -> st.ZSet[Summed]:
        return st.window(
            a,
            order=lambda n: n,
            into=Summed,
            n=lambda n: n,
            total=st.win.sum(lambda n: n, rows=(None, 0)),
        )

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    with pytest.raises(st.StepError, match="over a frame is beyond int"):
        stepper.step((st.ZSetPython({2**62: 1, 2**62 + 1: 1}),))


class Plain(st.Data):
    id: int
    n: int


def windowed(**arguments: Any) -> Callable[..., Any]:
    def query(s: st.ZSet[Sale]) -> st.ZSet[Plain]:
        given = {"order": lambda s: s.size, "into": Plain, "n": st.win.row_number()}
        return st.window(s, **{**given, **arguments})

    return query


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (windowed(order=None), "row_number needs an order; write order="),
        (windowed(n=3), "expected a window function"),
        (windowed(n=lambda s: s.id), "no window function is asked for"),
        (windowed(into=int), "expected a st.Data with a field for each function"),
        (windowed(m=st.win.rank()), "Plain has no field 'm'"),
        (windowed(n=st.win.lag(lambda s: s.id)), "may be NULL"),
        (windowed(n=st.win.ntile(0)), "n should be an int from 1"),
        (windowed(n=st.win.count(rows=(1, 0))), "the frame ends before it begins"),
        (windowed(n=st.win.count(rows=(0, 1), range=(0, 1))), "are two frames"),
        (windowed(n=st.win.count(rows=(0.5, 1))), "expected a number of rows"),
        (windowed(n=st.win.count(rows=cast(Any, -1))), r"expected \(start, end\)"),
        (windowed(n=st.win.count(range=(-0.5, 0))), "expected int"),
        (windowed(order=lambda s: s.shop, n=st.win.count(range=(-1, 0))), "no distance is added"),
        (windowed(order=lambda s: (s.id, s.size), n=st.win.count(range=(-1, 0))), "has 2"),
        (windowed(order=st.win.asc(lambda s: s.id, nulls="never")), "'first' or 'last'"),
        (windowed(n=st.win.sum(lambda s: s.shop)), "cannot be added up"),
        (windowed(id=st.win.rank(), n=st.win.lag(lambda s: s.id, default="x")), "default"),
        (windowed(fields={"n": st.win.rank()}), "is in fields= and is an argument too"),
        (windowed(into=st.Pair[int, int], left=st.win.rank(), n=st.win.rank()), "no field 'n'"),
    ],
)
def test_what_does_not_fit_is_said_where_the_query_is_compiled(
    query: Callable[..., Any], said: str
) -> None:
    with pytest.raises(st.CompileError, match=said):
        st.compile(query)


def test_a_function_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(AttributeError, match="it has any_value, asc, avg"):
        getattr(st.win, "collect_list")  # noqa: B009
    with pytest.raises(AttributeError, match=r"did you mean st\.win\.row_number"):
        getattr(st, "row_number")  # noqa: B009
