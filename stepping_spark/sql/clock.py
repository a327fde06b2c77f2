"""Conditions that compare with the time of the step: they become bounds of a temporal filter.

`placed >= current_date - 30` holds while current_date < placed + 31 days. What is beside the clock
is moved to the other side, and the comparison becomes a bound before which, or from which on, a row
is there. This is `mz_now()` of Materialize, for Spark's own functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from stepping_spark.language.temporal_filters import temporal_filter
from stepping_spark.sql.parse import failure
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
_OPENED: dict[type, tuple[type[exp.Binary], ...]] = {
    exp.GT: (exp.GT,),
    exp.GTE: (exp.GTE,),
    exp.LT: (exp.LT,),
    exp.LTE: (exp.LTE,),
    exp.EQ: (exp.GTE, exp.LTE),
}
"""A comparison as bounds: an equality is two."""

_REMEDY = (
    "compare a date with current_date, or an instant with current_timestamp(), plus or minus days "
    "or an interval without months, as a condition of its own in WHERE: placed >= current_date - 30"
)


def kind_of_clock(node: Scalar) -> str | None:
    """The Spark type of a function that gives the time of the step; None for all others."""
    if isinstance(node, exp.Anonymous) and not node.expressions:
        return _KINDS.get(node.name.lower())
    return _NODES.get(type(node))


def reads_clock(e: Scalar) -> bool:
    """Whether an expression has the time of the step in it."""
    return any(kind_of_clock(node) is not None for node in e.walk())


def clock_of(trees: Iterable[Scalar]) -> str:
    """The Spark type of the times that a query compares with: dates, if all of them are."""
    kinds = {kind for tree in trees for node in tree.walk() if (kind := kind_of_clock(node))}
    return next((kind for kind in (TIMESTAMP, LOCAL) if kind in kinds), DATE)


def held_by_clock(source: PlacedStream, conditions: Sequence[Scalar], clock: str) -> PlacedStream:
    """The rows for which conditions on the time of the step hold, from step to step.

    `clock` is the Spark type of the times of the query, to which all bounds are converted.
    """
    lower: list[Scalar] = []
    upper: list[Scalar] = []
    for e in conditions:
        for condition in _between(e):
            bound = _Bound.of(source, condition).at(clock)
            (upper if bound.is_upper else lower).append(bound.value)
    stream = source.stream
    for i in range(max(len(lower), len(upper))):
        given: dict[str, Any] = {}
        for name, bounds in (("lower", lower), ("upper", upper)):
            if i < len(bounds):
                given[name] = source.function(bounds[i], clock)
        stream = temporal_filter(stream, **given)
    return source.with_stream(stream)


def _between(e: Scalar) -> list[Scalar]:
    """The comparisons of a condition, which AND connects."""
    while isinstance(e, exp.Paren):
        e = e.this
    if isinstance(e, exp.And):
        return [c for part in conjuncts(e) for c in _between(part)]
    if isinstance(e, exp.Between):
        low = exp.GTE(this=e.this.copy(), expression=e.args["low"].copy())
        return [low, exp.LTE(this=e.this.copy(), expression=e.args["high"].copy())]
    return [made(this=e.this.copy(), expression=e.expression.copy()) for made in _made(e)]


def _made(e: Scalar) -> tuple[type[exp.Binary], ...]:
    return _OPENED.get(type(e), (type(e),)) if isinstance(e, exp.Binary) else ()


@dataclass(frozen=True)
class _Bound:
    """A bound of the time of the step: it is below `value`, or equal to it and above."""

    source: PlacedStream
    value: Scalar
    kind: str
    is_upper: bool

    @classmethod
    def of(cls, source: PlacedStream, e: Scalar) -> _Bound:
        """The bound that one comparison says."""

        def fail(reason: str) -> Exception:
            return failure(source.text, _placed(e), reason, _REMEDY)

        if type(e) not in _FLIPPED:
            raise fail("a condition on the time of the step is no comparison")
        if reads_clock(e.this):
            e = _FLIPPED[type(e)](this=e.expression, expression=e.this)
        if reads_clock(e.this):
            raise fail("the time of the step stands on both sides")
        terms: list[tuple[type[exp.Binary], Scalar]] = []
        kind = _solved(source, e.expression, terms)
        if kind is None:
            raise fail("the time of the step stands within a function")
        inclusive = isinstance(e, exp.GTE | exp.LTE)
        is_upper = isinstance(e, exp.GT | exp.GTE)
        value, found = e.this, source.kind(e.this)
        if kind == DATE and found in (TIMESTAMP, LOCAL):
            # A date stands for its midnight. An instant is after it, if the one before is not
            # before it.
            if inclusive is not is_upper:
                value = _parens(exp.Sub(this=_parens(value), expression=_interval("microsecond")))
                inclusive = not inclusive
            value, found = _cast(value, "date"), DATE
        elif found != kind and found in (DATE, TIMESTAMP, LOCAL):
            value = _cast(value, kind)
        elif found != kind:
            raise fail(f"{kind}s are compared with {found}")
        for op, term in terms:
            value = _parens(op(this=_parens(value), expression=term.copy()))
        if source.kind(value) != kind:
            raise fail(f"{kind}s are compared with {source.kind(value)}")
        if inclusive is is_upper:  # clock <= value, or clock > value
            value = _parens(exp.Add(this=value, expression=_interval(_TICKS[kind])))
        return cls(source, value, kind, is_upper)

    def at(self, clock: str) -> _Bound:
        """The bound as one of this type: a date begins at midnight."""
        if self.kind == clock:
            return self
        return _Bound(self.source, _cast(self.value, clock), clock, self.is_upper)


_TICKS = {DATE: "day", TIMESTAMP: "microsecond", LOCAL: "microsecond"}
"""The least distance of two times."""


def _solved(
    source: PlacedStream, e: Scalar, terms: list[tuple[type[exp.Binary], Scalar]]
) -> str | None:
    """The type of the clock in a side; `terms` are what the other side gains or loses instead."""
    while isinstance(e, exp.Paren):
        e = e.this
    kind = kind_of_clock(e)
    if kind is not None:
        return kind
    sides = _sum_of(e)
    if sides is None:
        return None
    op, inner, term = sides
    if reads_clock(term):
        return None
    kind = _solved(source, inner, terms)
    if kind is None or not _is_distance(source.kind(term), kind):
        return None
    terms.append((op, term))
    return kind


def _sum_of(e: Scalar) -> tuple[type[exp.Binary], Scalar, Scalar] | None:
    """What undoes a sum, the part with the clock, and the other one."""
    match e:
        case exp.Sub():
            return exp.Add, e.this, e.expression
        case exp.Add() if reads_clock(e.this):
            return exp.Sub, e.this, e.expression
        case exp.Add():
            return exp.Sub, e.expression, e.this
        case exp.Anonymous(expressions=[inner, days]) if e.name.lower() == "date_sub":
            return exp.Add, inner, days
        case exp.Anonymous(expressions=[inner, days]) if e.name.lower() in ("date_add", "dateadd"):
            return exp.Sub, inner, days
    return None


def _is_distance(kind: str, of: str) -> bool:
    """Whether a value of a type can be taken from a time and added again: a month cannot."""
    if of == DATE:
        return kind in ("tinyint", "smallint", "int", "interval day")
    return kind.startswith("interval") and "month" not in kind and "year" not in kind


def _placed(e: Scalar) -> Scalar:
    """A node of an expression that knows its place in the text."""
    return next((n for n in e.walk() if n._meta and "start" in n._meta), e)


def _parens(e: Scalar) -> Scalar:
    return e if isinstance(e, exp.Paren | exp.Column) else exp.Paren(this=e)


def _interval(unit: str) -> Scalar:
    return exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this=unit.upper()))


def _cast(e: Scalar, kind: str) -> Scalar:
    return exp.Cast(this=e.copy(), to=exp.DataType.build(kind, dialect="spark"))
