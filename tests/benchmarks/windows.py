"""One row that is added at the end of a partition, by the size of the partition.

    .venv/bin/python -m tests.benchmarks.windows

Beside the maintained view stand recomputing it with Spark SQL from a cached table, and the change
by hand: Spark SQL that reads the partition's last row and its sum.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import stepping_spark as st

SIZES = (100, 10_000, 100_000)
STEPS = 40


class Sale(st.Data):
    shop: int
    at: int
    cents: int


class Placed(st.Data):
    shop: int
    at: int
    number: int
    so_far: int
    before: int | None
    week: float


def placed(sales: st.ZSet[Sale]) -> st.ZSet[Placed]:
    return st.window(
        sales,
        by=lambda s: s.shop,
        order=lambda s: s.at,
        into=Placed,
        number=st.win.row_number(),
        so_far=st.win.sum(lambda s: s.cents, rows=(None, 0)),
        before=st.win.lag(lambda s: s.cents),
        week=st.win.avg(lambda s: s.cents, rows=(-6, 0)),
    )


PLAIN = """
    SELECT shop, at, row_number() OVER w, sum(cents) OVER w, lag(cents) OVER w,
        avg(cents) OVER (PARTITION BY shop ORDER BY at ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)
    FROM sales WINDOW w AS (PARTITION BY shop ORDER BY at)
"""
BY_HAND = """
    SELECT shop, count(1) + 1, sum(cents) + 5, max_by(cents, at),
        (aggregate(slice(sort_array(collect_list(struct(at, cents)), false), 1, 6), 0L,
            (n, x) -> n + x.cents) + 5) / 7
    FROM sales GROUP BY shop
"""


def rows(size: int) -> pa.Table:
    at = np.arange(size)
    names = {"shop": np.ones(size, np.int64), "at": at, "cents": at % 97}
    return pa.table({n: pa.array(v) for n, v in names.items()})


def median_ms(f: Callable[[int], Any], times: int) -> float:
    taken = []
    for i in range(times):
        begun = time.perf_counter()
        f(i)
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken)


def maintained(size: int) -> float:
    graph = st.compile(placed)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((st.ZSetSpark.from_arrow(rows(size), Sale),))
    return median_ms(
        lambda i: stepper.step((st.ZSetPython({Sale(shop=1, at=size + i, cents=5): 1}),)), STEPS
    )


def in_spark(size: int, text: str) -> float:
    spark = st.get_session()
    frame = spark.createDataFrame(rows(size)).localCheckpoint().cache()
    frame.createOrReplaceTempView("sales")
    found = median_ms(lambda i: spark.sql(text).write.format("noop").mode("overwrite").save(), 5)
    frame.unpersist()
    return found


def main() -> None:
    print(f"{'rows':>8} {'maintained':>11} {'recomputed':>11} {'by hand':>11}   ms, medians")
    for size in SIZES:
        found = (maintained(size), in_spark(size, PLAIN), in_spark(size, BY_HAND))
        print(f"{size:>8,} " + " ".join(f"{ms:>11.1f}" for ms in found))


if __name__ == "__main__":
    main()
