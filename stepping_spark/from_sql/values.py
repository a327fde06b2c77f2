"""A scalar of SQL: a column of a traced row function, with its type in Spark.

A value is *ours* if the driver can compute it. Otherwise it is a Column of PySpark. Our ints and
floats have 64 bits, so a value becomes a Column with a cast to its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from sqlglot import exp

from stepping_spark.expressions.arrow_calls import is_known
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.columns import ROW, ExprColumn, opaque, to_column
from stepping_spark.expressions.expr import Expr, Literal
from stepping_spark.expressions.symbolic import symbolic
from stepping_spark.from_sql.kinds import is_months, kind_of, of_open_class, row_type_of
from stepping_spark.packages import Column, functions, raised
from stepping_spark.rows.atoms import STR
from stepping_spark.rows.types import Optional
from stepping_spark.spark.errors import first_line
from stepping_spark.spark.session import get_session
from stepping_spark.spark.types import kind_in_spark


@dataclass(frozen=True)
class Value:
    """A column with its kind: Spark's simple type string, `void` for NULL.

    A kind is "" where it is not known: within the lambda of a higher-order function.
    """

    column: Any
    kind: str
    digits: int = 0
    """The digits of an integer that the text has as a literal: its precision beside a decimal."""


class Env(Protocol):
    """What surrounds a scalar: the columns that it may name, and the text for errors."""

    def column(self, node: exp.Column) -> Value:
        """The value of a column. The tree is bound already."""

    def fail(self, node: exp.Expr, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error for a node."""


def ours(e: Expr, kind: str, digits: int = 0) -> Value:
    """An expression as a value."""
    return Value(symbolic(e), kind, digits)


def constant(value: Any, kind: str, digits: int = 0) -> Value:
    """A constant as a value."""
    return ours(Literal(row_type_of(kind, nullable=value is None), value), kind, digits)


def null() -> Value:
    """NULL without a type."""
    return ours(Literal(Optional(STR), None), "void")


def expr_of(v: Value) -> Expr | None:
    """The expression of a value that the driver can compute; None for other values."""
    if not isinstance(v.column, ExprColumn):
        return None
    e: Expr = v.column.__expr__
    return e if is_known(e) else None


def exprs_of(*values: Value) -> list[Expr] | None:
    """The expressions of values that the driver can compute; None if it cannot compute all."""
    found = [expr_of(v) for v in values]
    known = [e for e in found if e is not None]
    return known if len(known) == len(found) else None


def constant_of(v: Value) -> Any:
    """The constant that a value is; None for NULL and for other values."""
    e = expr_of(v)
    return e.constant if isinstance(e, Literal) else None


def is_null(v: Value) -> bool:
    """Whether a value is the constant NULL, of any kind."""
    e = expr_of(v)
    return isinstance(e, Literal) and e.constant is None


def is_constant(v: Value) -> bool:
    """Whether a value is a constant of ours, NULL or not."""
    return isinstance(expr_of(v), Literal)


def column_of(v: Value) -> Column:
    """The Column of PySpark, of Spark's own type. Starts a session if none is active."""
    if not isinstance(v.column, ExprColumn):
        column: Column = v.column
        return column
    e: Expr = v.column.__expr__
    get_session()
    if isinstance(e, Literal):
        return _literal(e, v.kind)
    column = to_column(e)
    return column if v.kind == kind_of(e.type) else column.cast(v.kind)


def _literal(e: Literal, kind: str) -> Column:
    """A constant as a literal of Spark, which some functions insist on."""
    if e.constant is None:
        return functions.lit(None) if kind == "void" else functions.lit(None).cast(kind)
    if is_months(kind):
        return functions.expr(f"INTERVAL '{e.constant}' MONTH").cast(kind)
    if kind in ("int", "string", "boolean"):
        return functions.lit(e.constant)
    column = to_column(e)
    return column if kind == kind_of(e.type) else column.cast(kind)


def in_spark(column: Column, args: list[Value], node: exp.Expr, env: Env) -> Value:
    """A Column that only Spark can compute, of the kind that Spark says.

    Within a lambda the variables have no type yet, so Spark cannot be asked there.
    """
    if any(a.kind == "" for a in args):
        return Value(column, "")
    kind = asked(column, node, env)
    if kind == "void":  # rows have no type for NULL alone
        return Value(column.cast("string"), kind)
    if "struct<" in kind and "void" not in kind:  # NULL gets its type beside other structs
        return Value(symbolic(_with_open_classes(column, node, env)), kind)
    return Value(column, kind)


def _with_open_classes(column: Column, node: exp.Expr, env: Env) -> Expr:
    """A Column with Spark's structs in it, as rows without a class of their own."""
    e = opaque(column)
    t = of_open_class(e.type)
    if "struct<" in str(t):
        names = "its names have to be letters, digits and _, and differ in more than their case"
        env.fail(node, f"a row cannot hold {t}", f"name the fields with AS: {names}")
    return coerce(e, t, "sql")


def asked(column: Column, node: exp.Expr, env: Env) -> str:
    """The kind of a Column, from Spark's analyzer."""
    try:
        return kind_in_spark(column, ROW.get())
    except raised.PySparkException as e:
        remedy = ""
        if "UNRESOLVED_ROUTINE" in str(e):
            remedy = "look for it in the list of Spark's functions, or use st.map with st.python"
        env.fail(node, f"Spark refuses this: {first_line(e)}", remedy)
