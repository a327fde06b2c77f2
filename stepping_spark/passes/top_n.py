"""First rows of groups: a tower of buckets; for streams that only grow, the first rows alone."""

from __future__ import annotations

import dataclasses
from functools import partial

from stepping_spark.expressions.derived import Bucket, bucket
from stepping_spark.expressions.expr import Field
from stepping_spark.graph.graph import Origin, Path, Vertex
from stepping_spark.graph.monotone import is_positive
from stepping_spark.graph.operators import Delay, Feedback, Haitch, Integrate, Top, levels_of
from stepping_spark.graph.rewrite import Circuit, adopt, inner_origin, rewrite
from stepping_spark.rows.schema import ZSetType


def keep_only_first(graph: Circuit) -> Circuit:
    """Of a stream that only grows, keep what is among the first: saves the register of the rest.

    H_Top(z⁻¹I(a), a) = y,  y = H_Top(z⁻¹I(y), a),  if a has no negative weights: a row that is not
    among the first n once never is again.
    """
    found = _growing(graph)
    while found is not None:
        number = 1 + max((_number(leaf) for leaf in graph.loops), default=-1)
        leaf = Vertex(Feedback(number, found.type))
        own = Vertex(found.operator, Vertex(Delay(), Vertex(Integrate(), leaf)), found.inputs[1])
        graph = rewrite(graph, partial(_replace, found, own))
        graph = dataclasses.replace(graph, loops={**graph.loops, leaf: own})
        found = _growing(graph)
    return graph


def _growing(graph: Circuit) -> Vertex | None:
    """The first rows of changes that only insert."""
    found = (v for v in graph.walk() if _is_of_change(v) and is_positive(v.inputs[1]))
    return next(found, None)


def _replace(old: Vertex, new: Vertex, v: Vertex) -> Vertex | None:
    return new if v is old else None


def _number(leaf: Vertex) -> int:
    assert isinstance(leaf.operator, Feedback)
    return leaf.operator.number


def build_towers(graph: Circuit) -> Circuit:
    """Have a change read a few buckets of a group, and not the group.

    Top_k = Top_k ∘ Top_(k, bucket of 256), each of the same order, so
    H_Top(z⁻¹I(a), a) = H_Top(z⁻¹I(b), b), where b = H_Top'(z⁻¹I(a), a), and Top' is by buckets.
    Groups that the query says are large have two levels, and small ones none.
    """
    while found := _bare(graph):
        origins = dict(graph.origins)
        built: dict[Vertex, Vertex] = {}
        for bare in found:
            levels = tower(bare)
            built[bare] = levels[-1]
            for v, n in zip(levels, levels_of(_top(bare).group_size), strict=False):
                own = origins[bare]
                path = Path((*own.path.scope, f"{own.path.parts[-1]}_of_{n}"))
                origins[v] = Origin(path, own.line, inner=True)
                for i in v.inputs:
                    adopt(i, inner_origin(origins[v], i), origins)
        graph = rewrite(dataclasses.replace(graph, origins=origins), built.get)
    return graph


def _bare(graph: Circuit) -> list[Vertex]:
    """The first rows of changes that have no tower yet, and are made of no others of these.

    They are replaced at once: one rewrite for each takes too long in a circuit of many views.
    """
    found: list[Vertex] = []
    above: set[Vertex] = set()
    for v in graph.walk():
        if not above.isdisjoint(v.inputs):
            above.add(v)
        elif _is_bare(v):
            found.append(v)
            above.add(v)
    return found


def _is_bare(v: Vertex) -> bool:
    if not _is_of_change(v):
        return False
    top = _top(v)
    if isinstance(top.keys[-1], Bucket) or _is_built(top, v.inputs[1]):
        return False
    return bool(levels_of(top.group_size))


def tower(v: Vertex) -> tuple[Vertex, ...]:
    """The first rows by bucket, by larger bucket, and at last by key."""
    top, change = _top(v), v.inputs[1]
    assert isinstance(change.type, ZSetType)
    fields = tuple(Field(t, (n,)) for n, t in change.type.schema.columns)
    levels = []
    for n in levels_of(top.group_size):
        level = dataclasses.replace(top, keys=(*top.keys, bucket(fields, n)))
        change = _of_change(level, change)
        levels.append(change)
    return (*levels, _of_change(top, change))


def _top(v: Vertex) -> Top:
    h = v.operator
    assert isinstance(h, Haitch) and isinstance(h.of, Top)
    return h.of


def _is_built(top: Top, change: Vertex) -> bool:
    """Whether what changes is the first rows by bucket."""
    h = change.operator
    if not isinstance(h, Haitch) or not isinstance(h.of, Top):
        return False
    return h.of.keys[:-1] == top.keys and isinstance(h.of.keys[-1], Bucket)


def _of_change(top: Top, a: Vertex) -> Vertex:
    return Vertex(Haitch(top), Vertex(Delay(), Vertex(Integrate(), a)), a)


def _is_of_change(v: Vertex) -> bool:
    """Whether a vertex is H_Top(z⁻¹I(a), a)."""
    h = v.operator
    return isinstance(h, Haitch) and isinstance(h.of, Top) and v is _of_change(h.of, v.inputs[1])
