"""Converts the results of row functions, and the operands in them, to expressions."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from typing import Any

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError, InputError
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.columns import ExprColumn, opaque
from stepping_spark.expressions.expr import Build, Expr, Items, Literal
from stepping_spark.packages import Column
from stepping_spark.rows.atoms import (
    ATOMS,
    INT_MAX,
    INT_MIN,
    LOCAL_DATETIME,
    MOST_DIGITS,
    STR,
    Atom,
    RowType,
)
from stepping_spark.rows.data import Data
from stepping_spark.rows.types import ListOf, Optional, Struct, is_open, row_type, unwrap


def to_expr(value: Any, beside: RowType | None = None, at: str = "") -> Expr:
    """The result of a row function, or an operand in it, as an expression.

    `beside` is the type of the other operand, which gives a bare None its type. `at` begins the
    text of an error; the default is the user's line.
    """
    at = at or str(user_line())
    if isinstance(value, ExprColumn):
        return value.__expr__
    if isinstance(value, Column):
        return opaque(value, at)
    if isinstance(value, Data):
        return _build_data(value, at)
    if isinstance(value, tuple):
        parts = tuple(to_expr(v, at=at) for v in value)
        fields = tuple((f"_{i}", p.type) for i, p in enumerate(parts, 1))
        return Build(Struct("tuple", fields, tuple), parts)
    if isinstance(value, list):
        return _list(value, at)
    if value is None:
        t = beside if beside is not None else STR
        return Literal(t if isinstance(t, Optional) else Optional(t), None)
    if isinstance(value, enum.Enum):
        return _constant(value, row_type(type(value)), at)
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return _constant(value, LOCAL_DATETIME, at)
    if isinstance(value, decimal.Decimal):
        return _constant(value, _decimal_type(value, at), at)
    if type(value) in ATOMS:
        return _constant(value, ATOMS[type(value)], at)
    raise CompileError(
        f"{at}: a row function gave {value!r} ({type(value).__name__}); it should give a column, "
        "a st.Data, a st.Pair, a tuple, a list or a constant"
    )


def _list(values: list[Any], at: str) -> Expr:
    """A list. Its items have the widest type of the values.

    If one of the values may be NULL, the type of the items is optional.
    """
    parts = [to_expr(v, at=at) for v in values]
    types = list(dict.fromkeys(p.type for p in parts))
    optional = [Optional(unwrap(t)) for t in types]
    for t in optional if any(isinstance(t, Optional) for t in types) else types:
        try:
            items = tuple(coerce(p, t, at) for p in parts)
        except CompileError:
            continue
        return Items(ListOf(t), items)
    shown = ", ".join(map(str, types)) or "nothing, so that their type is unknown"
    raise CompileError(f"{at}: the items of a list are of one type, found {shown}; convert them")


def _constant(value: Any, t: RowType, at: str) -> Expr:
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise CompileError(
            f"{at}: the constant {value} is beyond the 64 bits of an int; write Decimal({value})"
        )
    try:
        t.encode(value, f"{at}: the constant")
    except InputError as e:
        raise CompileError(str(e)) from None
    return Literal(t, value)


def _decimal_type(value: decimal.Decimal, at: str) -> RowType:
    _, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):
        raise CompileError(f"{at}: the constant {value!r} is not a number to Spark; use a float")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > MOST_DIGITS:
        raise CompileError(
            f"{at}: the constant {value!r} has {precision} digits, and Spark's decimals have up to "
            f"{MOST_DIGITS}; round it, or use a float"
        )
    return Atom("Decimal", decimal.Decimal, precision, scale)


def _build_data(value: Data, at: str) -> Expr:
    cls = type(value)
    parts, fields = [], []
    for name, annotation in cls.__row_fields__().items():
        where = f"{at}: field {name!r} of {cls.__name__}"
        if is_open(annotation):
            part = to_expr(getattr(value, name), at=where)
            target = part.type
        else:
            target = row_type(annotation)
            part = coerce(to_expr(getattr(value, name), target, where), target, where)
        parts.append(part)
        fields.append((name, target))
    return Build(Struct(cls.__name__, tuple(fields), cls), tuple(parts))
