"""Operators, expressions and types as JSON, and back: each by its class and its fields.

What a state keeps of a query must be readable by another process, without the query's code. So
rows have their classes only where the query that reads it has the same ones. A Python function, and
an expression that only Spark can read, cannot be written. Their digest is, and the query that reads
it may have the same one.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from stepping_spark.expressions.expr import Expr, Literal, Opaque, PythonCall
from stepping_spark.expressions.identity import identity_of
from stepping_spark.expressions.index import Key
from stepping_spark.graph.operators import Operator
from stepping_spark.physical import Frame, Sorting, WindowCall
from stepping_spark.rows.atoms import ATOMS, Atom, RowType
from stepping_spark.rows.data import Pair, Session, Timed, Update
from stepping_spark.rows.grouped import InGroup
from stepping_spark.rows.schema import Accumulated, StreamType
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
    """A value that has no JSON, such as a function of the user."""


class Unreadable(ValueError):
    """JSON that this process can make no value of."""


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
    """Reads what `written` gives, with the classes and the functions that a query has."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._foreign: dict[str, Expr] = {}
        self._known: dict[str, type] = {
            _named(t): t for t in (tuple, dict, Pair, Session, Timed, Update, InGroup, *ZSET_CLASS)
        }
        self._known |= {_named(t.python): t.python for t in ATOMS.values()}
        for value in values:
            self._learn(value)

    def read(self, said: Any) -> Any:
        """The value. Raises `Unreadable`."""
        match said:
            case None | bool() | int() | str():
                return said
            case list():
                return tuple(map(self.read, said))
            case {"is": str() as name}:
                return self._made(name, {n: part for n, part in said.items() if n != "is"})
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
            if isinstance(said, dict) and said.keys() == {name}:
                return from_text(said[name])
        raise Unreadable(f"{said!r} is not what a state has of a query")

    def _made(self, name: str, fields: Mapping[str, Any]) -> Any:
        cls = _classes().get(name)
        if cls is None:
            raise Unreadable(f"{name} is not known to this version of stepping_spark")
        try:
            return cls(**{n: self.read(part) for n, part in fields.items()})
        except TypeError as e:
            raise Unreadable(f"{name} has other parts in this version of stepping_spark") from e

    def _learn(self, value: Any) -> None:
        for part in _parts(value):
            if isinstance(part, Opaque | PythonCall):
                self._foreign.setdefault(digest(identity_of(part)), part)
            elif isinstance(part, Struct | Atom):
                self._known.setdefault(_named(part.python), part.python)


def digest(text: str) -> str:
    """A short digest of a text, the same in every process."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parts(value: Any) -> Iterator[Any]:
    """A value and all that it is made of."""
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
    """The name of a class; one of ours is known by the project, not by the module that it is in."""
    module, _, rest = name.partition(":")
    return f"stepping_spark:{rest}" if module.startswith("stepping_spark.") else name


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


@cache
def _classes() -> dict[str, type]:
    """The classes of what operators are made of, by name."""
    found: dict[str, type] = {t.__name__: t for t in (Key, Sorting, Frame, WindowCall, Accumulated)}
    pending: list[type] = [Operator, Expr, RowType, StreamType]
    while pending:
        cls = pending.pop()
        found[cls.__name__] = cls
        pending += cls.__subclasses__()
    return found
