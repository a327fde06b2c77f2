"""What a condition may be where columns are NULL, and what follows for outer joins.

A row that an outer join fills up has NULL in all columns of the other side. A condition that is
never true there leaves such rows out, so the join needs not make them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from sqlglot import exp

from stepping_spark.sql.plan import PlanColumn, Scalar, SqlJoin, column_of

TRUE, FALSE, NULL, OTHER = "true", "false", "null", "other"
Possible = frozenset[str]
"""The values that an expression may have: TRUE, FALSE, NULL, or another one."""

_ANY: Possible = frozenset((TRUE, FALSE, NULL, OTHER))
_IS_NULL: Possible = frozenset((NULL,))
_STRICT = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Add, exp.Sub, exp.Mul,
    exp.Div, exp.Mod, exp.Neg, exp.Cast, exp.TryCast,
)  # fmt: skip
"""Operators that are NULL if one of their values is NULL."""


def never_true(e: Scalar, nulls: Set[PlanColumn]) -> bool:
    """Whether a condition is FALSE or NULL in each row where all of these columns are NULL."""
    return not possible(e, nulls) & {TRUE, OTHER}


def is_null_for_sure(e: Scalar, nulls: Set[PlanColumn] = frozenset()) -> bool:
    """Whether an expression is NULL in each row where all of these columns are NULL."""
    return possible(e, nulls) == _IS_NULL


def possible(e: Scalar, nulls: Set[PlanColumn]) -> Possible:
    """The values that an expression may have where all of these columns are NULL."""
    match e:
        case exp.Column():
            return _IS_NULL if "column" in e.meta and column_of(e) in nulls else _ANY
        case exp.Null():
            return _IS_NULL
        case exp.Boolean():
            return frozenset((TRUE if e.this else FALSE,))
        case exp.Literal():
            return frozenset((OTHER,))
        case exp.Paren():
            return possible(e.this, nulls)
        case exp.Not():
            return frozenset(map(_negated, possible(e.this, nulls)))
        case exp.And() | exp.Or():
            of = _and if isinstance(e, exp.And) else _or
            return _each(of, possible(e.this, nulls), possible(e.expression, nulls))
        case exp.Is(expression=exp.Null()):
            return frozenset(TRUE if v == NULL else FALSE for v in possible(e.this, nulls))
        case exp.NullSafeEQ():
            return _each(_same, possible(e.this, nulls), possible(e.expression, nulls))
        case exp.Case(this=None):
            return _of_case(e, nulls)
        case exp.Anonymous(name=name) if name.lower() == "coalesce":
            return _first_known([possible(a, nulls) for a in e.expressions])
        case exp.Between() | exp.In():
            return _IS_NULL if is_null_for_sure(e.this, nulls) else _ANY
    if isinstance(e, _STRICT) and any(is_null_for_sure(a, nulls) for a in e.iter_expressions()):
        return _IS_NULL
    return _ANY


def _each(of: Callable[[str, str], str | None], a: Possible, b: Possible) -> Possible:
    """What a function of two values gives; where it gives None, it may be TRUE or FALSE."""
    found = {of(x, y) for x, y in itertools.product(a, b)}
    unknown = {TRUE, FALSE} if None in found else set()
    return frozenset({v for v in found if v is not None} | unknown)


def _negated(a: str) -> str:
    return {TRUE: FALSE, FALSE: TRUE}.get(a, a)


def _and(a: str, b: str) -> str:
    if FALSE in (a, b):
        return FALSE
    return NULL if NULL in (a, b) else TRUE


def _or(a: str, b: str) -> str:
    return _negated(_and(_negated(a), _negated(b)))


def _same(a: str, b: str) -> str | None:
    if OTHER in (a, b) and NULL not in (a, b):
        return None
    return TRUE if a == b else FALSE


def _of_case(e: exp.Case, nulls: Set[PlanColumn]) -> Possible:
    """CASE WHEN: the values of the branches that can be reached."""
    found: set[str] = set()
    for branch in e.args["ifs"]:
        condition = possible(branch.this, nulls)
        if condition & {TRUE, OTHER}:
            found |= possible(branch.args["true"], nulls)
        if condition == {TRUE}:
            return frozenset(found)
    default = e.args.get("default")
    return frozenset(found | (_IS_NULL if default is None else possible(default, nulls)))


def _first_known(values: list[Possible]) -> Possible:
    found: set[str] = set()
    for v in values:
        found |= v - {NULL}
        if NULL not in v:
            return frozenset(found)
    return frozenset(found | {NULL})


def without_filling(plan: SqlJoin, conditions: Sequence[Scalar]) -> SqlJoin:
    """The join, which makes no rows that one of the conditions leaves out for sure.

    σ_p(A ⟕ B) = σ_p(A ⋈ B), if p is never true where all columns of B are NULL; σ_p(A ⟗ B) is
    σ_p(A ⟖ B) then, and the other way round.
    """
    if plan.how not in ("left", "right", "full"):
        return plan
    fills_right = plan.how in ("left", "full")
    fills_left = plan.how in ("right", "full")
    right, left = set(plan.right.columns), set(plan.left.columns)
    fills_right = fills_right and not any(never_true(e, right) for e in conditions)
    fills_left = fills_left and not any(never_true(e, left) for e in conditions)
    how = {(True, True): "full", (True, False): "left", (False, True): "right"}
    return replace(plan, how=how.get((fills_right, fills_left), "inner"))
