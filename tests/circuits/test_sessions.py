"""Sessions, against Spark SQL, and what they say of calls that do not fit."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st


class Click(st.Data):
    user: str | None
    at: dt.datetime | None
    page: int


START = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)
HALF = dt.timedelta(minutes=30)


def clicks(**given: Any) -> Callable[..., Any]:
    def query(clicks: st.ZSet[Click]) -> Any:
        how: dict[str, Any] = {"by": lambda c: c.user, "at": lambda c: c.at, "gap": HALF, **given}
        return st.sessions(clicks, **how)

    return query


SQL = """
    SELECT user, at, page, min(at) OVER s, max(at) OVER s FROM (
        SELECT *, count_if(at > before + INTERVAL '30' MINUTE) OVER (
            PARTITION BY user ORDER BY at ROWS UNBOUNDED PRECEDING) AS session FROM (
                SELECT *, lag(at) OVER (PARTITION BY user ORDER BY at) AS before
                FROM clicks WHERE at IS NOT NULL))
    WINDOW s AS (PARTITION BY user, session)
"""


@pytest.mark.parametrize("local_rows", [0, 2_000_000])
def test_the_sum_of_changes_is_what_spark_sql_says_of_the_table(
    local_rows: int, spark: SparkSession
) -> None:
    graph = st.compile(clicks())
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    draw = random.Random(3)
    there: list[Click] = []
    found: Counter[Any] = Counter()
    for _ in range(5 if local_rows else 3):
        gone = [there.pop(draw.randrange(len(there))) for _ in range(len(there) // 3)]
        came = [click(draw) for _ in range(12)]
        there += came
        (out,) = stepper.step((st.ZSetPython([(c, 1) for c in came] + [(c, -1) for c in gone]),))
        for s, n in out.iter():
            found[(*vars(s.row).values(), s.start, s.end)] += n
        rows = [tuple(vars(c).values()) for c in there]
        ddl = "user string, at timestamp, page bigint"
        spark.createDataFrame(rows, ddl).createOrReplaceTempView("clicks")
        expected = Counter(tuple(map(in_utc, r)) for r in spark.sql(SQL).collect())
        assert {row: n for row, n in found.items() if n} == expected


def in_utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def click(draw: random.Random) -> Click:
    at = draw.choice((None, *(START + dt.timedelta(minutes=10 * i) for i in range(60))))
    return Click(user=draw.choice(("Ann", "Bob", None)), at=at, page=draw.randrange(3))


def test_a_row_between_two_sessions_makes_them_one_and_two_again() -> None:
    def at(minute: int) -> Click:
        return Click(user="Ann", at=START + dt.timedelta(minutes=minute), page=1)

    step = st.reference(st.compile(clicks())).step
    step((st.ZSetPython({at(0): 1, at(60): 1}),))
    (merged,) = step((st.ZSetPython({at(30): 1}),))
    ends = {(s.row.at, s.start, s.end): n for s, n in merged.iter()}
    first, last = at(0).at, at(60).at
    assert ends[(at(30).at, first, last)] == 1
    assert ends[(first, first, first)] == ends[(last, last, last)] == -1
    (split,) = step((st.ZSetPython({at(30): -1}),))
    assert split == -merged


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (clicks(at=lambda c: c.user), "has no distances to compare with a gap"),
        (clicks(gap=30), "expected timedelta"),
        (clicks(gap=-HALF), "zero or more, found -1 day, 23:30:00"),
        (clicks(at=lambda c: (c.at, c.page)), "expected one value, found 2"),
        (clicks(at=lambda c: c.page, gap=HALF), "at gives int"),
    ],
)
def test_what_does_not_fit_is_said_where_the_query_is_compiled(
    query: Callable[..., Any], said: str
) -> None:
    with pytest.raises(st.CompileError, match=said):
        st.compile(query)
