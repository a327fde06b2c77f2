"""What has no column is computed once, when the query is compiled."""

from __future__ import annotations

from sqlglot import exp

from stepping_spark.errors import StepError
from stepping_spark.expressions.columns import ExprColumn
from stepping_spark.expressions.expr import Literal
from stepping_spark.from_sql.kinds import row_type_of
from stepping_spark.from_sql.values import Value, constant, expr_of, ours
from stepping_spark.packages import Column, functions, raised
from stepping_spark.rows.atoms import Atom
from stepping_spark.spark.session import get_session


def varying(node: exp.Expr) -> set[int]:
    """The identities of the nodes that are no constants.

    They have a column in them, or are part of a lambda.
    """
    found: set[int] = set()
    for part in node.find_all(exp.Column, exp.Placeholder):
        above: exp.Expr | None = part
        while above is not None and id(above) not in found:
            found.add(id(above))
            above = None if above is node else above.parent
    inner = (part for made in node.find_all(exp.Lambda) for part in made.walk())
    return found | {id(part) for part in inner}


def folded(v: Value) -> Value:
    """A value without columns as a constant, if the driver can compute it.

    What fails, as `1 / 0` does, is left as it is: Spark raises the error if it meets a row.
    """
    e = expr_of(v)
    if e is None or isinstance(e, Literal):
        return v
    try:
        value = e.value(None)
    except (StepError, ArithmeticError, ValueError):
        return v
    return ours(Literal(e.type, value), v.kind)


def folded_in_spark(v: Value) -> Value:
    """A value without columns that only Spark can compute, as a constant."""
    if isinstance(v.column, ExprColumn) or v.kind == "":
        return v
    try:
        t = row_type_of(v.kind, nullable=True)
        encoded = _computed(v.column.cast(t.ddl))
    except (TypeError, raised.PySparkException):
        return v
    if not isinstance(row_type_of(v.kind, nullable=False), Atom):
        return v
    return constant(t.decode(encoded), v.kind)


def _computed(column: Column) -> object:
    one = get_session().sql("SELECT 1")
    _ = one.agg(functions.count(column)).schema  # an aggregate or a random value is no constant
    return one.select(column.alias("value")).toArrow().column(0)[0].as_py()
