"""The SQL of sums: no more than a JVM takes as one method.

As a program, `python -m tests.rows.test_sums` takes two steps of a view of many sums as Spark jobs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stepping_spark as st
from stepping_spark.execution.spark.nodes import Rendering
from stepping_spark.plan.planner import plan_of

ROOT = Path(__file__).resolve().parent.parent
MOST_TEXT = 80_000  # that a parser takes at a step; one text alone was 172,472


class Order(st.Data):
    id: int
    user: int
    amount: float
    cents: int


class User(st.Data):
    id: int
    country: str


class Total(st.Data):
    country: str
    users: int
    total: float
    cents: int
    mean: float
    spread: float | None
    spread_of_cents: float | None


def view(orders: st.ZSet[Order], users: st.ZSet[User]) -> st.ZSet[Total]:
    pairs = st.join(orders, users, on_left=lambda o: o.user, on_right=lambda u: u.id)
    return st.aggregate(
        pairs,
        lambda p: p.right.country,
        Total,
        users=st.agg.count_distinct(lambda p: p.left.user),
        total=st.agg.sum(lambda p: p.left.amount),
        cents=st.agg.sum(lambda p: p.left.cents),
        mean=st.agg.avg(lambda p: p.left.amount),
        spread=st.agg.stddev(lambda p: p.left.amount),
        spread_of_cents=st.agg.stddev(lambda p: p.left.cents),
    )


def test_the_text_of_many_sums_is_short() -> None:
    plan = plan_of(st.compile(view))
    texts = [
        Rendering("q", {leaf: f"r{i}" for i, leaf in enumerate(m.leaves)}).term(m.term).text
        for stage in plan.stages
        for m in stage.streams
    ]
    assert sum(map(len, texts)) < MOST_TEXT


@pytest.mark.long
def test_spark_compiles_a_view_of_many_sums() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.rows.test_sums"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 steps" in run.stdout
    assert "64 KB" not in run.stdout + run.stderr
    assert "ERROR" not in run.stdout + run.stderr


def main() -> None:
    """Take two steps; Spark logs what it could not compile."""
    graph = st.compile(view)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    reference = st.reference(graph)
    users = st.ZSetPython({User(id=i, country="ab"[i % 2]): 1 for i in range(3)})
    for n in range(2):
        orders = [Order(id=i, user=i % 3, amount=i / 7, cents=i) for i in range(10 * n, 10 * n + 9)]
        change = (st.ZSetPython([(o, 1) for o in orders]), None if n else users)
        assert stepper.step(change) == reference.step(change)
    print("2 steps")


if __name__ == "__main__":
    main()
