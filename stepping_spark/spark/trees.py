"""The parts of a Column: functions, texts of SQL, constants, CASE and casts.

Private in PySpark, which has no public way to inspect a Column: `_jc`, the Java object of a classic
Column, whose node has its children. A Column of Spark Connect is not inspected.
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
    """The parts of a Column; `other` for one of Spark Connect."""
    made: Any = column
    return _tree(made._jc.node()) if isinstance(column, ClassicColumn) else Tree("other")


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
