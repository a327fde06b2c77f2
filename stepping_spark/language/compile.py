"""From a query function to a circuit."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from types import FunctionType, MethodType
from typing import Any, TypedDict, TypeVar, cast, overload

from typing_extensions import TypeVarTuple, Unpack

from stepping_spark.base.callsite import Line, is_ours, line_of, user_line
from stepping_spark.base.errors import CompileError, short
from stepping_spark.circuit.graph import AnyCircuit, AnyGraph, Graph, Origin, Path, Vertex, adopt
from stepping_spark.circuit.operators import Delay, Distinct, Haitch, Input, Integrate, Neg
from stepping_spark.language.delta_joins import Lookup
from stepping_spark.language.lateness import EXAMPLE as LATENESS
from stepping_spark.language.lateness import streams_of
from stepping_spark.language.primitives import differentiate, integrate
from stepping_spark.language.trace import Stream, Tracer, hints, local_names, stream_type, too_deep
from stepping_spark.passes import PASSES
from stepping_spark.passes import optimize as run_passes
from stepping_spark.passes.unread_columns import drop_unread
from stepping_spark.rows.schema import StreamType, ZSetType

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")


class Options(TypedDict, total=False):
    """The options of `compile`, besides the query."""

    optimize: bool
    append_only: Iterable[str]
    strict: bool | Iterable[str]
    lateness: Mapping[str, tuple[Callable[[Any], Any], object]] | None
    whole_rows: bool


# Python has no type for a tuple of any length in which each change may be None.
@overload
def compile(  # noqa: A001
    query: Callable[[A], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None, B | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B, C], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None, B | None, C | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B, C, D], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None, B | None, C | None, D | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B, C, D, E], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None, B | None, C | None, D | None, E | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B, C, D, E, F], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None, B | None, C | None, D | None, E | None, F | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B, C, D, E, F, G], Out], **options: Unpack[Options]
) -> Graph[tuple[A | None, B | None, C | None, D | None, E | None, F | None, G | None], Out]: ...
@overload
def compile(  # noqa: A001
    query: Callable[[A, B, C, D, E, F, G, H], Out], **options: Unpack[Options]
) -> Graph[
    tuple[A | None, B | None, C | None, D | None, E | None, F | None, G | None, H | None],
    Out,
]: ...
@overload
def compile(  # noqa: A001
    query: Callable[..., Out], **options: Unpack[Options]
) -> Graph[tuple[Any, ...], Out]: ...
def compile(  # noqa: A001 - the interface's name
    query: Callable[..., Any],
    *,
    optimize: bool = True,
    append_only: Iterable[str] = (),
    strict: bool | Iterable[str] = False,
    lateness: Mapping[str, tuple[Callable[[Any], Any], object]] | None = None,
    whole_rows: bool = False,
) -> AnyGraph:
    """Trace a query into a circuit, and optimize it.

    `query` is a function or a method. It is called once, with symbolic streams; each parameter is
    annotated with `ZSet[T]`, `int`, `float` or `Decimal`. It returns one stream or a tuple of them.
    Plain Python around the operators runs during this call only. With `optimize=False` the circuit
    is as written: slow, and the reference for what the optimizer may do.

    `append_only` names inputs from which no row is ever removed: a negative count in a change of
    one is an `InputError`. For such inputs, `first_n` and aggregates such as `min` store only the
    current first rows.

    `strict` names inputs from which only existing rows are removed: a change that removes more of a
    row than exists raises `InputError`, and the step changes nothing. The change counts as a whole.
    `True` means all inputs that are Z-sets. The state then has the rows of these inputs, by the
    whole row, which a step looks up and adds to.

    `lateness` bounds how late the rows of inputs may arrive: `{"clicks": (lambda c: c.at, "1
    hour")}` gives each row a time, and a distance from the greatest time of earlier steps to the
    watermark. A row, or a removal, from before the watermark is an `InputError`, or goes to
    `st.late`. Rows that no future row can change or need are removed from the state of windows,
    sessions, as-of joins, joins by time, and operators whose key has the time. Rows of the outputs
    stay. `st.explain` shows which state expires so, and why other state does not.

    The state of joins has only the columns that the query reads. With `whole_rows` it has all
    columns of their inputs. It is larger then, but a join of another query that reads more columns
    is filled from it; otherwise the inputs are read again: see `Stepper.evolve`.

    Raises `CompileError`, with the user's line, for everything that cannot become a circuit.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     large = st.filter(a, f=lambda x: x > 100)
    ...     return st.neg(large)
    >>> print(st.compile(query))
    graph query
      query.a: ZSet[int] = input()
      query.large: ZSet[int] = filter(query.a) [_value_ > 100]
      query.neg: ZSet[int] = neg(query.large)
      return query.neg
    """
    _check_is_function(query)
    line, name = _line(query), query.__name__
    names = local_names(query)
    if type(whole_rows) is not bool:
        raise CompileError(
            f"{line}: {name}: whole_rows={whole_rows!r}: expected True, so that the state of all "
            "joins has all columns, or False"
        )
    tracer = Tracer(whole_rows=whole_rows)
    parameters = _parameters(query, names, line, name)
    growing = set(_named("append_only", append_only, parameters, line, name))
    strict_labels = _named("strict", strict, parameters, line, name)
    inputs = [
        tracer.input(i, label, t, line, label in growing) for i, (label, t) in enumerate(parameters)
    ]
    streams = streams_of(tracer, inputs, _late(lateness, parameters, line, name), line, name)
    result = tracer.run(query, streams)
    single = not isinstance(result, tuple)
    outputs = (result,) if single else result
    _check_outputs(outputs, tracer, line, name)
    graph: AnyCircuit = Graph(
        name=name,
        inputs=tuple(s.vertex for s in inputs),
        outputs=tuple(s.vertex for s in outputs),
        no_output=tuple(dict.fromkeys(tracer.no_output)),
        loops=dict(tracer.loops),
        caches={n: v for n, (v, _) in tracer.caches.items()},
        origins=_unfinished_refused(tracer).origins(name),
        called=tuple(tracer.called(s.vertex) for s in outputs),
        single=single,
        reductions=tuple(tracer.reductions),
        bodies=dict(tracer.bodies),
        lateness=dict(tracer.lateness),
    )
    _check_returns(query, names, graph, line)
    _check_loops(graph, tracer)
    graph = dataclasses.replace(graph, made_by=tuple(map(graph.signature, graph.outputs)))
    graph = _with_missing_rows(graph, [label for label in strict_labels if label not in growing])
    if optimize:
        passes = tuple(p for p in PASSES if not (whole_rows and p is drop_unread))
        try:
            graph = dataclasses.replace(run_passes(graph, passes), optimized=True)
        except RecursionError:
            raise too_deep(f"{line}: {name}") from None
    return graph


def incrementalize(query: Callable[[*Ins], Out]) -> Callable[[*Ins], Out]:
    """The query on changes, from a query on whole tables: D ∘ query ∘ I (DBSP, definition 3.1).

    `query` is written with `st.linear.*`. The result has streams of the same types. When it is
    compiled, the integrals are pushed through its operators so that a step works on changes; with
    `optimize=False` each step recomputes the whole. `st.explain` shows its state and the cost of a
    step.

    >>> def on_tables(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.linear.distinct(a)
    >>> def on_changes(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> st.compile(st.incrementalize(on_tables)) == st.compile(on_changes)
    True
    """

    @functools.wraps(query)
    def incremental(*changes: Any, **arguments: Any) -> Any:
        whole = query(
            *map(_integrated, changes), **{n: _integrated(a) for n, a in arguments.items()}
        )
        if isinstance(whole, tuple):
            return tuple(differentiate(a) for a in whole)
        return differentiate(whole)

    return cast("Callable[[*Ins], Out]", incremental)


def _integrated(argument: Any) -> Any:
    """The sum of a stream of changes; other arguments unchanged."""
    if isinstance(argument, Lookup):
        return dataclasses.replace(argument, r=_integrated(argument.r))
    return integrate(argument) if isinstance(argument, Stream) else argument


def _line(query: Callable[..., Any]) -> Line:
    code = getattr(inspect.unwrap(query), "__code__", None)
    if code is None or is_ours(code.co_filename):
        return user_line()
    return Line(code.co_filename, code.co_firstlineno, code.co_qualname)


def _check_is_function(query: object) -> None:
    """Refuse a query that is no function: its name and its annotations are needed."""
    inner = inspect.unwrap(query) if callable(query) else query
    if isinstance(inner, FunctionType | MethodType):
        return
    remedy = "give a function: def query(a: st.ZSet[A]) -> st.ZSet[B]: …"
    if callable(inner):
        remedy = "write a function that calls it: def query(a: st.ZSet[A]) -> st.ZSet[B]: …"
    elif isinstance(inner, Graph):
        remedy = "it is compiled already"
    text = "a Graph" if isinstance(inner, Graph) else short(inner)
    raise CompileError(f"{user_line()}: a query is a function, found {text}; {remedy}")


def _parameters(
    query: Callable[..., Any], names: dict[str, Any], line: Line, name: str
) -> list[tuple[str, StreamType]]:
    annotation_of = hints(query, names, line)
    parameters = []
    for p in inspect.signature(query).parameters.values():
        if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            raise CompileError(
                f"{line}: parameter {p.name!r} of {name} is {p.kind.description}; inputs are "
                "positional parameters, each annotated"
            )
        if p.name not in annotation_of:
            raise CompileError(
                f"{line}: parameter {p.name!r} of {name} has no annotation; say what flows in: "
                f"{p.name}: st.ZSet[A]"
            )
        where = f"{line}: parameter {p.name!r} of {name}"
        parameters.append((p.name, stream_type(annotation_of[p.name], where)))
    return parameters


def _named(
    what: str,
    value: bool | Iterable[str],
    parameters: list[tuple[str, StreamType]],
    line: Line,
    name: str,
) -> list[str]:
    """The inputs that an argument of `compile` names; True names all inputs that are Z-sets."""
    zsets = [label for label, t in parameters if isinstance(t, ZSetType)]
    if isinstance(value, bool):
        return zsets if value else []
    labels = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if any(label not in zsets for label in labels):
        raise CompileError(
            f"{line}: {what}={sorted(labels, key=str)} of {name}: expected names of parameters "
            f"that are Z-sets; those are {', '.join(zsets) or 'none'}"
        )
    return labels


def _late(
    lateness: object, parameters: list[tuple[str, StreamType]], line: Line, name: str
) -> dict[str, object]:
    """The lateness of the inputs that have one."""
    if lateness is not None and not isinstance(lateness, Mapping):
        raise CompileError(
            f"{line}: lateness={short(lateness)} of {name}: expected a dict by input; write "
            f"{LATENESS}"
        )
    by_label = dict(lateness or {})
    _named("lateness", by_label, parameters, line, name)
    return by_label


def _check_outputs(outputs: tuple[Any, ...], tracer: Tracer, line: Line, name: str) -> None:
    for i, s in enumerate(outputs):
        if not isinstance(s, Stream) or s.tracer is not tracer:
            output = "nothing (is a `return` missing?)" if s is None else repr(s)
            raise CompileError(
                f"{line}: output {i} of {name} should be a stream of this query, found {output}"
            )


def _unfinished_refused(tracer: Tracer) -> Tracer:
    for line in tracer.unconnected.values():
        raise CompileError(
            f"{line}: the feedback was not connected; end the block with y.connect(st.delay(…))"
        )
    for name, line in tracer.uncalled.values():
        raise CompileError(
            f"{line}: cache {name!r} keeps nothing yet: say what to keep of the stream, as in "
            "_ = cache[a](lambda a: st.integrate(a))"
        )
    return tracer


def _check_returns(
    query: Callable[..., Any], names: dict[str, Any], graph: AnyCircuit, line: Line
) -> None:
    declared = hints(query, names, line).get("return")
    if declared in (None, Any):  # Any only satisfies the type checker
        return
    expected = (declared,) if graph.single else typing.get_args(declared)
    if expected[1:] == (Ellipsis,):
        expected = expected[:1] * len(graph.outputs)
    if len(expected) != len(graph.outputs):
        raise CompileError(
            f"{line}: {graph.name} is annotated to return {declared}, and returns "
            f"{len(graph.outputs)} streams; correct the annotation"
        )
    for i, (annotation, v) in enumerate(zip(expected, graph.outputs, strict=True)):
        if typing.get_args(annotation) == (Any,):  # ZSet[Any]: of rows without a class
            continue
        t = stream_type(annotation, f"{line}: output {i} of {graph.name}")
        if str(t) != str(v.type):
            raise CompileError(
                f"{line}: output {i} of {graph.name} is annotated {t}, and is {v.type} "
                f"(from {graph.line(v)}); correct one of them"
            )


def _check_loops(graph: AnyCircuit, tracer: Tracer) -> None:
    needed = set(graph.walk())
    for leaf in graph.loops:
        if leaf not in needed:
            raise CompileError(
                f"{tracer.entries[leaf].line}: no output of the query depends on this feedback; "
                "use it, or remove it"
            )
    sorter: TopologicalSorter[Vertex] = TopologicalSorter()
    for v in needed:
        sources = (graph.loops[v],) if v in graph.loops else v.inputs
        sorter.add(v, *[s for s in sources if not isinstance(s.operator, Delay)])
    try:
        sorter.prepare()
        return
    except CycleError as e:
        cycle: list[Vertex] = e.args[1][:-1]  # its first vertex is also its last
    lines = "\n".join(f"  {graph.paths[v]} ({graph.line(v)})" for v in (*cycle, cycle[0]))
    raise CompileError(
        f"{graph.line(cycle[0])}: a loop without a delay has no first value:\n{lines}\n"
        "connect the feedback to st.delay(…)"
    )


__all__ = ["compile", "incrementalize", "line_of"]


def _with_missing_rows(graph: AnyGraph, labels: Collection[str]) -> AnyGraph:
    """The circuit with a vertex for each of these inputs: the removed rows that did not exist.

    The vertex is H(-z⁻¹I(a), -a): a row has weight 1 if the negated sum becomes positive, that is,
    if the sum becomes negative. State, with or without the optimizer: I(a) by the whole row, shared
    with any other reader of it in the query.
    """
    origins = dict(graph.origins)
    vertices = {}
    for a in graph.inputs:
        if isinstance(a.operator, Input) and a.operator.label in labels:
            label = a.operator.label
            a = graph.lateness[label].in_time if label in graph.lateness else a
            before = Vertex(Delay(), Vertex(Integrate(), a))
            missing = Vertex(Haitch(Distinct()), Vertex(Neg(), before), Vertex(Neg(), a))
            path = Path((graph.name, f"strict_{label}"))
            adopt(missing, Origin(path, graph.origins[a].line), origins)
            vertices[label] = missing
    roots = dict.fromkeys((*graph.no_output, *vertices.values()))
    return dataclasses.replace(graph, no_output=tuple(roots), strict=vertices, origins=origins)
