"""Questions to graphs whose edges come and go: recursions, as fixpoints.

An edge, or a root, is there where its weight is positive. So each begins with a distinct, which
keeps it by the whole row: with negative weights there might be no least fixpoint.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from circuits.groups import distinct
from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.query import linear
from stepping_spark.query.recursion import MAX_ITERATIONS, fixpoint
from stepping_spark.query.trace import vertex_of
from stepping_spark.rows.atoms import FLOAT, INT
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Struct
from stepping_spark.zsets.spark import ZSet

N = TypeVar("N")  # what tells nodes apart
W = TypeVar("W")  # lengths: int or float


def transitive_closure(
    edges: ZSet[Pair[N, N]], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[Pair[N, N]]:
    """The changes of which node can be reached from which, by one edge or more.

    The least y with y = distinct(edges + y ⋈ edges). A pair occurs once, however many paths there
    are; a node is paired with itself if it is on a ring. Edges are Pair(left=from, right=to). NULL
    leads nowhere. Keeps the edges by their start, and the pairs, by iteration, by their end and by
    the whole row. A step reads the pairs that it changes, at each of as many iterations as a new or
    a removed path has edges.

    >>> def query(edges: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
    ...     return st.transitive_closure(edges)
    >>> edges = st.ZSetPython({st.Pair(left=1, right=2): 1, st.Pair(left=2, right=3): 1})
    >>> (out,) = st.reference(st.compile(query)).step((edges,))
    >>> out == edges + st.ZSetPython({st.Pair(left=1, right=3): 1})
    True
    """

    def closure(edges: ZSet[Pair[N, N]], pairs: Any) -> Any:
        met = linear.join(pairs, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
        longer = linear.map(met, f=lambda m: Pair(left=m.left.left, right=m.right.right))
        return linear.add(cast(Any, edges), longer)

    _check_edges(edges, "transitive_closure")
    closed = fixpoint(distinct(edges), closure, to=_row(edges), max_iterations=max_iterations)
    return cast("ZSet[Pair[N, N]]", closed)


def reachable(
    edges: ZSet[Pair[N, N]], roots: ZSet[N], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[N]:
    """The changes of the nodes that can be reached from the roots, including the roots.

    The least y with y = distinct(roots + y ⋈ edges). Keeps the edges by their start, and the nodes,
    by iteration. A step reads the edges of the nodes that it changes.

    >>> def query(edges: st.ZSet[st.Pair[int, int]], roots: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.reachable(edges, roots)
    >>> edges = st.ZSetPython({st.Pair(left=1, right=2): 1, st.Pair(left=2, right=3): 1})
    >>> (out,) = st.reference(st.compile(query)).step((edges, st.ZSetPython({2: 1})))
    >>> out == st.ZSetPython({2: 1, 3: 1})
    True
    """

    def further(roots: ZSet[N], nodes: Any) -> Any:
        met = linear.join(nodes, there, on_left=lambda n: n, on_right=lambda e: e.left)
        return linear.add(cast(Any, roots), linear.map(met, f=lambda m: m.right.right))

    _check_edges(edges, "reachable")
    there = distinct(edges)
    return cast(
        "ZSet[N]", fixpoint(distinct(roots), further, to=_row(roots), max_iterations=max_iterations)
    )


def connected_components(
    edges: ZSet[Pair[N, N]], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[Pair[N, N]]:
    """The changes of the component of each node that has an edge; directions do not matter.

    Rows are Pair(left=node, right=component). A component is named by its least node, in Spark's
    order. The least labels y with y = least of each node (nodes + y ⋈ edges). Keeps the edges by
    their start, both ways, and the labels, by iteration, by node. A step reads the labels that it
    changes; if a component falls apart, these may be those of the whole component.

    >>> def query(edges: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
    ...     return st.connected_components(edges)
    >>> edges = st.ZSetPython({st.Pair(left=1, right=2): 1, st.Pair(left=2, right=3): 1})
    >>> (out,) = st.reference(st.compile(query)).step((edges,))
    >>> out == st.ZSetPython({st.Pair(left=n, right=1): 1 for n in (1, 2, 3)})
    True
    """

    def labels(both: Any, known: Any) -> Any:
        met = linear.join(known, both, on_left=lambda n: n.left, on_right=lambda e: e.left)
        passed = linear.map(met, f=lambda m: Pair(left=m.right.right, right=m.left.right))
        own = linear.map(both, f=lambda e: Pair(left=e.left, right=e.left))
        both_ways = linear.add(own, passed)
        return linear.first_n(both_ways, lambda n: n.right, 1, by=lambda n: n.left)

    _check_edges(edges, "connected_components")
    there = distinct(edges)
    back = linear.map(there, f=lambda e: Pair(left=e.right, right=e.left))
    both = linear.add(cast(Any, there), back)
    labelled = fixpoint(both, labels, to=_row(edges), max_iterations=max_iterations)
    return cast("ZSet[Pair[N, N]]", labelled)


def shortest_paths(
    edges: ZSet[tuple[N, N, W]], roots: ZSet[N], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[Pair[N, W]]:
    """The changes of each node's distance from the nearest root: Pair(left=node, right=length).

    Edges are tuples (from, to, length) with a length of `int` or `float`; a root is at 0. The
    lengths y with y = least of each node (roots + y ⋈ edges). A ring of negative length has no
    shortest path, and raises `FixpointError`. Keeps the edges by their start, and the lengths, by
    iteration, by node. A step reads the nodes whose lengths it changes, and their edges.

    >>> def query(roads: st.ZSet[tuple[str, str, int]], depots: st.ZSet[str]) -> st.ZSet[
    ...     st.Pair[str, int]
    ... ]:
    ...     return st.shortest_paths(roads, depots)
    >>> roads = st.ZSetPython({("a", "b", 5): 1, ("b", "c", 1): 1, ("a", "c", 9): 1})
    >>> (out,) = st.reference(st.compile(query)).step((roads, st.ZSetPython({"a": 1})))
    >>> lengths = {"a": 0, "b": 5, "c": 6}
    >>> out == st.ZSetPython({st.Pair(left=n, right=d): 1 for n, d in lengths.items()})
    True
    """

    def lengths(roots: ZSet[N], known: Any) -> Any:
        met = linear.join(known, there, on_left=lambda n: n.left, on_right=lambda e: e[0])
        farther = linear.map(
            met, f=lambda m: Pair(left=m.right[1], right=m.left.right + m.right[2])
        )
        start = linear.map(roots, f=lambda n: Pair(left=n, right=zero))
        both = linear.add(start, farther)
        return linear.first_n(both, lambda n: n.right, 1, by=lambda n: n.left)

    zero = _zero(edges)
    there = distinct(edges)
    at = pair_of(_row(roots), FLOAT if isinstance(zero, float) else INT)
    nearest = fixpoint(distinct(roots), lengths, to=at, max_iterations=max_iterations)
    return cast("ZSet[Pair[N, W]]", nearest)


def _row(a: object) -> Any:
    t = vertex_of(a, "a graph").type
    if not isinstance(t, ZSetType):
        raise CompileError(f"{user_line()}: a graph takes ZSets, found {t}")
    return t.row


def _check_edges(edges: object, what: str) -> None:
    row = _row(edges)
    fields = row.fields if isinstance(row, Struct) else ()
    if [n for n, _ in fields] != ["left", "right"] or fields[0][1] != fields[1][1]:
        raise CompileError(
            f"{user_line()}: {what} takes edges that are st.Pair of two nodes of one type, found "
            f"{row}; write st.map(edges, f=lambda e: st.Pair(left=e.…, right=e.…))"
        )


def _zero(edges: object) -> Any:
    row = _row(edges)
    fields = row.fields if isinstance(row, Struct) and row.python is tuple else ()
    if len(fields) != 3 or str(fields[2][1]) not in ("int", "float"):
        raise CompileError(
            f"{user_line()}: shortest_paths takes edges that are tuples (from, to, length) with a "
            f"length of int or float, found {row}; write st.map(edges, f=lambda e: (…, …, …))"
        )
    return 0 if str(fields[2][1]) == "int" else 0.0
