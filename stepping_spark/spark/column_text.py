"""Texts of Columns, the same in every process, with each PySpark and in each kind of session.

States hold these texts. They are those that classic Columns of Spark 4.3 have.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from stepping_spark.base.packages import Column
from stepping_spark.spark.column_tree import is_tree, name_of_type

__all__ = ["text_of"]


def text_of(column: Column) -> str:
    """The text of a Column, the same in every process.

    It leaves out what varies: Spark numbers the variables of lambdas throughout a process, names
    the place where a Python UDF was created, and shows an address for bytes.
    """
    made: Any = column
    shown = _shown(made._expr) if is_tree(column) else _of_classic(str(column))
    numbers: dict[str, int] = {}
    return _VARIABLE.sub(lambda m: f"{m[1]}_{numbers.setdefault(m[0], len(numbers) + 1)}", shown)


_VARIABLE = re.compile(r"\b([xyz])_(\d+)\b")


def _of_classic(shown: str) -> str:
    shown = _ADDRESS.sub("", shown.removeprefix("Column<'").removesuffix("'>"))
    return _without_places(shown)


def _without_places(shown: str) -> str:
    """The text without the parts `Origin(…)`."""
    before, place, rest = shown.partition("Origin(")
    if not place:
        return shown
    depth = 1
    for i, c in enumerate(rest):
        depth += (c == "(") - (c == ")")
        if not depth:
            return before + _without_places(rest[i + 1 :])
    return before


_ADDRESS = re.compile(r"(?<=\[B)@[0-9a-f]+")
_NAMES = {"not": "!", "==": "=", "startsWith": "startswith", "endsWith": "endswith"}


def _shown(part: Any) -> str:
    kind = type(part).__name__
    match kind:
        case "LiteralExpression":
            return _constant(part._value, part._dataType)
        case "ColumnReference":
            return str(part._unparsed_identifier).replace("`", "")
        case "UnresolvedFunction" | "CallFunction":
            return _call(part._name, [_shown(a) for a in part._args])
        case "CastExpression":
            cast = "TRY_CAST" if part._eval_mode == "try" else "CAST"
            return f"{cast}({_shown(part._expr)} AS {name_of_type(part._data_type)})"
        case "CaseWhen":
            cases = "".join(f" WHEN {_shown(c)} THEN {_shown(v)}" for c, v in part._branches)
            rest = part._else_value
            return f"CASE{cases}{'' if rest is None else f' ELSE {_shown(rest)}'} END"
        case "LambdaFunction":
            names = ", ".join(map(str, part._arguments))
            names = f"({names})" if len(part._arguments) > 1 else names
            return f"{names} -> {_shown(part._function)}"
        case "UnresolvedExtractValue":
            return f"{_shown(part._child)}[{_shown(part._extraction)}]"
        case "ColumnAlias":
            return f"{_shown(part._child)} AS {','.join(part._alias)}"
        case "WithField":
            value = _shown(part._valueExpr)
            return f"update_field({_shown(part._structExpr)}, {part._fieldName}, {value})"
        case "DropField":
            return f"drop_field({_shown(part._structExpr)}, {part._fieldName})"
        case "SortOrder":
            nulls = "FIRST" if part._nullsFirst else "LAST"
            direction = "ASC" if part._ascending else "DESC"
            return f"{_shown(part._child)} {direction} NULLS {nulls}"
    return str(part)


def _call(name: str, args: list[str]) -> str:
    if name == "window" and len(args) == 2:
        args = [*args, args[1], "'0 second'"]
    return f"{_NAMES.get(name, name)}({', '.join(args)})"


def _constant(value: Any, t: Any) -> str:
    match type(t).__name__:
        case _ if value is None:
            return "NULL"
        case "BooleanType":
            return str(value).lower()
        case "LongType":
            return f"{value}L"
        case "DoubleType":
            return _double(value)
        case "StringType":
            return "'" + str(value).replace("'", "\\'") + "'"
        case "BinaryType":
            return "[B"
        case "DateType":
            return str(t.fromInternal(value))
        case "TimestampType" | "TimestampNTZType":
            return _time(t.fromInternal(value))
        case "DayTimeIntervalType":
            return _duration(value)
    return str(value)


def _double(value: float) -> str:
    """As Java writes a double."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        shown = repr(value)
        return shown if "e" not in shown else f"{value:f}"
    sign, digits, exponent = _DOUBLE.fullmatch(f"{value:.17e}"), repr(value), 0
    assert sign is not None
    exponent = int(sign[1])
    digits = re.sub(r"e.*|[-.]", "", digits).strip("0") or "0"
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"


_DOUBLE = re.compile(r"-?[\d.]+e([-+]\d+)")


def _time(value: dt.datetime) -> str:
    """As Java writes a Timestamp."""
    fraction = f"{value.microsecond:06}".rstrip("0") or "0"
    return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"


def _duration(micros: int) -> str:
    """As Java writes a Duration."""
    sign = "-" if micros < 0 else ""
    seconds, rest = divmod(abs(micros), 1_000_000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    parts = [f"{sign}{hours}H" if hours else "", f"{sign}{minutes}M" if minutes else ""]
    parts.append(f"{sign}{seconds}{fraction}S" if seconds or rest else "")
    return "PT" + ("".join(parts) or "0S")
