"""Of the functions that occur most in views that people have written, the driver knows most."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from importlib import import_module
from random import Random
from typing import Annotated, Any, NoReturn

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.sql.corpus import Maintained, Rows, plain_rows, table_in_spark
from tests.sql.most_used import listed

LEAST = 85
REFUSED = {"approx_count_distinct", "percentile_approx"}
"""Their answers depend on how rows are spread."""
DDL = (
    "k BIGINT NOT NULL, n BIGINT, x DOUBLE, s STRING, d DATE, t TIMESTAMP_NTZ, b BOOLEAN, "
    "p DECIMAL(10,2)"
)


class A(st.Data):
    k: int
    n: int | None
    x: float | None
    s: str | None
    d: dt.date | None
    t: st.LocalDateTime | None
    b: bool | None
    p: Annotated[Decimal, st.Precision(10, 2)] | None


class AggregateCall(st.SteppingError):
    """A session is wanted."""


def refuse() -> NoReturn:
    raise AggregateCall


def asks(call: str) -> bool:
    text = call if call.startswith("SELECT") else f"SELECT k, {call} AS v FROM a"
    try:
        st.compile(st.sql(text, a=A))
    except st.SteppingError:
        return True
    return False


def test_the_driver_knows_the_functions_that_occur_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("spark.types", "spark.column_made", "sql.values"):
        monkeypatch.setattr(import_module(f"stepping_spark.{module}"), "get_session", refuse)
    known = [name for name, _, call in listed() if not asks(call)]
    assert len(known) >= LEAST, sorted({name for name, _, _ in listed()} - {*known})


def texts() -> dict[str, str]:
    """Views of the calls: one of all scalars, and one of each aggregate, of groups of rows."""
    calls = {name: call for name, _, call in listed() if name not in REFUSED}
    whole = {name: call for name, call in calls.items() if call.startswith("SELECT")}
    scalars = [call for name, call in calls.items() if name not in whole]
    columns = ", ".join(f"{call} AS v{i}" for i, call in enumerate(scalars))
    found = {"scalars": f"SELECT k, {columns} FROM a"}
    for name, call in whole.items():
        found[name] = call.replace("SELECT k,", "SELECT k % 4 AS k,").replace(
            "GROUP BY k", "GROUP BY k % 4"
        )
    return found


def drawn(chance: Random, k: int) -> tuple[Any, ...]:
    """A row with the key k; one in seven of the other columns is NULL."""
    row = (
        chance.randrange(-3, 9),
        chance.choice((0.0, 0.5, -2.25, 3.0, 1e-3)),
        chance.choice(("", "a", "ab-a", "-Ab b", "b-é", " x ")),
        dt.date(2024, 2, 27) + dt.timedelta(days=chance.randrange(5)),
        dt.datetime(2023, 12, 31, 23, 59, 59) + dt.timedelta(minutes=chance.randrange(90_000)),
        chance.random() < 0.5,
        Decimal(chance.randrange(-500, 500)) / 100,
    )
    return (k, *(v if chance.randrange(7) else None for v in row))


def in_any_order(name: str, rows: Rows) -> Rows:
    """Rows in which the items of a list that has no order are sorted."""
    if name not in ("collect_list", "listagg"):
        return rows
    found = Rows()
    for (k, v), n in rows.items():
        items = v.split(",") if isinstance(v, str) else v
        found[k, items and tuple(sorted(items))] += n
    return found


@pytest.mark.slow
def test_each_of_them_is_what_spark_answers(spark: SparkSession) -> None:
    """Also where Spark is asked, after steps that add rows and remove some."""
    chance = Random(11)
    views = {name: Maintained(text, {"a": DDL}) for name, text in texts().items()}
    rows = Rows()
    for step in range(3):
        gone = [row for row in rows if chance.random() < 0.3]
        come = [drawn(chance, 40 * step + i) for i in range(40)]
        change = {**dict.fromkeys(gone, -1), **dict.fromkeys(come, 1)}
        for view in views.values():
            view.step({"a": change})
        rows = Rows(row for row in (*rows, *come) if row not in gone)
    table_in_spark(spark, rows, DDL).coalesce(1).createOrReplaceTempView("a")
    for name, view in views.items():
        wanted = plain_rows(spark.sql(view.text))
        assert in_any_order(name, view.left) == in_any_order(name, wanted), view.text
