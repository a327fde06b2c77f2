"""What is a state is one answer, for the planner, `explain` and pictures."""

from __future__ import annotations

from typing import Any

import stepping_spark as st
from stepping_spark.circuit.graph import States
from stepping_spark.report.picture import flattened
from tests.queries import CIRCUITS, QUERIES


def test_what_is_a_state_is_so_whatever_was_asked_before() -> None:
    """As explain asks for single streams, pictures for those laid flat, a planner for all."""
    for query in (*QUERIES, *CIRCUITS):
        graph = st.compile(query.changes)
        circuits: list[Any] = [graph, flattened(graph) or graph]
        for circuit in circuits:
            order = list(circuit.walk())
            forwards, backwards = States(circuit.loops), States(circuit.loops)
            found = [v in forwards for v in order]
            assert [v in backwards for v in reversed(order)] == found[::-1], query.name
            assert [v in States(circuit.loops) for v in order] == found, query.name


def test_sums_of_changes_are_states_and_what_is_made_of_them() -> None:
    def query(a: st.ZSet[int], b: st.ZSet[int]) -> tuple[st.ZSet[int], ...]:
        whole = st.integrate(a)
        old = st.filter(st.delay(whole), f=lambda x: x > 1)
        changed = st.linear.join(whole, b, on_left=lambda x: x, on_right=lambda x: x)
        both = st.linear.join(whole, old, on_left=lambda x: x, on_right=lambda x: x)
        shown = [st.map(x, f=lambda p: p.left) for x in (changed, both)]
        return whole, old, *shown, st.add(whole, b), st.differentiate(old), st.distinct(b)

    query.__annotations__["return"] = tuple[(st.ZSet[int],) * 7]  # type: ignore[misc]
    graph = st.compile(query, optimize=False)
    states = States(graph.loops)
    assert [v in states for v in graph.outputs] == [True, True, False, True, True, False, False]
