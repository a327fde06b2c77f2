"""Arrow's kernels of the operators on values, exactly as Spark computes them.

Only operators that are exact in both are here: whole numbers within 64 bits, Decimals, which are
rounded once if their type lacks room for each digit, floats by the rules of IEEE 754, comparisons,
days and times, and logic with NULL. Arrow's checked arithmetic fails on an overflow. Spark would
fail or wrap around there, depending on its settings, so then Spark evaluates the expression.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial, reduce
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import StepError
from stepping_spark.expressions.expr import (
    Call,
    Expr,
    Literal,
    Opaque,
    is_plain,
)
from stepping_spark.expressions.operations import OPERATORS, digits, digits_of_result, fit, rank
from stepping_spark.expressions.zones import between, moved, shifted
from stepping_spark.relations.arrow import Array
from stepping_spark.rows.atoms import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    MOST_DIGITS,
    NAN,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.types import unwrap

pc: Any = pyarrow.compute

Arrays: TypeAlias = list[Array]

KernelFunction = Callable[..., Any]
"""Computes a column from columns, or from a column and constants; None: ask Spark."""

MOST_EXACT = 76
"""The digits of Arrow's largest decimals."""
_DIGITS_OF_SIGNED = 34
_EXACT_IN_FLOATS = 15
"""The digits that every float can represent; powers of ten with so many digits are exact, too."""
_ORDERED = ("int", "str", "bytes", "date", "datetime", "LocalDateTime", "timedelta", "Decimal")
_ARITHMETIC: dict[str, KernelFunction] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
}
_COMPARISONS: dict[str, KernelFunction] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LOGIC: dict[str, KernelFunction] = {
    "&": pc.and_kleene,
    "|": pc.or_kleene,
    "~": pc.invert,
}
_NULLS: dict[str, KernelFunction] = {
    "isNull": pc.is_null,
    "isNotNull": pc.is_valid,
    "known": lambda x: x,
}
_FIRST_DAY, _LAST_DAY = ((d - dt.date(1970, 1, 1)).days for d in (dt.date.min, dt.date.max))


def is_known(e: Expr) -> bool:
    """Whether the driver can compute an expression without Spark, if nothing overflows."""
    if isinstance(e, Opaque):
        return e.reading is not None
    if not isinstance(e, Call):
        return is_plain(e) or (e.on_driver and all(map(is_known, e.parts())))
    return (_function(e) or zoned_kernel_of(e)) is not None and all(map(is_known, e.args))


def kernel_of(e: Call) -> Callable[[Sequence[Any]], Any] | None:
    """The function that computes an operator's column from the columns of its arguments, in Arrow.

    None if Arrow cannot. The function returns None if Spark must compute the column: on an overflow
    of 64 bits, or of the digits of a Decimal.
    """
    function = _function(e)
    if function is None:
        return None
    constants = [i for i, a in enumerate(e.args) if i and isinstance(a, Literal)]
    arrow_type = unwrap(e.type).arrow

    def computed(columns: Sequence[Any]) -> Any | None:
        operands = list(columns)
        if len(columns[0]):
            for i in constants:
                operands[i] = columns[i][0]
        try:
            result = function(*operands)
        except pa.ArrowInvalid:
            return None
        return result if result is None or result.type == arrow_type else None

    return computed


def _function(e: Call) -> KernelFunction | None:
    types = tuple(unwrap(a.type) for a in e.args)
    if e.op in _NULLS:
        return _NULLS[e.op]
    if e.op in _LOGIC:
        return _LOGIC[e.op] if all(t == BOOL for t in types) else None
    if e.op in _COMPARISONS:
        return _comparison(e.op, *types)
    if e.op in ("isin", "eqNullSafe", "coalesce"):
        return _of_nulls(e.op, types)
    if len(types) == 1:
        return _of_one(e.op, types[0], unwrap(e.type))
    if types[0].ddl == "DATE":
        return _days(e.op, types[1])
    if types[0] == LOCAL_DATETIME:
        return _of_local_times(e.op, types[1])
    if types[0] == DATETIME and _is_below_a_day(e.args[1]):
        return _shift(e.op)
    if types == (TIMEDELTA, TIMEDELTA):
        return _ARITHMETIC.get(e.op)
    if e.op in ("+", "-", "*", "/", "%") and all(map(rank, types)):
        return _arithmetic(e.op, types, unwrap(e.type))
    return None


def _name(t: RowType) -> str:
    return t.name if isinstance(t, Atom) else ""


# Arithmetic


def _arithmetic(op: str, types: Sequence[RowType], given: RowType) -> KernelFunction | None:
    if given == INT:
        return remainder if op == "%" else _ARITHMETIC.get(op)
    if given == FLOAT:
        return partial(_of_floats, op)
    if _name(given) == "Decimal" and op not in ("/", "%"):
        one, other = (pa.decimal128(*digits(t)) for t in types)
        needed = digits_of_result(op, *types)[0]
        if needed <= MOST_DIGITS:  # neither Spark nor Arrow rounds
            return lambda a, b: _ARITHMETIC[op](a.cast(one), b.cast(other))
        if needed <= MOST_EXACT:
            return partial(_rounded, op, types, given)
        return partial(_by_row, op, given)
    # Spark reduces the digits of operands of % that have too many together
    fits = op == "/" or all(digits_of_result(o, *types)[0] <= MOST_DIGITS for o in "+%")
    if _name(given) == "Decimal" and fits:
        return partial(_by_row, op, given)
    return None


def _rounded(op: str, types: Sequence[RowType], given: RowType, a: Any, b: Any) -> Any:
    """A result with more digits than a Decimal: Spark computes all of them, and rounds once."""
    sizes = [digits(t) for t in types]
    exact = [
        x.cast(pa.decimal128(*size)).cast(pa.decimal256(*size))
        for x, size in zip((a, b), sizes, strict=True)
    ]
    result = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](*exact)
    rounded = pc.round(result, digits(given)[1], round_mode="half_towards_infinity")
    return rounded.cast(given.arrow)


def _by_row(op: str, given: RowType, a: Any, b: Any) -> Any:
    """Decimals divided as in plain Python, which rounds as Spark does."""
    others = repeat(b.as_py()) if isinstance(b, pa.Scalar) else b.to_pylist()
    f = OPERATORS[op].python
    try:
        values = [
            None if x is None or y is None else fit(f(x, y), given, op)
            for x, y in zip(a.to_pylist(), others, strict=False)
        ]
    except StepError:  # a divisor is zero: Spark raises the error
        return None
    return pa.array(values, given.arrow)


def remainder(a: Any, b: Any) -> Any:
    """The remainder of ints, with the sign of the dividend. Raises ArrowInvalid for a zero divisor.

    It also raises it for the least int and -1, whose quotient is beyond 64 bits.
    """
    return pc.subtract_checked(a, pc.multiply_checked(b, pc.divide_checked(a, b)))


def _of_floats(op: str, a: Any, b: Any) -> Any:
    a, b = as_floats(a), as_floats(b)
    if op in ("/", "%"):
        if pc.any(pc.equal(b, 0.0)).as_py() if isinstance(b, pa.Array) else b.as_py() == 0:
            return None  # Spark raises an error, or gives NULL
        result = pc.divide(a, b) if op == "/" else _float_remainder(a, b)
    else:
        result = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](a, b)
    return one_nan(result)


def _float_remainder(a: Any, b: Any) -> Any:
    """The exact remainder of floats, with the sign of the dividend, as in C and in Java."""
    valid = pc.and_(pc.is_valid(a), pc.is_valid(b))
    if isinstance(b, pa.Scalar):
        divisor: Any = np.nan if b.as_py() is None else b.as_py()
    else:
        divisor = b.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # of an infinity it is NaN
        remainders = pa.array(np.fmod(a.to_numpy(zero_copy_only=False), divisor))
    return pc.if_else(valid, remainders, pa.scalar(None, pa.float64()))


def as_floats(x: Any) -> Any:
    """Numbers cast to floats as in Spark: ints beyond 2**53 and Decimals to the nearest floats."""
    if not pa.types.is_decimal(x.type):
        return x if x.type == pa.float64() else x.cast(pa.float64(), safe=False)
    if isinstance(x, pa.Scalar):
        return pa.scalar(None if x.as_py() is None else float(x.as_py()), pa.float64())
    if x.type.precision > _EXACT_IN_FLOATS or not len(x):
        # Arrow's own cast divides, and may round twice
        return pa.array([None if v is None else float(v) for v in x.to_pylist()], pa.float64())
    words = np.frombuffer(x.buffers()[1], np.int64)[2 * x.offset :][: 2 * len(x) : 2]
    mask = x.is_null().to_numpy(zero_copy_only=False)
    return pa.array(words / 10.0**x.type.scale, pa.float64(), mask=mask)


def one_nan(x: Any) -> Any:
    """The floats with a single kind of NaN: processors make several, and rows contain one."""
    return pc.if_else(pc.is_nan(x), pa.scalar(NAN), x)


def _of_one(op: str, t: RowType, given: RowType) -> KernelFunction | None:
    """The kernel of an operator on one value."""
    if op == "neg" and t == INT:
        return _ARITHMETIC[op]
    if op == "neg" and t == TIMEDELTA:
        return _negated
    if op == "neg" and t == FLOAT:
        return lambda x: one_nan(pc.negate(x))
    if op == "neg" and _name(t) == "Decimal":
        return lambda x: None if is_rounded(x) else pc.negate(x)
    if op == "to_float" and t in (INT, FLOAT):
        return as_floats
    if op == "to_int" and t == INT:
        return _NULLS["known"]
    if op == "to_decimal" and _name(t) in ("int", "Decimal"):
        return partial(_as_decimal, of=digits(t), to=given)
    if op in ("minute", "local_minute") and _name(t) in ("datetime", "LocalDateTime"):
        return _minutes
    return _day_over if op == "day_over" else None


def is_rounded(x: Any) -> bool:
    """Whether some Decimals have more than 34 digits, so that Spark rounds their negatives."""
    t = x.type
    if t.precision <= _DIGITS_OF_SIGNED:
        return False
    bound = pa.scalar(Decimal((0, (1, *(0,) * _DIGITS_OF_SIGNED), -t.scale)), t)
    return pc.any(pc.greater_equal(pc.abs(x), bound)).as_py() is True


def _as_decimal(x: Any, of: tuple[int, int], to: RowType) -> Any:
    """A Decimal, rounded half away from zero. Raises ArrowInvalid if it does not fit."""
    scale = digits(to)[1]
    # Rounding up may need one more digit
    x = x.cast(pa.decimal128(min(of[0] + (scale < of[1]), MOST_DIGITS), of[1]))
    if scale < of[1]:
        x = pc.round(x, scale, "half_towards_infinity")
    return x.cast(to.arrow)


# Days and minutes


def _days(op: str, t: RowType) -> KernelFunction | None:
    """The kernel that moves a day by a number of days, or measures the duration between two."""
    if t == DATE and op == "-":
        return _days_between
    if t != INT or op not in ("+", "-"):
        return None

    def moved(day: Any, by: Any) -> Any:
        days = _ARITHMETIC[op](day.cast(pa.int32()).cast(pa.int64()), by)
        least, most = pc.min_max(days).as_py().values()
        if least is not None and (least < _FIRST_DAY or most > _LAST_DAY):
            return None
        return days.cast(pa.int32()).cast(pa.date32())

    return moved


def _days_between(a: Any, b: Any) -> Any:
    days = pc.subtract(a.cast(pa.int32()).cast(pa.int64()), b.cast(pa.int32()).cast(pa.int64()))
    return pc.multiply(days, pa.scalar(86_400_000_000)).cast(TIMEDELTA.arrow)


def _of_local_times(op: str, t: RowType) -> KernelFunction | None:
    """The kernel that moves local times by durations, or measures the duration between two."""
    if t == LOCAL_DATETIME:
        return _ARITHMETIC[op]
    return _shift(op)


def _shift(op: str) -> KernelFunction:
    """The kernel that moves times by exact durations, in any time zone."""
    return shifted if op == "+" else lambda x, by: shifted(x, _negated(by))


def _negated(durations: Any) -> Any:
    return pc.negate_checked(durations.cast(pa.int64())).cast(durations.type)


def _is_below_a_day(e: Expr) -> bool:
    """Whether an expression is a constant duration that moves instants equally in every zone."""
    span = e.constant if isinstance(e, Literal) else None
    return isinstance(span, dt.timedelta) and abs(span) < dt.timedelta(days=1)


ZonedKernel: TypeAlias = Callable[[Arrays, dt.tzinfo], Any]
"""Computes a column from columns, in the time zone of the session; None: ask Spark."""


def zoned_kernel_of(e: Call) -> ZonedKernel | None:
    """The kernel that moves instants by durations, or measures the duration between two."""
    types = tuple(unwrap(a.type) for a in e.args)
    if e.op not in ("+", "-") or types[0] != DATETIME or _is_below_a_day(e.args[1]):
        return None

    def computed(columns: Arrays, zone: dt.tzinfo) -> Any:
        a, b = columns
        try:
            if types[1] == DATETIME:
                return between(a, b, zone)
            return moved(a, b if e.op == "+" else _negated(b), zone)
        except pa.ArrowInvalid:
            return None

    return computed


def _day_over(x: Any) -> Any:
    """The instant 42 hours after midnight UTC of the day's date: the day is over everywhere."""
    days = x.cast(pa.int32()).cast(pa.int64())
    hours = pc.add(pc.multiply(days, pa.scalar(24)), pa.scalar(42))
    micros = pc.multiply(hours, pa.scalar(3_600_000_000))
    return micros.cast(pa.timestamp("us", "UTC"))


def _minutes(x: Any) -> Any:
    """Whole minutes since 1970, rounded down (before 1970 too)."""
    micros = np.asarray(x.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(micros // 60_000_000, mask=np.asarray(x.is_null()))


# Comparisons


def _comparison(
    op: str, a: RowType, b: RowType, *, may_round: bool = True
) -> KernelFunction | None:
    if a == b and (_name(a) in _ORDERED or (a == BOOL and op in ("==", "!="))):
        return _COMPARISONS[op]
    if not (rank(a) and rank(b)):
        return None
    if FLOAT in (a, b):
        return partial(compared_floats, op)
    of_sum, scale = digits_of_result("+", a, b)
    both = of_sum - 1  # a sum may need one more digit
    if both > MOST_DIGITS and not may_round:
        return None
    if both > MOST_DIGITS:
        return partial(_with_fewer_digits, op, (a, b), max(0, scale - (both - MOST_DIGITS)))
    t = pa.decimal128(both, scale)
    return lambda x, y: _COMPARISONS[op](x.cast(t), y.cast(t))


def _with_fewer_digits(op: str, types: tuple[RowType, RowType], scale: int, *values: Any) -> Any:
    """Compares Decimals that have too many digits together: Spark rounds both to fewer."""
    t = Atom("Decimal", Decimal, MOST_DIGITS, scale)
    rounded = (_as_decimal(x, digits(of), t) for x, of in zip(values, types, strict=True))
    return _COMPARISONS[op](*rounded)


def compared_floats(op: str, a: Any, b: Any) -> Any:
    """Compares floats in Spark's order: NaN equals itself, and is the largest."""
    a, b = as_floats(a), as_floats(b)
    if op in (">", ">="):
        a, b, op = b, a, op.replace(">", "<")
    nans = pc.is_nan(a), pc.is_nan(b)
    same = pc.or_(pc.equal(a, b), pc.and_(*nans))
    less = pc.or_(pc.less(a, b), pc.and_(pc.invert(nans[0]), nans[1]))
    result = {"==": same, "!=": pc.invert(same), "<": less, "<=": pc.or_(less, same)}[op]
    return pc.if_else(pc.and_(pc.is_valid(a), pc.is_valid(b)), result, pa.scalar(None, pa.bool_()))


def _of_nulls(op: str, types: Sequence[RowType]) -> KernelFunction | None:
    """The kernel of an operator that may return other values than NULL for NULL."""
    # Of several values Spark finds one type: floats, if one is a float
    one = FLOAT if FLOAT in types and all(map(rank, types)) else types[0]
    equals = [_comparison("==", one, t, may_round=False) for t in types[1:]]
    if op == "coalesce":
        return pc.coalesce if isinstance(types[0], Atom) and types[0] == types[1] else None
    comparisons = [f for f in equals if f is not None]
    if len(comparisons) < len(equals):
        return None
    if op == "eqNullSafe":
        return partial(_null_safe_equal, comparisons[0])
    return lambda x, *among: reduce(
        pc.or_kleene, (f(x, y) for f, y in zip(comparisons, among, strict=True))
    )


def _null_safe_equal(equal: KernelFunction, a: Any, b: Any) -> Any:
    neither = pc.and_(pc.is_null(a), pc.is_null(b))
    return pc.if_else(neither, True, equal(a, b).fill_null(False))
