"""The circuit in a state, as JSON: the computation of its registers and outputs.

    {"format": 1, "digest": "…", "name": "query", "inputs": [["orders", 0]],
     "vertices": [{"operator": {…}, "of": [0], "id": "…", "called": "query.filter"}, …],
     "loops": [[3, 7]], "outputs": [["revenue", 9]], "registers": [["distinct … by …", 4]]}

A vertex comes after its inputs; `of` has their places. `id` is the digest of the whole computation
of a vertex. A checksum protects the text.

Another process must be able to read the circuit without the query's code. So rows have their
classes only if the reading query has the same ones. A Python function, or an expression that only
Spark can read, cannot be written: only its digest is, for which the reading query may have a match.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from stepping_spark.circuit.graph import AnyGraph, Fixpoint, Vertex
from stepping_spark.circuit.operators import Input, Operator, PrunedMap
from stepping_spark.circuit.physical import Frame, Sorting, WindowCall
from stepping_spark.expressions.expr import Expr, Literal, Opaque, PythonCall
from stepping_spark.expressions.fingerprint import identity_of
from stepping_spark.expressions.index import Key
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.register_words import words_of
from stepping_spark.relations.store import fingerprint
from stepping_spark.rows.atoms import ATOMS, Atom, RowType
from stepping_spark.rows.data import Pair, Session, Timed, Update
from stepping_spark.rows.row_class import open_class
from stepping_spark.rows.schema import Accumulated, InGroup, StreamType
from stepping_spark.rows.types import ZSET_CLASS, Struct

_CONSTANTS: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "float": (float, float.hex, float.fromhex),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
}


class Unwritable(ValueError):
    """The error for a value without a JSON form, such as a function of the user."""


class Unreadable(ValueError):
    """The error for JSON that this process cannot read."""


def written(value: Any) -> Any:
    """An operator, or an argument of one, as JSON. Raises `Unwritable`."""
    match value:
        case enum.Enum():
            return {"enum": _named(type(value)), "value": written(value.value)}
        case None | bool() | int() | str():
            return value
        case tuple() | list():
            return [written(part) for part in value]
        case dt.timedelta():
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        case type():
            kind = "enum" if issubclass(value, enum.Enum) else "row"
            return {"class": _named(value), "kind": kind}
        case Opaque() if value.reading is not None:
            return written(value.reading)
        case Opaque() | PythonCall():
            return {"foreign": digest(identity_of(value)), "shown": str(value)}
    for name, (t, to_text, _) in _CONSTANTS.items():
        if isinstance(value, t):
            return {name: to_text(value)}
    name = type(value).__name__
    if _classes().get(name) is not type(value):
        raise Unwritable(f"{value!r} is not written into a state")
    fields = {f.name: written(getattr(value, f.name)) for f in _fields(value) if f.init}
    return {"is": name, **fields}


class Reader:
    """Reads the JSON of `written`, with the classes and the functions of a query."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._foreign: dict[str, Expr] = {}
        self._structs: dict[Any, Struct] = {}
        self._known: dict[str, type] = {
            _named(t): t for t in (tuple, dict, Pair, Session, Timed, Update, InGroup, *ZSET_CLASS)
        }
        self._known |= {_named(t.python): t.python for t in ATOMS.values()}
        for value in values:
            self._learn(value)

    def read(self, content: Any) -> Any:
        """The value of JSON. Raises `Unreadable`."""
        match content:
            case None | bool() | int() | str():
                return content
            case list():
                return tuple(map(self.read, content))
            case {"is": str() as name}:
                return self._object(name, {n: part for n, part in content.items() if n != "is"})
            case {"foreign": str() as wanted, "shown": str() as shown}:
                if wanted not in self._foreign:
                    raise Unreadable(f"{shown} is not in the query as it is now")
                return self._foreign[wanted]
            case {"class": str() as name, "kind": str() as kind}:
                return self._known.get(_without_room(name), enum.Enum if kind == "enum" else dict)
            case {"timedelta": [int() as days, int() as seconds, int() as microseconds]}:
                return dt.timedelta(days, seconds, microseconds)
            case {"enum": str() as name, "value": value} if name in self._known:
                return self._known[name](self.read(value))
        for name, (_, _, from_text) in _CONSTANTS.items():
            if isinstance(content, dict) and content.keys() == {name}:
                return from_text(content[name])
        raise Unreadable(f"{content!r} is not what a state has of a query")

    def _object(self, name: str, fields: Mapping[str, Any]) -> Any:
        cls = _classes().get(name)
        if cls is None:
            raise Unreadable(f"{name} is not known to this version of stepping_spark")
        try:
            read = {n: self.read(part) for n, part in fields.items()}
            if cls is Struct and _named_as_open(fields["python"]):
                read["python"] = open_class(tuple(n for n, _ in read["fields"]))
            elif cls is Struct and read["python"] is dict:  # its class has another name now
                return self._structs.get(read["fields"]) or cls(**read)
            return cls(**read)
        except (KeyError, TypeError) as e:
            raise Unreadable(f"{name} has other parts in this version of stepping_spark") from e

    def _learn(self, value: Any) -> None:
        for part in _parts(value):
            if isinstance(part, Opaque | PythonCall):
                self._foreign.setdefault(digest(identity_of(part)), part)
            elif isinstance(part, Struct | Atom):
                self._known.setdefault(_named(part.python), part.python)
            if isinstance(part, Struct):
                self._structs.setdefault(part.fields, part)


def _named_as_open(entry: Any) -> bool:
    """Whether JSON names the class of rows without an own class; all such classes share a name."""
    return isinstance(entry, dict) and _without_room(str(entry.get("class"))) == _named(
        open_class(())
    )


def digest(text: str) -> str:
    """A short digest of a text, the same in every process."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parts(value: Any) -> Iterator[Any]:
    """A value and all its parts, recursively."""
    yield value
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type | Literal):
        for f in _fields(value):
            if not isinstance(value, PythonCall) or f.name == "type":
                yield from _parts(getattr(value, f.name))


def _named(t: type) -> str:
    return _without_room(f"{t.__module__}:{t.__qualname__}")


def _without_room(name: str) -> str:
    """The name of a class; a class of this project is named without its module."""
    module, _, rest = name.partition(":")
    return f"stepping_spark:{rest}" if module.startswith("stepping_spark.") else name


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


@cache
def _classes() -> dict[str, type]:
    """The classes of operators and of their arguments, by name."""
    classes: dict[str, type] = {
        t.__name__: t for t in (Key, Sorting, Frame, WindowCall, Accumulated)
    }
    pending: list[type] = [Operator, Expr, RowType, StreamType]
    while pending:
        cls = pending.pop()
        classes[cls.__name__] = cls
        pending += cls.__subclasses__()
    return classes


FORMAT = 1


def circuit_of(plan: Plan) -> str:
    """The text of a plan's circuit, for a state; cached."""
    memo = plan.identities.graph.memo
    text = memo.get("circuit")
    if not isinstance(text, str):
        text = memo["circuit"] = _text_of(plan)
    return text


def _text_of(plan: Plan) -> str:
    identities = plan.identities
    registers = [(str(s.register.sums), identities.unfused(s.change)) for s in plan.states]
    content, places = _as_json(identities.graph, [v for _, v in registers])
    content["registers"] = [[sums, places[v]] for sums, v in registers]
    words = words_of(plan, lines=False)
    content["words"] = {str(s.register.sums): words[s.register.name] for s in plan.states}
    body = {"format": FORMAT, "digest": digest_of(plan), **content}
    return json.dumps({"circuit": body, "checksum": checksum(body)}, ensure_ascii=False)


def checksum(body: Any) -> str:
    """The checksum of a circuit's JSON in a state."""
    return digest(json.dumps(body, sort_keys=True))


def digest_of(plan: Plan) -> str:
    """A digest of a circuit, equal for circuits that compute the same from the same state."""
    graph = plan.identities.graph
    inputs = [label for label, _ in inputs_of(graph)]
    outputs = [
        f"{name} {graph.signature(v)} {v.type.schema.kinds}"
        for name, v in zip(named(graph), graph.outputs, strict=True)
    ]
    return digest("\n".join([*inputs, *outputs, fingerprint(plan.registers)]))


def named(graph: AnyGraph) -> tuple[str, ...]:
    """The names of the outputs; "" for an output without a name."""
    return graph.called or ("",) * len(graph.outputs)


def inputs_of(graph: AnyGraph) -> list[tuple[str, int]]:
    """The inputs, by name and number."""
    operators = [v.operator for v in graph.inputs]
    return [(op.label, op.number) for op in operators if isinstance(op, Input)]


def reordered(graph: AnyGraph, before: Mapping[str, int]) -> tuple[str, ...]:
    """The inputs in their order, if one has another number than before; else ().

    The state has the rows of an input by its number.
    """
    inputs = inputs_of(graph)
    moved = any(before.get(name, number) != number for name, number in inputs)
    return tuple(name for name, _ in inputs) if moved else ()


def ids_of(graph: AnyGraph, vertices: Iterable[Vertex]) -> dict[Vertex, str]:
    """The digest of each vertex's whole computation, the same in every process."""
    return {v: (graph.signature(v) if graph.loops else v).digest for v in vertices}


def _as_json(
    graph: AnyGraph, more: Sequence[Vertex] = ()
) -> tuple[dict[str, Any], dict[Vertex, int]]:
    """A circuit as JSON, with more vertices; and the place of each vertex."""
    places: dict[Vertex, int] = {}

    def place(v: Vertex) -> None:
        if v not in places:
            for i in v.inputs:  # not deep: vertices of the graph have places already
                place(i)
            places[v] = len(places)

    for v in (*graph.walk(), *more):
        place(v)
    ids = ids_of(graph, places)
    typed = {*graph.outputs, *more, *pruned(places)}
    return {
        "name": graph.name,
        "inputs": [list(pair) for pair in inputs_of(graph)],
        "entries": [places[v] for v in graph.inputs],
        "vertices": [
            {
                "operator": _operator(v.operator, graph),
                "of": [places[i] for i in v.inputs],
                "id": ids[v],
                "called": str(graph.paths[v]) if v in graph.paths else v.operator.name,
                **({"type": written(v.type)} if v in typed else {}),
            }
            for v in places
        ],
        "loops": [[places[leaf], places[source]] for leaf, source in graph.loops.items()],
        "outputs": [[n, places[v]] for n, v in zip(named(graph), graph.outputs, strict=True)],
    }, places


def pruned(vertices: Iterable[Vertex]) -> set[Vertex]:
    """The streams of which a pass may have left out columns; each vertex comes after its inputs."""
    streams: set[Vertex] = set()
    for v in vertices:
        if isinstance(v.operator, PrunedMap) or any(i in streams for i in v.inputs):
            streams.add(v)
    return streams


def _operator(operator: Operator, graph: AnyGraph) -> Any:
    if isinstance(operator, Fixpoint):
        body, _ = _as_json(graph.bodies.get(operator, operator.body))
        most = operator.max_iterations
        return {"body": body, "number": operator.number, "max_iterations": most}
    try:
        return written(operator)
    except Unwritable as e:
        return {"unwritten": str(e)}
