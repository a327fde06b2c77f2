"""Windows of time and sessions: after each step, what Spark answers to the same text."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from tests.sql.corpus import Maintained, Rows, plain_rows, table_in_spark

TABLE = "k INT, t TIMESTAMP, n TIMESTAMP_NTZ, d DATE, x INT"
STEPS = 4

QUERIES = {
    "tumbling": "SELECT window, count(*) c FROM t GROUP BY window(t, '10 minutes')",
    "a key beside": "SELECT k, window.start, window.end, sum(x) AS s FROM t "
    "GROUP BY k, window(t, '7 minutes')",
    "local times": "SELECT window, max(x) m FROM t GROUP BY window(n, '1 hour 30 minutes')",
    "days": "SELECT window(d, '1 week').start s, count(*) c FROM t GROUP BY window(d, '1 week')",
    "sliding": "SELECT window(t, '10 minutes', '5 minutes') w, count(*) c FROM t GROUP BY 1",
    "sliding unevenly": "SELECT window(n, '10 minutes', '3 minutes', '-1 minutes') w, sum(x) s "
    "FROM t GROUP BY w",
    "with a start": "SELECT window(t, '10 minutes', '10 minutes', '3 minutes') w, count(x) c "
    "FROM t GROUP BY ALL",
    "without groups": "SELECT k, window(t, '10 minutes') AS w FROM t WHERE x > 1",
    "distinct": "SELECT DISTINCT window(t, '10 minutes').end AS e FROM t",
    "having": "SELECT count(*) c FROM t GROUP BY window(t, '10 minutes') "
    "HAVING window.start > TIMESTAMP'1970-01-01 00:00:00'",
    "rollup": "SELECT window(t, '10 minutes') w, k, count(*) c FROM t "
    "GROUP BY ROLLUP (window(t, '10 minutes'), k)",
    "partitions": "SELECT k, count(*) OVER (PARTITION BY window(t, '10 minutes')) c FROM t",
    "window_time": "SELECT window_time(w) AS at, c FROM (SELECT window(t, '10 minutes') w, "
    "count(*) c FROM t GROUP BY 1) u",
    "window of a window": "SELECT window(w, '20 minutes') w2, sum(c) c FROM (SELECT window(t, "
    "'10 minutes') w, count(*) c FROM t GROUP BY 1) u GROUP BY 1",
    "join of windows": "SELECT a.w.start AS s, a.c, b.m FROM (SELECT window(t, '10 minutes') w, "
    "count(*) c FROM t GROUP BY 1) a JOIN (SELECT window(t, '10 minutes') w, max(x) m FROM t "
    "GROUP BY 1) b ON a.w = b.w",
    "texts": "SELECT window(CAST(n AS STRING), '7 minutes', '3 minutes', '1 minute') w, count(*) c "
    "FROM t GROUP BY 1",
    "window_time of texts": "SELECT k, window_time(window(CAST(t AS STRING), '10 minutes')) w "
    "FROM t",
    "local times of texts": "SELECT window(to_timestamp_ntz(CAST(n AS STRING)), '1 hour').end e, "
    "sum(x) s FROM t GROUP BY 1",
    "sessions of texts": "SELECT session_window(CAST(n AS STRING), '4 minutes') w, count(*) c "
    "FROM t GROUP BY 1",
    "correlated": "SELECT DISTINCT k, (SELECT max(window(t.t, '9 minutes').end) FROM t WHERE t.k = "
    "o.k) m FROM t o",
    "sessions": "SELECT session_window, k, count(*) c FROM t GROUP BY session_window(t, "
    "'5 minutes'), k",
    "sessions of all": "SELECT session_window(n, '4 minutes').start AS s, sum(x) AS s2 FROM t "
    "GROUP BY session_window(n, '4 minutes')",
    "sessions of days": "SELECT session_window(d, '1 day') w, count(DISTINCT k) c FROM t "
    "GROUP BY 1",
    "sessions by an expression": "SELECT k % 2 AS odd, session_window.end AS e, count(*) c FROM t "
    "GROUP BY k % 2, session_window(t, '90 seconds') HAVING count(*) > 1",
}  # fmt: skip


def rows(r: random.Random) -> tuple[Any, ...]:
    def some(value: Any) -> Any:
        return None if r.random() < 0.15 else value

    base = r.choice((dt.datetime(2024, 3, 31, 0, 50), dt.datetime(1969, 12, 31, 23, 50)))
    at = base + dt.timedelta(seconds=r.randrange(0, 2400, 30), microseconds=r.choice((0, 0, 1)))
    return (
        some(r.randrange(3)),
        some(at.replace(tzinfo=dt.UTC)),
        some(at),
        some(at.date() + dt.timedelta(days=r.randrange(4))),
        some(r.randrange(5)),
    )


def changes(seed: int) -> Iterator[tuple[dict[str, dict[tuple[Any, ...], int]], Rows]]:
    r, now = random.Random(seed), Counter[tuple[Any, ...]]()
    for _ in range(STEPS):
        change = Counter(rows(r) for _ in range(15))
        for row in r.sample([*now.elements()], min(len([*now.elements()]), 9)):
            change[row] -= 1
        now.update(change)
        yield {"t": {row: n for row, n in change.items() if n}}, Counter(now)


@pytest.mark.turn(3)
@pytest.mark.parametrize("zone", ["UTC", pytest.param("Europe/Vienna", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", QUERIES)
def test_a_window_of_time_is_what_spark_answers(name: str, zone: str, spark: SparkSession) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        view = Maintained(QUERIES[name], {"t": TABLE})
        for number, (change, now) in enumerate(changes(seed=1)):
            view.step(change)
            if number in (1, STEPS - 1):
                kept = Counter({row: n for row, n in now.items() if n})
                table_in_spark(spark, kept, TABLE).createOrReplaceTempView("t")
                assert view.left == plain_rows(spark.sql(QUERIES[name]))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT window(t, '1 month') FROM t", "the units are microseconds, milliseconds"),
        ("SELECT window(t, x) FROM t", "is a constant text"),
        ("SELECT window(t, '0 minutes') FROM t", "lasts longer than 0"),
        ("SELECT window(t, '1 minute', '2 minutes') FROM t", "the distance of windows"),
        ("SELECT window(t, '1 minute', '1 minute', '1 minute') FROM t", "less than their distance"),
        ("SELECT window(x, '1 minute') FROM t", "is of a TIMESTAMP, found int"),
        ("SELECT window(t, '1 minute'), window(t, '2 minutes') FROM t", "has one window of time"),
        ("SELECT k FROM t WHERE window(t, '1 minute').start > t", "in a sub-query"),
        ("SELECT session_window(t, '1 minute') FROM t", "group by it"),
        ("SELECT window(t) FROM t", "window takes 2 to 4 arguments, found 1"),
    ],
)
def test_what_is_no_window_of_time_is_refused(text: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        st.compile(st.sql(text, t=TABLE))
