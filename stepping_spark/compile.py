"""From a query function to a circuit."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar, cast

import networkx as nx
from typing_extensions import TypeVarTuple

from stepping_spark.errors import CompileError
from stepping_spark.graph import Graph, Vertex
from stepping_spark.operators import Delay
from stepping_spark.origin import Line, line_of, user_line
from stepping_spark.passes import optimize as run_passes
from stepping_spark.primitives import differentiate, integrate
from stepping_spark.rewrite import Circuit
from stepping_spark.schema import StreamType
from stepping_spark.stream_types import hints, local_names, stream_type
from stepping_spark.trace import Stream, Tracer

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out")


def compile(  # noqa: A001 - the interface's name
    query: Callable[[*Ins], Out], *, optimize: bool = True
) -> Graph[*Ins, Out]:
    """Trace a query into a circuit, and optimize it.

    The query is called once, with symbolic streams; each parameter is annotated with `ZSet[T]`,
    `int`, `float` or `Decimal`. It gives one stream or a tuple of them. With `optimize=False` the
    circuit is as written: slow, and the measure of what the optimizer may do.

    Raises `CompileError`, with the user's line, for whatever cannot become a circuit.
    """
    line, name = _line(query), getattr(query, "__name__", "query")
    names = local_names()
    tracer = Tracer()
    inputs = [
        tracer.input(i, label, t, line)
        for i, (label, t) in enumerate(_parameters(query, names, line, name))
    ]
    given = tracer.run(query, inputs)
    single = not isinstance(given, tuple)
    outputs = (given,) if single else given
    _check_outputs(outputs, tracer, line, name)
    graph: Circuit = Graph(
        name=name,
        inputs=tuple(s.vertex for s in inputs),
        outputs=tuple(s.vertex for s in outputs),
        no_output=tuple(dict.fromkeys(tracer.no_output)),
        loops=dict(tracer.loops),
        caches={n: v for n, (v, _) in tracer.caches.items()},
        origins=_unconnected_refused(tracer).origins(name),
        single=single,
        bodies=dict(tracer.bodies),
    )
    _check_returns(query, names, graph, line)
    _check_loops(graph, tracer)
    return cast("Graph[*Ins, Out]", run_passes(graph) if optimize else graph)


def incrementalize(query: Callable[[*Ins], Out]) -> Callable[[*Ins], Out]:
    """The query on changes, of a query on whole tables: D ∘ query ∘ I (DBSP, definition 3.1).

    `query` is written with `st.linear.*`. Compiled, the integrals are pushed through its operators
    so that a step works on changes; with `optimize=False` each step computes the whole again.
    """

    @functools.wraps(query)
    def incremental(*changes: Any) -> Any:
        whole = query(*(integrate(a) for a in changes))
        if isinstance(whole, tuple):
            return tuple(differentiate(a) for a in whole)
        return differentiate(whole)

    return cast("Callable[[*Ins], Out]", incremental)


def _line(query: Callable[..., Any]) -> Line:
    code = getattr(inspect.unwrap(query), "__code__", None)
    if code is None:
        return user_line()
    return Line(code.co_filename, code.co_firstlineno, code.co_qualname)


def _parameters(
    query: Callable[..., Any], names: dict[str, Any], line: Line, name: str
) -> list[tuple[str, StreamType]]:
    known = hints(query, names, line)
    found = []
    for p in inspect.signature(query).parameters.values():
        if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            raise CompileError(
                f"{line}: parameter {p.name!r} of {name} is {p.kind.description}; inputs are "
                "positional parameters, each annotated"
            )
        if p.name not in known:
            raise CompileError(
                f"{line}: parameter {p.name!r} of {name} has no annotation; say what flows in: "
                f"{p.name}: st.ZSet[A]"
            )
        where = f"{line}: parameter {p.name!r} of {name}"
        found.append((p.name, stream_type(known[p.name], where)))
    return found


def _check_outputs(outputs: tuple[Any, ...], tracer: Tracer, line: Line, name: str) -> None:
    for i, s in enumerate(outputs):
        if not isinstance(s, Stream) or s.tracer is not tracer:
            found = "nothing (is a `return` missing?)" if s is None else repr(s)
            raise CompileError(
                f"{line}: output {i} of {name} should be a stream of this query, found {found}"
            )


def _unconnected_refused(tracer: Tracer) -> Tracer:
    for line in tracer.unconnected.values():
        raise CompileError(
            f"{line}: the feedback was not connected; end the block with y.connect(st.delay(…))"
        )
    return tracer


def _check_returns(
    query: Callable[..., Any], names: dict[str, Any], graph: Circuit, line: Line
) -> None:
    declared = hints(query, names, line).get("return")
    if declared in (None, Any):
        return
    wanted = (declared,) if graph.single else typing.get_args(declared)
    if len(wanted) != len(graph.outputs):
        raise CompileError(
            f"{line}: {graph.name} is annotated to give {declared}, and gives "
            f"{len(graph.outputs)} streams; correct the annotation"
        )
    for i, (annotation, v) in enumerate(zip(wanted, graph.outputs, strict=True)):
        t = stream_type(annotation, f"{line}: output {i} of {graph.name}")
        if str(t) != str(v.type):
            raise CompileError(
                f"{line}: output {i} of {graph.name} is annotated {t}, and is {v.type} "
                f"(from {graph.line(v)}); correct one of them"
            )


def _check_loops(graph: Circuit, tracer: Tracer) -> None:
    needed = set(graph.walk())
    for leaf in graph.loops:
        if leaf not in needed:
            raise CompileError(
                f"{tracer.made[leaf].line}: nothing that the query gives depends on this "
                "feedback; use it, or take it out"
            )
    g: nx.DiGraph[Vertex] = nx.DiGraph()
    for v in needed:
        sources = (graph.loops[v],) if v in graph.loops else v.inputs
        g.add_edges_from((s, v) for s in sources if not isinstance(s.operator, Delay))
    try:
        cycle = [a for a, *_ in nx.find_cycle(g)]
    except nx.NetworkXNoCycle:
        return
    shown = "\n".join(f"  {graph.paths[v]} ({graph.line(v)})" for v in (*cycle, cycle[0]))
    raise CompileError(
        f"{graph.line(cycle[0])}: a loop without a delay has no first value:\n{shown}\n"
        "connect the feedback to st.delay(…)"
    )


__all__ = ["compile", "incrementalize", "line_of"]
