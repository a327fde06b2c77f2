"""How recursion is written, what may stand in it, and how it tells of itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.base.errors import CompileError, FixpointError
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.store import Store
from stores.contract.values import Content, content
from tests.cases import Z
from tests.every_store import MakeStore

Link = st.Pair[int, int]


class Hop(st.Data):
    start: int
    end: int


def longer(ops: Any, edges: Any, y: Any) -> Any:
    met = ops.join(y, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
    return st.map(met, f=lambda m: st.Pair(left=m.left.left, right=m.right.right))


def compiled(f: Callable[..., Any], **kwargs: Any) -> Any:
    def query(edges: st.ZSet[Link]) -> Any:
        return st.fixpoint(edges, f, **kwargs)

    return st.compile(query)


def stepped(graph: Any, *inputs: Any) -> Any:
    (out,) = st.reference(graph).step(inputs)
    return out


def links(*edges: tuple[int, int]) -> Any:
    return Z({st.Pair(left=a, right=b): 1 for a, b in edges})


# -- writing


def test_lifted_operators_and_those_on_values_mean_the_same_in_a_body() -> None:
    def lifted(edges: st.ZSet[Link]) -> st.ZSet[Link]:
        return st.fixpoint(edges, lambda e, y: st.distinct(st.add(e, longer(st, e, y))))

    def plain(edges: st.ZSet[Link]) -> st.ZSet[Link]:
        ops = st.linear
        return st.fixpoint(edges, lambda e, y: ops.distinct(ops.add(e, longer(ops, e, y))))

    assert st.compile(lifted) == st.compile(plain)


def test_a_body_uses_streams_of_the_query_around_it() -> None:
    def query(edges: st.ZSet[Link], roots: st.ZSet[int]) -> st.ZSet[int]:
        late = st.delay(edges)

        def step(roots: st.ZSet[int], y: st.ZSet[int]) -> st.ZSet[int]:
            met = st.join(y, late, on_left=lambda n: n, on_right=lambda e: e.left)
            return st.add(roots, st.map(met, f=lambda m: m.right.right))

        return st.fixpoint(roots, step)

    reference = st.reference(st.compile(query))
    assert reference.step((links((1, 2)), Z({1: 1}))) == (Z({1: 1}),)
    assert reference.step((None, None)) == (Z({2: 1}),)  # a change by way of a delay


def test_what_does_not_depend_on_the_recursion_is_computed_around_it() -> None:
    def body(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        once = st.linear.distinct(edges)  # not linear: lifted around the loop
        loops = st.filter(once, f=lambda e: e.left == e.right)
        return st.add(once, longer(st, st.add(edges, st.neg(loops)), y))

    graph = compiled(body)
    (fixpoint,) = (v for v in graph.walk() if v.operator.name == "fixpoint")
    inside = {v.operator.name for v in graph.bodies[fixpoint.operator].walk()}
    assert inside == {"outside", "recursive", "join", "map", "add", "distinct"}
    assert stepped(graph, links((1, 1), (1, 2), (2, 3))) == links((1, 1), (1, 2), (2, 3), (1, 3))


def test_the_rows_of_y_are_said_by_an_annotation_or_by_to() -> None:
    def annotated(edges: st.ZSet[Link], y: st.ZSet[int]) -> st.ZSet[int]:
        return st.map(edges, f=lambda e: e.right)

    def bare(edges: Any, y: Any) -> Any:
        return st.map(edges, f=lambda e: e.right)

    for graph in (compiled(annotated), compiled(bare, to=int)):
        assert stepped(graph, links((1, 2), (3, 2))) == Z({2: 1})


def test_several_streams_are_a_tuple_and_run_in_one_loop() -> None:
    def query(edges: st.ZSet[Link]) -> tuple[st.ZSet[Link], st.ZSet[int]]:
        def f(edges: Any, both: Any) -> Any:
            pairs, ends = both
            more = st.add(edges, longer(st, edges, pairs))
            return more, st.add(ends, st.map(pairs, f=lambda p: p.right))

        pairs, ends = st.fixpoint(edges, f, to=(Link, int), name="reach")
        return pairs, ends

    graph = st.compile(query)
    assert [str(p) for p in graph.output] == ["query.reach_0", "query.reach_1"]
    found = st.reference(graph).step((links((1, 2), (2, 3)),))
    assert found == (links((1, 2), (2, 3), (1, 3)), Z({2: 1, 3: 1}))
    loops = [line for line in str(st.explain(graph)).splitlines() if line.startswith("  loop ")]
    assert loops == ["  loop query.reach_0"]


# -- what is refused


def difference(edges: Any, y: Any) -> Any:
    return edges - y


def without(edges: Any, y: Any) -> Any:
    return st.antijoin(edges, y, on_left=lambda e: e.left, on_right=lambda p: p.right)


def only(edges: Any, y: Any) -> Any:
    return st.antijoin(y, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)


def sums(edges: Any, y: Any) -> Any:
    by_end = st.group_reduce_flatten(y, by=lambda p: p.right, zero=int, pick_value=lambda p: 1)
    return st.add(edges, by_end)


def counted(edges: Any, y: Any) -> Any:
    return st.add(edges, st.map(st.count(y), f=lambda n: st.Pair(left=n, right=n)))


def delayed(edges: Any, y: Any) -> Any:
    return st.add(edges, st.delay(y))


def integrated(edges: Any, y: Any) -> Any:
    return st.integrate(y)


def changes_of_distinct(edges: Any, y: Any) -> Any:
    return st.haitch(edges, y)


def printed(edges: Any, y: Any) -> Any:
    return st.identity_print(y)


def looped(edges: Any, y: Any) -> Any:
    with st.feedback(st.ZSet[Link]) as z:
        z.connect(y)
    return y


def nested(edges: Any, y: Any) -> Any:
    return st.fixpoint(y, lambda a, z: a)


def cached(edges: Any, y: Any) -> Any:
    return st.Cache[Link](name="kept")[y](lambda a: a)


def other_rows(edges: Any, y: Any) -> Any:
    return st.map(y, f=lambda p: p.left)


def forgotten(edges: Any, y: Any) -> Any:
    st.add(edges, y)


def no_stream(edges: Any, y: Any) -> Any:
    return 1


def two(edges: Any, y: Any) -> Any:
    return edges, y


def of_three(edges: Any, y: Any, z: Any) -> Any:
    return edges


@pytest.mark.parametrize(
    ("f", "complaint"),
    [
        (difference, r"a difference \(neg, -, antijoin, outer_join\) of a recursive stream"),
        (without, r"a difference \(.*antijoin.*: where the recursive stream has more rows, it may"),
        (only, r"a difference \(.*antijoin.*\) of a recursive stream: .* may have fewer"),
        (sums, "a sum or count of a recursive stream: .* may have fewer"),
        (counted, "a sum or count of a recursive stream"),
        (delayed, "delay in the function of a fixpoint"),
        (integrated, "integrate in the function of a fixpoint"),
        (changes_of_distinct, "haitch in the function of a fixpoint"),
        (printed, "identity_print of a recursive stream"),
        (looped, "feedback in the function of a fixpoint"),
        (nested, "a fixpoint inside the function of another; call it before"),
        (cached, "a cache in the function of a fixpoint; keep the result of the fixpoint"),
        (other_rows, r"gives one of ZSet\[int\] in its place; st.map what it gives"),
        (forgotten, "found nothing .is a `return` missing"),
        (no_stream, "should give streams, found 1"),
        (two, "should give a stream, as it is given"),
        (of_three, "two parameters, .*; 'of_three' has 3"),
    ],
)
def test_what_has_no_least_fixpoint_is_refused(f: Callable[..., Any], complaint: str) -> None:
    with pytest.raises(CompileError, match=complaint) as e:
        compiled(f)
    assert re.match(r"test_fixpoint\.py:\d+", str(e.value))


@pytest.mark.parametrize(
    ("f", "complaint"),
    [
        (
            lambda e, y: st.distinct(y),
            "distinct of a recursive stream in a fixpoint with distinct=",
        ),
        (without, "in a fixpoint with distinct=False: it is neither linear nor a join"),
        (sums, "in a fixpoint with distinct=False: it is neither linear nor a join"),
        (printed, "identity_print of a recursive stream"),
    ],
)
def test_rows_are_counted_in_sums_and_joins_only(f: Callable[..., Any], complaint: str) -> None:
    with pytest.raises(CompileError, match=complaint) as e:
        compiled(f, distinct=False)
    assert re.match(r"test_fixpoint\.py:\d+", str(e.value))


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"max_iterations": 0}, "max_iterations=0 should be an int from 1 on"),
        ({"to": object()}, "to= of fixpoint"),
    ],
)
def test_what_fixpoint_cannot_be_told_is_refused(kwargs: Any, complaint: str) -> None:
    with pytest.raises(CompileError, match=complaint):
        compiled(lambda e, y: e, **kwargs)


def test_rows_that_nobody_names_are_refused() -> None:
    def query(a: st.ZSet[Link], b: st.ZSet[Link]) -> Any:
        return st.fixpoint((a, b), lambda both, y: both[0])

    with pytest.raises(CompileError, match=r"the rows of the recursive stream are unknown.*to=T"):
        st.compile(query)


@pytest.mark.parametrize(
    "circuit", [st.transitive_closure, st.connected_components, lambda a: st.reachable(a, a)]
)
def test_edges_that_are_no_pairs_are_refused(circuit: Any) -> None:
    def query(hops: st.ZSet[Hop]) -> Any:
        return circuit(hops)

    with pytest.raises(CompileError, match=r"edges that are st.Pair of two nodes.*found Hop"):
        st.compile(query)


def test_lengths_that_are_no_numbers_are_refused() -> None:
    def query(edges: st.ZSet[tuple[int, int, str]], roots: st.ZSet[int]) -> Any:
        return st.shortest_paths(edges, roots)

    with pytest.raises(CompileError, match="a length of int or float, found tuple"):
        st.compile(query)


# -- endless loops


def counting(numbers: st.ZSet[int]) -> st.ZSet[int]:
    def up(numbers: st.ZSet[int], y: st.ZSet[int]) -> st.ZSet[int]:
        small = st.filter(y, f=lambda n: (n < 5) | (n >= 100))
        return st.add(numbers, st.map(small, f=lambda n: n + 1))

    return st.fixpoint(numbers, up, max_iterations=20)


COMPLAINT = (
    r"counting\.fixpoint \(test_fixpoint\.py:\d+, in counting\): the recursion 'up' has not ended "
    r"after max_iterations=20 iterations; rows of the last ones: .* \d+; the store is as it was"
)


def test_plain_python_refuses_a_recursion_that_does_not_end() -> None:
    reference = st.reference(st.compile(counting))
    with pytest.raises(FixpointError, match=COMPLAINT):
        reference.step((Z({100: 1}),))
    assert reference.step((Z({3: 1}),)) == (Z({3: 1, 4: 1, 5: 1}),)


def test_a_step_refuses_a_recursion_that_does_not_end_and_changes_nothing(
    spark: Any, make_store: MakeStore
) -> None:
    graph = st.compile(counting)
    store = make_store(graph)
    st.Stepper(graph, store).step((Z({4: 1}),))
    before = registers_of(store, graph)
    assert any(before.values())
    with pytest.raises(FixpointError, match=COMPLAINT):
        st.Stepper(graph, store).step((Z({100: 1, 4: -1}),))
    assert (store.last_step(), registers_of(store, graph)) == (1, before)
    store = make_store.reopen(store, graph)
    stepper = st.Stepper(graph, store)
    assert (store.last_step(), registers_of(store, graph)) == (1, before)
    assert stepper.step((Z({4: -1}),)) == (Z({4: -1, 5: -1}),)


def least_only(roots: st.ZSet[int], edges: st.ZSet[Link]) -> st.ZSet[int]:
    """On from the least node only, which may push that out from which it was found."""

    def on(roots: st.ZSet[int], nodes: st.ZSet[int]) -> st.ZSet[int]:
        least = st.first_n(nodes, lambda n: n, 1)
        met = st.join(least, edges, on_left=lambda n: n, on_right=lambda e: e.left)
        return st.add(roots, st.map(met, f=lambda m: m.right.right))

    return st.fixpoint(roots, on, max_iterations=20)


def test_a_minimum_that_does_not_come_back_into_its_group_may_not_end(spark: Any) -> None:
    graph = st.compile(least_only)
    ends, endless = (Z({5: 1}), links((5, 3), (3, 3))), (None, links((3, 7)) - links((3, 3)))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    for machine in (st.reference(graph), stepper):
        assert machine.step(ends) == (Z({5: 1, 3: 1}),)
        with pytest.raises(FixpointError, match="has not ended after max_iterations=20"):
            machine.step(endless)


def registers_of(store: Store, graph: Any) -> dict[str, Content]:
    """All that a store has committed."""
    return {r.name: content(store, r) for r in plan_of(graph).registers}


# -- telling


def closure(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    pairs = st.transitive_closure(edges)
    return pairs


def test_the_text_of_a_graph_shows_the_body() -> None:
    text = str(st.compile(closure))
    assert "closure.pairs: ZSet[Pair[int, int]] = recursive(closure.add_distinct)" in text
    assert "met: ZSet[Pair[Pair[int, int], Pair[int, int]]] = join(" in text


def test_explain_tells_what_a_recursion_keeps_by_iteration() -> None:
    text = str(st.explain(st.compile(closure)))
    assert "fixpoint, recursive: iterates on changes until there are none left" in text
    assert re.search(r"pairs by right, by right, by iteration", text)
    assert re.search(r"look up .*\.edges by left at keys of .*\.pairs", text)


def test_a_picture_has_a_frame_for_the_recursion(tmp_path: Path) -> None:
    graph = st.compile(closure)
    for level in (0, 1, 2):
        st.write_dot(graph, tmp_path / f"{level}.dot", level)
    dot = (tmp_path / "2.dot").read_text()
    assert 'subgraph "cluster_transitive_closure/' in dot
    assert "recursive" in dot
    assert "style=dashed" in dot  # the arrow that closes the loop
    assert "recursive" not in (tmp_path / "1.dot").read_text()


def test_registers_of_a_recursion_have_the_same_names_in_every_process() -> None:
    first, second = (st.explain(st.compile(closure)).arrangements for _ in range(2))
    assert first == second
    assert [name for name, _ in first] == [
        "closure.edges by row",
        "closure.transitive_closure.distinct.distinct by left",
        "closure.transitive_closure.closed.pairs by right",
        "closure.transitive_closure.closed.add by row",
    ]


@pytest.mark.driver
def test_metrics_count_iterations(spark: Any) -> None:
    graph = st.compile(closure)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((links((1, 2), (2, 3), (3, 4)),))
    stepper.step((None,))
    (path,) = (str(p) for p, v in graph.vertices.items() if v.operator.name == "fixpoint")
    assert [m.iterations[path] for m in stepper.metrics] == [4, 0]
    assert [m.jobs for m in stepper.metrics] == [0, 0]
    assert stepper.metrics[0].vertices[path].how == "loop"


def test_a_cache_and_a_join_take_what_a_recursion_gives(spark: Any) -> None:
    kept = st.Cache[Link](name="pairs")

    def query(edges: st.ZSet[Link]) -> st.ZSet[st.Pair[Link, Link]]:
        pairs = st.transitive_closure(edges)
        _ = kept[pairs](st.integrate)
        by = st.Index.pick(Link, lambda p: p.right)
        return st.join(pairs, edges, on_left=by, on_right=by)

    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper, reference = st.Stepper(graph, store), st.reference(graph)
    for step in ((links((1, 2), (2, 3)),), (-links((1, 2)),)):
        assert tuple(out.to_python() for out in stepper.step(step)) == reference.step(step)
    assert kept.zset(store) == links((2, 3))


def test_equal_recursions_have_the_names_of_their_own_query() -> None:
    def first(edges: st.ZSet[Link]) -> st.ZSet[Link]:
        def ways(edges: Any, known: Any) -> Any:
            return st.add(edges, longer(st, edges, known))

        return st.fixpoint(edges, ways)

    def second(links: st.ZSet[Link]) -> st.ZSet[Link]:
        def paths(hops: Any, y: Any) -> Any:
            return st.add(hops, longer(st.linear, hops, y))

        return st.fixpoint(links, paths)

    graphs = [st.compile(query) for query in (first, second, first)]
    texts = [str(st.explain(g)) for g in graphs]
    assert texts[0] == texts[2]
    assert "fixpoint.known" in texts[0]
    assert "fixpoint.known" not in texts[1]
    assert "fixpoint.y" in texts[1]
