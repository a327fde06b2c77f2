"""Higher-order functions: their lambdas become Python functions of Columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlglot import exp

from stepping_spark.from_sql.values import Env, Value, column_of, in_spark
from stepping_spark.packages import functions as F

_TAKERS = {
    **{n: n for n in ("aggregate", "exists", "filter", "forall", "map_filter", "map_zip_with")},
    **{n: n for n in ("reduce", "transform", "transform_keys", "transform_values", "zip_with")},
    "any_match": "exists",
    "all_match": "forall",
    "array_sort": "array_sort",
}


class Lambdas(Env, Protocol):
    """Translates the bodies of lambdas, with values for their variables."""

    @property
    def is_within(self) -> bool:
        """Whether the nodes are part of a lambda."""

    def value(self, node: exp.Expr) -> Value:
        """The value of a node."""

    def within(self, variables: dict[str, Value], body: exp.Expr) -> Value:
        """The value of a lambda's body."""


def higher_order(name: str, args: Sequence[exp.Expr], node: exp.Expr, t: Lambdas) -> Value:
    """A call of a function with lambdas. Only Spark computes it."""
    taker = _TAKERS.get(name.lower())
    if taker is None:
        listed = ", ".join(_TAKERS)
        t.fail(node, f"{name} takes no lambda", f"these functions do: {listed}")
    values: list[Value] = []
    given: list[Any] = []
    for arg in args:
        if isinstance(arg, exp.Lambda):
            given.append(_function(arg, t))
            continue
        values.append(t.value(arg))
        given.append(column_of(values[-1]))
    column = getattr(F, taker)(*given)
    return Value(column, "") if t.is_within else in_spark(column, values, node, t)


def _function(node: exp.Lambda, t: Lambdas) -> Callable[..., Any]:
    names = [str(e.name).lower() for e in node.expressions]

    def of(*columns: Any) -> Any:
        variables = {n: Value(c, "") for n, c in zip(names, columns, strict=True)}
        return column_of(t.within(variables, node.this))

    # PySpark counts the parameters
    arities: dict[int, Callable[..., Any]] = {
        1: lambda x: of(x),
        2: lambda x, y: of(x, y),
        3: lambda x, y, z: of(x, y, z),
    }
    if len(names) not in arities:
        t.fail(node, f"a lambda has one to three variables, found {len(names)}")
    return arities[len(names)]
