"""PySpark's functions, with types for an editor: `from stepping_spark import functions as F`.

They are the functions of `pyspark.sql.functions`, with the same behaviour. The types differ: to a
checker a row's field is a value of the type in its class, so here `F.month` takes a date and
returns an int. Two functions are not PySpark's: `F.col` is for the methods of a Column, and
`F.not_` for the `~` of a condition. The types are in `functions.pyi`.
"""

from __future__ import annotations

from typing import Any

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import Column
from stepping_spark.base.packages import functions as _of_spark

__all__ = ["col", "not_"]  # the functions that are not PySpark's


def col(value: Any) -> Any:
    """A field of the row as a Column, which it is while a query is traced.

    Returns the same object. To a checker a field is a value without `isin`, `isNull`, `between`,
    `cast` or `like`; the type of `F.col(row.field)` has them. Raises `CompileError` for other
    values than Columns, such as the name of one.

    >>> from stepping_spark import functions as F
    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(a, f=lambda x: F.col(x).isin(1, 3))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({1: 1, 2: 1}),))
    >>> dict(out.iter())
    {1: 1}
    """
    if isinstance(value, Column):
        return value
    what = f"F.col(row.{value})" if isinstance(value, str) else "F.lit(…) for a constant"
    raise CompileError(
        f"{user_line()}: F.col of stepping_spark.functions takes a field of the row, found "
        f"{value!r}; write {what}"
    )


def not_(condition: Any) -> Any:
    """Whether a condition is false; NULL if it is NULL. It is `~condition`.

    The `~` of a bool means something else in Python, so a checker would complain about it.

    >>> from stepping_spark import functions as F
    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(a, f=lambda x: F.not_(x > 1))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({1: 1, 2: 1}),))
    >>> dict(out.iter())
    {1: 1}
    """
    return ~col(condition)


def __getattr__(name: str) -> Any:
    """The function of PySpark."""
    return getattr(_of_spark, name)


def __dir__() -> list[str]:
    """The names of PySpark's functions and of this module's own."""
    return sorted({*_of_spark.__all__, "col", "not_"})
