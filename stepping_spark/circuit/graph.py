"""The circuit: interned vertices, recursions, rewrites, and which streams are states or grow."""

from __future__ import annotations

import dataclasses
import hashlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias

from typing_extensions import TypeVar

from stepping_spark.base.callsite import Line, user_line
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.base.packages import networkx as nx
from stepping_spark.base.signature import Signature
from stepping_spark.circuit.operators import (
    Arrange,
    Feedback,
    Input,
    Integrate,
    Linearity,
    Operator,
    PrunedMap,
    parts_of,
)
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.fingerprint import identity_of
from stepping_spark.rows.schema import StreamType

# For type checkers: the tuple of changes that a step takes, and the result of the query.
In = TypeVar("In", default=Any)
Out = TypeVar("Out", default=Any, covariant=True)


class Vertex:
    """An operator applied to vertices, with the type of its stream.

    Interned: equal vertices are one object. `digest` is computed from everything that leads to the
    vertex, and is the same in every process.

    >>> def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.neg(numbers)
    >>> list(st.compile(query).vertices.values())
    [<Vertex input () -> ZSet[int]>, <Vertex neg (ZSet[int]) -> ZSet[int]>]
    """

    __slots__ = ("__weakref__", "digest", "inputs", "operator", "type")
    _all: ClassVar[weakref.WeakValueDictionary[Any, Vertex]] = weakref.WeakValueDictionary()

    operator: Operator
    inputs: tuple[Vertex, ...]
    type: StreamType
    digest: str

    def __new__(cls, operator: Operator, *inputs: Vertex) -> Vertex:
        key = (operator, inputs)
        vertex = cls._all.get(key)
        if vertex is None:
            vertex = object.__new__(cls)
            vertex.operator = operator
            vertex.inputs = inputs
            vertex.type = operator.type_of(*(v.type for v in inputs))
            vertex.digest = _digest(vertex)
            cls._all[key] = vertex
        return vertex

    def __reduce__(self) -> tuple[Callable[..., Vertex], tuple[object, ...]]:
        return Vertex, (self.operator, *self.inputs)

    @property
    def signature(self) -> Signature:
        """The operator with its arguments, and the digest: the same in every process."""
        op = self.operator
        if isinstance(op, PrunedMap):
            if op.unpruned is None:
                return self.inputs[0].signature
            op = op.unpruned
        detail = op.describe()
        return Signature(f"{op.user_name}{f' [{detail}]' if detail else ''}", self.digest)

    def __repr__(self) -> str:
        takes = ", ".join(str(v.type) for v in self.inputs)
        return f"<Vertex {self.operator.name} ({takes}) -> {self.type}>"


def _digest(v: Vertex) -> str:
    """The identity of a vertex in every process: its operator and its inputs.

    A linear operator has the same result for rows that are equal in the fields that it reads, so
    the rest of a row does not count. For any other operator the whole row counts. Nor do columns
    count that a pass has left out.
    """
    op, types = v.operator, [i.type for i in v.inputs]
    if isinstance(op, PrunedMap):
        if op.unpruned is None:
            return v.inputs[0].digest
        op = op.unpruned
    texts = [op.name, op.identity(), op.reads_unseen(*types), *(i.digest for i in v.inputs)]
    if op.linearity in (Linearity.NONLINEAR, Linearity.PER_KEY):
        texts += [identity_of(t.schema) for t in (*types, v.type)]
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True, order=True)
class Path:
    """The name of a vertex: the functions that made it, then its own; equal in every process.

    >>> def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(numbers)
    >>> [str(path) for path in st.compile(query).output]
    ['query.distinct.distinct']
    """

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)

    def __repr__(self) -> str:
        return f"<Path {self}>"

    @property
    def scope(self) -> tuple[str, ...]:
        """The functions, outermost first."""
        return self.parts[:-1]


@dataclass(frozen=True)
class Origin:
    """The user's line that a vertex comes from, and its preferred name."""

    path: Path
    line: Line
    explicit: bool = False  # the user passed name=
    parts: tuple[Origin, ...] = ()  # of the operators that were fused into it
    beside: tuple[Origin, ...] = ()  # origins of vertices that were rewritten away into this one
    inner: bool = False  # a rewrite made the vertex, below a vertex with a name
    view: str = ""  # the view whose text the vertex stands for a part of; "" for no text
    comment: str = ""  # the comment in the text


@dataclass(frozen=True)
class Lateness:
    """An input with a lateness: its rows that are in time, and its late rows."""

    at: Expr  # the time of a row
    distance: int  # from the greatest time to the watermark, in the unit of `expressions.expr`
    said: str  # the distance as the user wrote it
    in_time: Vertex
    late: Vertex
    greatest: Vertex  # the feedback of the stream whose sum is the row of the greatest time
    refused: bool  # whether a late row is an error

    def moved(self, f: Callable[[Vertex], Vertex]) -> Lateness:
        """The lateness in a circuit with other vertices."""
        vertices = {"in_time": f(self.in_time), "late": f(self.late), "greatest": f(self.greatest)}
        return dataclasses.replace(self, **vertices)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Graph(Generic[In, Out]):
    """A circuit, the result of `compile`: vertices, and the edges between them.

    `vertices` maps each `Path` to its vertex. `input`, `internal`, `output` and `run_no_output` are
    the edges; `nx` is the circuit as a networkx graph. Its text is the same in every process. Two
    graphs are equal if they compute the same in the same way, whatever the names of their vertices.
    A notebook shows its picture. `loops` maps each feedback to its source. `bodies` has the
    circuits that recursions iterate. `strict` has, for each strict input, the vertex that finds
    deletions of absent rows; `lateness` has, for each input with one, the vertices that separate
    late rows from rows in time.

    >>> def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(numbers, f=lambda x: x > 0)
    >>> print(st.compile(query))
    graph query
      query.numbers: ZSet[int] = input()
      query.filter: ZSet[int] = filter(query.numbers) [_value_ > 0]
      return query.filter
    """

    name: str
    inputs: tuple[Vertex, ...]
    outputs: tuple[Vertex, ...]
    no_output: tuple[Vertex, ...]
    loops: Mapping[Vertex, Vertex]
    caches: Mapping[str, Vertex]
    origins: Mapping[Vertex, Origin]
    called: tuple[str, ...] = ()  # the variable of each output, or ""
    single: bool = True  # the query returns one stream, not a tuple of streams
    optimized: bool = False  # if true, its plan may also fuse vertices
    reductions: tuple[ReducePlan, ...] = ()
    bodies: Mapping[Operator, AnyGraph] = field(default_factory=dict)  # with this query's names
    strict: Mapping[str, Vertex] = field(default_factory=dict)  # by input: deleted absent rows
    lateness: Mapping[str, Lateness] = field(default_factory=dict)  # by input
    made_by: tuple[Signature, ...] = ()  # of each output, the computation as it was written
    paths: Mapping[Vertex, Path] = field(init=False, repr=False)
    memo: dict[str, object] = field(init=False, repr=False, default_factory=dict)  # of later layers
    _repr_svg_: ClassVar[Callable[[AnyGraph], str]]  # the picture in notebooks, set by `render`

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", _paths(self))

    @property
    def roots(self) -> tuple[Vertex, ...]:
        """The vertices that a step must compute."""
        return self.outputs + self.no_output

    def walk(self) -> Iterator[Vertex]:
        """Every needed vertex, each after its inputs, except in loops."""
        seen: set[Vertex] = set()
        for root in (*self.inputs, *self.roots):
            yield from _walk(root, self.loops, seen)

    @cached_property
    def has_constants(self) -> bool:
        """Whether a step without changes may have rows, as the first one: a count of no rows."""
        return any(not v.operator.is_nothing(*[True] * len(v.inputs)) for v in self.walk())

    @property
    def vertices(self) -> dict[Path, Vertex]:
        """The vertices by path."""
        return {self.paths[v]: v for v in self.walk()}

    @property
    def input(self) -> list[tuple[Path, int]]:
        """The inputs: the path of a vertex, and the number of its argument, always 0."""
        return [(self.paths[v], 0) for v in self.inputs]

    @property
    def internal(self) -> set[tuple[Path, tuple[Path, int]]]:
        """The edges: from a path, to a path and the number of its argument."""
        return {(a, (b, i)) for a, b, i in self._edges()}

    @property
    def output(self) -> list[Path]:
        """The vertices whose values a step returns."""
        return [self.paths[v] for v in self.outputs]

    @property
    def run_no_output(self) -> list[Path]:
        """The vertices that a step computes only for their state."""
        return [self.paths[v] for v in self.no_output]

    def _edges(self) -> Iterator[tuple[Path, Path, int]]:
        for v in self.walk():
            sources = (self.loops[v],) if v in self.loops else v.inputs
            for i, source in enumerate(sources):
                yield self.paths[source], self.paths[v], i

    @property
    def nx(self) -> nx.MultiDiGraph[Path]:
        """The circuit as a networkx graph; its nodes are paths."""
        g: nx.MultiDiGraph[Path] = nx.MultiDiGraph()
        for path, v in self.vertices.items():
            g.add_node(path, operator=v.operator.name, type=str(v.type))
        for a, b, i in self._edges():
            g.add_edge(a, b, argument=i)
        return g

    @cached_property
    def named_inputs(self) -> tuple[tuple[Vertex, str], ...]:
        """The inputs, each with its name in errors."""
        labels = [v.operator.label for v in self.inputs if isinstance(v.operator, Input)]
        return tuple((v, f"input {n!r}") for v, n in zip(self.inputs, labels, strict=True))

    @cached_property
    def named_outputs(self) -> tuple[str, ...]:
        """The name of each output: its variable if that is unique, otherwise its number."""
        called = self.called or ("",) * len(self.outputs)
        return tuple(
            name if name and called.count(name) == 1 else f"output {i}"
            for i, name in enumerate(called)
        )

    def not_given(self, inputs: object) -> InputError:
        """The error for a step whose argument is no tuple with one value for each input."""
        labels = (v.operator.label for v in self.inputs if isinstance(v.operator, Input))
        names = ", ".join(labels)
        if not isinstance(inputs, tuple | list):
            return InputError(
                f"a step takes a tuple with a change for each input ({names}), found "
                f"{type(inputs).__name__}; write (change,) for a single one"
            )
        several = "" if len(self.inputs) == 1 else "s"
        return InputError(
            f"{self.name} has {len(self.inputs)} input{several} ({names}), found {len(inputs)} "
            "values; give None for one that does not change"
        )

    def signature(self, v: Vertex) -> Signature:
        """`Vertex.signature`, whose digest also depends on the sources of feedbacks below it."""
        seen: set[Vertex] = set()
        leaves = [leaf for leaf in _walk(v, self.loops, seen) if leaf in self.loops]
        if not leaves:
            return v.signature
        loops = sorted(f"{leaf.digest} {self.loops[leaf].digest}" for leaf in leaves)
        through = hashlib.sha256(" ".join((v.digest, *loops)).encode()).hexdigest()[:16]
        return dataclasses.replace(v.signature, digest=through)

    def line(self, v: Vertex) -> Line:
        """The user's line that made a vertex."""
        return self.origins[v].line

    def comment(self, v: Vertex) -> str:
        """The comment on a vertex in the text that it stands for."""
        return self.origins[v].comment

    def same_as(self, other: AnyGraph) -> bool:
        """Whether both are the same circuit, whatever the names of vertices."""
        return (
            self.inputs == other.inputs
            and self.outputs == other.outputs
            and set(self.no_output) == set(other.no_output)
            and dict(self.loops) == dict(other.loops)
        )

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, Graph) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.inputs, self.outputs))

    def __str__(self) -> str:
        lines = [f"graph {self.name}"]
        for v in self.walk():
            sources = [self.loops[v]] if v in self.loops else v.inputs
            takes = ", ".join(str(self.paths[s]) for s in sources)
            detail = v.operator.describe()
            shown = f"{v.operator.name}({takes})" + (f" [{detail}]" if detail else "")
            lines.append(f"  {self.paths[v]}: {v.type} = {shown}")
            if v.operator in self.bodies:
                lines += [f"    {line}" for line in str(self.bodies[v.operator]).splitlines()]
        lines.append(f"  return {', '.join(str(p) for p in self.output)}")
        for path in self.run_no_output:
            lines.append(f"  run {path}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        vertices = "".join(f"\n        {p!r}: {v!r}," for p, v in self.vertices.items())
        internal = "".join(f"\n        {e!r}," for e in sorted(self.internal))
        return (
            f"Graph(\n    vertices={{{vertices}\n    }},\n    input={self.input},\n"
            f"    internal={{{internal}\n    }},\n    output={self.output},\n"
            f"    run_no_output={self.run_no_output},\n)"
        )


AnyGraph: TypeAlias = "Graph[Any, Any]"


def check_is_graph(value: object, hint: str = "") -> None:
    """Raise an error for anything but a graph, such as a query that is not compiled."""
    if not isinstance(value, Graph):
        raise CompileError(
            f"{user_line()}: expected a Graph from st.compile(query), found "
            f"{type(value).__name__}{hint}"
        )


def reachable(root: Vertex) -> set[Vertex]:
    """The vertices from which a vertex is computed within a step, including itself."""
    return set(_walk(root, {}, set()))


def _walk(root: Vertex, loops: Mapping[Vertex, Vertex], seen: set[Vertex]) -> Iterator[Vertex]:
    # Iterative: a long chain of operators is deeper than Python's stack.
    pending: list[tuple[Vertex, bool]] = [(root, False)]
    fed_back: list[Vertex] = []  # visited last: they may depend on pending vertices
    while pending or fed_back:
        v, ready = pending.pop() if pending else (fed_back.pop(0), False)
        if ready:
            yield v
            if v in loops:
                fed_back.append(loops[v])
        elif v not in seen:
            seen.add(v)
            pending.append((v, True))
            pending += [(i, False) for i in reversed(v.inputs)]


def _paths(graph: AnyGraph) -> dict[Vertex, Path]:
    """A path for each vertex: the path of its origin, numbered if two would be equal."""
    paths: dict[Vertex, Path] = {}
    taken: dict[Path, Vertex] = {}
    last: dict[Path, int] = {}  # the last number of each path
    needed = list(graph.walk())
    for v in sorted(needed, key=lambda v: not graph.origins[v].explicit):
        origin = graph.origins[v]
        plain = path = _readable(v, origin, paths)
        n = last.get(path, 1)
        if path in taken and origin.explicit:
            raise CompileError(
                f"{origin.line}: the name {path} is taken by "
                f"{graph.origins[taken[path]].line}; give each vertex a name of its own"
            )
        while path in taken:
            n += 1
            path = Path((*plain.scope, f"{plain.parts[-1]}_{n}"))
        last[plain] = n
        taken[path] = v
        paths[v] = path
    return paths


def _readable(v: Vertex, origin: Origin, paths: Mapping[Vertex, Path]) -> Path:
    """The path of a vertex; a vertex without a name of its own is named after its inputs."""
    text = v.operator.named_after(*(paths[i].parts[-1] for i in v.inputs if i in paths))
    return Path((*origin.path.scope, text)) if origin.inner and text else origin.path


Rule = Callable[[Vertex], Vertex | None]
AnyCircuit: TypeAlias = AnyGraph


def rewrite(
    graph: AnyCircuit, rule: Rule, named_after: Mapping[Vertex, Vertex] | None = None
) -> AnyCircuit:
    """The circuit with each vertex replaced by the rule's result, unless that is None.

    `named_after` maps vertices that the rule makes to the old vertices whose names they take.
    """
    named_after = {} if named_after is None else named_after
    origins = dict(graph.origins)
    new: dict[Vertex, Vertex] = {}

    def visit(v: Vertex) -> Vertex:
        """Rewrite the inputs of a vertex, then the vertex, then the result of the rule."""
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
    graph: AnyCircuit, f: Callable[[Vertex], Vertex], origins: dict[Vertex, Origin]
) -> AnyCircuit:
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
    """The origin of an inner vertex, below a vertex with the given origin.

    It is named after its operator, and directly below the user's vertex after that one too.
    """
    own = v.operator.user_name
    name = own if origin.inner else f"{origin.path.parts[-1]}_{own}"
    path = Path((*origin.path.scope, name))
    return Origin(path, origin.line, inner=True, view=origin.view)


@dataclass(frozen=True)
class Outside(Input):
    """A stream that the body of a recursion gets from the surrounding circuit."""


@dataclass(frozen=True)
class Recursive(Feedback):
    """The result of the previous iteration; empty at first."""

    recursive: ClassVar[bool] = True


@dataclass(frozen=True)
class Fixpoint(Operator):
    """The changes of the least fixpoint of a body over the sums of its inputs.

    `body` has an input for each input of the operator, and a loop for each recursive stream. The
    result is the recursive stream with the number; the other streams are vertices with the same
    body and inputs, and run in the same loop.

    Equal bodies may have other names and lines: a query has its own in `Graph.bodies`.
    """

    body: AnyGraph
    number: int
    max_iterations: int
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    gives_change: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.body.outputs[self.number].type

    def describe(self) -> str:
        return "" if self.body.single else f"stream {self.number}"

    def identity(self) -> str:
        # Independent of names, and of the limit, which may be raised.
        return f"{self.number} of {self.digest}"

    @property
    def digest(self) -> str:
        """The identity of the body, in every process."""
        return " ".join(v.digest for v in self.body.outputs)

    def endless(self, where: str, sizes: Mapping[str, int]) -> str:
        """The error for a loop that has not ended."""
        shown = ", ".join(f"{name} {n:,}" for name, n in sizes.items())
        return (
            f"{where}: the recursion {self.body.name!r} has not ended after max_iterations="
            f"{self.max_iterations:,} iterations; rows of the last ones: {shown}; the store is as "
            "it was before the step: bound what the function can give (a filter, a longest path), "
            "or raise max_iterations"
        )


def named(operator: Fixpoint, graph: AnyGraph) -> Fixpoint:
    """The operator, whose body has the names and lines of this query."""
    return replace(operator, body=graph.bodies[operator])


def is_positive(v: Vertex, answers: dict[Vertex, bool] | None = None) -> bool:
    """Whether no value of a stream has a negative weight: a stream of changes only inserts."""
    answers = {} if answers is None else answers  # a stream may be reached by many paths
    if v not in answers:
        answers[v] = v.operator.is_positive(*(is_positive(i, answers) for i in v.inputs))
    return answers[v]


def grows(v: Vertex, answers: dict[Vertex, bool] | None = None) -> bool:
    """Whether a stream is computed from integrals, and its changes only insert."""
    answers = {} if answers is None else answers
    if v not in answers:
        if isinstance(v.operator, Integrate):
            answers[v] = is_positive(v.inputs[0])
        else:
            answers[v] = v.operator.monotone and all(grows(i, answers) for i in v.inputs)
    return answers[v]


class AnyVertex(Protocol):
    """A vertex of a graph, or of a picture of a graph."""

    @property
    def operator(self) -> Operator: ...
    @property
    def inputs(self) -> tuple[Self, ...]: ...
    @property
    def type(self) -> StreamType: ...


V = TypeVar("V", bound=AnyVertex)


class States(Generic[V]):
    """The states among the streams of a circuit, for `v in states`; cached.

    A state is the output of an integral or a delay, or of an operator on states: one state among
    its inputs is enough, but a join or a look-up needs states only.
    """

    def __init__(self, loops: Mapping[V, V]) -> None:
        self._loops = loops
        self._known: dict[V, bool] = {}

    def __contains__(self, v: V) -> bool:
        while isinstance(v.operator, Arrange) or v in self._loops:
            v = self._loops[v] if v in self._loops else v.inputs[0]
        if v not in self._known:
            self._known[v] = False  # a stream that a recursion feeds back is a change
            self._known[v] = self._is_state(v)
        return self._known[v]

    def _is_state(self, v: V) -> bool:
        op = v.operator
        if op.gives_state:
            return True
        if not op.arity or op.gives_change:
            return False
        matches = parts_of(op)[0].linearity in (Linearity.BILINEAR, Linearity.LOOK_UP)
        return (all if matches else any)(i in self for i in v.inputs)
