"""Tracing: reads the types of a query function, and calls it once, with symbolic streams.

The streams record the operators that are applied to them.
"""

from __future__ import annotations

import decimal
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from stepping_spark.base.callsite import Line, is_engine, is_ours, user_frame, user_line
from stepping_spark.base.errors import CompileError, short
from stepping_spark.base.packages import raised
from stepping_spark.circuit.graph import AnyGraph, Lateness, Origin, Path, Vertex
from stepping_spark.circuit.operators import Add, Arrange, Feedback, Input, Neg, Operator
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.language.algebra import TypeMismatch
from stepping_spark.language.call_errors import miscalled, spark_miscalled
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Accumulated, ScalarType, StreamType, ZSetType
from stepping_spark.rows.types import Struct, row_type
from stepping_spark.zsets.spark import ZSet, ZSetPython, ZSetSpark


class Stream:
    """A symbolic stream: the inputs of a query function, and the results of operators."""

    __slots__ = ("tracer", "vertex")

    vertex: Vertex
    tracer: Tracer

    def __init__(self, vertex: Vertex, tracer: Tracer) -> None:
        object.__setattr__(self, "vertex", vertex)
        object.__setattr__(self, "tracer", tracer)

    def __repr__(self) -> str:
        return f"<stream of {self.vertex.type}>"

    def __add__(self, other: Stream) -> Stream:
        return make(Add(), self, self._stream(other, "+"))

    def __radd__(self, other: object) -> NoReturn:
        self._stream(other, "+")
        raise AssertionError("a stream on the left adds itself")

    def __neg__(self) -> Stream:
        return make(Neg(), self)

    def __sub__(self, other: Stream) -> Stream:
        return make(Add(), self, make(Neg(), self._stream(other, "-")))

    def _stream(self, other: object, op: str) -> Stream:
        if isinstance(other, Stream):
            return other
        self._refuse_operator(f"{op} of a stream of {self.vertex.type} and {short(other)}")

    def _refuse_operator(self, what: str) -> NoReturn:
        raise CompileError(
            f"{user_line()}: {what}: streams of one type are added, subtracted and negated, and "
            "nothing else; use functools.reduce(st.add, streams) for sum(streams), st.map(stream, "
            "f=lambda row: …) to compute with the rows, st.filter to compare"
        )

    def _refuse(self, what: str) -> NoReturn:
        raise CompileError(
            f"{user_line()}: {what} of a stream of {self.vertex.type}: its rows come only when "
            "the circuit steps; use an operator (st.filter, st.count, st.distinct …) instead"
        )

    def __bool__(self) -> bool:
        self._refuse("the truth (`if`, `and`, `or`, `not`, `while`)")

    def __len__(self) -> int:
        self._refuse("len()")

    def __iter__(self) -> NoReturn:
        self._refuse("iteration")

    def __next__(self) -> NoReturn:
        self._refuse("next()")

    def __contains__(self, row: object) -> bool:
        self._refuse("`in`")

    def __getitem__(self, k: object) -> NoReturn:
        self._refuse("an item ([…])")

    def __setitem__(self, k: object, value: object) -> NoReturn:
        self._refuse("a change of an item ([…] = …)")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise CompileError(
            f"{user_line()}: .{name} = … on a stream of {self.vertex.type}: a stream has no "
            "fields of its own; st.map(stream, f=lambda row: Row(…)) gives rows with other fields"
        )

    def __call__(self, *args: object, **named: object) -> NoReturn:
        self._refuse("a call")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # Python and notebooks look up such names as a test
            raise AttributeError(name)
        row = getattr(self.vertex.type, "row", None)
        if isinstance(row, Struct) and any(name == n for n, _ in row.fields):
            raise CompileError(
                f"{user_line()}: .{name} is a field of the rows, not of a stream of "
                f"{self.vertex.type}; use st.map(stream, f=lambda row: row.{name})"
            )
        raise CompileError(
            f"{user_line()}: a stream of {self.vertex.type} has no {name!r}; operators are "
            "functions, not methods: st.map(stream, f=…)"
        )


def _refused(op: str) -> Callable[..., NoReturn]:
    def method(self: Stream, *others: object) -> NoReturn:
        self._refuse_operator(f"{op} of a stream of {self.vertex.type}")

    return method


for _name, _op in {
    "mul": "*", "rmul": "*", "truediv": "/", "rtruediv": "/", "floordiv": "//", "mod": "%",
    "pow": "**", "matmul": "@", "and": "&", "rand": "&", "or": "|", "ror": "|", "xor": "^",
    "rsub": "-", "invert": "~", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}.items():  # fmt: skip
    setattr(Stream, f"__{_name}__", _refused(_op))
Stream.__hash__ = object.__hash__  # type: ignore[method-assign]


@dataclass
class Tracer:
    """Records the vertices while a query function runs."""

    entries: dict[Vertex, _Entry] = field(default_factory=dict)
    loops: dict[Vertex, Vertex] = field(default_factory=dict)
    unconnected: dict[Vertex, Line] = field(default_factory=dict)
    caches: dict[str, tuple[Vertex, Line]] = field(default_factory=dict)
    uncalled: dict[object, tuple[str, Line]] = field(default_factory=dict)  # cache[…], no call yet
    no_output: list[Vertex] = field(default_factory=list)
    labels: dict[FrameType, tuple[str, ...]] = field(default_factory=dict)
    siblings: dict[tuple[str, ...], int] = field(default_factory=dict)
    names: dict[Vertex, str] = field(default_factory=dict)
    variables: dict[Vertex, str] = field(default_factory=dict)  # the variables of the query itself
    nesting: int = 0  # how many circuits per group are being traced
    reductions: list[ReducePlan] = field(default_factory=list)
    bodies: dict[Operator, AnyGraph] = field(default_factory=dict)
    lateness: dict[str, Lateness] = field(default_factory=dict)  # by input
    view: str = ""  # the view whose text is being translated
    comments: dict[Vertex, str] = field(default_factory=dict)  # comments in the text
    whole_rows: bool = False  # whether states keep columns that nothing reads

    def input(
        self, number: int, label: str, type_: StreamType, line: Line, append_only: bool = False
    ) -> Stream:
        """The stream of an input."""
        return self.leaf(Input(number, label, type_, append_only), label, line)

    def leaf(self, operator: Operator, label: str, line: Line) -> Stream:
        """A stream that exists before the function is called."""
        v = Vertex(operator)
        self.note(v, label, line)
        return Stream(v, self)

    def note(self, v: Vertex, label: str, line: Line, scope: tuple[str, ...] = ()) -> None:
        """Record a vertex that exists before the function is called; no scope is the query's."""
        self.entries[v] = _Entry(scope, None, label, line, False)

    def label(self, v: Vertex) -> str:
        """The name of a vertex, as far as it is known before the query returns."""
        return self.entries[v].name

    def feedback(self, type_: StreamType) -> Stream:
        """The stream of a value that will be connected later."""
        stream = self.make(Feedback(len(self.loops) + len(self.unconnected), type_), (), None)
        self.unconnected[stream.vertex] = user_line()
        return stream

    def foreign(self, stream: Stream, what: str) -> Vertex:
        """The vertex that represents a stream of another tracer here."""
        raise CompileError(
            f"{user_line()}: {what} got a stream of another query; pass it through this one's "
            "parameters"
        )

    def make(self, operator: Operator, inputs: tuple[Vertex, ...], name: str | None) -> Stream:
        """Record a vertex."""
        try:
            v = Vertex(operator, *inputs)
        except RecursionError:
            raise too_deep(f"{user_line()}: {operator.name}") from None
        home = _home(sys._getframe(1))
        scope = self._scope(home)
        old = self.entries.get(v)
        if old is None or (name is not None and not old.explicit):
            entry_name = name or operator.name
            self.entries[v] = _Entry(
                scope, home, entry_name, user_line(), name is not None, self.view
            )
        elif name is not None and old.name != name:
            raise CompileError(
                f"{user_line()}: {name!r} is the same computation as {old.name!r} of {old.line}, "
                "and one vertex has one name; drop one of the two names"
            )
        return Stream(v, self)

    def record(self, v: Vertex, name: str | None) -> Stream:
        """Record a finished vertex, and its unrecorded inputs."""
        pending = [v]
        while pending:
            missing = [i for i in pending[-1].inputs if i not in self.entries]
            if not missing:
                vertex = pending.pop()
                if pending:
                    self.make(vertex.operator, vertex.inputs, None)
            pending += missing[:1]
        return self.make(v.operator, v.inputs, name)

    def run(self, query: Callable[..., Any], streams: Sequence[object]) -> Any:
        """Call the query, and take the names of its streams from its variables."""
        token = _TRACER.set(self)
        try:
            result = query(*streams)
        except (TypeError, AssertionError, raised.PySparkException) as e:
            raise miscalled(e) or spark_miscalled(e) or e from None
        finally:
            _TRACER.reset(token)
        self.name_streams(self.labels)
        return result

    def name_streams(self, frames: Iterable[FrameType]) -> None:
        """Name streams after the variables that hold them, of functions that have returned."""
        for frame in frames:
            is_own = is_ours(frame.f_code.co_filename)
            for name, value in frame.f_locals.items():
                if not isinstance(value, Stream) or name == "_" or name.startswith("."):
                    continue
                entry = self.entries.get(value.vertex)
                if entry is not None and entry.view and is_own:
                    continue  # streams of a text are in no variables of the user
                if len(self.labels[frame]) == 1:
                    self.variables.setdefault(value.vertex, name)
                if entry is not None and entry.home is frame:
                    self.names.setdefault(value.vertex, name)

    def scope(self) -> tuple[str, ...]:
        """The names of the active functions, the query first."""
        return self._scope(_home(sys._getframe(1)))

    def _scope(self, home: FrameType | None) -> tuple[str, ...]:
        frames: list[FrameType] = []
        frame = home
        while frame is not None and frame.f_code is not Tracer.run.__code__:
            if not _skipped(frame):
                frames.append(frame)
            frame = frame.f_back
        # The translation of a text has no frame of the user, unless a query in Python asks for it.
        of_text = not frames or is_ours(frames[-1].f_code.co_filename)
        scope: tuple[str, ...] = (self.view,) if self.view and of_text else ()
        for frame in reversed(frames):
            if frame not in self.labels:
                label = (*scope, frame.f_code.co_name)
                n = self.siblings[label] = self.siblings.get(label, 0) + 1
                self.labels[frame] = label if n == 1 else (*scope, f"{label[-1]}_{n}")
            scope = self.labels[frame]
        return scope

    def called(self, v: Vertex) -> str:
        """The name of a stream in the query, from `name=` or its variable; "" if it has none."""
        entry = self.entries[v]
        if entry.explicit or isinstance(v.operator, Input):
            return entry.name
        home = entry.home
        named = "" if home is None or is_ours(home.f_code.co_filename) else self.names.get(v, "")
        return self.variables.get(v, named)

    def origins(self, query: str) -> Mapping[Vertex, Origin]:
        """For each vertex, the line that made it, and its name."""
        self._name_states()
        return {v: self._origin(v, m, query) for v, m in self.entries.items()}

    def _name_states(self) -> None:
        """Name the state behind a named stream, such as an indexed integral, after the stream."""
        for v, name in list(self.names.items()):
            named = v
            while named.operator.same_stream and not self.entries[named].explicit:
                (source,) = named.inputs
                entry = self.entries.get(source)
                ours = entry is not None and entry.home is self.entries[v].home
                if not ours or source in self.names or isinstance(source.operator, Input):
                    break
                if not source.operator.gives_state:
                    break
                kind = "by_index" if isinstance(named.operator, Arrange) else "delayed"
                self.names[named] = f"{name}_{kind}"
                self.names[source] = name
                named = source

    def _origin(self, v: Vertex, entry: _Entry, query: str) -> Origin:
        name = entry.name if entry.explicit else self.names.get(v, entry.name)
        scope = entry.scope or (query,)
        ours = entry.home is None or is_ours(entry.home.f_code.co_filename)
        inner = ours and not entry.explicit and v not in self.names
        path = Path((*scope, name))
        comment = self.comments.get(v, "")
        return Origin(
            path, entry.line, entry.explicit, inner=inner, view=entry.view, comment=comment
        )


@dataclass(frozen=True)
class _Entry:
    scope: tuple[str, ...]
    home: FrameType | None
    name: str
    line: Line
    explicit: bool
    view: str = ""


_TRACER: ContextVar[Tracer] = ContextVar("tracer")


def tracer() -> Tracer:
    """The tracer of the query that is being compiled."""
    current = _TRACER.get(None)
    if current is None:
        raise CompileError(
            f"{user_line()}: operators work on the streams of a query while it is compiled; put "
            "them in a function and give that to st.compile"
        )
    return current


@contextmanager
def translating(view: str) -> Iterator[None]:
    """A context for the translation of a view's text.

    Its streams are not named after our variables.
    """
    current = _TRACER.get(None)
    if current is None:
        yield
        return
    before, current.view = current.view, view
    try:
        yield
    finally:
        current.view = before


def vertex_of(value: object, what: str) -> Vertex:
    """The vertex of a stream; raises `CompileError` for other values."""
    current = tracer()
    if not isinstance(value, Stream):
        remedy = "values enter a circuit through the parameters of its query"
        if callable(value):
            remedy = f"the stream comes first: st.{what}(stream, f)"
        elif hasattr(value, "__enter__"):
            remedy = "a feedback is used in a block: with st.feedback(T) as y: …"
        raise CompileError(f"{user_line()}: {what} takes streams, found {short(value)}; {remedy}")
    return value.vertex if value.tracer is current else current.foreign(value, what)


def row_of(stream: object, what: str) -> RowType:
    """The row type of a stream of Z-sets; raises `CompileError` for other values."""
    t = vertex_of(stream, what).type
    if not isinstance(t, ZSetType):
        raise CompileError(f"{user_line()}: {what} takes a ZSet, found {t}")
    return t.row


def too_deep(where: str) -> CompileError:
    """The error for an expression that is nested too deeply for Python's stack."""
    return CompileError(
        f"{where}: an expression here has too many parts within parts, as (((a + 1) + 2) + 3) has "
        "three; where a loop makes it, add up or concatenate in pairs, put what you have so far "
        "into a field of a row (st.map) and go on from that, or write it with a function of Spark "
        "for lists (F.aggregate, F.concat)"
    )


def make(operator: Operator, *streams: object, name: str | None = None) -> Stream:
    """Apply an operator to streams."""
    inputs = tuple(vertex_of(s, operator.name) for s in streams)
    return tracer().make(operator, inputs, name)


def on_streams(q: Callable[..., Vertex]) -> Callable[..., Any]:
    """A function of the algebra, applied to streams."""

    @functools.wraps(q)
    def applied(*streams: object, name: str | None = None, **arguments: Any) -> Stream:
        inputs = [vertex_of(s, q.__name__) for s in streams]
        try:
            return tracer().record(q(*inputs, **arguments), name)
        except RecursionError:
            raise too_deep(f"{user_line()}: {q.__name__}") from None
        except TypeMismatch as e:
            text = f"{user_line()}: {e.what} takes {e.expected}, found {e.found}; map one of them"
            raise CompileError(text) from None

    return applied


def innermost() -> FrameType | None:
    """The innermost frame of a query or a circuit; None if the query is a bare lambda."""
    return _home(sys._getframe(1))


def _home(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of a query or a circuit, from this frame outwards."""
    while frame is not None and _skipped(frame):
        if frame.f_code is Tracer.run.__code__:
            return None
        frame = frame.f_back
    return frame


def _skipped(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name.startswith("<") or is_engine(code.co_filename)


_NUMBERS = (int, float, decimal.Decimal)


def stream_type(annotation: Any, where: str) -> StreamType:
    """The type of a stream of `ZSet[T]` or of a number."""
    if typing.get_origin(annotation) in (ZSet, ZSetPython, ZSetSpark):
        (row,) = typing.get_args(annotation)
        try:
            return ZSetType(row_type(row))
        except TypeError as e:
            raise CompileError(f"{where}: {e}") from None
    if typing.get_origin(annotation) is typing.Annotated or annotation in _NUMBERS:
        total = Accumulated(row_type(annotation))
        total.check(where)
        return ScalarType(total)
    raise CompileError(
        f"{where}: expected ZSet[T], int, float or Decimal, found {_annotation_shown(annotation)}; "
        + _stream_meant(annotation)
    )


def _annotation_shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)


def _stream_meant(annotation: Any) -> str:
    if annotation in (ZSet, ZSetPython, ZSetSpark):
        return "say which rows: st.ZSet[T]"
    if isinstance(annotation, str):
        return "write the type itself, without quotes"
    try:
        row_type(annotation)
    except TypeError:
        return "streams are of Z-sets or of numbers"
    return f"for a stream of such rows write st.ZSet[{_annotation_shown(annotation)}]"


def local_names(query: Callable[..., Any]) -> dict[str, Any]:
    """The local names where the query was written: annotations may use local classes.

    A caller in another module may use the same names for other things.
    """
    seen = getattr(inspect.unwrap(query), "__globals__", None)
    names: dict[str, Any] = {}
    frame = user_frame()
    while frame is not None:
        if frame.f_globals is seen and frame.f_locals is not seen:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def hints(f: Callable[..., Any], names: dict[str, Any], line: Line) -> dict[str, Any]:
    """The annotations of a function of streams, evaluated."""
    try:
        return typing.get_type_hints(inspect.unwrap(f), localns=names, include_extras=True)
    except NameError as e:
        raise CompileError(
            f"{line}: an annotation of the query uses an undefined name: {e}; define or import it"
        ) from None
    except TypeError:  # a partial function, or another object that has no annotations
        return {}
