"""Columns of the running session, made from the Columns of traced functions.

A session of Spark Connect uses these unchanged. For a classic session, PySpark's own functions
build them again, from the leaves up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import Column, SparkSession
from stepping_spark.base.packages import functions as F
from stepping_spark.rows.types import quote
from stepping_spark.spark.column_tree import as_trees, is_tree
from stepping_spark.spark.session import get_session

__all__ = ["in_running_session"]

_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "negative": operator.neg,
    "<=>": lambda a, b: a.eqNullSafe(b),
    "in": lambda a, *among: a.isin(*among),
    "&": lambda a, b: a.bitwiseAND(b),
    "|": lambda a, b: a.bitwiseOR(b),
    "^": lambda a, b: a.bitwiseXOR(b),
    "~": lambda a: F.bitwise_not(a),
}
_LAMBDAS: dict[int, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    1: lambda f: lambda x: f(x),
    2: lambda f: lambda x, y: f(x, y),
    3: lambda f: lambda x, y, z: f(x, y, z),
}
"""Wrappers with the given number of parameters: PySpark inspects their signatures."""


def in_running_session(column: Column) -> Column:
    """The Column for the active session. Starts a session if none is active.

    Raises `CompileError` for a part without a Column in a classic session.
    """
    session = get_session()
    if not is_tree(column) or not isinstance(session, SparkSession):
        return column
    tree: Any = column
    with as_trees(wanted=False):
        result: Column = _column(tree._expr, {})
        return result


def _column(part: Any, variables: Mapping[str, Column]) -> Any:
    def of(inner: Any) -> Any:
        return _column(inner, variables)

    match type(part).__name__:
        case "SQLExpression":
            return F.expr(part._expr)
        case "LiteralExpression":
            return _constant(part._value, part._dataType)
        case "ColumnReference":
            return F.col(part._unparsed_identifier)
        case "UnresolvedStar":
            return F.col(part._unparsed_target or "*")
        case "UnresolvedFunction":
            return _call(part, variables)
        case "CallFunction":
            return F.call_function(part._name, *map(of, part._args))
        case "CastExpression":
            child = of(part._expr)
            cast = child.try_cast if part._eval_mode == "try" else child.cast
            return cast(part._data_type)
        case "CaseWhen":
            chain: Any = F
            for condition, value in part._branches:
                chain = chain.when(of(condition), of(value))
            rest = part._else_value
            return chain if rest is None else chain.otherwise(of(rest))
        case "UnresolvedNamedLambdaVariable":
            return variables[str(part)]
        case "UnresolvedExtractValue":
            return of(part._child)[_item(part._extraction, of)]
        case "ColumnAlias":
            return of(part._child).alias(*part._alias)
        case "WithField":
            return of(part._structExpr).withField(part._fieldName, of(part._valueExpr))
        case "DropField":
            return of(part._structExpr).dropFields(part._fieldName)
        case "LazyExpression":
            return of(part._expr)
    raise CompileError(
        f"a function of rows holds {part}, which a session of this kind cannot be asked for; write "
        "it with functions of pyspark.sql.functions, or wrap the function in st.python"
    )


def _item(part: Any, of: Callable[[Any], Any]) -> Any:
    return part._value if type(part).__name__ == "LiteralExpression" else of(part)


def _call(part: Any, variables: Mapping[str, Column]) -> Any:
    name, lambdas = part._name, [p for p in part._args if type(p).__name__ == "LambdaFunction"]
    others = [_column(a, variables) for a in part._args if a not in lambdas]
    if lambdas:
        return getattr(F, name)(*others, *(_function(p, variables) for p in lambdas))
    if name in _OPERATORS:
        return _OPERATORS[name](*others)
    if name in ("timestampadd", "timestampdiff"):
        make = F.timestamp_add if name == "timestampadd" else F.timestamp_diff
        return make(part._args[0]._value, *others[1:])
    if part._is_distinct and name in ("sum", "count"):
        return (F.sum_distinct if name == "sum" else F.count_distinct)(*others)
    return F.call_function(name if name.isidentifier() else quote(name), *others)


def _function(part: Any, variables: Mapping[str, Column]) -> Callable[..., Any]:
    names = [str(a) for a in part._arguments]

    def called(*given: Any) -> Any:
        return _column(part._function, {**variables, **dict(zip(names, given, strict=True))})

    return _LAMBDAS[len(names)](called)


def _constant(value: Any, t: Any) -> Any:
    match type(t).__name__:
        case _ if value is None:
            return F.lit(None)
        case "LongType":
            return F.lit(value) if abs(value) >= 2**31 else F.lit(value).cast("bigint")
        case "ByteType" | "ShortType" | "FloatType":
            return F.lit(value).cast(t)
        case "DateType" | "TimeType":
            return F.lit(t.fromInternal(value))
        case "TimestampType":
            return F.expr(f"timestamp_micros({value}L)")
        case "TimestampNTZType":
            return F.expr(f"TIMESTAMP_NTZ'{t.fromInternal(value)}'")
        case "DayTimeIntervalType":
            return F.lit(t.fromInternal(value))
    return F.lit(value)
