"""The names that Spark gives columns without an alias: `count(1)`, `(a + b)`."""

from __future__ import annotations

from sqlglot import exp

from stepping_spark.from_sql.aggregate_calls import args_of, name_of
from stepping_spark.from_sql.columns import Expr

_BINARY: dict[type[Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.EQ: "=",
    exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.And: "AND", exp.Or: "OR",
}  # fmt: skip


def shown_name(node: Expr) -> str:
    """The name of a column that is an expression without an alias."""
    if isinstance(node, exp.Column):
        return str(node.meta["column"].name) if "column" in node.meta else node.name
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    if isinstance(node, exp.Star):
        return "1"
    if isinstance(node, exp.Paren | exp.Filter | exp.IgnoreNulls):
        return shown_name(node.this)
    if isinstance(node, exp.Literal):
        return node.name
    if isinstance(node, exp.NEQ):
        return f"(NOT ({shown_name(node.this)} = {shown_name(node.expression)}))"
    if type(node) in _BINARY:
        left, right = shown_name(node.this), shown_name(node.expression)
        return f"({left} {_BINARY[type(node)]} {right})"
    if isinstance(node, exp.Subquery):
        return "scalarsubquery()"
    name = name_of(node)
    if name and not isinstance(node, exp.Case | exp.Cast):
        args, distinct = args_of(node)
        return f"{name}({'DISTINCT ' * distinct}{', '.join(map(shown_name, args))})"
    return str(node.sql(dialect="spark"))
