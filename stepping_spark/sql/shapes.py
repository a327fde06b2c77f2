"""Which parts of a plan are equal but for the numbers of their columns."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from sqlglot import exp

from stepping_spark.sql.plan import (
    PlanColumn,
    RecursiveRows,
    RelationalPlan,
    Scalar,
    TableScan,
    column_of,
    nodes,
)


class Shapes:
    """The shapes of plans, as numbers. Plans of one shape have the same rows.

    Their columns correspond by position. Equal shapes are found without looking at the rows, so
    plans of different shapes may have the same rows, too.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[RelationalPlan, int] = {}

    def of(self, plan: RelationalPlan) -> int:
        """The shape of a plan."""
        found = self._known.get(plan)
        if found is None:
            found = self._numbers.setdefault(self._description(plan), len(self._numbers))
            self._known[plan] = found
        return found

    def _description(self, plan: RelationalPlan) -> Hashable:
        if isinstance(plan, TableScan):
            return plan.table, tuple(c.name for c in plan.made)
        if isinstance(plan, RecursiveRows):
            return plan  # of one recursion
        at: dict[PlanColumn, Hashable] = {}
        for n, source in enumerate(plan.sources()):
            at |= {c: (n, i) for i, c in enumerate(source.columns)}
        fields = (f.name for f in dataclasses.fields(plan) if f.compare)
        parts = (self._part(getattr(plan, name), at) for name in fields)
        return type(plan), *parts

    def _part(self, part: Any, at: Mapping[PlanColumn, Hashable]) -> Hashable:
        """A part of a node, with the places of the columns of its sources for their numbers."""
        if isinstance(part, RelationalPlan):
            return self.of(part)
        if isinstance(part, PlanColumn):
            return at.get(part, "made")
        if isinstance(part, exp.Expr):
            return shape(part, at)
        if isinstance(part, tuple | list):
            return tuple(self._part(p, at) for p in part)
        if dataclasses.is_dataclass(part):
            compared = (f.name for f in dataclasses.fields(part) if f.compare)
            return tuple(self._part(getattr(part, name), at) for name in compared)
        return part  # type: ignore[no-any-return]

    def repeated(self, plan: RelationalPlan) -> set[int]:
        """The shapes that occur in a plan more than once."""
        parts = list(nodes(plan))
        read = Counter(part.table for part in parts if isinstance(part, TableScan))
        if all(n == 1 for n in read.values()):
            return set()
        return {number for number, n in Counter(map(self.of, parts)).items() if n > 1}


def shape(e: Scalar, at: Mapping[PlanColumn, Hashable]) -> Hashable:
    """An expression for comparison, with these values for its columns."""
    if isinstance(e, exp.Column) and "column" in e.meta:
        c = column_of(e)
        return at.get(c, c)
    if isinstance(e, exp.Paren):
        return shape(e.this, at)
    told = [e.meta.get(k) for k in ("literal", "typed")] if e.meta else ()
    return type(e), *told, *((k, _argument(v, at)) for k, v in e.args.items() if v)


def _argument(value: Any, at: Mapping[PlanColumn, Hashable]) -> Hashable:
    if isinstance(value, exp.Expr):
        return shape(value, at)
    if isinstance(value, list):
        return tuple(_argument(v, at) for v in value)
    return value  # type: ignore[no-any-return]
