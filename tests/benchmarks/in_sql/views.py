"""The views: their tables, their queries here and in Spark SQL, and their steps by hand."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from tests.benchmarks.in_sql.customers import FIRST, First, Running
from tests.benchmarks.in_sql.hand import Hand
from tests.benchmarks.in_sql.reach import Reach, closure
from tests.benchmarks.in_sql.tpch import Q9, Q21
from tests.benchmarks.in_sql.turnover import Source
from tests.tpch.sql import QUERIES
from tests.tpch.tables import TABLES
from tests.tpch.test_tpch import MAINTAINED

Link = st.Pair[int, int]


class Purchase(st.Data):
    custkey: int
    orderkey: int
    orderdate: dt.date
    cents: int


class Paid(st.Data):
    custkey: int
    orderkey: int
    orderdate: dt.date
    paid: int


def first(orders: st.ZSet[Purchase]) -> st.ZSet[Purchase]:
    last: Any = (st.win.desc(lambda o: o.orderdate), st.win.desc(lambda o: o.orderkey))
    return st.first_n(orders, last, FIRST, by=lambda o: o.custkey)


def running(orders: st.ZSet[Purchase]) -> st.ZSet[Paid]:
    return st.window(
        orders,
        by=lambda o: o.custkey,
        order=lambda o: (o.orderdate, o.orderkey),
        into=Paid,
        paid=st.win.sum(lambda o: o.cents, rows=(None, 0)),
    )


def reach(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    return st.transitive_closure(edges)


@dataclass(frozen=True)
class View:
    """A view: the order of `rows` is that of its query's parameters."""

    sources: Mapping[str, Source]
    rows: Mapping[str, Any]
    query: Callable[..., Any]
    again: Callable[[SparkSession], DataFrame]
    by_hand: type[Hand]
    columns: tuple[str, ...]


ORDERS = Source(
    "SELECT o_custkey AS custkey, o_orderkey AS orderkey, o_orderdate AS orderdate, "
    "CAST(o_totalprice * 100 AS BIGINT) AS cents FROM raw_orders",
    "orderkey",
)
# Both nodes of an edge are of one component.
EDGES = Source('SELECT "left", "right" FROM raw_edges', '"left" * 10 + "right" % 10')
OF_TPCH = {"orders": "o_orderkey", "lineitem": "l_orderkey"}


def _of_tpch(n: int, by_hand: type[Hand], *columns: str) -> View:
    wanted: dict[str, Any] = {t: TABLES[t] for t in inspect.signature(MAINTAINED[n]).parameters}
    query: Any = st.sql(QUERIES[n], **wanted)
    names = list(inspect.signature(query).parameters)
    return View(
        {t: Source(f"FROM raw_{t}", OF_TPCH.get(t)) for t in ("orders", *names)},
        {t: TABLES[t] for t in names},
        query,
        lambda spark: spark.sql(QUERIES[n]),
        by_hand,
        columns,
    )


def _of_orders(query: Callable[..., Any], by_hand: type[First | Running], last: str) -> View:
    return View(
        {"orders": ORDERS},
        {"orders": Purchase},
        query,
        lambda spark: spark.sql(by_hand.WHOLE),
        by_hand,
        ("custkey", "orderkey", "orderdate", last),
    )


VIEWS = {
    "q9": lambda: _of_tpch(9, Q9, "nation", "o_year", "sum_profit"),
    "q21": lambda: _of_tpch(21, Q21, "s_name", "numwait"),
    "first": lambda: _of_orders(first, First, "cents"),
    "window": lambda: _of_orders(running, Running, "paid"),
    "reach": lambda: View({"edges": EDGES}, {"edges": Link}, reach, closure, Reach,
                          ("left", "right")),
}  # fmt: skip
"""By name; made when asked for."""
