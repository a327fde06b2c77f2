"""Graph queries over edges that are inserted and deleted: recursions, as fixpoints.

An edge or a root exists if its weight is positive. Each query therefore begins with a distinct,
which stores the edges or roots by the whole row. With negative weights there might be no least
fixpoint.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from circuits.groups import distinct
from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.language import linear
from stepping_spark.language.recursion import MAX_ITERATIONS, fixpoint
from stepping_spark.language.trace import vertex_of
from stepping_spark.rows.atoms import FLOAT, INT
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Struct
from stepping_spark.zsets.spark import ZSet

N = TypeVar("N")  # the identity of a node
W = TypeVar("W")  # lengths: int or float


def transitive_closure(
    edges: ZSet[Pair[N, N]], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[Pair[N, N]]:
    """All pairs of nodes with a path from the first to the second, kept up to date by changes.

    A path has one edge or more. The result is the least y with y = distinct(edges + y ⋈ edges). A
    pair occurs once, however many paths connect it. A node is paired with itself if it is on a
    cycle. Edges are Pair(left=from, right=to). A NULL node has no outgoing edges.

    State: the edges by their start; for each iteration, the pairs by their end and by the whole
    row. A step reads the pairs that it changes, in as many iterations as the longest new or removed
    path has edges.

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
    """The nodes reachable from the roots, and the roots, kept up to date by changes.

    The result is the least y with y = distinct(roots + y ⋈ edges). State: the edges by their start;
    the nodes of each iteration. A step reads the edges of the nodes that it changes.

    >>> def query(edges: st.ZSet[st.Pair[int, int]], roots: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.reachable(edges, roots)
    >>> edges = st.ZSetPython({st.Pair(left=1, right=2): 1, st.Pair(left=2, right=3): 1})
    >>> (out,) = st.reference(st.compile(query)).step((edges, st.ZSetPython({2: 1})))
    >>> out == st.ZSetPython({2: 1, 3: 1})
    True
    """

    def further(roots: ZSet[N], nodes: Any) -> Any:
        met = linear.join(nodes, edges_once, on_left=lambda n: n, on_right=lambda e: e.left)
        return linear.add(cast(Any, roots), linear.map(met, f=lambda m: m.right.right))

    _check_edges(edges, "reachable")
    edges_once = distinct(edges)
    return cast(
        "ZSet[N]", fixpoint(distinct(roots), further, to=_row(roots), max_iterations=max_iterations)
    )


def connected_components(
    edges: ZSet[Pair[N, N]], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[Pair[N, N]]:
    """The connected component of each node that has an edge, kept up to date by changes.

    The directions of edges do not matter. Rows are Pair(left=node, right=component). A component is
    named by its least node, in Spark's order. The labels are the least y with y = least of each
    node (nodes + y ⋈ edges).

    State: the edges in both directions, by their start; the labels of each iteration, by node. A
    step reads the labels that it changes. If a component splits, these can be all labels of the
    component.

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
    edges_once = distinct(edges)
    back = linear.map(edges_once, f=lambda e: Pair(left=e.right, right=e.left))
    both = linear.add(cast(Any, edges_once), back)
    labelled = fixpoint(both, labels, to=_row(edges), max_iterations=max_iterations)
    return cast("ZSet[Pair[N, N]]", labelled)


def shortest_paths(
    edges: ZSet[tuple[N, N, W]], roots: ZSet[N], *, max_iterations: int = MAX_ITERATIONS
) -> ZSet[Pair[N, W]]:
    """The distance of each node from its nearest root, kept up to date by changes.

    Edges are tuples (from, to, length) with a length of `int` or `float`. Rows of the result are
    Pair(left=node, right=length); a root has length 0. The result is the y with y = least of each
    node (roots + y ⋈ edges). A cycle of negative length has no shortest path, and raises
    `FixpointError`.

    State: the edges by their start; the lengths of each iteration, by node. A step reads the nodes
    whose lengths it changes, and their edges.

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
        met = linear.join(known, edges_once, on_left=lambda n: n.left, on_right=lambda e: e[0])
        farther = linear.map(
            met, f=lambda m: Pair(left=m.right[1], right=m.left.right + m.right[2])
        )
        start = linear.map(roots, f=lambda n: Pair(left=n, right=zero))
        both = linear.add(start, farther)
        return linear.first_n(both, lambda n: n.right, 1, by=lambda n: n.left)

    zero = _zero(edges)
    edges_once = distinct(edges)
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
