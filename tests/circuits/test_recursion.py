"""Recursion is right whatever comes and goes: every step against networkx, and against DRed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx
import pytest
from pyspark.sql import functions as F

import stepping_spark as st
from tests.cases import Z, constants, everywhere
from tests.every_store import InMemory, MakeStore

Edge = tuple[int, int]
Link = st.Pair[int, int]

pytestmark = pytest.mark.usefixtures("spark")


WAYS: dict[str, dict[str, Any]] = {
    "optimized": {},
    "as written": {"optimize": False},
    "Spark jobs": {"local_rows": 0},
}
STORES = ("memory", "parquet", "postgres")
LONG = pytest.mark.long
# With rules on and off, on the driver and with a Spark job for everything; in every store.
every_way = pytest.mark.parametrize(
    ("make_store", "how"),
    [
        pytest.param(store, way, id=f"{store}, {name}", marks=LONG if i and j else ())
        for i, store in enumerate(STORES)
        for j, (name, way) in enumerate(WAYS.items())
    ],
    indirect=["make_store"],
)
long_on_disk = pytest.mark.parametrize(
    "make_store",
    [pytest.param(store, marks=LONG if i else ()) for i, store in enumerate(STORES)],
    indirect=True,
)


def on_the_driver(how: Mapping[str, Any]) -> bool:
    """Whether iterations are quick: else a case takes fewer of them."""
    return how.get("local_rows") != 0


def closure(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    return st.transitive_closure(edges)


def squared(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    """The same with a body that is not linear in y: paths are put together from paths."""

    def doubled(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        met = st.join(y, y, on_left=lambda p: p.right, on_right=lambda p: p.left)
        return st.add(edges, st.map(met, f=ends))

    return st.fixpoint(edges, doubled)


def ends(p: Any) -> Any:
    return st.Pair(left=p.left.left, right=p.right.right)


def links(edges: Mapping[Edge, int] | Iterable[Edge]) -> Z[Link]:
    """A change of edges; those without a weight come once."""
    weights = edges if isinstance(edges, Mapping) else dict.fromkeys(edges, 1)
    return Z({st.Pair(left=a, right=b): n for (a, b), n in weights.items()})


def minus(edges: Iterable[Edge]) -> dict[Edge, int]:
    return dict.fromkeys(edges, -1)


class Maintained:
    """A closure that is stepped, and after each step compared with a breadth-first one."""

    def __init__(
        self,
        make_store: MakeStore,
        query: Any = closure,
        *,
        optimize: bool = True,
        local_rows: int = st.Limits.local_rows,
    ) -> None:
        self.graph = st.compile(query, optimize=optimize)
        self.make_store = make_store
        self.store = make_store(self.graph)
        self.local_rows = local_rows
        self.edges: Z[Link] = Z()
        self.pairs: Z[Link] = Z()
        self.restart()

    def restart(self) -> None:
        """Go on with what the store has kept, and nothing else."""
        self.store = self.make_store.reopen(self.store, self.graph)
        self.stepper = st.Stepper(self.graph, self.store, local_rows=self.local_rows)

    def step(self, edges: Mapping[Edge, int] | Iterable[Edge]) -> Z[Link]:
        """The change of the closure, which is right."""
        change = links(edges)
        (out,) = self.stepper.step((change,))
        changed: Z[Link] = out.to_python()
        self.edges, self.pairs = self.edges + change, self.pairs + changed
        assert self.pairs == links(self.reached())
        return changed

    def reached(self) -> set[Edge]:
        g: nx.DiGraph[int] = nx.DiGraph()
        g.add_edges_from((e.left, e.right) for e, n in self.edges.iter() if n > 0)
        return set(nx.transitive_closure(g, reflexive=False).edges)

    @property
    def iterations(self) -> int:
        """How many the last step took."""
        return sum(self.stepper.metrics[-1].iterations.values())


# -- rows that come as often as they are found


def walks(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    def longer(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        met = st.join(y, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
        return st.add(edges, st.map(met, f=ends))

    return st.fixpoint(edges, longer, distinct=False)


def dead_ends(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    """Each edge, and from where no edge begins the numbers after it; a difference is linear."""

    def longer(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        ends = st.antijoin(y, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
        short = st.filter(ends, f=lambda p: p.right < 6)
        further = st.map(short, f=lambda p: st.Pair(left=p.left, right=p.right + 1))
        return st.add(edges, further)

    return st.fixpoint(edges, longer, distinct=False)


def doubled(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    """Each path as often as it can be put together from two paths, and these from two."""

    def longer(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        met = st.join(y, y, on_left=lambda p: p.right, on_right=lambda p: p.left)
        return st.add(edges, st.map(met, f=ends))

    return st.fixpoint(edges, longer, distinct=False)


@every_way
@pytest.mark.parametrize("query", [walks, dead_ends, doubled])
def test_rows_are_counted_as_often_as_they_are_found(
    make_store: MakeStore, how: dict[str, Any], query: Any
) -> None:
    rng = random.Random(5)
    graph = st.compile(query, optimize=how.get("optimize", True))
    store, reference, there = make_store(graph), st.reference(graph), Z[Link]()
    nodes, many, steps = (7, 5, 8) if on_the_driver(how) else (4, 3, 4)
    for _ in range(steps):
        gone = [row for row, _ in there.iter() if rng.random() < 0.4]
        new = [sorted(rng.sample(range(nodes), 2)) for _ in range(many)]
        change = Z([*((st.Pair(left=a, right=b), rng.choice((1, 2))) for a, b in new),
                    *((row, -1) for row in gone)])  # fmt: skip
        there += change
        store = make_store.reopen(store, graph)
        limits = {k: v for k, v in how.items() if k == "local_rows"}
        (out,) = st.Stepper(graph, store, **limits).step((change,))
        (wanted,) = reference.step((change,))
        assert out.to_python() == wanted


def test_walks_are_as_many_as_the_powers_of_the_matrix_say() -> None:
    edges = {(0, 1): 2, (1, 2): 3, (0, 2): 1, (2, 3): 1}
    (out,) = st.reference(st.compile(walks)).step((links(edges),))
    more = {(0, 2): 7, (1, 3): 3, (0, 3): 7}
    assert out == links({**edges, **more})


# -- the cases that catch wrong versions


@every_way
@pytest.mark.parametrize("query", [closure, squared])
def test_what_only_holds_itself_up_goes(
    make_store: MakeStore, how: dict[str, Any], query: Any
) -> None:
    maintained = Maintained(make_store, query, **how)
    maintained.step([(1, 2), (2, 1), (1, 3)])
    assert maintained.step(minus([(1, 3)])) == links(minus([(1, 3), (2, 3)]))


@every_way
def test_a_shortcut_beside_a_path_changes_nothing_in_the_end(
    make_store: MakeStore, how: dict[str, Any]
) -> None:
    maintained = Maintained(make_store, **how)
    maintained.step([(0, 1), (1, 2), (2, 3), (3, 4)])
    assert maintained.step([(0, 4)]).empty()  # +1 at iteration 0, nothing at 1 and 2, -1 at 3
    assert maintained.iterations < 5
    assert maintained.step(minus([(0, 4)])).empty()


@every_way
def test_a_diamond_loses_one_side_then_the_other(
    make_store: MakeStore, how: dict[str, Any]
) -> None:
    maintained = Maintained(make_store, **how)
    maintained.step([(0, 1), (0, 2), (1, 3), (2, 3)])
    assert maintained.step(minus([(1, 3)])) == links(minus([(1, 3)]))
    assert maintained.step(minus([(2, 3)])) == links(minus([(2, 3), (0, 3)]))


@every_way
@pytest.mark.parametrize("query", [closure, squared])
def test_a_ring_is_cut_and_closed(make_store: MakeStore, how: dict[str, Any], query: Any) -> None:
    n = 9 if on_the_driver(how) else 4
    maintained = Maintained(make_store, query, **how)
    ring = [(i, (i + 1) % n) for i in range(n)]
    maintained.step(ring)
    assert sum(w for _, w in maintained.pairs.iter()) == n * n
    maintained.step(minus(ring[:1]))
    assert sum(w for _, w in maintained.pairs.iter()) == n * (n - 1) // 2
    maintained.step(ring[:1])
    assert sum(w for _, w in maintained.pairs.iter()) == n * n


@every_way
def test_self_loops_come_and_go(make_store: MakeStore, how: dict[str, Any]) -> None:
    maintained = Maintained(make_store, **how)
    assert maintained.step([(1, 1), (1, 2)]) == links([(1, 1), (1, 2)])
    assert maintained.step({(2, 2): 1, (1, 1): -1}) == links({(2, 2): 1, (1, 1): -1})


@every_way
def test_an_edge_that_came_twice_stays_when_it_goes_once(
    make_store: MakeStore, how: dict[str, Any]
) -> None:
    maintained = Maintained(make_store, **how)
    maintained.step({(1, 2): 2, (2, 3): 1})
    assert maintained.step(minus([(1, 2)])).empty()
    assert maintained.step(minus([(1, 2)])) == links(minus([(1, 2), (1, 3)]))


@every_way
def test_what_comes_and_goes_in_one_step_is_nothing(
    make_store: MakeStore, how: dict[str, Any]
) -> None:
    maintained = Maintained(make_store, **how)
    maintained.step([(1, 2)])
    for edge in ((2, 3), (1, 2)):  # one that is not there, and one that is
        both = links([edge]).to_dataframe().unionAll(links(minus([edge])).to_dataframe())
        assert both.count() == 2
        change = st.ZSetSpark.from_dataframe(both, Link, count="_count_")
        (out,) = maintained.stepper.step((change,))
        assert out.empty()
    maintained.step([(2, 3)])


@every_way
@pytest.mark.parametrize(
    ("length", "times"), [(20, 2), pytest.param(100, 10, marks=pytest.mark.long)]
)
def test_a_chain_comes_and_goes_again_and_again(
    make_store: MakeStore, how: dict[str, Any], length: int, times: int
) -> None:
    length = length if on_the_driver(how) else length // 5
    maintained = Maintained(make_store, **how)
    chain = [(i, i + 1) for i in range(length)]
    for _ in range(times):
        assert len(list(maintained.step(chain).iter())) == length * (length + 1) // 2
        maintained.step(minus(chain))
        assert maintained.pairs.empty()


@pytest.mark.turn(2)
@every_way
def test_it_does_not_matter_how_changes_are_dealt_into_steps(
    make_store: MakeStore, how: dict[str, Any]
) -> None:
    rng = random.Random(7)
    nodes, many = (8, 14) if on_the_driver(how) else (3, 4)
    edges = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(many)]
    changes = [({e: 1}) for e in edges] + [({e: -1}) for e in rng.sample(edges, many // 2)]
    whole = Maintained(make_store, **how)
    summed = Z[Link]()
    for c in changes:
        summed += links(c)
    whole.step({(e.left, e.right): n for e, n in summed.iter()})
    assert not whole.pairs.empty()
    for order in (changes, rng.sample(changes, len(changes))):
        dealt = Maintained(make_store, **how)
        for c in order:
            dealt.step(c)
        assert dealt.pairs == whole.pairs


@every_way
def test_a_restart_between_load_and_deletion_changes_nothing(
    make_store: MakeStore, how: dict[str, Any]
) -> None:
    maintained = Maintained(make_store, **how)
    maintained.step([(1, 2), (2, 1), (1, 3), (3, 4)])
    maintained.restart()
    assert maintained.step(minus([(1, 3)])) == links(minus([(1, 3), (1, 4), (2, 3), (2, 4)]))


@long_on_disk
def test_a_body_that_is_not_linear_halves_the_depth(make_store: MakeStore) -> None:
    chain = [(i, i + 1) for i in range(32)]
    by_edges, by_paths = Maintained(make_store), Maintained(make_store, squared)
    by_edges.step(chain)
    by_paths.step(chain)
    assert by_edges.iterations == 33  # with the last, which finds nothing new
    assert by_paths.iterations == 7


# -- random steps


class DRed:
    """Delete and re-derive (Gupta, Mumick and Subrahmanian, 1993): another way to the same."""

    def __init__(self) -> None:
        self.edges: dict[Edge, int] = {}
        self.pairs: set[Edge] = set()

    def step(self, change: Mapping[Edge, int]) -> set[Edge]:
        before = {e for e, n in self.edges.items() if n > 0}
        for e, n in change.items():
            self.edges[e] = self.edges.get(e, 0) + n
        now = {e for e, n in self.edges.items() if n > 0}
        self._delete(before - now, now)
        self._insert(now)
        return self.pairs

    def _delete(self, gone: set[Edge], now: set[Edge]) -> None:
        doubtful: set[Edge] = set(gone)
        while True:  # whatever a lost edge, or a doubtful pair, may have led to
            more = {(a, d) for a, b in doubtful | self.pairs for c, d in gone if b == c}
            more |= {(a, d) for a, b in doubtful for c, d in now if b == c}
            more &= self.pairs
            if more <= doubtful:
                break
            doubtful |= more
        self.pairs -= doubtful

    def _insert(self, now: set[Edge]) -> None:
        while True:
            more = now | {(a, d) for a, b in self.pairs for c, d in now if b == c}
            if more <= self.pairs:
                return
            self.pairs |= more


def random_change(rng: random.Random, edges: Z[Link], nodes: int) -> dict[Edge, int]:
    """Edges that come, once or twice, and ones that go; now and then all of them."""
    there = [(e.left, e.right) for e, n in edges.iter() for _ in range(n)]
    some = rng.sample(there, min(len(there), rng.randrange(4)))
    gone = there if rng.random() < 0.03 else some
    change: dict[Edge, int] = {}
    for e in gone:
        change[e] = change.get(e, 0) - 1
    for _ in range(rng.randrange(4)):
        e = (rng.randrange(nodes), rng.randrange(nodes))
        change[e] = change.get(e, 0) + rng.choice([1, 1, 1, 2])
    return change


@long_on_disk
@pytest.mark.parametrize("query", [closure, squared])
@pytest.mark.parametrize(
    ("seed", "nodes", "steps"),
    [
        (1, 8, 60),
        *(pytest.param(s, n, 1000, marks=pytest.mark.long) for s, n in ((2, 8), (3, 9), (4, 10))),
    ],
)
def test_random_steps_give_what_networkx_and_dred_give(
    make_store: MakeStore, query: Any, seed: int, nodes: int, steps: int
) -> None:
    rng = random.Random(seed)
    maintained, other = Maintained(make_store, query), DRed()
    for _ in range(steps):
        change = random_change(rng, maintained.edges, nodes)
        maintained.step(change)
        assert maintained.pairs == links(other.step(change))


@long_on_disk
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
def test_random_steps_in_spark_jobs_give_the_same(make_store: MakeStore, optimize: bool) -> None:
    rng = random.Random(5)
    maintained = Maintained(make_store, optimize=optimize, local_rows=0)
    for _ in range(6):
        maintained.step(random_change(rng, maintained.edges, 5))


@pytest.mark.long
@pytest.mark.usefixtures("by_queries")
@constants(loop_rows=0)
def test_large_changes_that_stay_in_spark_give_the_same() -> None:
    graph = st.compile(closure)
    store = st.StoreMemory.from_graph(graph, driver_bytes=0)
    limits = st.Limits(local_rows=0, fetched_rows=0)
    stepper = st.Stepper(graph, store, limits=limits)
    edges, pairs = Z[Link](), Z[Link]()
    reference = st.reference(graph)
    for change in ([(1, 2), (2, 1), (1, 3), (3, 4)], minus([(1, 3)])):
        frame = st.ZSetSpark.from_dataframe(links(change).to_dataframe(), Link, count="_count_")
        (out,) = stepper.step((frame,))
        assert (out.to_python(),) == reference.step((links(change),))
        edges, pairs = edges + links(change), pairs + out.to_python()
    assert pairs == links([(1, 1), (1, 2), (2, 1), (2, 2), (3, 4)])


# -- other recursions


def nearest(
    edges: st.ZSet[tuple[int, int, int]], roots: st.ZSet[int]
) -> st.ZSet[st.Pair[int, int]]:
    return st.shortest_paths(edges, roots)


def components(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    return st.connected_components(edges)


def from_roots(edges: st.ZSet[Link], roots: st.ZSet[int]) -> st.ZSet[int]:
    return st.reachable(edges, roots)


def odd_and_even(edges: st.ZSet[Link]) -> tuple[st.ZSet[Link], st.ZSet[Link]]:
    """Paths of an odd and of an even number of edges, each made of the other."""

    def walks(
        edges: st.ZSet[Link], both: tuple[st.ZSet[Link], st.ZSet[Link]]
    ) -> tuple[st.ZSet[Link], st.ZSet[Link]]:
        odd, even = both

        def longer(y: st.ZSet[Link]) -> st.ZSet[Link]:
            met = st.join(y, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
            return st.map(met, f=ends)

        return st.add(edges, longer(even)), longer(odd)

    return st.fixpoint(edges, walks)


def cousins(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    """The same generation: a distinct between two joins, and streams from around."""
    up = st.map(edges, f=lambda e: st.Pair(left=e.right, right=e.left))

    def same(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        siblings = st.join(up, edges, on_left=lambda e: e.right, on_right=lambda e: e.left)
        met = st.join(y, edges, on_left=lambda p: p.left, on_right=lambda e: e.left)
        half = st.distinct(st.map(met, f=lambda m: st.Pair(left=m.left.right, right=m.right.right)))
        rest = st.join(half, edges, on_left=lambda p: p.left, on_right=lambda e: e.left)
        lower = st.map(rest, f=lambda m: st.Pair(left=m.left.right, right=m.right.right))
        return st.add(st.map(siblings, f=ends), lower)

    return st.fixpoint(edges, same)


def guarded(edges: st.ZSet[Link], roots: st.ZSet[int]) -> st.ZSet[int]:
    """What can be reached from a root by way of nodes with an edge back: a semijoin over y."""

    def step(roots: st.ZSet[int], nodes: st.ZSet[int]) -> st.ZSet[int]:
        starts = st.linear.map(edges, f=lambda e: e.left)
        has_edge = st.linear.distinct(starts)
        kept = st.linear.join(nodes, has_edge, on_left=lambda n: n, on_right=lambda n: n)
        going = st.linear.map(kept, f=lambda m: m.left)
        met = st.join(going, edges, on_left=lambda n: n, on_right=lambda e: e.left)
        return st.add(roots, st.map(met, f=lambda m: m.right.right))

    return st.fixpoint(roots, step)


def halved(numbers: st.ZSet[int]) -> st.ZSet[int]:
    """A body with Python functions, a filter, and items of a list."""

    def halves(n: int) -> list[int]:
        return [n // 2, n - n // 2]

    def step(numbers: st.ZSet[int], y: st.ZSet[int]) -> st.ZSet[int]:
        large = st.filter(y, f=lambda n: n > 1)
        return st.add(numbers, st.map_many(large, f=st.python(halves)))

    return st.fixpoint(numbers, step)


def farthest(
    edges: st.ZSet[tuple[int, int, int]], roots: st.ZSet[int]
) -> st.ZSet[st.Pair[int, int]]:
    """How long the longest way from a root is, where no way leads back: a maximum over y."""
    there = st.distinct(edges)

    def lengths(
        roots: st.ZSet[int], known: st.ZSet[st.Pair[int, int]]
    ) -> st.ZSet[st.Pair[int, int]]:
        met = st.join(known, there, on_left=lambda n: n.left, on_right=lambda e: e[0])
        farther = st.map(met, f=lambda m: st.Pair(left=m.right[1], right=m.left.right + m.right[2]))
        start = st.map(roots, f=lambda n: st.Pair(left=n, right=0))
        most = st.aggregate(
            st.add(start, farther),
            by=lambda n: n.left,
            into=Farthest,
            right=st.agg.max(lambda n: n.right),
        )
        return st.map(most, f=lambda m: st.Pair(left=m.left, right=m.right))

    return st.fixpoint(st.distinct(roots), lengths)


class Farthest(st.Data):
    left: int
    right: int


def longest(inputs: Sequence[Z[Any]]) -> Z[Any]:
    """The same by networkx: node by node, in an order in which no edge leads back."""
    edges, roots = inputs
    g: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    g.add_nodes_from(n for n, _ in roots.iter())
    g.add_weighted_edges_from(e for e, _ in edges.iter())
    far = {n: 0 for n, _ in roots.iter()}
    for a in nx.topological_sort(g):
        for _, b, data in g.out_edges(a, data=True) if a in far else ():
            far[b] = max(far.get(b, 0), far[a] + data["weight"])
    return links(list(far.items()))


def with_permits(edges: st.ZSet[Link], permits: st.ZSet[Link]) -> st.ZSet[Link]:
    """Paths, but for those that nobody permits to be made longer: y is the left of a semijoin."""

    def longer(edges: st.ZSet[Link], y: st.ZSet[Link]) -> st.ZSet[Link]:
        permitted = st.semijoin(y, permits, on_left=lambda p: p, on_right=lambda p: p)
        met = st.join(permitted, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
        return st.add(edges, st.map(met, f=ends))

    return st.fixpoint(edges, longer)


def permitted_paths(inputs: Sequence[Z[Any]]) -> Z[Any]:
    edges, permits = ({(e.left, e.right) for e, _ in z.iter()} for z in inputs)
    paths = set(edges)
    while True:
        more = paths | {(a, d) for a, b in paths & permits for c, d in edges if b == c}
        if more == paths:
            return links(paths)
        paths = more


def unlocked(edges: st.ZSet[Link], keys: st.ZSet[int]) -> st.ZSet[int]:
    """Keys in boxes, each opened by another: y is the right of a semijoin."""

    def opened(keys: st.ZSet[int], y: st.ZSet[int]) -> st.ZSet[int]:
        boxes = st.semijoin(edges, y, on_left=lambda e: e.left, on_right=lambda n: n)
        return st.add(keys, st.map(boxes, f=lambda e: e.right))

    return st.fixpoint(keys, opened)


def found_keys(inputs: Sequence[Z[Any]]) -> Z[Any]:
    edges, keys = inputs
    g: nx.DiGraph[int] = nx.DiGraph()
    g.add_nodes_from(n for n, _ in keys.iter())
    g.add_edges_from((e.left, e.right) for e, _ in edges.iter())
    return Z(dict.fromkeys({d for n, _ in keys.iter() for d in {n, *nx.descendants(g, n)}}, 1))


def link(rng: random.Random) -> Any:
    return st.Pair(left=rng.randrange(6), right=rng.randrange(6))


def down(rng: random.Random) -> Any:
    a, b = sorted(rng.sample(range(7), 2))
    return st.Pair(left=a, right=b)


def road(rng: random.Random) -> Any:
    return (rng.randrange(6), rng.randrange(6), rng.randrange(4))


def way_down(rng: random.Random) -> Any:
    a, b = sorted(rng.sample(range(7), 2))
    return (a, b, rng.randrange(4))


def node(rng: random.Random) -> int:
    return rng.randrange(6)


OTHERS: dict[str, tuple[Any, tuple[Callable[[random.Random], Any], ...]]] = {
    "shortest paths": (nearest, (road, node)),
    "components": (components, (link,)),
    "reachable": (from_roots, (link, node)),
    "odd and even": (odd_and_even, (link,)),
    "cousins": (cousins, (down,)),
    "guarded": (guarded, (link, node)),
    "halved": (halved, (lambda rng: rng.randrange(40),)),
}


# Each with another way to the same, on whole tables.
OVER_Y: dict[str, tuple[Any, tuple[Callable[[random.Random], Any], ...], Any]] = {
    "max": (farthest, (way_down, node), longest),
    "semijoin, left": (with_permits, (link, link), permitted_paths),
    "semijoin, right": (unlocked, (link, node), found_keys),
}


def random_steps(
    rng: random.Random, makes: tuple[Callable[[random.Random], Any], ...], steps: int
) -> list[tuple[Z[Any], ...]]:
    """Steps with insertions and deletions, of which one deletes everything."""
    there: list[Z[Any]] = [Z() for _ in makes]
    made = []
    for t in range(steps):
        step = []
        for i, make in enumerate(makes):
            old = [row for row, n in there[i].iter() for _ in range(n)]
            gone = old if t == steps - 2 else rng.sample(old, min(len(old), rng.randrange(4)))
            coming = [make(rng) for _ in range(rng.randrange(5))]
            change = Z([(row, -1) for row in gone] + [(row, 1) for row in coming])
            there[i] += change
            step.append(change)
        made.append(tuple(step))
    return made


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    ("seeds", "steps"), [(2, 10), pytest.param(30, 20, marks=pytest.mark.long)]
)
def test_other_recursions_give_what_iterating_from_nothing_gives(
    name: str, seeds: int, steps: int
) -> None:
    iterated(InMemory(), name, seeds, steps)


@pytest.mark.turn(3)
@pytest.mark.parametrize("name", OTHERS)
def test_other_recursions_give_it_on_every_store(make_store: MakeStore, name: str) -> None:
    iterated(make_store, name, seeds=2, steps=10)


def iterated(make_store: MakeStore, name: str, seeds: int, steps: int) -> None:
    """Compare random steps with what iterating from nothing gives."""
    query, makes = OTHERS[name]
    for seed in range(seeds):
        graph = st.compile(query)
        stepper, reference = st.Stepper(graph, make_store(graph)), st.reference(graph)
        for step in random_steps(random.Random(seed), makes, steps):
            found = tuple(out.to_python() for out in stepper.step(step))
            assert found == reference.step(step)


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    "optimize", [True, pytest.param(False, marks=LONG)], ids=["optimized", "as written"]
)
@pytest.mark.parametrize("name", OVER_Y)
def test_maxima_and_semijoins_over_y_are_right_after_each_of_150_steps(
    name: str, optimize: bool
) -> None:
    query, makes, oracle = OVER_Y[name]
    graph = st.compile(query, optimize=optimize)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    tables: list[Z[Any]] = [Z() for _ in makes]
    view, most = Z[Any](), 0
    for step in random_steps(random.Random(6), makes, 150):
        (out,) = stepper.step(step)
        view += out.to_python()
        tables = [old + change for old, change in zip(tables, step, strict=True)]
        assert view == oracle(tables)
        most = max(most, *stepper.metrics[-1].iterations.values())
    assert most >= 3


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG if i else ()) for i, name in enumerate(OVER_Y)]
)
def test_maxima_and_semijoins_over_y_are_right_in_spark_jobs(name: str, optimize: bool) -> None:
    query, makes, _ = OVER_Y[name]
    graph = st.compile(query, optimize=optimize)
    store = st.StoreMemory.from_graph(graph)
    stepper, reference = st.Stepper(graph, store, local_rows=0), st.reference(graph)
    for step in random_steps(random.Random(6), makes, 3):
        assert tuple(out.to_python() for out in stepper.step(step)) == reference.step(step)


@pytest.mark.turn(2)
@pytest.mark.usefixtures("by_queries")
def test_an_iteration_takes_few_spark_jobs_however_many_there_are() -> None:
    graph = st.compile(closure)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    took = []
    for change in ([(1, 2), (2, 3)], [(3, 4), (4, 5), (5, 6)], minus([(1, 2)]), [(6, 1)]):
        stepper.step((links(change),))
        metrics = stepper.metrics[-1]
        (iterations,) = metrics.iterations.values()
        assert metrics.jobs is not None
        assert iterations <= metrics.jobs <= 6 * iterations + 1
        took.append(iterations)
    assert took == [3, 6, 6, 6]


@pytest.mark.turn(3)
@long_on_disk
@pytest.mark.parametrize("name", OTHERS)
def test_other_recursions_give_the_same_in_spark_jobs(make_store: MakeStore, name: str) -> None:
    query, makes = OTHERS[name]
    graph = st.compile(query, optimize=False)
    stepper, reference = st.Stepper(graph, make_store(graph), local_rows=0), st.reference(graph)
    for step in random_steps(random.Random(3), makes, 3):
        assert tuple(out.to_python() for out in stepper.step(step)) == reference.step(step)


def test_components_and_lengths_are_those_of_networkx() -> None:
    rng = random.Random(11)
    for _ in range(5):
        g: nx.DiGraph[int] = nx.gnp_random_graph(9, 0.15, seed=rng.randrange(999), directed=True)
        for a, b in g.edges:
            g.edges[a, b]["weight"] = rng.randrange(1, 9)
        edges = links(list(g.edges))
        (found,) = st.reference(st.compile(components)).step((edges,))
        assert found == links(
            (n, min(c)) for c in nx.weakly_connected_components(g) if len(c) > 1 for n in c
        )
        roads: Z[Any] = Z({(a, b, d["weight"]): 1 for a, b, d in g.edges(data=True)})
        (far,) = st.reference(st.compile(nearest)).step((roads, Z({0: 1})))
        lengths = nx.single_source_dijkstra_path_length(g, 0)
        assert far == links((n, int(length)) for n, length in lengths.items())


def test_a_null_is_no_node_to_go_on_from(make_store: MakeStore) -> None:
    Maybe = st.Pair[int | None, int | None]  # noqa: N806

    def query(edges: st.ZSet[Maybe]) -> st.ZSet[Maybe]:
        return st.transitive_closure(edges)

    graph = st.compile(query)
    change: Z[Any] = Z({st.Pair(left=1, right=None): 1, st.Pair(left=None, right=2): 1})
    stepper = st.Stepper(graph, make_store(graph))
    assert stepper.step((change,))[0] == change
    assert stepper.step((-change,))[0] == -change


class Timer(st.Data):
    name: int
    left: int


@everywhere
def test_a_null_that_an_iteration_makes_is_an_error(local_rows: int) -> None:
    nullif: Any = F.nullif
    is_on: Any = lambda p: p.left.left.isNotNull() & (p.left.left > 0)  # noqa: E731

    def countdown(start: st.ZSet[Timer]) -> st.ZSet[Timer]:
        def step(start: st.ZSet[Timer], y: st.ZSet[Timer]) -> st.ZSet[Timer]:
            some = st.map(y, f=lambda t: Timer(name=t.name, left=nullif(t.left, F.lit(3))))
            met = st.join(some, start, on_left=lambda t: t.name, on_right=lambda t: t.name)
            more = st.filter(met, is_on)
            less = st.map(more, f=lambda p: Timer(name=p.left.name, left=p.left.left - 1))
            return st.distinct(st.add(start, less))

        return st.fixpoint(start, step)

    graph = st.compile(countdown)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    with pytest.raises(st.StepError, match=r"countdown\.fixpoint\..*left is NULL"):
        stepper.step((Z({Timer(name=1, left=4): 1}),))
    (out,) = stepper.step((Z({Timer(name=1, left=2): 1}),))
    assert out == Z({Timer(name=1, left=n): 1 for n in range(3)})


# -- the time in a loop


def timed_paths(*, distinct: bool) -> Callable[..., Any]:
    """Paths over edges of an acyclic graph, each of which is there from one time to another."""

    def query(edges: st.ZSet[tuple[int, int, int]]) -> st.ZSet[Link]:
        def longer(edges: st.ZSet[tuple[int, int, int]], y: st.ZSet[Link]) -> st.ZSet[Link]:
            now = st.temporal_filter(edges, lower=lambda e: e[2], upper=lambda e: e[2] + 4)
            links = st.map(now, f=lambda e: st.Pair(left=e[0], right=e[1]))
            met = st.join(links, y, on_left=lambda e: e.right, on_right=lambda p: p.left)
            further = st.map(met, f=lambda m: st.Pair(left=m.left.left, right=m.right.right))
            return st.add(links, further)

        return st.fixpoint(edges, longer, to=Link, distinct=distinct)

    return query


@pytest.mark.turn(2)
@every_way
@pytest.mark.parametrize("distinct", [True, False])
def test_edges_that_come_and_go_with_the_time(
    make_store: MakeStore, how: Mapping[str, Any], distinct: bool
) -> None:
    given = {k: v for k, v in how.items() if k == "optimize"}
    graph = st.compile(timed_paths(distinct=distinct), **given)
    rest = {k: v for k, v in how.items() if k != "optimize"}
    stepper: Any = st.Stepper(graph, make_store(graph), **rest)
    reference = st.reference(graph)
    rng = random.Random(7)
    edges: Counter[tuple[int, int, int]] = Counter()
    found: Counter[Link] = Counter()
    for now in range(1, 10 if on_the_driver(how) else 6):
        change: Counter[tuple[int, int, int]] = Counter()
        for _ in range(3 if now < 5 else 0):
            a, b = sorted(rng.sample(range(6), 2))
            change[a, b, now + rng.randrange(-1, 4)] += 1
        if now % 3 == 0 and edges:
            change[rng.choice(sorted(edges))] -= 1
        edges = Counter({e: n for e in edges | change if (n := edges[e] + change[e])})
        inputs = (Z({e: n for e, n in change.items() if n}),)
        (out,) = stepper.step(inputs, now=now)
        assert out == reference.step(inputs, now=now)[0]
        for link, n in out.iter():
            found[link] += n
        assert {p: n for p, n in found.items() if n} == _paths(edges, now, distinct=distinct), now


def _paths(edges: Counter[tuple[int, int, int]], now: int, *, distinct: bool) -> dict[Link, int]:
    """The paths at a time, and how many there are of each."""
    there: Counter[Edge] = Counter()
    for (a, b, since), n in edges.items():
        if since <= now < since + 4:
            there[a, b] += n
    paths: Counter[Edge] = Counter()
    for a in range(5, -1, -1):
        for (x, b), n in there.items():
            if x == a:
                paths[a, b] += n
                for (y, c), m in list(paths.items()):
                    if y == b:
                        paths[a, c] += n * m
    return {st.Pair(left=a, right=b): 1 if distinct else n for (a, b), n in paths.items() if n}
