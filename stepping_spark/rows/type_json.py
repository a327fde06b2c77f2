"""Kinds: row types as plain JSON, so that kept state says of itself what its columns hold.

A kind is what Python makes of the values, and so finer than a type of Spark, which has one STRING
for `str`, `UUID` and `Enum`. Classes are told by their fields, and Enums not by their members: who
renames a class, or adds a member, can go on with the state.
"""

from __future__ import annotations

import decimal
import enum
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from stepping_spark.rows.atoms import ATOMS, Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf

Kind: TypeAlias = "str | dict[str, Any]"

_ATOMS = {t.name: t for t in ATOMS.values() if t.name != "Decimal"} | {
    "Enum": Atom("Enum", enum.Enum)
}
_DECIMAL = re.compile(r"Decimal\((\d{1,2}), (\d{1,2})\)")


def kind_of(t: RowType) -> Kind:
    """A row type as JSON has it."""
    match t:
        case Optional():
            return {"optional": kind_of(t.inner)}
        case ListOf():
            return {"list": kind_of(t.inner)}
        case ZSetOf():
            return {"zset": kind_of(t.inner)}
        case Struct():
            return {"row": [[name, kind_of(part)] for name, part in t.fields]}
        case Atom(name="Decimal"):
            return f"Decimal({t.precision}, {t.scale})"
        case Atom():
            return t.name
    raise AssertionError(f"{t!r} has no kind")


def type_of(kind: object) -> RowType:
    """A row type of this kind, whose rows are of no class; a ValueError for what is none."""
    match kind:
        case {"optional": inner}:
            return Optional(type_of(inner))
        case {"list": inner}:
            return ListOf(type_of(inner))
        case {"zset": inner}:
            return ZSetOf(type_of(inner), dict)
        case {"row": [*fields]}:
            return Struct("row", fields_of(fields), dict)
        case str() if kind in _ATOMS:
            return _ATOMS[kind]
        case str() if found := _DECIMAL.fullmatch(kind):
            precision, scale = int(found[1]), int(found[2])
            if 0 <= scale <= precision and 1 <= precision <= 38:
                return Atom("Decimal", decimal.Decimal, precision, scale)
    raise ValueError(f"{kind!r} is no kind of value")


def fields_of(listed: Iterable[object]) -> tuple[tuple[str, RowType], ...]:
    """Names and row types, of names and kinds; a ValueError for what is none."""
    return tuple(_field(pair) for pair in listed)


def _field(listed: object) -> tuple[str, RowType]:
    match listed:
        case [str() as name, kind]:
            return name, type_of(kind)
    raise ValueError(f"{listed!r} is no field: a name and a kind")
