"""Conditions on the time of the step, held to Spark's answer with the time as a constant."""

from __future__ import annotations

import calendar
import datetime as dt
import random
import re
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from tests.every_store import MakeStore
from tests.sql.corpus import Rows, plain, plain_rows, row_of, table_in_spark

DDLS = {
    "t": "id INT, d DATE, at TIMESTAMP, loc TIMESTAMP_NTZ, n INT",
    "u": "id INT, since DATE",
}
DAY = dt.date(2024, 2, 27)

DATES = [
    "d >= current_date - 3",
    "d > current_date() - 3",
    "d <= current_date + 1",
    "d < curdate()",
    "d = current_date",
    "current_date - 2 <= d",
    "d BETWEEN current_date - INTERVAL '2' DAY AND current_date + 1",
    "(d >= date_sub(current_date(), 2) AND d < date_add(current_date(), 2))",
    "d >= current_date - n",
    "d + n >= current_date AND n > 0",
    "at >= current_date - 1",
    "at > current_date",
    "at <= current_date - 1",
    "at < current_date + INTERVAL 1 DAY",
    "loc >= current_date AND loc <= current_date + 1",
    "1 + current_date > d",
    "d >= date_trunc('month', current_date)",
    "d < date_trunc('MONTH', current_date())",
    "at > trunc(current_date, 'month')",
    "at <= date_trunc('week', current_date)",
    "d > trunc(current_date, 'quarter') - 1",
    "d BETWEEN date_trunc('year', current_date) AND current_date",
    "d = date_trunc('week', current_date)",
    "d >= current_date - INTERVAL 1 MONTH",
    "d < current_date - INTERVAL '1' MONTH",
    "d > add_months(current_date, -1)",
    "d <= add_months(current_date, n)",
    "d = current_date - INTERVAL 1 MONTH",
    "d >= add_months(date_trunc('month', current_date), -1)",
    "at < current_date + INTERVAL 1 YEAR - INTERVAL 12 MONTHS",
]
INSTANTS = [
    "at >= now() - INTERVAL '36' HOUR",
    "at > current_timestamp - INTERVAL '1' DAY",
    "at <= current_timestamp()",
    "at < now()",
    "at BETWEEN now() - INTERVAL 1 DAY AND now() + INTERVAL '1 02:00:00' DAY TO SECOND",
    "d >= now() - INTERVAL '48' HOUR",
    "d < current_timestamp AND at >= current_date",
    "d = current_date AND at < now() + INTERVAL '2' HOUR",
    "d >= CAST(now() AS DATE) - 1",
    "at < to_date(current_timestamp()) AND at < now()",
]
LOCAL = ["loc >= localtimestamp() - INTERVAL '30' HOUR", "loc < localtimestamp()"]

WHOLE = [
    "SELECT d, count(*) AS n FROM t WHERE {0} GROUP BY d",
    "SELECT t.id, u.since FROM t JOIN u ON t.id = u.id AND u.since <= current_date WHERE {0}",
    "SELECT t.id, u.since FROM t LEFT JOIN u ON t.id = u.id AND u.since > current_date - 2",
    "SELECT id, max(d) AS m FROM t GROUP BY id HAVING max(d) >= current_date - 1",
    "SELECT id FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.id = u.id AND {0})",
    "SELECT DISTINCT id FROM t WHERE {0} UNION ALL SELECT id FROM u WHERE since = current_date",
    "SELECT a.id FROM t a, u b WHERE a.d >= b.since AND a.d - n < current_date",
]


def at_time(text: str, now: dt.datetime) -> str:
    """The text with the time of the step as a constant, for Spark."""
    day, instant = f"DATE'{now:%Y-%m-%d}'", f"{now:%Y-%m-%d %H:%M:%S}"
    text = re.sub(r"(?i)\b(current_date|curdate)\b(\(\))?", day, text)
    text = re.sub(r"(?i)\blocaltimestamp\(\)", f"TIMESTAMP_NTZ'{instant}'", text)
    return re.sub(r"(?i)\b(now\(\)|current_timestamp\b(\(\))?)", f"TIMESTAMP'{instant}'", text)


def some_rows(rng: random.Random) -> dict[str, list[tuple[Any, ...]]]:
    """Rows around the days that the steps are taken at."""

    def day() -> dt.date | None:
        return (
            None
            if rng.random() < 0.1
            else DAY + dt.timedelta(days=rng.choice([*range(-3, 9), -28, -27, 30]))
        )

    def instant() -> dt.datetime | None:
        found = day()
        hour = rng.choice([0, 0, 11, 12, 23])
        return None if found is None else dt.datetime(found.year, found.month, found.day, hour)

    def utc() -> dt.datetime | None:
        found = instant()
        return None if found is None else found.replace(tzinfo=dt.UTC)

    return {
        "t": [
            (rng.randrange(5), day(), utc(), instant(), rng.choice([None, 0, 1, 4]))
            for _ in range(12)
        ],
        "u": [(rng.randrange(5), day()) for _ in range(3)],
    }


def hold(text: str, clock: str, spark: SparkSession, make_store: MakeStore | None = None) -> None:
    """Step a view from time to time; after each step it is what Spark answers."""
    tables: dict[str, Any] = {
        name: ddl for name, ddl in DDLS.items() if re.search(rf"\b{name}\b", text)
    }
    query = st.sql(text, **tables)
    graph = st.compile(query)
    store = make_store(graph) if make_store else st.StoreMemory.from_graph(graph)
    stepper: Any = st.Stepper(graph, store)
    rng = random.Random(text)
    there: dict[str, Rows] = {name: Counter() for name in query.rows}
    rows: Rows = Counter()
    now = dt.datetime(2024, 2, 27, 12)
    for step in range(6):
        come = some_rows(rng)
        given = []
        for name, cls in query.rows.items():
            change: Rows = Counter(come[name] if step != 3 else [])
            for row in rng.sample([*there[name]], len(there[name]) // 3):
                change[row] -= 1
            there[name] = Counter({r: n for r in there[name] | change
                                   if (n := there[name][r] + change[r])})  # fmt: skip
            given.append(st.ZSetPython({row_of(cls, row): n for row, n in change.items() if n}))
        at: Any = {"date": now.date(), "timestamp": now.replace(tzinfo=dt.UTC), "local": now}[clock]
        (out,) = stepper.step(tuple(given), now=at)
        for row, n in out.iter():
            rows[plain(tuple(vars(row).values()))] += n
        for name in query.rows:
            table_in_spark(spark, there[name], DDLS[name]).createOrReplaceTempView(name)
        wanted = plain_rows(spark.sql(at_time(text, now)))
        assert Counter({r: n for r, n in rows.items() if n}) == wanted, (step, now)
        now += dt.timedelta(hours=rng.choice([0, 11, 12, 24, 36]))


@pytest.mark.turn(2)
@pytest.mark.parametrize("condition", DATES)
def test_a_comparison_with_the_date_holds_from_step_to_step(
    condition: str, spark: SparkSession
) -> None:
    hold(f"SELECT id, d, at, n FROM t WHERE {condition}", "date", spark)


@pytest.mark.parametrize("months", [-13, -2, -1, 0, 1, 3])
def test_months_are_undone_at_each_end_of_a_month(months: int, spark: SparkSession) -> None:
    days = [dt.date(2023, 12, 25) + dt.timedelta(days=i) for i in range(110)]
    query = st.sql(f"SELECT d FROM t WHERE d > add_months(current_date, {months})", t="d DATE")
    graph = st.compile(query)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    there: Counter[dt.date] = Counter()
    change: Any = st.ZSetPython({row_of(query.rows["t"], (d,)): 1 for d in days})
    for now in days[5:105]:
        (out,) = stepper.step((change,), now=now)
        change = None
        for row, n in out.iter():
            there[row.d] += n
        first = spark_add_months(now, months)
        assert {d for d, n in there.items() if n} == {d for d in days if d > first}, now


def spark_add_months(day: dt.date, months: int) -> dt.date:
    """What add_months of Spark gives: the last day of a month that is too short."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return dt.date(year, month + 1, min(day.day, last))


@pytest.mark.parametrize("condition", INSTANTS)
def test_a_comparison_with_an_instant_holds_from_step_to_step(
    condition: str, spark: SparkSession
) -> None:
    hold(f"SELECT id, d, at, n FROM t WHERE {condition}", "timestamp", spark)


@pytest.mark.parametrize("condition", LOCAL)
def test_a_comparison_with_a_local_time_holds_from_step_to_step(
    condition: str, spark: SparkSession
) -> None:
    hold(f"SELECT id, loc FROM t WHERE {condition}", "local", spark)


@pytest.mark.turn(2)
@pytest.mark.parametrize("text", WHOLE)
def test_a_view_with_a_date_in_it_is_what_spark_answers(text: str, spark: SparkSession) -> None:
    hold(text.format("d > current_date - 4"), "date", spark)


def test_in_every_store(make_store: MakeStore, spark: SparkSession) -> None:
    hold(WHOLE[0].format("at >= current_date - 2 AND d <= current_date"), "date", spark, make_store)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT current_date() AS today, id FROM t", "differs from step to step"),
        ("SELECT id FROM t WHERE d = current_date OR n = 1", "is no comparison"),
        ("SELECT id FROM t WHERE d <> current_date", "is no comparison"),
        ("SELECT id FROM t WHERE at >= now() - INTERVAL 1 MONTH", "within a function"),
        ("SELECT id FROM t WHERE at >= date_trunc('hour', now())", "within a function"),
        ("SELECT id FROM t WHERE year(d) = year(current_date)", "within a function"),
        ("SELECT id FROM t WHERE current_date > date_sub(current_date, n)", "on both sides"),
        ("SELECT id FROM t WHERE n > current_date", "dates are compared with int"),
    ],
)
def test_what_cannot_be_a_bound_is_said_with_a_place_and_a_remedy(text: str, said: str) -> None:
    with pytest.raises(CompileError) as e:
        st.compile(st.sql(text, t=DDLS["t"]))
    assert said in str(e.value)
    assert "line 1" in str(e.value)
    assert "WHERE: placed >= current_date - 30" in str(e.value)
