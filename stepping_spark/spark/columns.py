"""Columns that are created when Spark asks for them.

PySpark's functions take Columns, and there is no public way to pass a substitute. They read two
private members: `_jc`, the Java object of a classic Column, and `_expr`, the plan of a Column of
Spark Connect. They also ask whether it is an instance of the class of Columns, and `isinstance`
believes what an object says of itself (`__class__`). Only this module uses these members.
"""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepping_spark.packages import Column, is_imported
from stepping_spark.spark.session import get_session
from stepping_spark.spark.trees import ClassicColumn

_Base: Any = ClassicColumn if TYPE_CHECKING else object


class DeferredColumn(_Base):  # type: ignore[misc]
    """A substitute for a Column, wherever PySpark expects one, classic or of Spark Connect."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of Columns, for PySpark's `isinstance`; PySpark may not be imported."""
        connect, classic = "pyspark.sql.connect.column", "pyspark.sql.classic.column"
        remote = is_imported("pyspark.sql.utils") and sys.modules["pyspark.sql.utils"].is_remote()
        for module in (connect if remote else classic, "pyspark.sql.column"):
            if is_imported(module):
                found: type = sys.modules[module].Column
                return found
        return type(self)

    def __getattr__(self, name: str) -> Any:
        """A method of the Column."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__spark_column__(), name)

    @abstractmethod
    def __spark_column__(self) -> Column:
        """The Column that this object stands for."""

    @property
    def _jc(self) -> Any:
        return self.__spark_column__()._jc

    @property
    def _expr(self) -> Any:
        return self.__spark_column__()._expr


@dataclass(frozen=True)
class SortOrder:
    """The contents of a Column from `desc` and the like: a Column, and its direction."""

    of: Column
    ascending: bool
    nulls_first: bool


def sort_order(column: Column) -> SortOrder | None:
    """The order that a Column is; None if it is a value."""
    shown = _ORDER.search(str(column))
    if shown is None:
        return None
    made: Any = column
    if isinstance(column, ClassicColumn):
        node = made._jc.node()
        # A string constant may end like this too.
        if node.getClass().getSimpleName() != "SortOrder":
            return None
        jvm: Any = get_session()._jvm
        of: Column = type(made)(jvm.org.apache.spark.sql.Column(node.child()))
    else:
        if type(made._expr).__name__ != "SortOrder":
            return None
        of = type(made)(made._expr._child)
    return SortOrder(of, shown[1] == "ASC", shown[2] == "FIRST")


def has_order_within(column: Column) -> bool:
    """Whether some part of a Column is an order, which Spark's analyzer would treat as a value.

    The orders of windows do not count.
    """
    if _WITHIN.search(str(column)) is None:
        return False
    if isinstance(column, ClassicColumn):
        made: Any = column
        return _is_order_within(made._jc.node())
    return _is_order_of_connect(column)


def _is_order_within(node: Any) -> bool:
    """Whether a node of a classic Column is an order, or contains one."""
    kind = node.getClass().getSimpleName()
    if kind in ("SortOrder", "Window"):
        return bool(kind == "SortOrder")
    children = node.children()
    return any(_is_order_within(children.apply(i)) for i in range(children.size()))


def _is_order_of_connect(part: Any) -> bool:
    """The same for a Column of Spark Connect. Its parts are in attributes, and in lists of them."""
    if isinstance(part, list | tuple):
        return any(map(_is_order_of_connect, part))
    kind = type(part).__name__
    if kind in ("SortOrder", "WindowExpression"):
        return kind == "SortOrder"
    ours = type(part).__module__.startswith("pyspark.sql.connect.")
    return ours and any(map(_is_order_of_connect, vars(part).values()))


_WITHIN = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)\b")
_ORDER = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)'?>?$")
