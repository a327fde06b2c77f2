"""Applying a rule to a circuit: bottom-up, at every vertex, until nothing changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

from stepping_spark.graph.graph import AnyGraph, Origin, Path, Vertex
from stepping_spark.graph.operators import Haitch

Rule = Callable[[Vertex], Vertex | None]
Circuit: TypeAlias = AnyGraph


def rewrite(
    graph: Circuit, rule: Rule, named_after: Mapping[Vertex, Vertex] | None = None
) -> Circuit:
    """The circuit with the rule applied wherever it gives something.

    `named_after` has, for vertices that the rule makes, the old vertex whose name each takes.
    """
    named_after = {} if named_after is None else named_after
    origins = dict(graph.origins)
    new: dict[Vertex, Vertex] = {}

    def visit(v: Vertex) -> Vertex:
        """Rewrite a vertex whose inputs are rewritten, and what the rule makes of it."""
        done = new.get(v)
        if done is not None:
            return done
        built = Vertex(v.operator, *(visit(i) for i in v.inputs)) if v.inputs else v
        adopt(built, origins[v], origins)
        better = rule(built)
        if better is not None and better is not built:
            adopt(better, origins[named_after.get(better, v)], origins, named_after)
            built = visit(better)
        new[v] = new[built] = built
        return built

    for v in graph.walk():  # inputs come first, so that `visit` does not go deep
        visit(v)
    return substitute(graph, lambda v: new.get(v, v), origins)


def substitute(
    graph: Circuit, f: Callable[[Vertex], Vertex], origins: dict[Vertex, Origin]
) -> Circuit:
    """The circuit with its roots and loops replaced."""
    return dataclasses.replace(
        graph,
        outputs=tuple(f(v) for v in graph.outputs),
        no_output=tuple(f(v) for v in graph.no_output),
        loops={f(leaf): f(source) for leaf, source in graph.loops.items()},
        caches={name: f(v) for name, v in graph.caches.items()},
        strict={name: f(v) for name, v in graph.strict.items()},
        lateness={name: x.moved(f) for name, x in graph.lateness.items()},
        origins=origins,
    )


def adopt(
    v: Vertex,
    origin: Origin,
    origins: dict[Vertex, Origin],
    named_after: Mapping[Vertex, Vertex] | None = None,
) -> None:
    """Give new vertices the origin of the vertex that they replace."""
    if v in origins:
        return
    origins[v] = origin
    for i in v.inputs:
        old = None if named_after is None else named_after.get(i)
        known = None if old is None else origins.get(old)
        adopt(i, known or inner_origin(origin, i), origins, named_after)


def inner_origin(origin: Origin, v: Vertex) -> Origin:
    """Where a vertex stands that another one is made of, which stands at the origin.

    It is called by what it does, and the first of them by the vertex of the user too.
    """
    own = v.operator.of.name if isinstance(v.operator, Haitch) else v.operator.name
    name = own if origin.inner else f"{origin.path.parts[-1]}_{own}"
    return Origin(Path((*origin.path.scope, name)), origin.line, inner=True)
