"""One row that is added at the end of a partition, by the size of the partition.

    .venv/bin/python -m tests.benchmarks.windows [--sizes 100 100000] [--stores memory in-spark]

For each function and store: the rows that a step reads, and its time. Beside the maintained views
stand recomputing with Spark SQL from a cached table, and the change by hand: Spark SQL that reads
the partition for the last row alone. Compare times within one run; rows read do not depend on it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import stepping_spark as st
from stepping_spark.relations.store import Store
from tests.postgres_server import PostgresServer

STORES = ("memory", "parquet", "postgres", "in-spark")
WARM, STEPS = 3, 12
GAP = 10  # between two sales, except after each tenth


class Sale(st.Data):
    shop: int
    at: int
    cents: int


class Placed(st.Data):
    shop: int
    at: int
    found: float | None


def window(function: Any) -> Callable[..., Any]:
    def query(sales: st.ZSet[Sale], prices: st.ZSet[Sale]) -> st.ZSet[Placed]:
        return st.window(
            sales, by=lambda s: s.shop, order=lambda s: s.at, into=Placed, found=function
        )

    return query


def sessions(sales: st.ZSet[Sale], prices: st.ZSet[Sale]) -> Any:
    return st.sessions(sales, by=lambda s: s.shop, at=lambda s: s.at, gap=GAP)


def asof(sales: st.ZSet[Sale], prices: st.ZSet[Sale]) -> Any:
    key: Any = {"on_left": lambda s: s.shop, "on_right": lambda s: s.shop}
    at: Any = {"at_left": lambda s: s.at, "at_right": lambda s: s.at}
    return st.asof_join(sales, prices, **key, **at)


@dataclass(frozen=True)
class Case:
    """A function: the view, the SQL that recomputes it, and the SQL of the last row by hand."""

    query: Callable[..., Any]
    again: str
    by_hand: str


def cents(f: Callable[..., Any], **frame: Any) -> Any:
    return f(lambda s: s.cents * 1.0, **frame)


OVER = "PARTITION BY shop ORDER BY at"
LATEST = "(SELECT max(at) FROM sales WHERE shop = 1)"
CASES = {
    "row_number": Case(
        window(st.win.row_number()),
        f"SELECT *, row_number() OVER ({OVER}) FROM sales",
        "SELECT count(1) + 1 FROM sales WHERE shop = 1",
    ),
    "running sum": Case(
        window(cents(st.win.sum, rows=(None, 0))),
        f"SELECT *, sum(cents * 1D) OVER ({OVER} ROWS UNBOUNDED PRECEDING) FROM sales",
        "SELECT sum(cents * 1D) + 5 FROM sales WHERE shop = 1",
    ),
    "lag": Case(
        window(cents(st.win.lag)),
        f"SELECT *, lag(cents) OVER ({OVER}) FROM sales",
        "SELECT max_by(cents, at) FROM sales WHERE shop = 1",
    ),
    "sum, 7 rows": Case(
        window(cents(st.win.sum, rows=(-6, 0))),
        f"SELECT *, sum(cents * 1D) OVER ({OVER} ROWS 6 PRECEDING) FROM sales",
        "SELECT sum(cents * 1D) + 5 FROM "
        "(SELECT cents FROM sales WHERE shop = 1 ORDER BY at DESC LIMIT 6)",
    ),
    "sum, a range": Case(
        window(cents(st.win.sum, range=(-60, 0))),
        f"SELECT *, sum(cents * 1D) OVER ({OVER} RANGE 60 PRECEDING) FROM sales",
        f"SELECT sum(cents * 1D) + 5 FROM sales WHERE shop = 1 AND at >= {LATEST} - 50",
    ),
    "sessions": Case(
        sessions,
        "SELECT shop, at, min(at) OVER s, max(at) OVER s FROM (SELECT *, sum(wide) OVER "
        f"({OVER}) AS run FROM (SELECT *, if(at > lag(at) OVER ({OVER}) + {GAP}, 1, 0) AS wide "
        "FROM sales)) WINDOW s AS (PARTITION BY shop, run)",
        "SELECT max(at) FROM (SELECT at, lead(at) OVER (ORDER BY at) AS next FROM sales "
        f"WHERE shop = 1) WHERE next > at + {GAP}",
    ),
    "asof_join": Case(
        asof,
        "SELECT *, last_value(price) IGNORE NULLS OVER (PARTITION BY shop ORDER BY at, side) FROM "
        "(SELECT shop, at, 1 AS side, NULL AS price FROM sales UNION ALL "
        "SELECT shop, at, 0, cents FROM prices)",
        f"SELECT max_by(cents, at) FROM prices WHERE shop = 1 AND at <= {LATEST} + {GAP}",
    ),
}


def at_of(number: Any) -> Any:
    return number * GAP + number // 10 * 100


def rows(size: int) -> pa.Table:
    number = np.arange(size)
    names = {"shop": np.ones(size, np.int64), "at": at_of(number), "cents": number % 97}
    return pa.table({n: pa.array(v) for n, v in names.items()})


def prices(size: int) -> pa.Table:
    return rows(size).take(np.arange(0, size, 5))


@contextmanager
def stores() -> Iterator[Callable[[str, Any], Store]]:
    with PostgresServer() as server, tempfile.TemporaryDirectory() as directory:
        number = iter(range(1_000))

        def store(kind: str, graph: Any) -> Store:
            name = f"s{next(number)}"
            if kind == "parquet":
                return st.StoreParquet.from_graph(graph, Path(directory) / name, create=True)
            if kind == "postgres":
                return st.StorePostgres.from_graph(graph, server.url, schema=name, create=True)
            return st.StoreMemory.from_graph(graph)

        yield store


def median_ms(f: Callable[[int], Any], times: int, warm: int = WARM) -> float:
    taken = []
    for i in range(warm + times):
        begun = time.perf_counter()
        f(i)
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken[warm:])


def maintained(case: Case, kind: str, size: int, store: Callable[..., Store]) -> tuple[int, float]:
    """The rows that a step reads, and its milliseconds."""
    graph = st.compile(case.query)
    stepper = st.Stepper(
        graph, store(kind, graph), local_rows=0 if kind == "in-spark" else 2_000_000
    )
    first = (st.ZSetSpark.from_arrow(make(size), Sale) for make in (rows, prices))
    stepper.step(tuple(first))

    def step(i: int) -> None:
        one = Sale(shop=1, at=int(at_of(size + i)), cents=5)
        stepper.step((st.ZSetPython({one: 1}), None))

    times = 3 if kind == "in-spark" else STEPS
    ms = median_ms(step, times, warm=1 if kind == "in-spark" else WARM)
    return sum(v.rows_in or 0 for v in stepper.metrics[-1].vertices.values()), ms


def in_spark(case: Case, size: int) -> tuple[float, float]:
    """Milliseconds of recomputing, and of the change by hand."""
    spark = st.get_session()
    frames = []
    for name, table in (("sales", rows(size)), ("prices", prices(size))):
        frames.append(spark.createDataFrame(table).localCheckpoint().cache())
        frames[-1].createOrReplaceTempView(name)

    def run(text: str) -> float:
        return median_ms(
            lambda i: spark.sql(text).write.format("noop").mode("overwrite").save(), 3, warm=1
        )

    found = run(case.again), run(case.by_hand)
    for frame in frames:
        frame.unpersist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--functions", nargs="+", choices=list(CASES), default=list(CASES))
    given = parser.parse_args()
    kinds = [k for k in STORES if k in given.stores]
    shown = "".join(f"{k + ', rows':>16}{'ms':>8}" for k in kinds)
    print(f"{'':14}{'size':>8}{shown}{'recomputed':>12}{'by hand':>9}   medians", flush=True)
    with stores() as store:
        for name in given.functions:
            for size in given.sizes:
                cells = [maintained(CASES[name], k, size, store) for k in kinds]
                line = "".join(f"{n:>16,}{ms:>8.1f}" for n, ms in cells)
                again, by_hand = in_spark(CASES[name], size)
                print(f"{name:14}{size:>8,}{line}{again:>12.1f}{by_hand:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
