"""The parts of a Column: functions, texts of SQL, constants, CASE and casts.

Private in PySpark, which has no public way to inspect a Column: `_jc`, the Java object of a classic
Column, whose node has its children; and `_expr`, the expression of a Column of Spark Connect, which
is an object of Python (`pyspark.sql.connect.expressions`), with its parts in private attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepping_spark.packages import Column, LateClass

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
