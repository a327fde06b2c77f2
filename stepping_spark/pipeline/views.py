"""Several queries as one circuit: what they share is computed once, and views may be of views."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from stepping_spark.base.callsite import Line, user_line
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.circuit.graph import AnyGraph, Graph
from stepping_spark.circuit.operators import Input
from stepping_spark.language.compile import compile as compiled
from stepping_spark.language.trace import hints, local_names

QueryFunction: TypeAlias = Callable[..., Any]


def graph_of(
    query: QueryFunction | Mapping[str, QueryFunction] | AnyGraph,
    append_only: Iterable[str],
    strict: bool | Iterable[str],
    lateness: Mapping[str, tuple[Callable[[Any], Any], object]] | None,
) -> tuple[AnyGraph, tuple[str, ...]]:
    """The circuit of a query, or of several by name, and the names of its views."""
    if isinstance(query, Graph):
        if tuple(append_only) or strict or lateness:
            raise InputError(
                f"{user_line()}: the query is compiled already; give append_only=, strict= and "
                "lateness= to st.compile"
            )
        return replace(query, called=view_names(query)), view_names(query)
    if not isinstance(query, Mapping):
        graph = compiled(query, append_only=append_only, strict=strict, lateness=lateness)
        return replace(graph, called=view_names(graph)), view_names(graph)
    if not query:
        raise InputError(f"{user_line()}: no query is given; write st.Pipeline(query, …)")
    together = _together(query)
    graph = compiled(together, append_only=append_only, strict=strict, lateness=lateness)
    return replace(graph, called=tuple(query)), tuple(query)


def input_names(graph: AnyGraph) -> list[str]:
    """The names of the inputs, in order."""
    return [v.operator.label for v in graph.inputs if isinstance(v.operator, Input)]


def view_names(graph: AnyGraph) -> tuple[str, ...]:
    """What the views of one query are called: as it is, or as the variables that it returns."""
    if graph.single:
        return (graph.name,)
    called = [name or f"{graph.name}_{i}" for i, name in enumerate(graph.called, 1)]
    return tuple(
        name if called.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(called, 1)
    )


def _together(queries: Mapping[str, QueryFunction]) -> QueryFunction:
    """One query that gives the views of all of them.

    A parameter with the name of a view is that view; every other is an input, the same for all.
    """
    line = user_line()
    order = _in_order(queries, line)
    annotations: dict[str, Any] = {}
    for name in order:
        q = queries[name]
        known = hints(q, local_names(q), line)
        for p in _parameters(q):
            if p in queries:
                continue
            if p not in known:
                raise CompileError(
                    f"{line}: parameter {p!r} of query {name!r} has no annotation, and is the name "
                    f"of no view; annotate what flows in, {p}: st.ZSet[A], or name a view: "
                    f"{', '.join(queries)}"
                )
            found = known[p]
            if annotations.setdefault(p, found) != found:
                raise CompileError(
                    f"{line}: input {p!r} is {annotations[p]} in one query, and {found} in "
                    f"{name!r}; queries of one pipeline share an input by its name: annotate both "
                    "alike, or rename one"
                )

    def pipeline(*inputs: Any) -> Any:
        streams = dict(zip(annotations, inputs, strict=True))
        for name in order:
            q = queries[name]
            given = q(*(streams[p] for p in _parameters(q)))
            if isinstance(given, tuple):
                raise CompileError(
                    f"{line}: query {name!r} gives {len(given)} streams; where several queries are "
                    "given, each gives one: make a query of each"
                )
            streams[name] = given
        return tuple(streams[name] for name in queries)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(p, kind) for p in annotations]
    pipeline.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    pipeline.__annotations__ = annotations
    return pipeline


def _parameters(query: QueryFunction) -> list[str]:
    try:
        return list(inspect.signature(query).parameters)
    except TypeError:
        raise InputError(
            f"{user_line()}: a query is a function, found {type(query).__name__}"
        ) from None


def _in_order(queries: Mapping[str, QueryFunction], line: Line) -> list[str]:
    """The names of the queries, each after those whose views it reads."""
    order: list[str] = []
    left = list(queries)
    while left:
        ready = [n for n in left if not set(_parameters(queries[n])) & set(left)]
        if not ready:
            raise CompileError(
                f"{line}: these views read each other in a circle: {', '.join(left)}; use "
                "st.feedback or st.fixpoint within one query"
            )
        order += ready
        left = [n for n in left if n not in ready]
    return order
