"""What a small step costs in Python: its functions are called, and none is called in vain."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

import stepping_spark as st
from tests.cases import ROOT

MOST_CALLS = 500


class Sale(st.Data):
    id: int
    user: str
    amount: int


class Home(st.Data):
    name: str
    city: str


class Total(st.Data):
    city: str
    sales: int
    amount: int


def by_city(sales: st.ZSet[Sale], homes: st.ZSet[Home]) -> st.ZSet[Total]:
    joined = st.join(sales, homes, on_left=lambda s: s.user, on_right=lambda h: h.name)
    return st.aggregate(
        joined,
        by=lambda p: p.right.city,
        into=Total,
        sales=st.agg.count(),
        amount=st.agg.sum(lambda p: p.left.amount),
    )


@pytest.mark.driver
def test_a_step_of_one_row_calls_few_functions() -> None:
    graph = st.compile(by_city)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    sales = {Sale(id=i, user=f"u{i % 10}", amount=i): 1 for i in range(100)}
    homes = {Home(name=f"u{i}", city=f"c{i % 3}"): 1 for i in range(10)}
    stepper.step((st.ZSetPython(sales), st.ZSetPython(homes)))
    for i in range(3):  # what is prepared once is prepared
        stepper.step((st.ZSetPython({Sale(id=1000 + i, user="u1", amount=1000 + i): 1}), None))
    # Batches are merged in every other step, so two steps are counted, and the other one is taken.
    one, two = (modules_called(stepper, number) for number in (2000, 2001))
    modules = min(one, two, key=lambda called: called.total())
    assert 100 < modules.total() <= MOST_CALLS, modules


def modules_called(stepper: st.Stepper[Any, Any], number: int) -> Counter[str]:
    """How often functions of each module are called by a step of one row."""
    modules: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        ours = any(code.co_filename.startswith(str(ROOT / p)) for p in ("stepping_spark", "stores"))
        if event == "call" and ours:
            modules[code.co_filename] += 1

    change = st.ZSetPython({Sale(id=number, user="u1", amount=number): 1})
    sys.setprofile(count)
    try:
        stepper.step((change, None))
    finally:
        sys.setprofile(None)
    return modules
