"""The circuit that a state keeps: written, read again, and told from what somebody has edited."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from stepping_spark.stepper.evolve.circuit import Reader, Unreadable, circuit_of, ids_of
from stepping_spark.stepper.evolve.old_streams import KeptCircuit
from stepping_spark.stepper.evolve.sums import StreamKinds
from tests.queries import QUERIES, Query


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Thing(st.Data):
    id: int
    color: Color


@pytest.mark.parametrize("query", QUERIES, ids=[q.name for q in QUERIES])
def test_a_circuit_that_is_read_is_the_one_that_was_written(query: Query) -> None:
    plan = plan_of(st.compile(query.changes))
    graph = plan.identities.graph
    kept = KeptCircuit(circuit_of(plan))
    reader = Reader([x for v in graph.walk() for x in (v.operator, v.type)])
    inputs = {found: v for v, found in ids_of(graph, graph.inputs).items()}
    for v, (_, place) in zip(graph.outputs, kept.outputs, strict=True):
        assert (
            kept.vertex(place, lambda at: inputs.get(kept.ids[at]), reader, None).digest == v.digest
        )


@pytest.mark.parametrize("query", QUERIES, ids=[q.name for q in QUERIES])
def test_each_query_on_tables_gives_the_sums_of_its_steps_at_once(query: Query) -> None:
    graph, sums = st.compile(query.changes), StreamKinds()
    assert [v for v in graph.outputs if not sums.is_change(v)] == []


def test_what_depends_on_the_order_of_steps_is_told() -> None:
    def late(a: st.ZSet[int], b: st.ZSet[int]) -> Any:
        return st.delay(a), st.linear.join(a, st.integrate(b), on_left=ONE, on_right=ONE)

    graph, sums = st.compile(late), StreamKinds()
    assert [sums.is_change(v) or sums.is_value(v) for v in graph.outputs] == [False, False]


ONE: Any = st.Index.identity(int)


def test_a_text_that_somebody_has_edited_is_refused() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.filter(st.distinct(a), f=lambda n: n > 41)

    text = circuit_of(plan_of(st.compile(query)))
    for edited in (text.replace("41", "40"), text[:-1], "[]", "{}", json.dumps({"circuit": {}})):
        with pytest.raises(Unreadable):
            KeptCircuit(edited)


@pytest.mark.usefixtures("spark")
def test_constants_of_an_enum_are_read_with_its_class(tmp_path: Path) -> None:
    def red(things: st.ZSet[Thing]) -> st.ZSet[int]:
        return st.map(st.filter(things, f=lambda t: t.color == Color.RED), f=lambda t: t.id)

    def blue(things: st.ZSet[Thing]) -> st.ZSet[int]:
        return st.map(st.filter(things, f=lambda t: t.color == Color.BLUE), f=lambda t: t.id)

    things = st.ZSetPython({Thing(id=1, color=Color.RED): 1, Thing(id=2, color=Color.BLUE): 1})
    graph = st.compile(red)
    with st.StoreParquet.from_graph(graph, tmp_path / "s", create=True) as store:
        st.iteration(store, graph, (things,))
    graph = st.compile(blue)
    with st.StoreParquet.from_graph(graph, tmp_path / "s", evolve=True) as store:
        stepper = st.Stepper(graph, store)
        assert stepper.needed_again() == ("things",)
        (change,) = stepper.evolve(things=things)
        assert change.to_python() == st.ZSetPython({2: 1, 1: -1})
        assert len(stepper.report().numbers["steps"]["rows_in"]) == 1


def test_row_classes_may_have_other_names() -> None:
    """A narrower filter is filled from the rows that are kept, whatever their class is called."""

    def query(prefix: str, lowest: int) -> Any:
        fields = {"__annotations__": {"id": int, "name": str}}
        row: Any = type(f"{prefix}Order", (st.Data,), dict(fields))
        made: Any = type(f"{prefix}Named", (st.Data,), dict(fields))

        def named(orders: Any) -> Any:
            kept = st.filter(orders, f=lambda o: o.id >= lowest)
            return st.distinct(st.map(kept, f=lambda o: made(id=o.id, name=o.name)))

        named.__annotations__ = {"orders": st.ZSet[row], "return": st.ZSet[made]}
        return row, named

    row, before = query("", 0)
    graph = st.compile(before)
    store = st.StoreMemory.from_graph(graph)
    st.iteration(store, graph, (st.ZSetPython({row(id=i, name="a"): 1 for i in range(4)}),))
    _, after = query("Other", 2)
    (change,) = st.Stepper(st.compile(after), store, evolve=True).evolve()
    assert sorted((r.id, n) for r, n in change.iter()) == [(0, -1), (1, -1)]
