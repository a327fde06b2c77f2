"""The picture of a circuit: boxes, frames for functions, and arrows; bodies are inlined.

A `Graph` and an inlined circuit are drawn by the same code, since both implement the protocols.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from stepping_spark.base.callsite import Line
from stepping_spark.base.errors import SteppingError
from stepping_spark.circuit.graph import AnyGraph, AnyVertex, States, V
from stepping_spark.circuit.operators import (
    Accumulate,
    Arrange,
    Delay,
    Differentiate,
    Feedback,
    Haitch,
    Input,
    Integrate,
    Linearity,
    Map,
    Operator,
    join_of,
)
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.register_words import held_back, words_of_states
from stepping_spark.rows.schema import GroupedType, StreamType, ZSetType


class DrawnPath(Protocol):
    """The path of a vertex, as needed for drawing."""

    @property
    def parts(self) -> tuple[str, ...]: ...


class DrawnCircuit(Protocol[V]):
    """A circuit, as needed for drawing."""

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> tuple[V, ...]: ...
    @property
    def called(self) -> tuple[str, ...]: ...
    @property
    def no_output(self) -> tuple[V, ...]: ...
    @property
    def loops(self) -> Mapping[V, V]: ...
    @property
    def caches(self) -> Mapping[str, V]: ...
    @property
    def paths(self) -> Mapping[V, DrawnPath]: ...
    @property
    def bodies(self) -> Mapping[Operator, Any]: ...
    def walk(self) -> Iterator[V]: ...
    def line(self, v: V, /) -> Line: ...
    def comment(self, v: V, /) -> str: ...


@dataclass(frozen=True, eq=False)
class InlinedVertex:
    """A vertex of an inlined circuit."""

    operator: Operator
    inputs: tuple[InlinedVertex, ...]
    type: StreamType


@dataclass(frozen=True)
class PartName:
    """The path of a part."""

    parts: tuple[str, ...]


@dataclass
class Flat:
    """An inlined circuit: no vertex contains another circuit."""

    name: str
    no_output: tuple[InlinedVertex, ...] = ()
    outputs: tuple[InlinedVertex, ...] = ()
    called: tuple[str, ...] = ()
    caches: dict[str, InlinedVertex] = field(default_factory=dict)
    loops: dict[InlinedVertex, InlinedVertex] = field(default_factory=dict)
    paths: dict[InlinedVertex, PartName] = field(default_factory=dict)
    lines: dict[InlinedVertex, Line] = field(default_factory=dict)
    comments: dict[InlinedVertex, str] = field(default_factory=dict)
    bodies: Mapping[Operator, Any] = field(default_factory=dict)

    def walk(self) -> Iterator[InlinedVertex]:
        """Every part, each after its inputs except for loops."""
        yield from self.paths

    def line(self, v: InlinedVertex, /) -> Line:
        """The user's line that made a part."""
        return self.lines[v]

    def comment(self, v: InlinedVertex, /) -> str:
        """The comment on a part in the user's text."""
        return self.comments.get(v, "")


def flattened(graph: DrawnCircuit[Any]) -> Flat | None:
    """The circuit with the bodies of its vertices inlined, in frames; None if it has none."""
    order = list(graph.walk())
    if not any(v.operator in graph.bodies for v in order):
        return None
    flat = Flat(graph.name)
    parts: dict[Any, InlinedVertex] = {}
    insides: dict[tuple[Any, ...], dict[Any, InlinedVertex]] = {}
    for v in order:
        inner = graph.bodies.get(v.operator)
        if inner is None:
            parts[v] = _laid(flat, v, parts, graph.paths[v].parts, graph.line(v))
            continue
        inputs = tuple(parts[i] for i in v.inputs)
        if (inner, inputs) not in insides:
            insides[inner, inputs] = _inside(flat, inner, inputs, graph.paths[v].parts)
        parts[v] = insides[inner, inputs][inner.outputs[v.operator.number]]
    flat.comments = {parts[v]: graph.comment(v) for v in order}
    flat.loops.update((parts[leaf], parts[v]) for leaf, v in graph.loops.items())
    flat.outputs, flat.called = tuple(parts[v] for v in graph.outputs), graph.called
    flat.no_output = tuple(parts[v] for v in graph.no_output)
    flat.caches = {name: parts[v] for name, v in graph.caches.items()}
    return flat


def _inside(
    flat: Flat, inner: DrawnCircuit[Any], inputs: tuple[InlinedVertex, ...], within: tuple[str, ...]
) -> dict[Any, InlinedVertex]:
    """The parts of a circuit inside a vertex; its inputs are parts of the circuit around it."""
    parts: dict[Any, InlinedVertex] = {}
    for v in inner.walk():
        if isinstance(v.operator, Input):
            parts[v] = inputs[v.operator.number]
        else:
            path = (*within, *inner.paths[v].parts[1:])
            parts[v] = _laid(flat, v, parts, path, inner.line(v))
    flat.loops.update((parts[leaf], parts[v]) for leaf, v in inner.loops.items() if leaf in parts)
    return parts


def _laid(
    flat: Flat, v: Any, parts: Mapping[Any, InlinedVertex], path: tuple[str, ...], line: Line
) -> InlinedVertex:
    inputs = () if isinstance(v.operator, Feedback) else tuple(parts[i] for i in v.inputs)
    vertex = InlinedVertex(v.operator, inputs, v.type)
    flat.paths[vertex], flat.lines[vertex] = PartName(path), line
    return vertex


LEVELS = {
    0: "the functions that the query calls, and the views of a text, each as one box",
    1: "the query's own vertices, and each function that it calls as one box",
    2: "every vertex, each in a frame for the function that made it",
}
WIDTH = 32  # characters per line of a label
TYPE_WIDTH = 36
MOST_NOTED = 8
STATE_OF = ("state of ", "old state of ")  # in names of the passes


@dataclass(frozen=True)
class PictureBox:
    """The box of a vertex or of a function; `scope` is the functions around it.

    `stands_for` has the paths of the vertices that it represents.
    """

    id: str
    kind: str
    lines: tuple[str, ...]
    scope: tuple[str, ...] = ()
    hint: str = ""
    stands_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """A stream from one box to another."""

    tail: str
    head: str
    label: str = ""
    state: bool = False  # the stream is a state, not changes
    back: bool = False  # it closes a loop
    hint: str = ""


@dataclass(frozen=True)
class Picture:
    """All boxes and arrows."""

    title: str
    boxes: tuple[PictureBox, ...]
    arrows: tuple[Arrow, ...]


def picture_of(graph: AnyGraph, level: int) -> Picture:
    """The picture of a circuit, at this level of detail."""
    if level not in tuple(LEVELS):
        levels = "; ".join(f"{n}: {title}" for n, title in LEVELS.items())
        raise SteppingError(f"drawing {graph.name}: there is no level {level!r}; {levels}")
    # Every vertex is drawn as the theory calls it, and functions and views in the user's words.
    words = words_of_states(plan_of(graph)) if level < 2 else {}
    flat = flattened(graph)
    if flat is None:
        return _Drawing(graph, level, words).picture()
    return _Drawing(flat, level, words).picture()


class _Drawing(Generic[V]):
    """Computes the picture of one circuit."""

    def __init__(
        self, graph: DrawnCircuit[V], level: int, words: Mapping[str, Sequence[str]]
    ) -> None:
        self.graph = graph
        self.level = level
        self.words = words
        self.order = list(graph.walk())
        self.number = {v: i for i, v in enumerate(self.order)}
        self.named = {graph.paths[v].parts for v in self.order}
        self.sources = {v: (graph.loops[v],) if v in graph.loops else v.inputs for v in self.order}
        self.readers: dict[V, list[tuple[V, int]]] = {v: [] for v in self.order}
        for v in self.order:
            for i, source in enumerate(self.sources[v]):
                self.readers[source].append((v, i))
        self.states = States(graph.loops)
        self.home = {v: self._home(v) for v in self.order}
        self.members: dict[V, list[V]] = {}
        for v in self.order:
            self.members.setdefault(self.home[v], []).append(v)
        self.shown = level
        if level == 0 and not any(self._inside(v) for v in self.order):
            self.shown = -1  # draw it as one function

    def picture(self) -> Picture:
        boxes: dict[str, PictureBox] = {}
        for v in self.order:
            name = self._box(self.home[v])
            if name is not None and name not in boxes:
                boxes[name] = self._drawn(name, self.home[v])
        arrows = [a for v in self.order for a in self._arrows(v)]
        makers = [self.graph.paths[v].parts[1:-1][:1] for v in self.graph.outputs]
        for i, v in enumerate(self.graph.outputs):
            called = self.graph.called[i] if self.graph.called else ""
            if not called and makers.count(makers[i]) == 1 < len(makers):
                called = "".join(makers[i])  # the query returns the results of several functions
            number = "" if len(makers) == 1 else f" {i}"
            lines = (called or f"output{number}", shorten(str(v.type)))
            boxes[f"output{i}"] = PictureBox(
                f"output{i}", "output", lines, hint=str(v.type), stands_for=self._paths([v])
            )
            arrows += [Arrow(t, f"output{i}", "", s, hint=str(v.type)) for t, s in self._tails(v)]
        for cache, v in self.graph.caches.items():
            if not self._is_drawn_as_state(v):
                box = self._cache(cache, v)
                boxes[box.id] = box
                arrows += [Arrow(t, box.id, "", s, hint=str(v.type)) for t, s in self._tails(v)]
        if self.shown < 2:
            arrows = list(dict.fromkeys(arrows))
        return Picture(self.graph.name, tuple(boxes.values()), tuple(arrows))

    # -- the box of a vertex

    def _inside(self, v: V) -> tuple[str, ...]:
        """The functions around a vertex, without the query.

        The first of them may be a view of several. Level 1 draws what is in views, without frames.
        """
        parts = self.graph.paths[v].parts
        return parts[1:-1] if self.level == 1 or parts[0] == self.graph.name else parts[:-1]

    def _home(self, v: V) -> V:
        """The vertex whose box shows this one too: a register and its index share a box."""
        while isinstance(v.operator, Arrange):
            v = v.inputs[0]
        if isinstance(v.operator, Integrate):
            beyond, is_output = [v], False
            readers: list[V] = []
            for a in beyond:
                is_output = is_output or a in self.graph.outputs or a in self.graph.no_output
                for r, _ in self.readers[a]:
                    (beyond if isinstance(r.operator, Arrange) else readers).append(r)
            only = readers[0] if len(readers) == 1 and not is_output else v
            if isinstance(only.operator, Delay) and self._inside(only) == self._inside(v):
                return only
        return v

    def _box(self, v: V) -> str | None:
        """The box of a vertex; None if it is omitted."""
        if isinstance(v.operator, Input) or self.shown == 2:
            return f"v{self.number[v]}"
        if self.shown == -1:
            return "query"
        inside = self._inside(v)
        if inside:
            first = self.graph.paths[v].parts[0]  # functions of two views may have one name
            view = (first,) if self.level == 1 and first != self.graph.name else ()
            return f"function {'.'.join((*view, inside[0]))}"
        return f"v{self.number[v]}" if self.shown == 1 else None

    def _tails(self, v: V) -> list[tuple[str, bool]]:
        """The boxes from which a stream comes, past omitted vertices; and whether it is a state."""
        tails: dict[tuple[str, bool], None] = {}
        pending, seen = [v], {v}
        while pending:
            source = pending.pop(0)
            box = self._box(self.home[source])
            if box is not None:
                tails[box, _is_state(self.home[source].operator)] = None
                continue
            for s in self.sources[source]:
                if s not in seen:
                    seen.add(s)
                    pending.append(s)
        return list(tails)

    def _arrows(self, v: V) -> Iterator[Arrow]:
        head = self._box(self.home[v])
        if head is None:
            return
        for source in self.sources[v]:
            if self.home[source] is self.home[v]:
                continue
            for tail, state in self._tails(source):
                if tail == head and self.shown < 2:
                    continue
                t = str(source.type)
                label = "" if isinstance(source.operator, Input) else shorten(t)
                yield Arrow(tail, head, label, state, back=v in self.graph.loops, hint=t)

    # -- the text of a box

    def _drawn(self, name: str, v: V) -> PictureBox:
        if name == "query":
            lines = (self.graph.name, *_noted(self.order), *self._state_lines(self.order))
            inner = [v for v in self.order if not isinstance(v.operator, Input)]
            return PictureBox(name, "function", lines, stands_for=self._paths(inner))
        if name.startswith("function "):
            inside = [m for m in self.order if self._box(m) == name]
            lines = (self._inside(v)[0], *_noted(inside), *self._state_lines(inside))
            return PictureBox(name, "function", lines, stands_for=self._paths(inside))
        path = ".".join(self.graph.paths[v].parts)
        detail = v.operator.describe()
        hint = f"{path}: {v.type} = {v.operator.name} {detail}".rstrip()
        lines = self._lines(v)
        scope = () if isinstance(v.operator, Input) or self.shown < 2 else self._inside(v)
        hint = f"{hint} ({self.graph.line(v)})"
        return PictureBox(
            name, _kind(v.operator), lines, scope, hint, self._paths(self.members.get(v, [v]))
        )

    def _paths(self, vertices: Sequence[V]) -> tuple[str, ...]:
        return tuple(".".join(self.graph.paths[v].parts) for v in vertices)

    def _is_drawn_as_state(self, v: V) -> bool:
        home = self.home[v]
        return _is_state(home.operator) and self._box(home) == f"v{self.number[home]}"

    def _cache(self, name: str, v: V) -> PictureBox:
        """The box of a cache whose state is not shown by a vertex."""
        keys: list[str] = []
        state = v
        while isinstance(state.operator, Arrange):
            keys.append(f"kept by {state.operator.key}")
            state = state.inputs[0]
        lines = tuple(line for text in (f"cache {name}", *reversed(keys)) for line in wrap(text))
        hint = f"cache {name}: {v.type}"
        return PictureBox(f"cache {name}", "state", lines, hint=hint, stands_for=self._paths([v]))

    def _lines(self, v: V) -> tuple[str, ...]:
        if isinstance(v.operator, Input):
            return (self.graph.paths[v].parts[-1], shorten(str(v.type)))
        names = (self._own_name(m) for m in self.members[v])
        doing = {f"{m.operator.name}{end}" for m in self.members[v] for end in ("d", "ed")}
        name = next((n for n in names if n and n.removesuffix("_delayed") not in doing), "")
        if _is_state(v.operator):
            both = [m for m in self.members[v] if not isinstance(m.operator, Arrange)]
            operator_name = "integrate, delayed" if len(both) == 2 else v.operator.name
            lines = [operator_name, *(f"kept by {key}" for key in self._keys(v))]
            contents = self._contents(v)
            if contents:
                name = "" if name.startswith(STATE_OF) else name
                lines = [line for text in contents for line in folded(text)]
            for cache, stream in self.graph.caches.items():
                if self.home[stream] is v:
                    lines.append(f"cache {cache}")
        else:
            lines = _noted([v]) or [_short(v.operator)]
        comments = (self.graph.comment(m) for m in self.members[v])
        texts = (name, *comments, *lines)
        return tuple(line for text in texts if text for line in wrap(text))

    def _contents(self, v: V) -> list[str]:
        """The contents of a state in words; nothing if there are none."""
        of = self.members.get(v, [v])
        of = [*of, *(s for m in of if isinstance(m.operator, Delay) for s in self.sources[m])]
        summed = dict.fromkeys(m for m in of if isinstance(m.operator, Integrate))
        summands = [self.graph.loops.get(i, i) for m in summed for i in self.sources[m]]
        streams = [held_back(i) or i for i in summands]
        paths = [".".join(self.graph.paths[i].parts) for i in streams if i in self.graph.paths]
        return [text for path in paths for text in self.words.get(path, ())]

    def _own_name(self, v: V) -> str:
        """The user's name for a vertex; "" if it only repeats the operator."""
        path = self.graph.paths[v].parts
        bare = re.sub(r"_\d+$", "", path[-1])
        operator = v.operator.name
        if bare in (operator, "_"):
            return ""
        if bare.endswith(f"_{operator}"):  # perhaps only named after its maker
            maker = (*path[:-1], bare.removesuffix(f"_{operator}"))
            if maker in self.named:
                return ""
        return path[-1]

    def _state_lines(self, inside: list[V]) -> tuple[str, ...]:
        """The states of a function, one line for each."""
        kept: dict[str, None] = {}
        texts: dict[str, None] = {}
        for v in inside:
            if self.home[v] is v and _is_state(v.operator):
                contents = self._contents(v)
                kept.update(dict.fromkeys(contents))
                if contents:
                    continue
                t = v.type
                of = str(t.row) if isinstance(t, ZSetType) else str(t)
                of = f"sums of {t.sum}" if isinstance(t, GroupedType) else of
                keys = ", ".join(self._keys(v))
                texts[f"keeps {shorten(of)}" + (f" by {keys}" if keys else "")] = None
        lines = [line for text in kept for line in folded(f"keeps {text}")]
        return (*lines, *(line for text in texts for line in wrap(text)))

    # -- the keys of a state

    def _keys(self, v: V) -> list[str]:
        """The keys by which readers look up a state."""
        keys: dict[str, None] = {}
        pending = [m for m in self.members[v] if not isinstance(m.operator, Arrange)]
        seen = set(pending)
        while pending:
            state = pending.pop(0)
            for reader, i in self.readers[state]:
                key = self._key(reader, i)
                if key is not None:
                    keys[key] = None
                same = reader.operator.keeps_rows or (
                    isinstance(state.operator, Integrate) and isinstance(reader.operator, Delay)
                )
                if same and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return list(keys)

    def _key(self, reader: V, argument: int) -> str | None:
        op = reader.operator
        if isinstance(op, Arrange):
            return str(op.key)
        lookup = op.lookups(*(i.type for i in reader.inputs)).get(argument)
        if lookup is None or not lookup.pays(lambda n: reader.inputs[n] in self.states):
            return None
        join = join_of(op)
        if join is not None:
            return str((join.left, join.right)[argument])
        if isinstance(reader.inputs[argument].type, GroupedType):
            return self._grouped_by(reader.inputs[argument + 1])
        return ", ".join(map(str, lookup.key))

    def _grouped_by(self, v: V) -> str:
        seen: set[V] = set()
        while v not in seen and self.sources[v]:
            if isinstance(v.operator, Accumulate):
                return str(v.operator.key)
            seen.add(v)
            v = self.sources[v][0]
        return "key"


def _is_state(op: Operator) -> bool:
    """Whether the value of a vertex is stored between steps."""
    return op.gives_state


def _kind(op: Operator) -> str:
    if isinstance(op, Input):
        return "input"
    if isinstance(op, Feedback):
        return "feedback"
    if op.gives_state or isinstance(op, Differentiate):
        return "state"
    if op.linearity is Linearity.BILINEAR:
        return "bilinear"
    return "linear" if op.linearity is Linearity.LINEAR else "nonlinear"


def _noted(vertices: Sequence[AnyVertex]) -> list[str]:
    """The notes for pictures on some vertices, as lines."""
    notes = [line for v in vertices if isinstance(v.operator, Map) for line in v.operator.note]
    left_out = len(notes) - MOST_NOTED
    if left_out > 0:
        notes[MOST_NOTED:] = [f"… and {left_out} more"]
    return [line for text in notes for line in wrap(text)]


def _short(op: Operator) -> str:
    if isinstance(op, Haitch):
        return f"haitch: change of {op.of.name}"
    detail = op.describe()
    return f"{op.name}: {detail}" if detail else op.name


_BREAKS = re.compile(r"(\s+|(?<=[(=.]))")


def wrap(text: str) -> list[str]:
    """An expression as at most three short lines, broken at spaces, and after `(`, `=` and `.`."""
    wrapper = _wrapper()
    wrapper.wordsep_simple_re = _BREAKS
    return wrapper.wrap(text)


def folded(text: str) -> list[str]:
    """Words as at most three short lines, broken at spaces."""
    return _wrapper().wrap(text)


def _wrapper() -> textwrap.TextWrapper:
    return textwrap.TextWrapper(WIDTH, max_lines=3, placeholder=" …", break_on_hyphens=False)


def shorten(text: str) -> str:
    """A type in one short line; the innermost brackets are shortened first."""
    while len(text) > TYPE_WIDTH:
        shorter = re.sub(r"\[(?!…\])(?:[^\[\]]|\[…\])*\]", "[…]", text, count=1)
        if shorter == text:
            return f"{text[: TYPE_WIDTH - 1]}…"
        text = shorter
    return text
