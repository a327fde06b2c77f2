"""Queries of sqlframe and of ibis: `st.sql` takes them, and each view is what Spark's SQL says.

sqlframe needs another sqlglot than the newest: the test of it is skipped where it is not installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import stepping_spark as st


class Order(st.Data):
    id: int
    country: str | None
    cents: int


class Country(st.Data):
    code: str
    name: str | None


ORDERS = [(1, "AT", 5), (2, "DE", 6), (3, "AT", 7), (4, None, 7)]
ROWS: dict[str, list[Any]] = {
    "orders": [Order(id=i, country=c, cents=n) for i, c, n in ORDERS],
    "countries": [Country(code="AT", name="Austria"), Country(code="FR", name=None)],
}
TABLES: dict[str, Any] = {"orders": Order, "countries": Country}
COLUMNS = {
    "orders": {"id": "bigint", "country": "string", "cents": "bigint"},
    "countries": {"code": "string", "name": "string"},
}


def answer(query: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, which come one by one, and of which some were there for a while."""
    made = st.sql(query, **TABLES)
    names = list(inspect.signature(made).parameters)
    graph = st.compile(made)
    found: dict[tuple[Any, ...], int] = {}
    with st.StoreMemory.from_graph(graph) as store:
        stepper: Any = st.Stepper(graph, store)
        changes = [(n, row, 1) for n in names for row in ROWS[n]]
        gone = Order(id=9, country="AT", cents=100)
        changes = [("orders", gone, 1), *changes, ("orders", gone, -1)]
        for name, row, n in changes:
            given = tuple(st.ZSetPython({row: n} if name == other else {}) for other in names)
            (out,) = stepper.step(given)
            for r, k in out.iter():
                row_ = tuple(vars(r).values())
                found[row_] = found.get(row_, 0) + k
    return sorted((r for r, n in found.items() for _ in range(n)), key=str)


WANTED: dict[str, list[tuple[Any, ...]]] = {
    "sums": [("AT", 7, 1), ("DE", 6, 1), (None, 7, 1)],
    "left join": [(1, "Austria"), (2, None), (3, "Austria"), (4, None)],
    "means of a join": [("Austria", 6.0)],
    "first of each": [(2, "DE", 6), (3, "AT", 7), (4, None, 7)],
    "distinct union": [("AT",), ("DE",), ("FR",), (None,)],
    "cases": [("big", 12), ("big", 14), ("big", 14), ("small", 10)],
    "texts": [("AT", "AT"), ("AT", "AT"), ("DE", "DE"), (None, "x")],
    "least": [(1, 5), (2, 6)],
    "having": [("AT", 2), ("DE", 1), (None, 1)],
    "anti join": [(2, "DE", 6), (4, None, 7)],
}


def of_sqlframe(session: Any, functions: Any, window: Any) -> dict[str, Any]:
    """The queries, in the DataFrame API of PySpark."""
    f = functions
    for name, columns in COLUMNS.items():
        session.catalog.add_table(name, column_mapping=columns)
    o, c = session.table("orders"), session.table("countries")
    best = window.partitionBy("country").orderBy(f.col("cents").desc(), f.col("id"))
    grouped = o.groupBy("country").agg(f.max("cents").alias("m"), f.countDistinct("id").alias("d"))
    return {
        "sums": o.where(f.col("cents") > 5)
        .groupBy("country")
        .agg(f.sum("cents").alias("total"), f.count("*").alias("n")),
        "left join": o.join(c, o.country == c.code, "left").select(o.id, c.name),
        "means of a join": o.join(c, o.country == c.code)
        .groupBy(c.name)
        .agg(f.avg("cents").alias("mean")),
        "first of each": o.withColumn("place", f.row_number().over(best))
        .where(f.col("place") == 1)
        .drop("place"),
        "distinct union": o.select("country").union(c.select("code")).distinct(),
        "cases": o.select(
            f.when(f.col("cents") > 5, "big").otherwise("small").alias("size"),
            (f.col("cents") * 2).alias("double"),
        ),
        "texts": o.select(
            f.upper("country").alias("u"), f.coalesce("country", f.lit("x")).alias("c")
        ),
        "least": o.orderBy("cents").limit(2).select("id", "cents"),
        "having": grouped.where(f.col("m") > 5).select("country", "d"),
        "anti join": o.join(c, o.country == c.code, "left_anti"),
    }


def of_ibis(ibis: Any) -> dict[str, Any]:
    """The queries, in ibis."""
    kinds = {"bigint": "int64", "string": "string"}
    o, c = (
        ibis.table({n: kinds[k] for n, k in columns.items()}, name=name)
        for name, columns in COLUMNS.items()
    )
    by = ibis.window(group_by="country", order_by=[ibis.desc("cents"), "id"])
    row = ibis._
    return {
        "sums": o.filter(row.cents > 5)
        .group_by("country")
        .aggregate(total=row.cents.sum(), n=row.count()),
        "left join": o.left_join(c, o.country == c.code).select("id", "name"),
        "means of a join": o.join(c, o.country == c.code)
        .group_by("name")
        .aggregate(mean=row.cents.mean()),
        "first of each": o.mutate(place=ibis.row_number().over(by))
        .filter(row.place == 0)
        .drop("place"),
        "distinct union": o.select("country").union(c.select(country="code"), distinct=True),
        "cases": o.select(
            size=ibis.cases((row.cents > 5, "big"), else_="small"), double=row.cents * 2
        ),
        "texts": o.select(u=row.country.upper(), c=row.country.fill_null("x")),
        "least": o.order_by("cents").limit(2).select("id", "cents"),
        "having": o.group_by("country")
        .aggregate(m=row.cents.max(), d=row.id.nunique())
        .filter(row.m > 5)
        .select("country", "d"),
        "anti join": o.anti_join(c, o.country == c.code),
    }


def held(queries: Callable[[], dict[str, Any]], name: str) -> None:
    assert answer(queries()[name]) == sorted(WANTED[name], key=str)


@pytest.mark.parametrize("name", WANTED)
def test_a_query_of_sqlframe_is_a_view(name: str) -> None:
    standalone: Any = pytest.importorskip("sqlframe.standalone")
    session = standalone.StandaloneSession.builder.getOrCreate()
    functions: Any = pytest.importorskip("sqlframe.standalone.functions")
    held(lambda: of_sqlframe(session, functions, standalone.Window), name)


@pytest.mark.parametrize("name", WANTED)
def test_an_expression_of_ibis_is_a_view(name: str) -> None:
    ibis: Any = pytest.importorskip("ibis")
    held(lambda: of_ibis(ibis), name)


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(st.CompileError, match="or an object with a method sql"):
        st.sql(5)
