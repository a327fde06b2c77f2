"""The direction of an order, given beside a function of the row or by the function itself.

`st.win.desc(lambda a: a.x)` is a `By`. `lambda a: a.x.desc()` returns a `Directed`, as in PySpark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepping_spark.errors import CompileError
from stepping_spark.expressions.expr import Build, Expr
from stepping_spark.rows.sql_text import closed
from stepping_spark.rows.types import Struct

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
