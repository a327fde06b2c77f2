"""Kinds: row types as plain JSON, so that stored state describes what its columns hold.

A kind follows the Python types. It is finer than a type of Spark, which has one STRING for `str`,
`UUID` and `Enum`. Classes are compared by their fields, and Enums not by their members: after a
class is renamed or a member is added, the state can still be used.
"""

from __future__ import annotations

import decimal
import enum
import re
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeAlias

from stepping_spark.errors import CompileError
from stepping_spark.rows.atoms import ATOMS, Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf

Kind: TypeAlias = "str | dict[str, Any]"

_ATOMS = {t.name: t for t in ATOMS.values() if t.name != "Decimal"} | {
    "Enum": Atom("Enum", enum.Enum)
}
_DECIMAL = re.compile(r"Decimal\((\d{1,2}), (\d{1,2})\)")


MOST_LEVELS = 64
"""The most levels of lists, rows and optional values in a row type of a state."""


def kind_of(t: RowType, levels: int = MOST_LEVELS) -> Kind:
    """A row type as JSON. Raises `CompileError` if it is nested too deep to be read again."""
    if not levels:
        raise CompileError(
            f"a store cannot keep values that are nested more than {MOST_LEVELS} levels deep, and "
            "a field of a row has some: give it fewer lists and rows within each other"
        )
    within = partial(kind_of, levels=levels - 1)
    match t:
        case Optional():
            return {"optional": within(t.inner)}
        case ListOf():
            return {"list": within(t.inner)}
        case ZSetOf():
            return {"zset": within(t.inner)}
        case Struct():
            return {"row": [[name, within(part)] for name, part in t.fields]}
        case Atom(name="Decimal"):
            return f"Decimal({t.precision}, {t.scale})"
        case Atom():
            return t.name
    raise AssertionError(f"{t!r} has no kind")


def type_of(kind: object, levels: int = MOST_LEVELS) -> RowType:
    """The row type of a kind; its rows have no class. Raises ValueError for an invalid kind."""
    if not levels:
        raise ValueError(f"a value that is nested more than {MOST_LEVELS} levels deep")
    match kind:
        case {"optional": inner}:
            return Optional(type_of(inner, levels - 1))
        case {"list": inner}:
            return ListOf(type_of(inner, levels - 1))
        case {"zset": inner}:
            return ZSetOf(type_of(inner, levels - 1), dict)
        case {"row": [*fields]}:
            return Struct("row", fields_of(fields, levels - 1), dict)
        case str() if kind in _ATOMS:
            return _ATOMS[kind]
        case str() if found := _DECIMAL.fullmatch(kind):
            precision, scale = int(found[1]), int(found[2])
            if 0 <= scale <= precision and 1 <= precision <= 38:
                return Atom("Decimal", decimal.Decimal, precision, scale)
    raise ValueError(f"{kind!r} is not a kind of value")


def fields_of(
    listed: Iterable[object], levels: int = MOST_LEVELS
) -> tuple[tuple[str, RowType], ...]:
    """Names and row types from names and kinds. Raises ValueError if they are invalid."""
    return tuple(_field(pair, levels) for pair in listed)


def _field(listed: object, levels: int) -> tuple[str, RowType]:
    match listed:
        case [str() as name, kind]:
            return name, type_of(kind, levels)
    raise ValueError(f"{listed!r} is not a field: a name and a kind")
