"""The identity of operators and row functions, the same in every process and under any names.

A state is the sum of the outputs of operators, so it must not be used with different operators.
`identity_of` converts an operator's arguments to the text that decides. For expressions it contains
the whole computation, with the names and types of the fields that they read. For types it contains
what their columns hold. It leaves out the names of the user's row classes, and everything that no
expression reads.

Two kinds of expression do not tell which fields they read. An expression that only Spark evaluates
reads at most the columns whose names appear in its text. A Python function may read the whole row,
and the name of its class too (`repr(row)`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Iterator
from typing import Any

from stepping_spark.expressions.digest import digest_of
from stepping_spark.expressions.expr import Literal, Opaque, PythonCall
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import StreamType, ZSetType
from stepping_spark.rows.type_json import kind_of
from stepping_spark.rows.types import Struct


def identity_of(value: Any) -> str:
    """The text for an argument of an operator: an expression, a type, a key, a constant."""
    match value:
        case enum.Enum():
            return f"enum({value.value!r})"
        case None | bool() | int() | float() | str():
            return repr(value)
        case bytes() | decimal.Decimal() | uuid.UUID() | dt.date() | dt.timedelta():
            return repr(value)
        case tuple() | list():
            return f"({' '.join(map(identity_of, value))})"
        case Atom():
            return str(kind_of(value))
        case Struct():
            return f"row{identity_of(value.fields)}"
        case Literal():
            encoded = value.type.encode(value.constant, "a constant")
            return f"literal({identity_of(value.type)} {encoded!r})"
        case Opaque():
            return f"spark({identity_of(value.type)} {value.text!r})"
        case PythonCall():
            told = f"{digest_of(value.function)} {value.beside}"
            return f"python({identity_of(value.type)} {told})"
    if dataclasses.is_dataclass(value):
        parts = " ".join(identity_of(part) for part in _fields(value))
        return f"{type(value).__name__}({parts})"
    raise AssertionError(f"{value!r} does not say what it is")


def _fields(value: Any) -> Iterator[Any]:
    return (getattr(value, f.name) for f in dataclasses.fields(value) if f.compare)


def read_unseen(argument: Any, inputs: tuple[StreamType, ...]) -> str:
    """The text for the fields of the inputs that expressions in an argument may read unseen."""
    found = []
    for e in _hidden(argument):
        for t in inputs:
            if isinstance(e, PythonCall):
                found.append(_with_classes(t.row) if isinstance(t, ZSetType) else str(t))
            else:
                columns = [(n, c) for n, c in t.schema.all if n in e.text or not n.isidentifier()]
                found.append(identity_of(columns))
    return " ".join(found)


def _hidden(value: Any) -> Iterator[Opaque | PythonCall]:
    """The expressions in an argument of an operator that do not tell which fields they read."""
    if isinstance(value, Opaque | PythonCall):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _hidden(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, RowType | StreamType):
        for part in _fields(value):
            yield from _hidden(part)


def _with_classes(t: RowType) -> str:
    """A row type with the names of its class and of the classes within it."""
    if isinstance(t, Struct):
        return f"{t.name}({' '.join(f'{n} {_with_classes(part)}' for n, part in t.fields)})"
    if dataclasses.is_dataclass(t) and not isinstance(t, Atom):
        inner = (p for p in _fields(t) if isinstance(p, RowType))
        return f"{type(t).__name__}({' '.join(map(_with_classes, inner))})"
    return f"{t} {t.python.__name__}" if isinstance(t, Atom) else str(t)
