"""Plans an aggregation: which aggregates are computed together, by which reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.lists import bits, compact, joined, percentile, shape
from stepping_spark.expressions.portable import Otherwise, if_nonzero, one_if_known, widened
from stepping_spark.language.algebra import order_of, under
from stepping_spark.language.reductions import (
    ONE,
    SUMMED,
    AggregateCall,
    Collected,
    First,
    Frequent,
    Gathered,
    Reduction,
    Shown,
    Sums,
    summed_type,
)
from stepping_spark.rows.atoms import FLOAT, INT, STR, RowType
from stepping_spark.rows.types import ListOf, Optional, ZSetOf, unwrap
from stepping_spark.zsets.spark import ZSetPython


@dataclass
class Planner:
    """Assigns aggregates to reductions."""

    keyed: bool
    group_size: int | None = None
    reductions: list[Reduction] = field(default_factory=list)
    shown: list[tuple[str, Reduction, Shown]] = field(default_factory=list)

    def add(self, a: AggregateCall) -> None:
        """Plan one aggregate."""
        kind = a.kind.removesuffix("_distinct")
        if kind in SUMMED:
            sums = self._sums(a.picked if a.kind != kind else None)
            plan: tuple[Reduction, Shown] = sums, SUMMED[kind](self.keyed, sums, a)
        elif kind == "collect":
            plan = self._collected(a)
        elif kind == "first_n":
            plan = self._listed(a)
        elif kind in LISTED:
            plan = self._gathered(a)
        elif kind == "mode":
            plan = self._most_frequent(a)
        else:
            plan = self._extreme(a)
        plan[0].aggregates.append(str(a))
        self.shown.append((a.field, *plan))

    def ensure_row(self) -> None:
        """Without a key there is always one row, even without input; a sum provides it."""
        if self.keyed and self.reductions:
            return
        if not any(r.always for r in self.reductions):
            rows = self._sums(None)
            rows.leaf(ONE)
            rows.aggregates.append("whether there are rows")
        self.reductions.sort(key=lambda r: not r.always)  # first reductions that always have a row

    def _sums(self, distinct: Expr | None) -> Sums:
        for r in self.reductions:
            same = [distinct] if distinct is not None else []
            if isinstance(r, Sums) and r.distinct == bool(same) and (not same or r.args == same):
                return r
        sums = Sums(distinct=distinct is not None)
        if distinct is not None:
            sums.arg(distinct)
        self.reductions.append(sums)
        return sums

    def _extreme(self, a: AggregateCall) -> tuple[Reduction, Shown]:
        """min, max, any_value, arg_min, arg_max: a value of the first row by an order."""
        r = First()
        up = not a.kind.endswith("max")
        ordered = a.order[0].expr if a.order else a.picked
        by = r.arg(ordered)
        value = r.arg(a.picked)
        nullable = isinstance(by.type, Optional)
        r.order = (*(((one_if_known(by), False),) if nullable else ()), (by, up))
        r.values = (value, one_if_known(by)) if nullable and by != value else (value,)
        reduction = self._interned(r)

        def show(at: tuple[str, ...]) -> Expr:
            t = value.type if self.keyed else Optional(unwrap(value.type))
            first = Field(t, (*at, "_1"))
            return if_nonzero(Field(INT, (*at, "_2")), first) if len(r.values) > 1 else first

        return reduction, show

    def _listed(self, a: AggregateCall) -> tuple[Reduction, Shown]:
        """The list of the first rows' values."""
        r = First(n=a.n, listed=True)
        r.order = order_of(under(a.order, [r.arg(s.expr) for s in a.order]))
        item = r.arg(a.picked)
        r.values = (item,)
        reduction = self._interned(r)
        t = ListOf(item.type)

        def show(at: tuple[str, ...]) -> Expr:
            items = Field(t if self.keyed else Optional(t), (*at, "_1"))
            return items if self.keyed else Otherwise(t, (items,), ())

        return reduction, show

    def _collected(self, a: AggregateCall) -> tuple[Reduction, Shown]:
        r = Collected()
        r.values = (r.arg(a.picked),)
        reduction = self._interned(r)
        t = ZSetOf(a.picked.type, ZSetPython)
        return reduction, lambda at: Field(t, (*at, "_1"))

    def _gathered(self, a: AggregateCall) -> tuple[Reduction, Shown]:
        """collect_list, percentile and others, computed from the ordered list of all values."""
        r = Gathered(distinct=a.kind in OF_A_SET)
        if LISTED[a.kind] in (_percentile, _shape):
            summed_type(a)
            item = r.arg(widened(a.picked, FLOAT))
            r.order = ((item, True),)
        elif LISTED[a.kind] is _bits or a.kind in OF_A_SET:
            _check_set(a)
            item = r.arg(a.picked)
            r.order = ((item, all(s.ascending for s in a.order)),)
        else:
            r.order = order_of(under(a.order, [r.arg(s.expr) for s in a.order]))
            item = r.arg(a.picked)
        r.values = (item,)
        reduction = self._interned(r)
        t: RowType = ListOf(item.type)

        def show(at: tuple[str, ...]) -> Expr:
            items = Field(t if self.keyed else Optional(t), (*at, "_1"))
            return LISTED[a.kind](a, items, self._nullable(item))

        return reduction, show

    def _most_frequent(self, a: AggregateCall) -> tuple[Reduction, Shown]:
        """mode: the most frequent value; NULL only if there is no other."""
        r = Frequent()
        value = r.arg(a.picked)
        r.values = (value,)
        reduction = self._interned(r)
        t = Optional(unwrap(value.type)) if self._nullable(value) else value.type
        return reduction, lambda at: Field(t, (*at, "_1"))

    def _nullable(self, e: Expr) -> bool:
        """Whether an aggregate of these values may be NULL."""
        return isinstance(e.type, Optional) or not self.keyed

    def _interned(self, r: Reduction) -> Reduction:
        """An equal reduction of the plan, or this one, added to the plan."""
        for other in self.reductions:
            if _can_share(r, other):
                return other
        self.reductions.append(r)
        return r


def _collect_list(a: AggregateCall, items: Expr, nullable: bool) -> Expr:
    return compact(items)


def _string_agg(a: AggregateCall, items: Expr, nullable: bool) -> Expr:
    if unwrap(a.picked.type) != STR:
        raise CompileError(
            f"{a.where}: {a}: string_agg joins str, found {a.picked.type}; convert it: "
            ".cast('string')"
        )
    return joined(items, str(a.option), nullable)


def _percentile(a: AggregateCall, items: Expr, nullable: bool) -> Expr:
    assert isinstance(a.option, float)
    return percentile(items, a.option, nullable)


def _shape(a: AggregateCall, items: Expr, nullable: bool) -> Expr:
    return shape(items, fourth=a.kind == "kurtosis")


def _bits(a: AggregateCall, items: Expr, nullable: bool) -> Expr:
    return bits(items, {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}[a.kind], nullable)


def _check_set(a: AggregateCall) -> None:
    """Refuse types without bits, and orders of distinct values that are not by value."""
    if LISTED[a.kind] is _bits and unwrap(a.picked.type) != INT:
        raise CompileError(f"{a.where}: {a}: {a.picked.type} has no bits; these have: int")
    if any(s.expr != a.picked for s in a.order):
        raise CompileError(
            f"{a.where}: {a}: distinct values have no other order than their own; leave order out, "
            "or order by the value"
        )


OF_A_SET = ("bit_and", "bit_or", "collect_set", "string_agg_distinct")
"""Aggregates of the ordered list of distinct values."""

LISTED: dict[str, Callable[[AggregateCall, Expr, bool], Expr]] = {
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "collect_list": _collect_list,
    "collect_set": _collect_list,
    "kurtosis": _shape,
    "median": _percentile,
    "percentile": _percentile,
    "skewness": _shape,
    "string_agg": _string_agg,
    "string_agg_distinct": _string_agg,
}


def _can_share(a: Reduction, b: Reduction) -> bool:
    if type(a) is not type(b) or a.args != b.args:
        return False
    if isinstance(a, First) and isinstance(b, First):
        return (a.order, a.n, a.values, a.listed) == (b.order, b.n, b.values, b.listed)
    if isinstance(a, Gathered) and isinstance(b, Gathered):
        return (a.order, a.values, a.distinct) == (b.order, b.values, b.distinct)
    return isinstance(a, Collected | Frequent)
