"""Kinds: Spark's types as texts (`decimal(10,2)`), with row types and Spark's common types.

Rows have one type for integers of all widths, and one for both floats. Spark's results depend on
the width, so SQL carries Spark's type beside each value: its kind.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from functools import cache, partial

from stepping_spark.rows.atoms import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    MOST_DIGITS,
    STR,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.row_class import field_name, open_class
from stepping_spark.rows.types import ListOf, Optional, Struct, quote

INTEGERS = ("tinyint", "smallint", "int", "bigint")
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
FLOATS = ("float", "double")
TIMES = ("date", "timestamp_ntz", "timestamp")  # each is wider than those before
_DAY_UNITS = ("day", "hour", "minute", "second")
_MONTH_UNITS = ("year", "month")

_ATOMS: dict[str, RowType] = {
    "boolean": BOOL,
    **dict.fromkeys(INTEGERS, INT),
    **dict.fromkeys(FLOATS, FLOAT),
    "string": STR,
    "binary": BYTES,
    "date": DATE,
    "timestamp": DATETIME,
    "timestamp_ntz": LOCAL_DATETIME,
}
_KINDS = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double",
    "str": "string",
    "bytes": "binary",
    "date": "date",
    "datetime": "timestamp",
    "LocalDateTime": "timestamp_ntz",
    "timedelta": "interval day to second",
    "UUID": "string",
    "Enum": "string",
}
_NAME = re.compile(r"`((?:[^`]|``)*)`:|([^:`]*):")


def kind_of(t: RowType) -> str:
    """The kind of the Spark column of a row type."""
    if isinstance(t, Optional):
        return kind_of(t.inner)
    if isinstance(t, ListOf):
        return f"array<{kind_of(t.inner)}>"
    if isinstance(t, Struct):
        return kind_of_struct([(n, kind_of(f)) for n, f in t.fields])
    if isinstance(t, Atom):
        if t.name == "Decimal":
            return decimal_kind(t.precision, t.scale)
        return _KINDS[t.name]
    raise TypeError(f"{t} is no type of a column")


def row_type_of(kind: str, nullable: bool) -> RowType:
    """The row type that holds values of a kind. Raises TypeError if rows cannot hold them.

    Items of arrays and fields of structs may be NULL.
    """
    t = _row_type(kind)
    return Optional(t) if nullable else t


@cache
def _row_type(kind: str) -> RowType:
    if kind in _ATOMS:
        return _ATOMS[kind]
    if is_decimal(kind):
        return Atom("Decimal", decimal.Decimal, *digits(kind))
    if is_days(kind):
        return TIMEDELTA
    if kind.startswith("array<"):
        return ListOf(Optional(_row_type(item_kind(kind))))
    if kind.startswith("struct<"):
        fields = tuple((n, Optional(_row_type(k))) for n, k in struct_fields(kind))
        return of_open_class(Struct("", fields, dict))
    raise TypeError(f"rows cannot hold Spark's type {kind}")


def of_open_class(t: RowType) -> RowType:
    """The type with Spark's structs, at any depth, as rows without a class of their own.

    A struct with a name that no field can have stays unchanged.
    """
    if isinstance(t, Optional):
        return Optional(of_open_class(t.inner))
    if isinstance(t, ListOf):
        return ListOf(of_open_class(t.inner))
    if not isinstance(t, Struct) or t.python is not dict:
        return t
    fields = tuple((n, of_open_class(f)) for n, f in t.fields)
    names: list[str] = []
    for n, _ in fields:
        names.append(field_name(n, names))
    is_free = names == [n for n, _ in fields]
    return Struct("Row", fields, open_class(tuple(names))) if is_free else Struct("", fields, dict)


def _named(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else quote(name)


def decimal_kind(precision: int, scale: int) -> str:
    """The kind of decimals with these digits."""
    return f"decimal({precision},{scale})"


def is_decimal(kind: str) -> bool:
    """Whether a kind is a decimal of some digits."""
    return kind.startswith("decimal(")


def is_number(kind: str) -> bool:
    """Whether a kind is a number."""
    return kind in _DIGITS or kind in FLOATS or is_decimal(kind)


def is_days(kind: str) -> bool:
    """Whether a kind is an interval of days, hours, minutes or seconds."""
    return kind.startswith("interval ") and kind.split()[1] in _DAY_UNITS


def is_months(kind: str) -> bool:
    """Whether a kind is an interval of years or months."""
    return kind.startswith("interval ") and kind.split()[1] in _MONTH_UNITS


def digits(kind: str) -> tuple[int, int]:
    """The precision and the scale of an exact number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def kind_of_struct(fields: Sequence[tuple[str, str]]) -> str:
    """The kind of a struct with fields of these names and kinds."""
    return f"struct<{','.join(f'{_named(n)}:{kind}' for n, kind in fields)}>"


def item_kind(kind: str) -> str:
    """The kind of the items of an array."""
    return kind[len("array<") : -1]


def map_kinds(kind: str) -> tuple[str, str]:
    """The kinds of the keys and of the values of a map."""
    key, value = _split(kind[len("map<") : -1])
    return key, value


def struct_fields(kind: str) -> list[tuple[str, str]]:
    """The names and kinds of the fields of a struct."""
    fields = []
    for part in _split(kind[len("struct<") : -1]):
        match = _NAME.match(part)
        assert match is not None, kind
        name = match[2] if match[1] is None else match[1].replace("``", "`")
        fields.append((name, part[match.end() :]))
    return fields


def _split(text: str) -> list[str]:
    """The parts between commas outside of brackets and quoted names."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        if c == "`":
            quoted = not quoted
        elif not quoted:
            depth += (c in "<(") - (c in ">)")
        if c == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p]


def common_kind(a: str, b: str, *, casts_text: bool = True) -> str | None:
    """The kind to which Spark (ANSI) converts values of both kinds; None if there is none.

    It holds for UNION, CASE, COALESCE, IN, comparisons and keys of joins. UNPIVOT alone does not
    cast text.
    """
    if a == b or b == "void":
        return a
    if a == "void":
        return b
    if is_number(a) and is_number(b):
        return _common_number(a, b)
    if "string" in (a, b):
        return _beside_text(b if a == "string" else a) if casts_text else None
    if a in TIMES and b in TIMES:
        return TIMES[max(TIMES.index(a), TIMES.index(b))]
    for units, are in ((_DAY_UNITS, is_days), (_MONTH_UNITS, is_months)):
        if are(a) and are(b):
            return _common_interval(a, b, units)
    return _common_nested(a, b, partial(common_kind, casts_text=casts_text))


def _common_number(a: str, b: str) -> str:
    if a in FLOATS or b in FLOATS:
        return "double"
    if a in _DIGITS and b in _DIGITS:
        return INTEGERS[max(INTEGERS.index(a), INTEGERS.index(b))]
    (p1, s1), (p2, s2) = digits(a), digits(b)
    scale, before = max(s1, s2), max(p1 - s1, p2 - s2)
    if before + scale > MOST_DIGITS:  # Spark keeps the digits before the point
        return decimal_kind(MOST_DIGITS, max(0, MOST_DIGITS - before))
    return decimal_kind(before + scale, scale)


def _beside_text(kind: str) -> str | None:
    """The kind to which a string beside a value of this kind is converted, or None."""
    if kind in _DIGITS:
        return "bigint"
    if is_number(kind):
        return "double"
    return kind if kind in (*TIMES, "boolean", "binary") else None


def _common_interval(a: str, b: str, units: tuple[str, ...]) -> str:
    places = [units.index(word) for kind in (a, b) for word in kind.split()[1:] if word != "to"]
    return f"interval {units[min(places)]} to {units[max(places)]}"


def _common_nested(a: str, b: str, common: Callable[[str, str], str | None]) -> str | None:
    if a.startswith("array<") and b.startswith("array<"):
        item = common(item_kind(a), item_kind(b))
        return None if item is None else f"array<{item}>"
    if a.startswith("map<") and b.startswith("map<"):
        parts = [common(x, y) for x, y in zip(map_kinds(a), map_kinds(b), strict=True)]
        return None if None in parts else f"map<{parts[0]},{parts[1]}>"
    if a.startswith("struct<") and b.startswith("struct<"):
        left, right = struct_fields(a), struct_fields(b)
        if [n.lower() for n, _ in left] != [n.lower() for n, _ in right]:
            return None
        kinds = [common(x, y) for (_, x), (_, y) in zip(left, right, strict=True)]
        named = [f"{_named(n)}:{k}" for (n, _), k in zip(left, kinds, strict=True)]
        return None if None in kinds else f"struct<{','.join(named)}>"
    return None


def arithmetic_kind(op: str, a: str, b: str) -> str | None:
    """The kind of `a op b` for numbers, by Spark's rules (ANSI); None if one is no number.

    A string or NULL beside a number is converted to a number.
    """
    if a == "void" and op == "/":
        return "double"
    if a == "void" or b == "void":
        a, b = (b, b) if a == "void" else (a, a)
    if "string" in (a, b):
        other = _beside_text(b if a == "string" else a)
        if other is None or not is_number(other):
            return None
        a, b = (other, b) if a == "string" else (a, other)
    if not (is_number(a) and is_number(b)):
        return None
    if op == "/" and not (is_decimal(a) or is_decimal(b)):
        return "double"
    if a == b == "float":
        return "float"
    if a in FLOATS or b in FLOATS:
        return "double"
    if a in _DIGITS and b in _DIGITS:
        return _common_number(a, b)
    return _of_decimals(op, digits(a), digits(b))


def _of_decimals(op: str, a: tuple[int, int], b: tuple[int, int]) -> str:
    (p1, s1), (p2, s2) = a, b
    if op in ("+", "-"):
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    elif op == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif op == "/":
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    else:
        scale = max(s1, s2)
        precision = min(p1 - s1, p2 - s2) + scale
    if precision > MOST_DIGITS:
        scale = max(MOST_DIGITS - (precision - scale), min(scale, 6))
        precision = MOST_DIGITS
    return decimal_kind(precision, scale)
