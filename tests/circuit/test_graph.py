"""A circuit as a graph of networkx, for those who ask it questions of their own."""

from __future__ import annotations

import networkx as nx

import stepping_spark as st


class Person(st.Data):
    id: int
    chief: int


def chiefs(people: st.ZSet[Person]) -> st.ZSet[st.Pair[Person, Person]]:
    managers = st.filter(people, f=lambda p: p.id < 10)
    pairs = st.linear.join(people, managers, on_left=lambda p: p.chief, on_right=lambda m: m.id)
    return pairs


def doubled(numbers: st.ZSet[int]) -> st.ZSet[int]:
    twice = st.add(numbers, numbers)
    return twice


def totals(numbers: st.ZSet[int]) -> st.ZSet[int]:
    with st.feedback(st.ZSet[int]) as before:
        total = st.add(before, numbers)
        before.connect(st.delay(total))
    return total


def test_the_nodes_are_the_vertices_with_their_operators_and_types() -> None:
    graph = st.compile(chiefs)
    assert {str(p): data for p, data in graph.nx.nodes(data=True)} == {
        "chiefs.people": {"operator": "input", "type": "ZSet[Person]"},
        "chiefs.managers": {"operator": "filter", "type": "ZSet[Person]"},
        "chiefs.pairs": {"operator": "join", "type": "ZSet[Pair[Person, Person]]"},
    }
    assert set(graph.nx) == set(graph.vertices)


def test_the_edges_say_which_argument_they_are() -> None:
    edges = st.compile(chiefs).nx.edges(data=True)
    assert {(str(a), str(b), data["argument"]) for a, b, data in edges} == {
        ("chiefs.people", "chiefs.managers", 0),
        ("chiefs.people", "chiefs.pairs", 0),
        ("chiefs.managers", "chiefs.pairs", 1),
    }


def test_a_vertex_that_takes_a_stream_twice_has_two_edges_from_it() -> None:
    graph = st.compile(doubled).nx
    numbers, twice = nx.topological_sort(graph)
    assert [data["argument"] for data in graph[numbers][twice].values()] == [0, 1]


def test_a_loop_is_a_cycle() -> None:
    graph = st.compile(totals, optimize=False).nx
    (cycle,) = nx.simple_cycles(graph)
    assert {graph.nodes[p]["operator"] for p in cycle} == {"feedback", "add", "delay"}
    assert nx.is_directed_acyclic_graph(st.compile(totals).nx)
