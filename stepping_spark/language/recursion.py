"""Recursion: the function of a loop is traced into a circuit of its own."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

from stepping_spark.base.callsite import Line, is_ours, user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.graph import (
    AnyGraph,
    Fixpoint,
    Graph,
    Origin,
    Outside,
    Path,
    Recursive,
    Vertex,
    adopt,
)
from stepping_spark.circuit.operators import (
    Add,
    Delay,
    Differentiate,
    Distinct,
    Haitch,
    Integrate,
    Linearity,
    Neg,
    Operator,
)
from stepping_spark.expressions.functions import line_of_function, name_of
from stepping_spark.language.trace import (
    Stream,
    Tracer,
    hints,
    innermost,
    local_names,
    make,
    stream_type,
    tracer,
    vertex_of,
)
from stepping_spark.rows.schema import StreamType, ZSetType
from stepping_spark.rows.types import row_type


def on_values(roots: Sequence[Vertex], origins: dict[Vertex, Origin]) -> list[Vertex]:
    """The circuit on values that computes the same query as a circuit on changes.

    In its first step Q∆ = D∘Q∘I is Q: there are no earlier values, so I(a) = D(a) = a, z⁻¹(a) = 0
    and H(0, a) = distinct(a). So an incremental operator becomes its counterpart in `st.linear`.
    """
    counterparts: dict[Vertex, Vertex | None] = {}
    for root in roots:
        for v in _ordered(root):
            if v not in counterparts:
                counterpart = counterparts[v] = _first(v, [counterparts[i] for i in v.inputs])
                if counterpart is not None:
                    adopt(counterpart, origins[v], origins)
    return [counterparts[v] or v for v in roots]


def _first(v: Vertex, inputs: list[Vertex | None]) -> Vertex | None:
    """The value in the first step; None if it is empty."""
    op = v.operator
    non_empty = [i for i in inputs if i is not None]
    if isinstance(op, Delay):
        return None
    if op.same_at_first:
        return inputs[0]
    if isinstance(op, Add) and len(non_empty) < 2:
        return non_empty[0] if non_empty else None
    if isinstance(op, Haitch) and inputs[0] is None:
        return None if inputs[1] is None else Vertex(op.of, inputs[1])
    if len(non_empty) < len(inputs):
        return None  # linear, bilinear, per key: empty for empty inputs
    return Vertex(op, *non_empty)


def _ordered(root: Vertex) -> list[Vertex]:
    """The vertex and all vertices from which it is computed, inputs first."""
    order: dict[Vertex, None] = {}
    pending = [(root, False)]
    while pending:
        v, ready = pending.pop()
        if ready:
            order[v] = None
        elif v not in order:
            pending.append((v, True))
            pending += [(i, False) for i in reversed(v.inputs)]
    return list(order)


A = TypeVar("A")
Y = TypeVar("Y")

MAX_ITERATIONS = 1_000
# More input rows give no fewer output rows; for Top, the output rows never get worse instead.


def fixpoint(
    a: A,
    f: Callable[[A, Y], Y],
    *,
    to: Any = None,
    distinct: bool = True,
    max_iterations: int = MAX_ITERATIONS,
    name: str | None = None,
) -> Y:
    """SQL's WITH RECURSIVE, kept up to date by changes: the least `y` with `y = distinct(f(a, y))`.

    The iteration starts with an empty `y`. After every step, the sum of the outputs is the fixpoint
    for the sums of `a`, also after deletions: rows that only supported each other disappear.

    `f` gets `a` (a stream, or a tuple of streams) and `y`, and uses the ordinary operators; it may
    also use other streams of the query. For mutual recursion, use a tuple: `f(a, (x, y))` returns
    the two streams, and so does `fixpoint`. The row type of `y` is that of `a`, or that of the
    annotation of `f`'s second parameter (`ZSet[T]`, `tuple[ZSet[T], …]`), or `to` (`T`, or a tuple
    of types). On `y` you can use map, map_many, filter, add, join, semijoin, distinct, minima and
    maxima. An operator that is not monotone (a difference, an antijoin, a sum) raises
    `CompileError`, because more rows in `y` would mean fewer rows in its result.

    The result of a minimum or maximum over `y` must return to its own group, as the row of `y`
    there, which a better one replaces. If it only produces other rows, and these can displace it,
    the rows alternate for ever, and a step raises `FixpointError`.

    With `distinct=False` it is the `y` with `y = f(a, y)`, like SQL's UNION ALL: the weight of a
    row is the number of ways in which it is found. Then `f` is made of sums and products: on `y`
    you can use map, map_many, filter, add, a difference, joins, also of `y` with itself, and
    antijoins with streams that do not depend on `y`. A row that leads to itself is found without
    end, and a step raises `FixpointError`.

    No row of `a` may have a negative weight in the sum of all changes; rows of tables never have
    one. A row with a negative weight removes rows when it is joined, so that there may be no
    fixpoint. To make sure, apply `distinct` before the fixpoint.

    Not linear. State: for each iteration, the inputs of the joins and distincts in `f`, by their
    keys. A step reads the rows that its changes affect, once for each iteration that they reach;
    each iteration takes some Spark jobs if rows are in Spark, and else none. `max_iterations`
    limits how often `f` is applied. Beyond it a step raises `FixpointError`, and changes nothing.

    >>> def longer(edges: st.ZSet[st.Pair[int, int]], y: st.ZSet[st.Pair[int, int]]):
    ...     met = st.join(y, edges, on_left=lambda p: p.right, on_right=lambda e: e.left)
    ...     further = st.map(met, f=lambda m: st.Pair(left=m.left.left, right=m.right.right))
    ...     return st.add(edges, further)
    >>> def query(edges: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
    ...     return st.fixpoint(edges, longer)
    >>> edges = st.ZSetPython({st.Pair(left=1, right=2): 1, st.Pair(left=2, right=3): 1})
    >>> (out,) = st.reference(st.compile(query)).step((edges,))
    >>> out == edges + st.ZSetPython({st.Pair(left=1, right=3): 1})
    True
    """
    around, line = tracer(), user_line()
    if isinstance(around, BodyTracer):
        raise CompileError(
            f"{line}: a fixpoint inside the function of another; call it before, and use its "
            "stream in the function, or make one fixpoint of a tuple of streams"
        )
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise CompileError(f"{line}: max_iterations={max_iterations!r} should be an int from 1 on")
    _check_parameters(f)
    single, types = _recursive_types(a, f, to, line)
    inside = BodyTracer(around, _labels(a, f))
    streams = inside.recursive(types)
    returned = inside.run(f, [a, streams[0] if single else tuple(streams)])
    nexts = _checked(inside, returned, streams, single, f)
    body, inputs = _body(inside, nexts, streams, f, line, distinct)
    operators = [Fixpoint(body, i, max_iterations) for i in range(len(types))]
    for op in operators:
        around.bodies.setdefault(op, body)
    names = [name if single or name is None else f"{name}_{i}" for i in range(len(types))]
    results = [make(op, *inputs, name=n) for op, n in zip(operators, names, strict=True)]
    return cast(Y, results[0] if single else tuple(results))


# -- the types of the streams


def _recursive_types(
    a: object, f: Callable[..., Any], to: Any, line: Line
) -> tuple[bool, list[StreamType]]:
    """Whether there is only one recursive stream, and the types of all of them."""
    if to is not None:
        rows = to if isinstance(to, tuple) else (to,)
        return not isinstance(to, tuple), [ZSetType(_row_type(r, line)) for r in rows]
    parameter = list(inspect.signature(f).parameters)[1]
    hint_of = hints(f, local_names(f), line_of_function(f))
    annotation = hint_of.get(parameter)
    where = f"{line_of_function(f)}: parameter {parameter!r} of {name_of(f)}"
    if typing.get_origin(annotation) is tuple:
        return False, [_zset(t, where) for t in typing.get_args(annotation)]
    if annotation not in (None, Any):
        return True, [_zset(annotation, where)]
    if isinstance(a, tuple):
        raise CompileError(
            f"{line}: the rows of the recursive stream are unknown; say them by an annotation, "
            f"{parameter}: st.ZSet[T], or by to=T"
        )
    return True, [_must_be_zset(vertex_of(a, "fixpoint").type, str(line))]


def _check_parameters(f: Callable[..., Any]) -> None:
    n = len(inspect.signature(f).parameters)
    if n != 2:
        raise CompileError(
            f"{line_of_function(f)}: the function of a fixpoint takes two parameters, its argument "
            f"and the recursive stream; {name_of(f)!r} has {n}"
        )


def _labels(a: object, f: Callable[..., Any]) -> dict[Vertex, str]:
    """The names of the streams in the function."""
    name = next(iter(inspect.signature(f).parameters))
    if isinstance(a, Stream):
        return {a.vertex: name}
    streams = a if isinstance(a, tuple) else ()
    return {s.vertex: f"{name}_{i}" for i, s in enumerate(streams) if isinstance(s, Stream)}


def _row_type(annotation: Any, line: Line) -> Any:
    try:
        return row_type(annotation)
    except TypeError as e:
        raise CompileError(f"{line}: to= of fixpoint: {e}") from None


def _zset(annotation: Any, where: str) -> StreamType:
    return _must_be_zset(stream_type(annotation, where), where)


def _must_be_zset(t: StreamType, where: str) -> StreamType:
    if not isinstance(t, ZSetType):
        raise CompileError(f"{where}: a recursive stream is a ZSet, found {t}; use st.make_set")
    return t


def _checked(
    inside: BodyTracer, returned: Any, streams: list[Stream], single: bool, f: Callable[..., Any]
) -> list[Vertex]:
    """The streams that the function returns, for the next iteration."""
    where = f"{line_of_function(f)}: {name_of(f)}"
    results = (returned,) if single else returned
    if isinstance(returned, tuple) is single or len(results) != len(streams):
        expected = "a stream" if single else f"a tuple of {len(streams)} streams"
        raise CompileError(f"{where} should give {expected}, as it is given, found {returned!r}")
    nexts = []
    for stream, after in zip(streams, results, strict=True):
        if not isinstance(after, Stream):
            text = "nothing (is a `return` missing?)" if after is None else repr(after)
            raise CompileError(f"{where} should give streams, found {text}")
        v = after.vertex if after.tracer is inside else inside.foreign(after, "fixpoint")
        if v.type != stream.vertex.type:
            raise CompileError(
                f"{where} gets a stream of {stream.vertex.type} and gives one of {v.type} in its "
                "place; st.map what it gives, or say the type of the stream by an annotation of "
                "the parameter, or by to="
            )
        nexts.append(v)
    return nexts


# -- tracing the function


class BodyTracer(Tracer):
    """The tracer of the function of a loop.

    A stream of the enclosing query becomes an input of the loop when the function uses it.
    """

    def __init__(self, around: Tracer, labels_of: Mapping[Vertex, str]) -> None:
        super().__init__()
        self.around = around
        self.labels_of = labels_of  # the names of the function's arguments
        self.outside: dict[Vertex, Vertex] = {}  # enclosing vertex -> its leaf here

    def recursive(self, types: Sequence[StreamType]) -> list[Stream]:
        """The recursive streams."""
        return [self.leaf(Recursive(i, t), "y", user_line()) for i, t in enumerate(types)]

    def foreign(self, stream: Stream, what: str) -> Vertex:
        if stream.tracer is not self.around:
            return super().foreign(stream, what)
        v = stream.vertex
        if v not in self.outside:
            label = self.labels_of.get(v) or self.around.label(v)
            leaf = Outside(len(self.outside), label, v.type)
            self.outside[v] = self.leaf(leaf, label, user_line()).vertex
        return self.outside[v]

    def make(self, operator: Operator, inputs: tuple[Vertex, ...], name: str | None) -> Stream:
        frame = innermost()
        if operator.over_steps and not (frame and is_ours(frame.f_code.co_filename)):
            raise CompileError(
                f"{user_line()}: {operator.name} in the function of a fixpoint: its streams go "
                "from iteration to iteration, not from step to step; write it with operators on "
                "tables (st.join, st.distinct …), or use this one before the fixpoint"
            )
        return super().make(operator, inputs, name)


@dataclass
class _Inputs:
    """The inputs of the loop: streams of the enclosing query, and the leaf for each."""

    leaves: list[Vertex] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    by_stream: dict[Vertex, Vertex] = field(default_factory=dict)

    def leaf_for(self, stream: Stream, label: str) -> Vertex:
        if stream.vertex not in self.by_stream:
            leaf = Vertex(Outside(len(self.leaves), label, stream.vertex.type))
            self.leaves.append(leaf)
            self.streams.append(stream)
            self.by_stream[stream.vertex] = leaf
        return self.by_stream[stream.vertex]


def _body(
    inside: BodyTracer,
    nexts: list[Vertex],
    streams: list[Stream],
    f: Callable[..., Any],
    line: Line,
    distinct: bool,
) -> tuple[AnyGraph, list[Stream]]:
    """The circuit of the loop, and its inputs, which are streams of the query."""
    for _, line in inside.caches.values():
        raise CompileError(
            f"{line}: a cache in the function of a fixpoint; keep the result of the fixpoint"
        )
    for v in inside.no_output:
        _refuse(v, inside.entries[v].line)
    name = "loop" if name_of(f).startswith("<") else name_of(f)
    origins = dict(inside.origins(name))
    parameter = list(inspect.signature(f).parameters)[-1]
    for i, s in enumerate(streams):
        path = Path((name, parameter if len(streams) == 1 else f"{parameter}_{i}"))
        origins[s.vertex] = Origin(path, line)
    values = on_values(nexts, origins)
    recursive = _depending(values)
    inputs = _Inputs()
    moved: dict[Vertex, Vertex] = {s.vertex: s.vertex for s in streams}

    def place(v: Vertex) -> Vertex:
        """The vertex in the body. Vertices independent of the loop are computed outside it."""
        if v in moved:
            return moved[v]
        if v not in recursive:
            stream = _lifted(v, inside)
            vertex = inputs.leaf_for(stream, origins[v].path.parts[-1])
        else:
            if distinct:
                _check_monotone(v, origins[v].line)
            else:
                _check_counted(v, origins[v].line)
            vertex = Vertex(v.operator, *(place(i) for i in v.inputs))
        origins.setdefault(vertex, origins[v])
        moved[v] = vertex
        return vertex

    outputs = []
    for v in values:
        placed = place(v)
        last = placed
        if distinct and not placed.operator.unit_weights:
            last = Vertex(Distinct(), placed)
            origins.setdefault(last, _beside(origins[placed]))
        outputs.append(last)
    body: AnyGraph = Graph(
        name=name,
        inputs=tuple(inputs.leaves),
        outputs=tuple(outputs),
        no_output=(),
        loops={s.vertex: v for s, v in zip(streams, outputs, strict=True)},
        caches={},
        origins=origins,
        single=len(outputs) == 1,
    )
    return body, inputs.streams


def _beside(origin: Origin) -> Origin:
    parts = origin.path.parts
    path = Path((*parts[:-1], f"{parts[-1]}_distinct"))
    return Origin(path, origin.line, view=origin.view)


def _depending(values: list[Vertex]) -> set[Vertex]:
    """The vertices that depend on a recursive stream."""
    dependence: dict[Vertex, bool] = {}

    def depends(v: Vertex) -> bool:
        if v not in dependence:
            inputs = [depends(i) for i in v.inputs]  # all, so that each gets an entry
            dependence[v] = isinstance(v.operator, Recursive) or any(inputs)
        return dependence[v]

    for v in values:
        depends(v)
    return {v for v, does in dependence.items() if does}


def _lifted(v: Vertex, inside: BodyTracer) -> Stream:
    """A vertex independent of the loop, as changes in the enclosing query: D(Q(I(a)))."""
    around = inside.around
    if isinstance(v.operator, Outside):
        (source,) = (s for s, leaf in inside.outside.items() if leaf is v)
        return Stream(source, around)
    changes = [_lifted(i, inside) for i in v.inputs]
    # A row that waits for its time waits as a change: of a sum it would wait once for each step.
    if v.operator.linearity is Linearity.LINEAR or v.operator.gives_change:
        return make(v.operator, *changes)
    whole = make(v.operator, *(make(Integrate(), c) for c in changes))
    return make(Differentiate(), whole)


def _check_monotone(v: Vertex, line: Line) -> None:
    if not v.operator.recursive:
        _refuse(v, line)


def _check_counted(v: Vertex, line: Line) -> None:
    """Raise an error unless rows are counted through the operator: a sum, or a product."""
    op = v.operator
    counted = op.linearity in (Linearity.LINEAR, Linearity.BILINEAR)
    if counted and (op.recursive or isinstance(op, Neg)):
        return
    raise CompileError(
        f"{line}: {op.name} of a recursive stream in a fixpoint with distinct=False: it is neither "
        "linear nor a join; on the stream you can use map, map_many, filter, add, subtract, and "
        "joins; apply the others to the result of the fixpoint, or leave out distinct=False"
    )


def _refuse(v: Vertex, line: Line) -> NoReturn:
    what, why = v.operator.name, "where the recursive stream has more rows, it may have fewer"
    if isinstance(v.operator, Neg):
        what = "a difference (neg, -, antijoin, outer_join)"
    elif not all(isinstance(t, ZSetType) for t in (v.type, *(i.type for i in v.inputs))):
        what = "a sum or count"
    raise CompileError(
        f"{line}: {what} of a recursive stream: {why}, so that there may be no least fixpoint; "
        "on it you can use map, map_many, filter, add, join, semijoin, distinct, minima, maxima: "
        "apply this to the result of the fixpoint, or to streams that do not depend on it"
    )
