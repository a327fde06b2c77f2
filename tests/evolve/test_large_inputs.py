"""Inputs that are read again are read in pieces; the driver holds no more than in a first load."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st

MB = 1 << 20
N = 400_000  # rows, of 16 bytes and more


class Order(st.Data):
    id: int
    cents: int
    customer: int


class Sum(st.Data):
    customer: int
    cents: int


def sums(least: int) -> Any:
    def query(orders: st.ZSet[Order]) -> st.ZSet[Sum]:
        large = st.filter(orders, f=lambda o: o.cents >= least)
        cents: Any = st.agg.sum(lambda o: o.cents)
        return st.aggregate(large, by=lambda o: o.customer, into=Sum, cents=cents)

    return query


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    ids = np.arange(N)
    columns = {"id": ids, "cents": ids % 100, "customer": ids % 10}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(str(tmp_path / "orders"), table, configuration=feed)
    return tmp_path / "orders"


class Held(logging.Handler):
    """The most bytes of Arrow that there are where a line of the log begins so."""

    def __init__(self, begins: str) -> None:
        super().__init__()
        self.begins, self.before = begins, pa.total_allocated_bytes()
        self.times, self.most = 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self.begins):
            self.times += 1
            self.most = max(self.most, pa.total_allocated_bytes() - self.before)


def run(orders: Path, least: int, begins: str, *, evolve: bool) -> tuple[Held, st.Pipeline]:
    held = Held(begins)
    log = logging.getLogger("stepping_spark")
    level = log.level
    log.addHandler(held)
    log.setLevel(logging.INFO)
    try:
        with st.Pipeline(
            {"sums": sums(least)},
            store=f"parquet:{orders.parent / 'state'}",
            orders=st.DeltaTable(str(orders)),
            into={"sums": st.DeltaTable(str(orders.parent / "sums"), key="customer")},
            limits=st.Limits(working_bytes=5 * MB),
            max_bytes=MB,
            evolve=evolve,
        ) as pipeline:
            pipeline.run()
    finally:
        log.removeHandler(held)
        log.setLevel(level)
    return held, pipeline


def content(orders: Path) -> dict[int, int]:
    rows = deltalake.DeltaTable(str(orders.parent / "sums")).to_pyarrow_table().to_pylist()
    return {row["customer"]: row["cents"] for row in rows}


def wanted(least: int) -> dict[int, int]:
    of = {i % 10: 0 for i in range(100) if i >= least}
    for i in range(least, 100):
        of[i % 10] += i * (N // 100)
    return of


@pytest.mark.turn(3)
@pytest.mark.usefixtures("spark")
def test_the_driver_holds_no_more_of_an_input_than_in_a_first_load(orders: Path) -> None:
    first, _ = run(orders, 50, "step ", evolve=False)
    assert content(orders) == wanted(50)
    again, pipeline = run(orders, 20, "input 'orders' is read again", evolve=True)
    assert content(orders) == wanted(20)
    assert again.times >= 5
    assert again.times == first.times
    assert again.most < first.most + 3 * MB < N * 16, (again.most, first.most)
    assert 'stepping_spark_last_step{pipeline="pipeline"}' in pipeline.metrics()
    counted = {line.partition("{")[0]: line.rpartition(" ")[2] for line in
               pipeline.metrics().splitlines()}  # fmt: skip
    assert counted["stepping_spark_last_step"] == f"{first.times + 1}.0"
    assert counted["stepping_spark_rows_out_total"] == "20.0"


class Most(st.Data):
    customer: int
    most: int


def by_customer(orders: st.ZSet[Order]) -> tuple[st.ZSet[Sum], st.ZSet[Order]]:
    cents: Any = st.agg.sum(lambda o: o.cents)
    total = st.aggregate(orders, by=lambda o: o.customer, into=Sum, cents=cents)
    return total, st.distinct(orders)


def and_the_most(
    orders: st.ZSet[Order],
) -> tuple[st.ZSet[Sum], st.ZSet[Order], st.ZSet[Most]]:
    total, rows = by_customer(orders)
    most: Any = st.agg.max(lambda o: o.cents)
    return total, rows, st.aggregate(orders, by=lambda o: o.customer, into=Most, most=most)


def test_tasks_fill_registers_from_files_that_are_too_large_for_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: Any = {Order(id=i, cents=i % 97, customer=i % 10): 1 for i in range(1_000)}
    change = st.ZSetPython(rows)
    graph: Any = st.compile(by_customer)
    with st.StoreParquet.from_graph(graph, tmp_path, create=True, driver_rows=100) as store:
        st.Stepper(graph, store).step((change,))
    graph = st.compile(and_the_most)
    with st.StoreParquet.from_graph(graph, tmp_path, evolve=True, driver_rows=100) as store:
        stepper: Any = st.Stepper(graph, store, evolve=True, local_rows=0)
        outs = stepper.evolve()
        (metrics,) = stepper.metrics
        assert metrics.not_in_tasks == ""
        assert {v.how for v in metrics.vertices.values()} == {"tasks"}
        assert metrics.read == {"by_customer.orders by row": 1_000}
        more = st.ZSetPython({Order(id=1_000, cents=500, customer=3): 1})
        then = stepper.step((more,))
    reference = st.reference(graph)
    *_, most = reference.step((change,))
    assert [out.to_python() for out in outs] == [st.ZSetPython(), st.ZSetPython(), most]
    assert [out.to_python() for out in then] == list(reference.step((more,)))
