"""Runs that reports are made of: a small one that is stepped, and a large one that is written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import stepping_spark as st
from stepping_spark.plan.metrics import Cost, StepMetrics
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.store import Size
from stepping_spark.report import Report
from stepping_spark.report.circuit import circuit_of, drawings_of
from stepping_spark.report.report import report_from
from tests.cases import Order, User, Z

EVIL = '</script><img src=x onerror="window.evil=1">\'`'


class Spent(st.Data):
    name: str
    orders: int
    amount: int


kept = st.Cache[Spent](name=f"kept {EVIL}")


def spending(orders: st.ZSet[Order], users: st.ZSet[User]) -> st.ZSet[Spent]:
    large = st.filter(orders, f=lambda o: o.amount > 0)  # </script><b>not HTML</b>
    joined = st.join(large, users, on_left=lambda o: o.user, on_right=lambda u: u.id)
    total = st.aggregate(
        joined,
        by=lambda p: p.right.name,
        into=Spent,
        orders=st.agg.count(),
        amount=st.agg.sum(lambda p: p.left.amount),
    )
    _ = kept[total](lambda total: st.integrate(total))
    return total


def order(i: int) -> Order:
    return Order(id=i, user=i % 7, amount=i % 50 + 1)


def stepped(steps: int = 12, *, profile: bool = True) -> st.Stepper[Any, Any]:
    """A stepper that has taken a first load, and steps of a few rows."""
    graph = st.compile(spending)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), profile=profile)
    users = Z({User(id=i, name=f"user {i}"): 1 for i in range(7)})
    stepper.step((Z({order(i): 1 for i in range(200)}), users))
    for step in range(1, steps):
        few = {order(200 + step * 10 + i): 1 for i in range(step)}
        stepper.step((Z({**few, order(step): -1}), None))
    return stepper


def wide(a: st.ZSet[Order]) -> tuple[st.ZSet[int], ...]:
    """About a hundred vertices, many of which keep state."""
    found = []
    for i in range(25):
        ids = st.map(a, f=lambda o: o.id + i, name=f"ids_{i}")  # noqa: B023
        found.append(st.distinct(ids))
    return tuple(found)


def large(steps: int = 1_000) -> Report:
    """A report of many vertices and steps: as if they had been stepped."""
    graph: Any = st.compile(wide)
    plan = plan_of(graph)
    circuit = circuit_of(graph, plan)
    chance = random.Random(1)
    paths = [v.path for v in circuit.vertices]
    metrics = [one_step(n + 1, paths, plan.registers, chance) for n in range(steps)]
    sizes = {r.name: Size(7, 1_234_567, 98_765_432) for r in plan.registers}
    made = {"at": "2026-01-01T00:00:00+00:00", "stepping_spark": "0", "python": "3", "cores": 2}
    more = {"store": "StoreMemory", "profile": True}
    return report_from(circuit, metrics, sizes, {**made, **more}, drawings_of(graph)[0])


def one_step(
    number: int, paths: Sequence[str], registers: Sequence[Any], chance: random.Random
) -> StepMetrics:
    """A step in which every vertex was measured."""
    m = StepMetrics(number, ms=chance.random() * 1_000, jobs=chance.randrange(20), queries=9)
    for path in paths:
        why = f"rows read: {chance.randrange(10**6):,}; a Spark query would take longer"
        cost = Cost(chance.random() * 10, chance.randrange(3), "driver", why)
        m.note(path, cost, chance.randrange(10**6), chance.randrange(10**6), {})
    m.inputs, m.outputs = {"wide.a": chance.randrange(10**6)}, {"output 0": number}
    m.kept = {r.name: chance.randrange(10**6) for r in registers}
    m.sizes = {r.name: Size(7, number * 1_000, number * 54_321) for r in registers}
    return m
