"""Conditions that compare with the time of the step: they become bounds of a temporal filter.

`placed >= current_date - 30` holds while current_date < placed + 31 days. The clock is the argument
of a chain of monotone functions, such as `date_trunc('month', current_date) - 1`. Each function is
inverted on the other side, from the outside in: `x >= f(t)` holds for times up to the last one with
f(t) <= x. This is `mz_now()` of Materialize, for Spark's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from stepping_spark.language.temporal_filters import temporal_filter
from stepping_spark.sql.places import failure
from stepping_spark.sql.plan import Scalar, conjuncts
from stepping_spark.sql.relation import PlacedStream

DATE, TIMESTAMP, LOCAL = "date", "timestamp", "timestamp_ntz"
_KINDS = {
    "current_date": DATE,
    "curdate": DATE,
    "current_timestamp": TIMESTAMP,
    "now": TIMESTAMP,
    "localtimestamp": LOCAL,
}
_NODES: dict[type, str] = {exp.CurrentDate: DATE, exp.CurrentTimestamp: TIMESTAMP}
_FLIPPED: dict[type, type[exp.Binary]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
_TICKS = {DATE: "day", TIMESTAMP: "microsecond", LOCAL: "microsecond"}
"""The least distance between two times of a type."""

_REMEDY = (
    "compare a date with current_date, or an instant with current_timestamp(), plus or minus days, "
    "months or an interval, as a condition of its own in WHERE: placed >= current_date - 30"
)

Inverse = Callable[[Scalar], Scalar]
"""The inverse of a monotone function f: the greatest time t with f(t) <= x."""


def kind_of_clock(node: Scalar) -> str | None:
    """The Spark type of a function that returns the time of the step; None for other nodes."""
    if isinstance(node, exp.Anonymous) and not node.expressions:
        return _KINDS.get(node.name.lower())
    return _NODES.get(type(node))


def reads_clock(e: Scalar) -> bool:
    """Whether an expression contains the time of the step."""
    return any(kind_of_clock(node) is not None for node in e.walk())


def clock_of(trees: Iterable[Scalar]) -> str:
    """The Spark type of the step's time in a query: a date, if it uses dates only."""
    kinds = {kind for tree in trees for node in tree.walk() if (kind := kind_of_clock(node))}
    return next((kind for kind in (TIMESTAMP, LOCAL) if kind in kinds), DATE)


def held_by_clock(source: PlacedStream, conditions: Sequence[Scalar], clock: str) -> PlacedStream:
    """The rows for which conditions on the time of the step hold, at each step.

    `clock` is the Spark type of the step's time, to which all bounds are converted.
    """
    all_bounds = [_bound(source, c) for e in conditions for c in _comparisons(e)]
    stream = source.stream
    lower, upper = (
        [b.at(clock) for b in all_bounds if b.is_upper is which] for which in (False, True)
    )
    for i in range(max(len(lower), len(upper))):
        arguments: dict[str, Any] = {}
        for name, bounds in (("lower", lower), ("upper", upper)):
            if i < len(bounds):
                arguments[name] = source.function(bounds[i], clock)
        stream = temporal_filter(stream, **arguments)
    return source.with_stream(stream)


def _comparisons(e: Scalar) -> list[Scalar]:
    """The comparisons that AND connects in a condition; an equality counts as two."""
    e = _bare(e)
    if isinstance(e, exp.And):
        return [c for part in conjuncts(e) for c in _comparisons(part)]
    if isinstance(e, exp.Between):
        low = exp.GTE(this=e.this.copy(), expression=e.args["low"].copy())
        return [low, exp.LTE(this=e.this.copy(), expression=e.args["high"].copy())]
    if isinstance(e, exp.EQ):
        both = (exp.GTE, exp.LTE)
        return [
            comparison(this=e.this.copy(), expression=e.expression.copy()) for comparison in both
        ]
    return [e]


@dataclass(frozen=True)
class _Bound:
    """A bound: the time of the step is below `value`, or at least `value`."""

    value: Scalar
    kind: str
    is_upper: bool

    def at(self, clock: str) -> Scalar:
        """The bound as a time of this type: a date begins at midnight."""
        return self.value if self.kind == clock else _cast(self.value, clock)


def _bound(source: PlacedStream, e: Scalar) -> _Bound:
    """The bound of one comparison."""

    def fail(reason: str) -> Exception:
        return failure(source.text, _placed(e), reason, _REMEDY)

    if type(e) not in _FLIPPED:
        raise fail("a condition on the time of the step is no comparison")
    comparison, left, right = type(e), e.this, e.expression
    if reads_clock(left):
        comparison, left, right = _FLIPPED[comparison], right, left
    if reads_clock(left):
        raise fail("the time of the step stands on both sides")
    chain = _chain(source, right)
    if chain is None:
        raise fail("the time of the step stands within a function that is not understood")
    kind, inverses = chain
    left_kind = source.kind(left)
    if left_kind not in _TICKS:
        raise fail(f"{kind}s are compared with {left_kind}")
    if left_kind != kind and kind != DATE:  # dates are compared at their midnight
        left, left_kind = _cast(left, kind), kind
    if comparison in (exp.GT, exp.LTE):  # x > t is (x - 1) >= t with the least distance of times
        left = _sum(exp.Sub, left, _interval(_TICKS[left_kind]))
    if left_kind != kind:  # a time from the midnight of a date on has at least that date
        left = _cast(left, kind)
    for inverse in inverses:
        left = inverse(left)
    if source.kind(left) != kind:
        raise fail(f"{kind}s are compared with {source.kind(left)}")
    value = _sum(exp.Add, left, _interval(_TICKS[kind]))
    return _Bound(value, kind, comparison in (exp.GT, exp.GTE))


def _chain(source: PlacedStream, e: Scalar) -> tuple[str, tuple[Inverse, ...]] | None:
    """The type of the clock in an expression, and the inverses of the functions around it.

    The outermost inverse comes first. None if the expression is no such chain.
    """
    e = _bare(e)
    kind = kind_of_clock(e)
    if kind is not None:
        return kind, ()
    if isinstance(e, exp.Cast) and e.args["to"].sql("spark").lower() == DATE:
        return _as_date(source, e.this)
    if isinstance(e, exp.Add | exp.Sub):
        return _shifted(source, e)
    if isinstance(e, exp.Anonymous):
        return _called(source, e.name.lower(), list(e.expressions))
    return None


def _as_date(source: PlacedStream, e: Scalar) -> tuple[str, tuple[Inverse, ...]] | None:
    """The day of a bare clock: the date of the step; None for other expressions."""
    return (DATE, ()) if kind_of_clock(_bare(e)) is not None else None


def _shifted(source: PlacedStream, e: exp.Add | exp.Sub) -> tuple[str, tuple[Inverse, ...]] | None:
    inner, term = e.this, e.expression
    if isinstance(e, exp.Add) and not reads_clock(inner):
        inner, term = term, inner
    if reads_clock(term):
        return None
    back = exp.Add if isinstance(e, exp.Sub) else exp.Sub
    months = _months_in(term)
    if months is not None:
        return _with(source, inner, _months_back(months, back), only=DATE)
    chain = _chain(source, inner)
    if chain is None or not _is_distance(source.kind(term), chain[0]):
        return None
    return _with(source, inner, lambda x: _sum(back, x, term.copy()))


def _called(
    source: PlacedStream, name: str, args: list[Scalar]
) -> tuple[str, tuple[Inverse, ...]] | None:
    """The chain of a function of the clock."""
    match name, args:
        case (("date" | "to_date"), [inner]):
            return _as_date(source, inner)
        case "date_sub", [inner, days] if not reads_clock(days):
            return _with(source, inner, lambda x: _sum(exp.Add, x, days.copy()), only=DATE)
        case (("date_add" | "dateadd"), [inner, days]) if not reads_clock(days):
            return _with(source, inner, lambda x: _sum(exp.Sub, x, days.copy()), only=DATE)
        case "add_months", [inner, n] if not reads_clock(n):
            return _with(source, inner, _months_back(n, exp.Sub), only=DATE)
        case "date_trunc", [exp.Literal() as unit, inner]:
            return _truncated(source, inner, unit.name.lower())
        case "trunc", [inner, exp.Literal() as unit]:
            return _truncated(source, inner, unit.name.lower())
    return None


def _truncated(
    source: PlacedStream, inner: Scalar, unit: str
) -> tuple[str, tuple[Inverse, ...]] | None:
    """The chain of a truncation: its inverse is the last day of the month, or other unit, of x."""
    last = _LAST.get(unit)
    return None if last is None else _with(source, inner, last, only=DATE)


def _with(
    source: PlacedStream, inner: Scalar, inverse: Inverse, *, only: str | None = None
) -> tuple[str, tuple[Inverse, ...]] | None:
    """The chain of an inner expression, with the inverse of one more function."""
    chain = _chain(source, inner)
    if chain is None or only not in (None, chain[0]):
        return None
    return chain[0], (inverse, *chain[1])


def _last_of_months(unit: str, months: int) -> Inverse:
    """The inverse of a truncation: the last of the `months` that begin with the unit of x."""

    def last(x: Scalar) -> Scalar:
        first = _call("trunc", x, exp.Literal.string(unit))
        return _call("last_day", _call("add_months", first, exp.Literal.number(months - 1)))

    return last


def _last_of_week(x: Scalar) -> Scalar:
    monday = _call("trunc", x, exp.Literal.string("week"))
    return _call("date_add", monday, exp.Literal.number(6))


_OF_MONTH = _last_of_months("month", 1)
_LAST: dict[str, Inverse] = {
    **dict.fromkeys(("day", "dd"), lambda x: x),
    "week": _last_of_week,
    **dict.fromkeys(("month", "mon", "mm"), _OF_MONTH),
    "quarter": _last_of_months("quarter", 3),
    **dict.fromkeys(("year", "yyyy", "yy"), _last_of_months("year", 12)),
}


def _months_in(term: Scalar) -> Scalar | None:
    """The number of months of an interval of months or years; None for other terms."""
    term = _bare(term)
    if not isinstance(term, exp.Interval) or term.args.get("unit") is None:
        return None
    unit = term.args["unit"].name.lower().removesuffix("s")
    count = _bare(term.this)
    if unit not in ("month", "year", "quarter"):
        return None
    if isinstance(count, exp.Literal):
        if not count.name.lstrip("+-").isdigit():
            return None
        count = exp.Literal.number(int(count.name))
    each = {"month": 1, "quarter": 3, "year": 12}[unit]
    return _parens(exp.Mul(this=_parens(count.copy()), expression=exp.Literal.number(each)))


def _months_back(months: Scalar, op: type[exp.Binary]) -> Inverse:
    """The inverse of adding or subtracting months: the last day whose result is at most x.

    It is the day before the day whose sum is x + 1. If a month is too short for that day, Spark
    takes its last day, so the first day of the next month is the first with a later sum.
    """
    n = months.copy() if op is exp.Add else _parens(exp.Neg(this=_parens(months.copy())))

    def last(x: Scalar) -> Scalar:
        after = _call("date_add", x, exp.Literal.number(1))
        back = _call("add_months", after, n.copy())
        shorter = exp.LT(this=_call("day", back.copy()), expression=_call("day", after.copy()))
        days = exp.Case(
            ifs=[exp.If(this=shorter, true=exp.Literal.number(0))], default=exp.Literal.number(1)
        )
        return _call("date_sub", back, days)

    return last


def _is_distance(kind: str, of: str) -> bool:
    """Whether subtracting and adding a value of a type gives the same time: a month does not."""
    if of == DATE:
        return kind in ("tinyint", "smallint", "int", "interval day")
    return kind.startswith("interval") and "month" not in kind and "year" not in kind


def _placed(e: Scalar) -> Scalar:
    """The first node of an expression with a place in the text, or the expression."""
    return next((n for n in e.walk() if n._meta and "start" in n._meta), e)


def _bare(e: Scalar) -> Scalar:
    while isinstance(e, exp.Paren):
        e = e.this
    return e


def _parens(e: Scalar) -> Scalar:
    return e if isinstance(e, exp.Paren | exp.Column) else exp.Paren(this=e)


def _sum(op: type[exp.Binary], a: Scalar, b: Scalar) -> Scalar:
    return _parens(op(this=_parens(a.copy()), expression=b))


def _call(name: str, *args: Scalar) -> Scalar:
    return exp.Anonymous(this=name, expressions=[a.copy() for a in args])


def _interval(unit: str) -> Scalar:
    return exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this=unit.upper()))


def _cast(e: Scalar, kind: str) -> Scalar:
    return exp.Cast(this=e.copy(), to=exp.DataType.build(kind, dialect="spark"))
