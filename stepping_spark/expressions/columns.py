"""Converts expressions to Columns of PySpark and back, and reads the direction of an order.

`st.win.desc(lambda a: a.x)` is a `By`. `lambda a: a.x.desc()` returns a `Directed`, as in PySpark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import Column, functions
from stepping_spark.expressions.expr import Build, Call, Expr, Items, Opaque, Singleton, guarded
from stepping_spark.expressions.spark_to_arrow import reading_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import VALUE
from stepping_spark.rows.sql_text import closed
from stepping_spark.rows.types import Struct, unwrap
from stepping_spark.spark.column_made import in_running_session
from stepping_spark.spark.column_tree import (
    DeferredColumn,
    has_order_within,
    is_traced,
    key_of,
    sort_order,
    text_of,
    tree_of,
)
from stepping_spark.spark.session import get_session
from stepping_spark.spark.types import analyzed

T = TypeVar("T")

TAKERS = "st.window, st.first_n and st.agg.first_n, collect_list and string_agg take orders"


@dataclass(frozen=True)
class By(Generic[T]):
    """A part of an order, created by `st.win.asc` or `st.win.desc`."""

    f: Callable[[T], Any]
    ascending: bool
    nulls: str | None

    def __str__(self) -> str:
        return f"st.win.{'asc' if self.ascending else 'desc'}(…)"


@dataclass(frozen=True)
class Directed(Expr):
    """A value and its direction, as a part of an order: PySpark's `asc`, `desc` and the like."""

    of: Expr
    ascending: bool
    nulls_first: bool

    def __str__(self) -> str:
        name = "asc" if self.ascending else "desc"
        if self.nulls_first != self.ascending:
            name += "_nulls_first" if self.nulls_first else "_nulls_last"
        return f"{closed(str(self.of)) if self.of.parts() else self.of}.{name}()"

    def parts(self) -> tuple[Expr, ...]:
        return (self.of,)


def refuse_orders(e: Expr, where: str, *, in_order: bool) -> None:
    """Raise a CompileError for a direction where a value is expected.

    With `in_order`, the expression may be a direction, and so may each part of a tuple.
    """
    t = e.type
    is_tuple = isinstance(e, Build) and isinstance(t, Struct) and t.python is tuple
    pending = list(e.parts()) if in_order and is_tuple else [e]
    if in_order:
        pending = [part.of if isinstance(part, Directed) else part for part in pending]
    while pending:  # deep expressions get a better error later
        part = pending.pop()
        if isinstance(part, Directed):
            raise not_a_value(part, where)
        pending += part.parts()


def not_a_value(e: Directed, where: str) -> CompileError:
    """The error for a direction where a value is expected."""
    return CompileError(
        f"{where}: {e} is an order, and a value is expected here; leave out "
        f".{str(e).rsplit('.', 1)[-1]} ({TAKERS}; a key descends by st.Index(f, ascending=False))"
    )


ROW: ContextVar[RowType] = ContextVar("row")
"""The type of the row that a function is being traced with."""

TEXTS: ContextVar[dict[str, Expr] | None] = ContextVar("texts", default=None)
"""The expressions that were converted to Columns during tracing, by their texts in SQL."""


class ExprColumn(DeferredColumn):
    """The Column of an expression. PySpark gets a Column with the same meaning."""

    def __init__(self, expr: Expr) -> None:
        super().__init__()
        self.__expr__ = expr

    def __spark_column__(self) -> Column:
        return to_column(self.__expr__)


# The calls that only Columns need.
_OF_COLUMNS: dict[str, Callable[..., Column]] = {
    "coalesce": lambda *args: functions.coalesce(*args),
    "isNotNull": lambda a: a.isNotNull(),
    "known": lambda a: a,
    "<": lambda a, b: a < b,
}


def to_column(expr: Expr) -> Column:
    """The pyspark Column of an expression.

    It belongs to the active session; one is started if there is none. While a function is traced,
    it is a tree, which needs no session.
    """
    if isinstance(expr, Directed):
        raise not_a_value(expr, str(user_line()))
    if not is_traced():
        get_session()
    if isinstance(expr, Opaque):
        column = expr.column if is_traced() else in_running_session(expr.column)
        return reduce(lambda c, t: guarded(c.cast(t.ddl), t), expr.types, column)
    if expr.in_sql:
        text = expr.sql("")
        if (texts := TEXTS.get()) is not None:
            texts[text] = expr
        return functions.expr(text)
    if isinstance(expr, Singleton):
        item = to_column(expr.item).alias(VALUE)
        return functions.array(
            functions.struct(item, functions.lit(1).cast("bigint").alias("_count_"))
        )
    if isinstance(expr, Call):
        return _OF_COLUMNS[expr.op](*[to_column(a) for a in expr.args])
    if isinstance(expr, Items):
        return functions.array(*[to_column(e) for e in expr.items]).cast(expr.type.ddl)
    t = unwrap(expr.type)
    assert isinstance(expr, Build) and isinstance(t, Struct), expr
    named = zip(t.fields, expr.fields, strict=True)
    return functions.struct(*[to_column(e).alias(n) for (n, _), e in named])


def opaque(column: Column, at: str = "") -> Expr:
    """The expression of a Column. Spark determines its type, unless a table here has it."""
    ordered = sort_order(column)
    if ordered is not None:
        of = opaque(ordered.of, at)
        return Directed(of.type, of, ordered.ascending, ordered.nulls_first)
    where = at or str(user_line())
    if has_order_within(column):
        raise CompileError(
            f"{where}: an order (asc, desc, or one of their like) is inside of {text_of(column)}, "
            f"where a value is expected; leave it out ({TAKERS})"
        )
    row = ROW.get()
    reading = reading_of(tree_of(column), TEXTS.get() or {})
    t = analyzed(column, row, where) if reading is None else reading.type
    return Opaque(t, column, (row, key_of(column)), text_of(column), (t,), reading)
