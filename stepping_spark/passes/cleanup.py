"""Fuses and merges linear operators, shares registers, and removes unneeded vertices.

The planner runs `fuse`, on the result of the passes: a circuit is printed and drawn with the
vertices that the user wrote, and `st.explain` shows which of them are fused.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from stepping_spark.circuit.graph import AnyCircuit, Origin, Vertex, adopt, rewrite, substitute
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    Arrange,
    Fused,
    Join,
    Map,
    Operator,
    PrunedMap,
    RowByRow,
    only_projects,
    parts_of,
)
from stepping_spark.expressions.expr import (
    Build,
    Expr,
    Field,
    NotComposed,
    PythonCall,
    field_of,
    replaced,
    with_parts,
)
from stepping_spark.rows.row_class import OPEN
from stepping_spark.rows.types import unwrap


def fuse(graph: AnyCircuit) -> tuple[AnyCircuit, dict[Vertex, Vertex]]:
    """Fuse each chain of linear operators into one vertex, with a join before or a sum behind it.

    f(g(a)) = (f·g)(a);  f(a + b) = f(a) + f(b), if f only picks fields of the results of joins.
    Saves a materialised stream if a chain is evaluated on the driver, and the pairs of a join that
    a map takes apart. A vertex with several readers, or one that the user requested, stays. Returns
    also the circuit's vertex for which each new vertex stands.
    """
    return _Fusing(graph).fused()


class _Fusing:
    def __init__(self, graph: AnyCircuit) -> None:
        self.graph = graph
        # Keep the names of the printed circuit, whichever vertices disappear.
        self.origins = {
            v: dataclasses.replace(graph.origins[v], path=graph.paths[v]) for v in graph.walk()
        }
        self.readers = _readers(graph)
        self.new: dict[Vertex, Vertex] = {}
        self.stands_for: dict[Vertex, Vertex] = {}

    def fused(self) -> tuple[AnyCircuit, dict[Vertex, Vertex]]:
        for v in self.graph.walk():
            vertex = self._follows(v)
            if vertex is None:
                vertex = Vertex(v.operator, *(self.new[i] for i in v.inputs)) if v.inputs else v
                self.origins.setdefault(vertex, self.origins[v])
            self.new[v] = vertex
            self.stands_for.setdefault(vertex, v)
        fused = substitute(self.graph, lambda v: self.new.get(v, v), self.origins)
        return fused, self.stands_for

    def _follows(self, v: Vertex) -> Vertex | None:
        """The fused vertex of `v` and the vertex before it; None if `v` stays."""
        if not _may_follow(v.operator):
            return None
        (before,) = v.inputs
        if self.readers[before] != 1:
            return None
        if isinstance(before.operator, Add) and only_projects(v.operator):
            sides = before.inputs
            if all(self.readers[s] == 1 and self._is_join(s) for s in sides):
                parts = [self._joined(s, v, self.origins[s]) for s in sides]
                for part, side in zip(parts, sides, strict=True):
                    self.stands_for.setdefault(part, Vertex(v.operator, side))
                vertex = Vertex(Add(), *parts)
                named = dataclasses.replace(self.origins[v], beside=(self.origins[before],))
                self.origins.setdefault(vertex, named)
                return vertex
        if isinstance(before.operator, Join) or _may_follow(before.operator):
            return self._joined(before, v, self.origins[v])
        return None

    def _is_join(self, v: Vertex) -> bool:
        return isinstance(parts_of(self.new[v].operator)[0], Join)

    def _joined(self, before: Vertex, v: Vertex, named: Origin) -> Vertex:
        head = self.new[before]
        vertex = Vertex(Fused((*parts_of(head.operator), v.operator)), *head.inputs)
        ours, theirs = self.origins[v], self.origins[head]
        parts = (*(theirs.parts or (theirs,)), ours)
        if vertex not in self.origins:
            self.origins[vertex] = dataclasses.replace(named, parts=parts)
        return vertex


def _may_follow(op: Operator) -> bool:
    """Whether an operator processes one row at a time, without a Python function."""
    f = op.pick if isinstance(op, Accumulate) else op.f if isinstance(op, RowByRow) else None
    return f is not None and not isinstance(f, PythonCall)


def merge_maps(graph: AnyCircuit) -> AnyCircuit:
    """Merge two maps that come from a text, if the rows between them have no class.

    f(g(a)) = (f·g)(a), if one of them only picks fields; f(a + b) = f(a) + f(b). A text nests
    selections, so it has more maps than a query written in Python.
    """
    return _Merging(graph).merged()


class _Merging:
    def __init__(self, graph: AnyCircuit) -> None:
        self.graph = graph
        self.origins = dict(graph.origins)
        self.readers = _readers(graph)
        self.new: dict[Vertex, Vertex] = {}

    def merged(self) -> AnyCircuit:
        for v in self.graph.walk():
            vertex = None
            if self._is_of_text(v) and isinstance(v.operator, Map):
                vertex = self._after(v.operator, v.inputs[0], self.origins[v])
            if vertex is None:
                vertex = Vertex(v.operator, *(self.new[i] for i in v.inputs)) if v.inputs else v
            self.new[v] = vertex
            adopt(vertex, self.origins[v], self.origins)
        return substitute(self.graph, lambda v: self.new.get(v, v), self.origins)

    def _is_of_text(self, v: Vertex) -> bool:
        return bool(self.origins[v].view) and not getattr(v.operator, "carried", ())

    def _after(self, f: Map, a: Vertex, named: Origin) -> Vertex | None:
        """The map of a vertex without other readers, merged with the maps before it."""
        if self.readers[a] != 1 or not self._is_of_text(a):
            return None
        if isinstance(a.operator, Add) and only_projects(f):
            sides = [self._after(f, side, self.origins[side]) for side in a.inputs]
            if None in sides:
                return None
            added = Vertex(Add(), *(s for s in sides if s))
            adopt(added, named if named.explicit else self.origins[a], self.origins)
            return added
        before = self.new[a]
        g = before.operator
        if not isinstance(g, Map) or str(unwrap(g.f.type)) != OPEN:
            return None
        if not only_projects(f) and not (only_projects(g) and f.f.in_sql):
            return None
        try:
            merged = _merged(f, g)
        except NotComposed:
            return None
        vertex = Vertex(merged, *before.inputs)
        line = named.line if only_projects(g) else self.origins[a].line  # where values are made
        adopt(vertex, dataclasses.replace(named, line=line), self.origins)
        return vertex


def _merged(f: Map, g: Map) -> Map:
    """The map `f` of the result of the map `g`, as one map. Raises `NotComposed`."""
    both, note = _composed(f.f, g.f), f.note or g.note
    if not isinstance(f, PrunedMap):
        return Map(both, note=note)
    whole = g.whole if isinstance(g, PrunedMap) else g.f
    if f.whole is not None:
        whole = f.whole if whole is None else _composed(f.whole, whole)
    return PrunedMap(both, note=note, whole=whole)


def _composed(f: Expr, g: Expr) -> Expr:
    """The composition of two expressions: `f` over the result of `g`, as one over the row of `g`.

    Raises `NotComposed` if an operator would apply to a value that only Spark can compute.
    """
    if isinstance(f, Build):
        return with_parts(f, lambda part: _composed(part, g))
    composed = replaced(f, lambda field: field_of(g, field.path, field.type))
    if not isinstance(f, Field) and not composed.in_sql:
        raise NotComposed
    return composed


def _readers(graph: AnyCircuit) -> Counter[Vertex]:
    """The number of readers of each vertex; a reader outside of the circuit counts twice."""
    readers = Counter(i for v in graph.walk() for i in v.inputs)
    readers.update(graph.loops.values())
    for root in (*graph.outputs, *graph.no_output, *graph.caches.values()):
        readers[root] += 2
    return readers


def share_registers(graph: AnyCircuit) -> AnyCircuit:
    """Let the readers of a state decide by which keys it is arranged.

    A register belongs to the stream that it sums, so I(a) and z⁻¹I(a) are its new and its old
    value, and all readers with the same key share one arrangement. An index without readers would
    be an additional arrangement: only the indexes of caches stay.
    """
    asked = {v: _indexes(v) for v in (*graph.no_output, *graph.caches.values())}
    bare = rewrite(graph, drop_index)
    origins = dict(bare.origins)

    def with_indexes(root: Vertex, base: Vertex) -> Vertex:
        for arrange in asked[root]:
            base = Vertex(arrange.operator, base)
            adopt(base, graph.origins[arrange], origins)
        return base

    return dataclasses.replace(
        bare,
        no_output=tuple(map(with_indexes, graph.no_output, bare.no_output)),
        caches={n: with_indexes(v, bare.caches[n]) for n, v in graph.caches.items()},
        origins=origins,
    )


def drop_index(v: Vertex) -> Vertex | None:
    """The input of an arrangement, which has the same value."""
    return v.inputs[0] if isinstance(v.operator, Arrange) else None


def _indexes(v: Vertex) -> list[Vertex]:
    """The indexes of a cache, innermost first."""
    indexes = []
    while isinstance(v.operator, Arrange):
        indexes.append(v)
        v = v.inputs[0]
    return indexes[::-1]


def drop_dead(graph: AnyCircuit) -> AnyCircuit:
    """Remove unneeded vertices and loops."""
    needed = set(graph.walk())
    return dataclasses.replace(
        graph,
        loops={leaf: source for leaf, source in graph.loops.items() if leaf in needed},
        origins={v: o for v, o in graph.origins.items() if v in needed},
    )
