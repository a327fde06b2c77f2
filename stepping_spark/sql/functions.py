"""Functions of SQL by their names: ours if the driver can compute them, else Spark's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from stepping_spark.base.packages import functions as F
from stepping_spark.expressions.portable import hashed, narrowed
from stepping_spark.expressions.spark_to_arrow import SparkFunction, function_of
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.types import unwrap
from stepping_spark.sql.kinds import (
    BITS,
    FLOATS,
    INTEGERS,
    TIMES,
    is_days,
    is_decimal,
    is_months,
    kind_of,
)
from stepping_spark.sql.operators import (
    arithmetic,
    chosen,
    common_of,
    compared,
    converted,
    explicit,
    first_of,
    negated,
    null_test,
)
from stepping_spark.sql.values import (
    Env,
    SqlValue,
    column_of,
    constant,
    constant_of,
    exprs_of,
    in_spark,
    is_null,
    null,
    one_unit,
    ours,
    refuse_special,
)

_CLOCK = {
    *("curdate", "current_date", "current_time", "current_timestamp", "localtime"),
    *("localtimestamp", "now"),
    "unix_timestamp",
}
_RANDOM = {"aes_encrypt", "rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid"}
_OF_TIME = ("session_window", "window")
_OF_TEXT = (
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
    "to_timestamp_ntz",
    "to_unix_timestamp",
    "try_to_date",
    "try_to_timestamp",
    "unix_timestamp",
)
_SESSION = {
    *("current_catalog", "current_database", "current_schema", "current_timezone", "current_user"),
    *("input_file_block_length", "input_file_block_start", "input_file_name", "session_user"),
    *("current_path", "monotonically_increasing_id", "spark_partition_id", "user", "version"),
}
_OF_JAVA = {"java_method", "reflect", "try_reflect"}

# Functions that convert their arguments to one type, which is the type of the result
_ALIKE = {"greatest", "least", "pmod", "&", "|", "^"}
_CASTS = {
    **{n: n for n in ("bigint", "binary", "boolean", "date", "double", "float", "int")},
    **{n: n for n in ("smallint", "string", "timestamp", "tinyint")},
    "decimal": "decimal(10,0)",
}

CallHandler = Callable[[list[SqlValue], exp.Expr, Env], SqlValue]


def function(name: str, args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    """A call of a function by the name in the text."""
    lower = name.lower()
    _refuse_what_varies(lower, args, node, env)
    if lower in ("greatest", "least") and len(args) < 2:
        env.fail(node, f"{lower} takes at least 2 arguments, found {len(args)}")
    handler = _HANDLERS.get(lower)
    if handler is not None and _ARITY[lower](len(args)):
        return handler(args, node, env)
    if lower == "array" and args and len({a.kind for a in args}) == 1:
        exprs = exprs_of(*args)
        array = None if exprs is None else function_of(lower, exprs)
        if array is not None:
            return ours(array, f"array<{args[0].kind}>")
    if lower in _CASTS and len(args) == 1:
        return explicit(args[0], _CASTS[lower], node, env)
    result = _ours(lower, args)
    if result is not None:
        return result
    return in_spark(F.call_function(name, *map(column_of, args)), args, node, env)


def _refuse_what_varies(name: str, args: list[SqlValue], node: exp.Expr, env: Env) -> None:
    if name in _CLOCK and (not args or name in ("current_time", "localtime")):
        env.fail(
            node,
            f"{name} differs from step to step, so that removing a row would not undo what adding "
            "it did",
            "compare a column with it, as a condition of its own in WHERE: placed >= "
            "current_date - 30; or put the time into the rows",
        )
    if name in _OF_TEXT and args:
        refuse_special(constant_of(args[0]), node, env)
    if name in _RANDOM:
        env.fail(
            node,
            f"{name} returns another value each time, so the removal of a row would not undo its "
            "insertion",
            "compute a number from the row: pmod(xxhash64(id), 100)",
        )
    if name in _OF_JAVA:
        env.fail(
            node,
            f"{name} calls any code of Java, which may give another value each time",
            "use st.map with st.python",
        )
    if name in _OF_TIME:
        env.fail(
            node,
            f"{name} makes rows: it stands in the select list or in GROUP BY",
            "write it there, in a sub-query, and read its column here",
        )
    if name in _SESSION:
        env.fail(
            node,
            f"{name} depends on the session or on the place of a row, not on its values",
            "put the value into the rows, or into the text as a constant",
        )


def _ours(name: str, args: list[SqlValue]) -> SqlValue | None:
    """A function that the driver computes; None for others."""
    if any(a.kind == "float" or is_months(a.kind) or is_null(a) for a in args):
        return None
    if name in _ALIKE:
        kind = common_of(args)
        if kind is None:
            return None
        args = [converted(a, kind) for a in args]
    exprs = exprs_of(*args)
    call = None if exprs is None else function_of(name, exprs)
    if call is None:
        return None
    if name == "sequence":
        kind = common_of(args)
        return None if kind is None else ours(call, f"array<{kind}>")
    if unwrap(call.type) != INT:
        kind = kind_of(call.type)
        return ours(call, args[0].kind if args[0].kind.startswith("interval") else kind)
    if isinstance(call, SparkFunction) and call.is_int:
        return ours(call, "int")
    # The widest of the ints; a function from other types to ints returns BIGINTs
    widths = [a.kind for a in args if a.kind in INTEGERS]
    if name not in (*_ALIKE, "abs") or not widths:
        return ours(call, "bigint")
    return ours(narrowed(call, BITS[args[0].kind]), args[0].kind)


# Functions that are operators or choices


def _if(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    condition, if_true, if_false = args
    return chosen([(condition, if_true)], if_false, node, env)


def _nullif(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    a, b = args
    return chosen([(compared("==", a, b, node, env), null())], a, node, env)


def _nvl2(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    not_null = null_test(args[0], node, env, negated=True)
    return chosen([(not_null, args[1])], args[2], node, env)


def concatenated(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    """`||` and `concat`: the concatenated texts; NULL if a value is NULL."""
    texts = [a if a.kind in ("string", "") else _as_text(a) for a in args]
    if all(t is not None for t in texts):
        result = _ours("concat", [t for t in texts if t is not None])
        if result is not None:
            return result
    return in_spark(F.call_function("concat", *map(column_of, args)), args, node, env)


def _as_text(a: SqlValue) -> SqlValue | None:
    castable = a.kind in (*INTEGERS, "boolean", "date", "timestamp_ntz") or is_decimal(a.kind)
    return converted(a, "string") if castable else None


def _date_moved(sign: str) -> CallHandler:
    def moved(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
        day, by = args
        if day.kind == "date" and by.kind in ("int", "smallint", "tinyint"):
            return arithmetic(sign, day, by, node, env)
        name = "date_add" if sign == "+" else "date_sub"
        return in_spark(F.call_function(name, *map(column_of, args)), args, node, env)

    return moved


def _negative(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    return negated(args[0], node, env)


def _isnan(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    as_double = [converted(a, "double") if a.kind in FLOATS else a for a in args]
    result = _ours("isnan", as_double)
    return result or in_spark(F.call_function("isnan", *map(column_of, args)), args, node, env)


def _ceiling(name: str) -> CallHandler:
    """`ceil` and `floor` of an int are the int as a BIGINT."""

    def rounded(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
        if len(args) == 1 and args[0].kind in INTEGERS:
            return converted(args[0], "bigint")
        result = _ours(name, args)
        return result or in_spark(F.call_function(name, *map(column_of, args)), args, node, env)

    return rounded


def _hash(name: str) -> CallHandler:
    """`hash` and `xxhash64`, whose values for BIGINT differ from those for narrower integers."""

    def of(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
        kinds = {a.kind for a in args}
        exprs = None if "void" in kinds or any(map(is_months, kinds)) else exprs_of(*args)
        narrow = [a.kind in INTEGERS[:-1] for a in args]
        result = None if exprs is None or "float" in kinds else hashed(name, exprs, narrow)
        if result is not None:
            return ours(result, "int" if name == "hash" else "bigint")
        return in_spark(F.call_function(name, *map(column_of, args)), args, node, env)

    return of


def _bits(op: str) -> CallHandler:
    """`&`, `|` and `^`, which Spark has as operators only."""

    def combined(args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
        a, b = map(column_of, args)
        result = _ours(op, args)
        return result or in_spark(getattr(a, _BITWISE[op])(b), args, node, env)

    return combined


_BITWISE = {"&": "bitwiseAND", "|": "bitwiseOR", "^": "bitwiseXOR"}


def _exactly(n: int) -> Callable[[int], bool]:
    return lambda count: count == n


def _any_number(count: int) -> bool:
    return count > 0


_HANDLERS: dict[str, CallHandler] = {
    "if": _if,
    "iff": _if,
    "nullif": _nullif,
    "nvl2": _nvl2,
    "coalesce": lambda args, node, env: first_of(args, node, env),
    "nvl": lambda args, node, env: first_of(args, node, env),
    "ifnull": lambda args, node, env: first_of(args, node, env),
    "isnull": lambda args, node, env: null_test(args[0], node, env),
    "isnotnull": lambda args, node, env: null_test(args[0], node, env, negated=True),
    "mod": lambda args, node, env: arithmetic("%", args[0], args[1], node, env),
    "negative": _negative,
    "concat": concatenated,
    "date_add": _date_moved("+"),
    "dateadd": _date_moved("+"),
    "date_sub": _date_moved("-"),
    "isnan": _isnan,
    "ceil": _ceiling("ceil"),
    "ceiling": _ceiling("ceil"),
    "floor": _ceiling("floor"),
    **{op: _bits(op) for op in _BITWISE},
    **{name: _hash(name) for name in ("hash", "xxhash64")},
    "equal_null": lambda args, node, env: compared("eqNullSafe", args[0], args[1], node, env),
}
_ARITY: dict[str, Callable[[int], bool]] = {
    **dict.fromkeys(("if", "iff", "nvl2"), _exactly(3)),
    **dict.fromkeys(("nullif", "nvl", "ifnull", "mod", "equal_null"), _exactly(2)),
    **dict.fromkeys(("date_add", "dateadd", "date_sub", *_BITWISE), _exactly(2)),
    **dict.fromkeys(("isnull", "isnotnull", "negative", "isnan"), _exactly(1)),
    **dict.fromkeys(("coalesce", "concat", "ceil", "ceiling", "floor"), _any_number),
    **dict.fromkeys(("hash", "xxhash64"), _any_number),
}


_UNITS = (
    *("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFYEAR", "WEEK"),
    *("MONTH", "QUARTER", "YEAR"),
)


def units_of_time(
    name: str, unit: str, args: Sequence[SqlValue], node: exp.Expr, env: Env
) -> SqlValue:
    """`datediff(MONTH, a, b)`, `timestampadd(HOUR, 1, t)`: functions with a unit in the text."""
    if unit.upper() not in _UNITS:
        env.fail(node, f"{unit} is no unit of time", f"the units are {', '.join(_UNITS)}")
    differs = name.lower() in ("datediff", "date_diff", "timestampdiff")
    if differs:
        value = _ours("timestampdiff", [constant(unit.upper(), "string"), *map(_as_time, args)])
    else:
        value = _moved_by_units(unit.lower(), args, node, env)
    if value is not None:
        return value
    columns = [column_of(a) for a in args]
    column = (F.timestamp_diff if differs else F.timestamp_add)(unit.upper(), *columns)
    return in_spark(column, list(args), node, env)


def _as_time(a: SqlValue) -> SqlValue:
    """A constant text as a local time; other values unchanged."""
    time = converted(a, "timestamp_ntz") if a.kind == "string" else a
    return a if constant_of(time) is None else time


def _moved_by_units(
    unit: str, args: Sequence[SqlValue], node: exp.Expr, env: Env
) -> SqlValue | None:
    """A time moved by a constant number of units below a month; None if only Spark computes it."""
    by = constant_of(args[0]) if len(args) == 2 else None
    if type(by) is not int or args[0].kind not in INTEGERS or args[1].kind not in TIMES[1:]:
        return None
    span = one_unit(by, "day" if unit == "dayofyear" else unit)
    if span is None or not is_days(span.kind) or exprs_of(args[1]) is None:
        return None
    return arithmetic("+", args[1], span, node, env)


# Windows of time


def slid_in_spark(at: Any, kind: str, slide: int, offset: int, shift: int) -> Any:
    """The begin or the end of the time window that contains a time, shifted, as a Column."""

    def moved(micros: Any) -> Any:
        return micros - F.pmod(micros - offset, F.lit(slide)) + shift

    def moved_local(x: Any) -> Any:
        hours = F.unix_date(x.cast("date")).cast("bigint") * 24 + F.hour(x)
        seconds = F.extract(F.lit("SECOND"), x) * 1_000_000
        return (hours * 60 + F.minute(x)) * 60_000_000 + seconds.cast("bigint")

    if kind == "timestamp":
        return F.timestamp_micros(_of_one(F.unix_micros(at), moved))
    zero, micros = F.lit(0), _of_one(_of_one(at, moved_local), moved)
    span = F.make_dt_interval(
        zero, zero, zero, (micros / F.expr("1000000BD")).cast("decimal(18,6)")
    )
    return F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'") + span


def _of_one(value: Any, f: Callable[[Any], Any]) -> Any:
    """A function of a Column, which Spark evaluates once."""
    return F.transform(F.array(value), lambda x: f(x))[0]
