"""Inner joins as a list of relations and a list of conditions; parts of conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from stepping_spark.sql.clock import reads_clock
from stepping_spark.sql.parse import connected
from stepping_spark.sql.plan import (
    PlanColumn,
    RelationalPlan,
    Scalar,
    SqlJoin,
    WhereClause,
    conjuncts,
    refs,
)


@dataclass
class InnerJoin:
    """The relations of inner joins, in the order of the text, and their conditions.

    `semis` are the right sides of semijoins with these relations, and their conditions, if
    requested.
    """

    relations: list[RelationalPlan] = field(default_factory=list)
    conditions: list[Scalar] = field(default_factory=list)
    semis: list[tuple[RelationalPlan, tuple[Scalar, ...]]] = field(default_factory=list)
    whole: set[RelationalPlan] = field(default_factory=set)
    """Relations that other parts of the plan share: no condition is pushed into them."""

    @classmethod
    def of(cls, plan: RelationalPlan, *, with_semis: bool = False) -> InnerJoin:
        """The inner joins at the top of a plan; without joins, the plan as the only relation."""
        joins = cls()
        joins.add(plan, with_semis=with_semis)
        return joins

    def add(self, plan: RelationalPlan, *, with_semis: bool = False) -> None:
        """Add the relations and conditions of a plan."""
        match plan:
            case SqlJoin(how="inner"):
                self.add(plan.left, with_semis=with_semis)
                self.add(plan.right, with_semis=with_semis)
                self.conditions += [e for c in plan.on for e in factored(c)]
            case SqlJoin(how="semi") if with_semis:
                self.add(plan.left, with_semis=with_semis)
                self.semis.append((plan.right, plan.on))
            case WhereClause():
                self.add(plan.source, with_semis=with_semis)
                self.conditions += [e for c in plan.conditions for e in factored(c)]
            case _:
                self.relations.append(plan)

    def plan(self) -> RelationalPlan:
        """The plan of the joins, in the order of the relations."""
        joined = self.relations[0]
        for relation in self.relations[1:]:
            joined = SqlJoin(joined, relation, "inner")
        for right, on in self.semis:
            joined = SqlJoin(joined, right, "semi", on)
        return where(joined, self.conditions)


def where(plan: RelationalPlan, conditions: Sequence[Scalar]) -> RelationalPlan:
    """The rows of a plan for which all conditions are true."""
    needed = tuple(dict.fromkeys(e for e in conditions if e != exp.true()))
    return WhereClause(plan, needed) if needed else plan


def equality(
    e: Scalar, left: set[PlanColumn], right: set[PlanColumn]
) -> tuple[Scalar, Scalar] | None:
    """The two sides of an equality between two relations, left first; None for other conditions."""
    if not isinstance(e, exp.EQ | exp.NullSafeEQ):
        return None
    for a, b in ((e.this, e.expression), (e.expression, e.this)):
        if refs(a) and refs(b) and refs(a) <= left and refs(b) <= right:
            return a, b
    return None


# -- conditions that AND and OR connect


def factored(e: Scalar) -> Iterator[Scalar]:
    """The conditions that AND connects, after factoring `(a AND b) OR (a AND c)`."""
    for part in conjuncts(e):
        branches = _branches(part)
        common = [c for c in branches[0] if all(c in b for b in branches[1:])]
        if len(branches) == 1 or not common:
            yield part
            continue
        yield from common
        remainders = [[c for c in b if c not in common] for b in branches]
        if all(remainders):
            yield connected(exp.Or, [_and(b) for b in remainders])


def implied(e: Scalar, columns: set[PlanColumn]) -> list[Scalar]:
    """The conditions on one relation alone that a disjunction implies."""
    branches = [[c for c in b if refs(c) and refs(c) <= columns] for b in _branches(e)]
    if len(branches) == 1 or not all(branches) or reads_clock(e):
        return []
    return [exp.Paren(this=connected(exp.Or, [_and(b) for b in branches]))]


def _branches(e: Scalar) -> list[list[Scalar]]:
    """The branches of OR, each as the conditions that AND connects."""
    while isinstance(e, exp.Paren):
        e = e.this
    if isinstance(e, exp.Or):
        return [*_branches(e.this), *_branches(e.expression)]
    return [list(conjuncts(e))]


def _and(conditions: Sequence[Scalar]) -> Scalar:
    return exp.Paren(this=connected(exp.And, [c.copy() for c in conditions]))
