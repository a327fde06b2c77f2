"""Columns of PySpark as trees: their functions, texts of SQL, constants, CASE and casts.

Private in PySpark, which has no public way to inspect a Column, or to pass a substitute to its
functions: `_jc`, the Java object of a classic Column, whose node has its children; and `_expr`, the
expression of a Column of Spark Connect, an object of Python (`pyspark.sql.connect.expressions`)
with its parts in private attributes. Functions of PySpark read both. They also ask whether they are
given an instance of the class of Columns, and `isinstance` believes what an object says of itself
(`__class__`). Only this module uses these members.
"""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepping_spark.base.packages import Column, LateClass, is_imported
from stepping_spark.spark.session import get_session

if TYPE_CHECKING:
    from pyspark.sql.classic.column import Column as ClassicColumn
else:
    ClassicColumn = LateClass("Column", "pyspark.sql.classic.column")

__all__ = ["ClassicColumn", "Tree", "tree_of"]


@dataclass(frozen=True)
class Tree:
    """A part of a Column: its kind, its name, text or value, and its own parts.

    The parts of a `case` are alternating conditions and values, and last the ELSE value.
    """

    kind: str  # function, text, constant, case, cast, or other
    value: Any = None
    parts: tuple[Tree, ...] = ()


def tree_of(column: Column) -> Tree:
    """The parts of a Column, classic or of Spark Connect."""
    made: Any = column
    if isinstance(column, ClassicColumn):
        return _tree(made._jc.node())
    return _tree_of_connect(made._expr)


def _tree(node: Any) -> Tree:
    kind = node.getClass().getSimpleName()
    if kind == "SqlExpression":
        return Tree("text", node.expression())
    if kind == "Literal" and node.dataType().isEmpty():
        return Tree("constant", node.value())
    if kind == "Cast" and node.evalMode().isEmpty():
        return Tree("cast", node.dataType().sql(), (_tree(node.child()),))
    if kind == "UnresolvedFunction" and not node.isDistinct() and not node.isUserDefinedFunction():
        return Tree("function", node.functionName().lower(), _trees(node.arguments()))
    if kind == "CaseWhenOtherwise":
        branches = [node.branches().apply(i) for i in range(node.branches().size())]
        parts = [_tree(part) for branch in branches for part in (branch._1(), branch._2())]
        rest = node.otherwise()
        parts.append(_tree(rest.get()) if rest.isDefined() else Tree("constant"))
        return Tree("case", None, tuple(parts))
    return Tree("other")


def _trees(nodes: Any) -> tuple[Tree, ...]:
    return tuple(_tree(nodes.apply(i)) for i in range(nodes.size()))


# Constants that Spark Connect sends as they are. It gives a Decimal digits of its own, and other
# values are numbers already, as the days of a date.
_AS_THEY_ARE = ("NullType", "BooleanType", "IntegerType", "LongType", "DoubleType", "StringType")


def _tree_of_connect(part: Any) -> Tree:
    kind = type(part).__name__
    if kind == "SQLExpression":
        return Tree("text", part._expr)
    if kind == "LiteralExpression" and type(part._dataType).__name__ in _AS_THEY_ARE:
        return Tree("constant", part._value)
    if kind == "CastExpression" and part._eval_mode is None:
        to = part._data_type
        ddl = to if isinstance(to, str) else to.simpleString()
        return Tree("cast", ddl.upper(), (_tree_of_connect(part._expr),))
    if kind == "UnresolvedFunction" and not part._is_distinct:
        return Tree("function", part._name.lower(), tuple(map(_tree_of_connect, part._args)))
    if kind == "CaseWhen":
        parts = [_tree_of_connect(p) for branch in part._branches for p in branch]
        rest = part._else_value
        parts.append(Tree("constant") if rest is None else _tree_of_connect(rest))
        return Tree("case", None, tuple(parts))
    return Tree("other")


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
