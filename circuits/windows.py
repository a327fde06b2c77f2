"""Rows with what the rows around them give, lifted to changes: D ∘ Q ∘ I for Q per partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stepping_spark.expressions.index import Index
from stepping_spark.query import linear
from stepping_spark.query.win import WindowFunction
from stepping_spark.query.window import OrderGiven
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
R = TypeVar("R")


def window(
    a: ZSet[T],
    *,
    by: Index[T, Any] | Callable[[T], Any] | None = None,
    order: OrderGiven[T] = None,
    into: type[R],
    fields: Mapping[str, WindowFunction[T] | Callable[[T], Any]] | None = None,
    **functions: WindowFunction[T] | Callable[[T], Any],
) -> ZSet[R]:
    """The changes of SELECT *, f(…) OVER (PARTITION BY by ORDER BY order) FROM a: D(window(I(a))).

    A row `into` for each row of `a`, and for each time that it counts. Fields are filled by the
    window functions of their names (see `st.win`), by functions of the row, and the others by the
    row's fields of the same names. `order` is a function of the row, a `st.Index`, `st.win.asc` or
    `st.win.desc`, or several of them in a tuple; NULL comes first where it ascends, as in Spark.
    Ties go by the whole row, so that the same rows give the same answer every time. `fields` has
    functions by names that are those of arguments. A row without a positive weight is not there.

    What a row is given depends on its partition alone, so the optimizer makes H(z⁻¹I(a), a) of it:
    keeps the input, arranged by `by`; a step reads the partitions that its rows are in, whole, and
    gives the rows for which something changes. To keep the first rows of each partition only, use
    `st.first_n`, which reads less.

    Raises `CompileError` where fields and functions do not fit, `StepError` for a sum beyond its
    type.

    >>> class Sale(st.Data):
    ...     shop: str
    ...     day: int
    ...     amount: int
    >>> class Row(st.Data):
    ...     shop: str
    ...     day: int
    ...     so_far: int
    ...     before: int | None
    >>> def query(sales: st.ZSet[Sale]) -> st.ZSet[Row]:
    ...     return st.window(
    ...         sales, by=lambda s: s.shop, order=lambda s: s.day, into=Row,
    ...         so_far=st.win.sum(lambda s: s.amount, rows=(None, 0)),
    ...         before=st.win.lag(lambda s: s.amount))
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({Sale(shop="A", day=1, amount=5): 1}),))
    >>> (out,) = step((st.ZSetPython({Sale(shop="A", day=2, amount=7): 1}),))
    >>> dict(out.iter())
    {Row(shop='A', day=2, so_far=12, before=5): 1}
    """
    integrated = linear.integrate(a)
    windowed = linear.window(integrated, by, order, into, fields=fields, **functions)
    differentiated = linear.differentiate(windowed)
    return differentiated
