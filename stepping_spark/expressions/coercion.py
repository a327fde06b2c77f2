"""Converts values to the types of fields, without loss."""

from __future__ import annotations

import dataclasses

from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Items,
    Literal,
    Opaque,
    Transformed,
)
from stepping_spark.expressions.operations import rank
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import VALUE
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, unwrap


def coerce(e: Expr, target: RowType, where: str, shown: str = "") -> Expr:
    """The expression as a value of the target type. Raises CompileError if it would lose something.

    An int becomes a Decimal or a float. A Decimal does not become a float, as in Spark's own
    `Dataset.as`: a column of money would silently lose its cents. `shown` is the expression as the
    user wrote it.
    """
    if isinstance(target, Optional) and not isinstance(e.type, Optional):
        inner = coerce(e, target.inner, where, shown)
        return inner if isinstance(inner, Literal) else _retype(inner, target)
    if isinstance(e.type, Optional) and not isinstance(target, Optional):
        if isinstance(e, Opaque):  # Spark calls many expressions nullable that never are NULL
            return coerce(_retype(e, e.type.inner), target, where, shown)
        raise CompileError(
            f"{where}: expected {target}, found {e.type}, from {shown or e}; give it a value where "
            f"it is NULL (F.coalesce), or declare it {target} | None"
        )
    if e.type == target:
        return e
    if isinstance(e, Opaque) and e.type.ddl == target.ddl:
        # Spark does not know Python classes, nor which values they allow.
        return e.converted(target, None if e.reading is None else renamed(e.reading, target))
    have, want = unwrap(e.type), unwrap(target)
    if isinstance(e, Opaque) and e.reading is not None and rank(have) and rank(want):
        return e.converted(target, coerce(e.reading, target, where, shown or str(e)))
    if isinstance(e, Literal) and e.constant is None and isinstance(target, Optional):
        return Literal(target, None)
    loses = (str(have).split("(")[0], str(want)) == ("Decimal", "float")
    if rank(have) and rank(want) and rank(have) <= rank(want) and not loses:
        if isinstance(e, Opaque):
            return e.converted(target)
        name = {"Decimal": "to_decimal", "float": "to_float"}[str(want).split("(")[0]]
        return Call(target, name, (e,))
    if isinstance(e, Build) and isinstance(have, Struct):
        built = _coerce_build(e, have, target, where)
        if built is not None:
            return built
    remedy = f"convert it, with .cast({target.ddl!r}) or a function of pyspark.sql.functions"
    if loses and isinstance(have, Atom):
        declared = f"Annotated[Decimal, st.Precision({have.precision}, {have.scale})]"
        remedy = f"declare it {declared}, or cast the Decimal, with .cast('DOUBLE')"
    if not (isinstance(have, Atom) and isinstance(want, Atom)):
        remedy = f"declare it {e.type}, or make a {want} of it in a function within st.python"
    if isinstance(have, ZSetOf) and isinstance(want, ListOf):
        remedy += ": [row for row, n in z.iter() for _ in range(n)] of a Z-set z"
    if isinstance(have, Struct) and have.python is dict:  # Spark's own struct, of F.struct
        remedy = "write a tuple, or a st.Data, in the place of F.struct"
    raise CompileError(
        f"{where}: expected {target}, found {e.type}, from {shown or _text_of(e)}; {remedy}"
    )


def _text_of(e: Expr) -> str:
    """An expression for a message. A part of a row is written as the user does: row[1].name."""
    if not isinstance(e, Field):
        return str(e)
    steps = (p for p in e.path if p != VALUE)
    return "row" + "".join(f"[{int(p[1:]) - 1}]" if p[1:].isdigit() else f".{p}" for p in steps)


def _coerce_build(e: Build, have: Struct, target: RowType, where: str) -> Expr | None:
    """Coerces a row to the same class with wider fields, or a tuple to a list; None for others."""
    if isinstance(target, ListOf) and have.python is tuple:
        return Items(
            target,
            tuple(coerce(p, target.inner, f"{where}[{i}]") for i, p in enumerate(e.fields)),
        )
    if not isinstance(target, Struct) or have.python is not target.python:
        return None
    if [n for n, _ in have.fields] != [n for n, _ in target.fields]:
        return None
    wanted = zip(target.fields, e.fields, strict=True)
    parts = (coerce(p, t, f"{where}, field {n!r} of {target.name}") for (n, t), p in wanted)
    return Build(target, tuple(parts))


def _retype(e: Expr, target: RowType) -> Expr:
    return dataclasses.replace(e, type=target)


def renamed(e: Expr, t: RowType) -> Expr | None:
    """The values as rows of another class with other field names; None if the types differ.

    The expression may also be a list of rows.
    """
    have, want = unwrap(e.type), unwrap(t)
    if isinstance(e, Transformed) and isinstance(want, ListOf):
        body = renamed(e.body, want.inner)
        return None if body is None else dataclasses.replace(e, type=t, body=body)
    if isinstance(e, Build) and isinstance(have, Struct) and isinstance(want, Struct):
        pairs = zip(have.fields, want.fields, strict=False)
        same = len(have.fields) == len(want.fields) and all(a[1] == b[1] for a, b in pairs)
        return dataclasses.replace(e, type=t) if same else None
    return e if have == want else None
