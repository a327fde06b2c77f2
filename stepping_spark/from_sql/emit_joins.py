"""Joins of relations: equalities are keys, and what is left is a condition of the pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from circuits.lifting import incremental
from stepping_spark.algebra import joins
from stepping_spark.expressions.functions import row_expr
from stepping_spark.from_sql.columns import Column, Expr, coalesced, ref, refs
from stepping_spark.from_sql.kinds import common_kind
from stepping_spark.from_sql.maps import all_of, filtered, key_of, projected
from stepping_spark.from_sql.parse import failure
from stepping_spark.from_sql.plan import Join
from stepping_spark.from_sql.relation import Relation
from stepping_spark.from_sql.rules import equality
from stepping_spark.query.primitives import add
from stepping_spark.query.trace import on_streams
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.types import Optional

LEFT, RIGHT = "left", "right"
_join, _outer_join, _cross_join, _semijoin, _antijoin = (
    incremental(on_streams(q))
    for q in (joins.join, joins.outer_join, joins.cross_join, joins.semijoin, joins.antijoin)
)


def joined(plan: Join, left: Relation, right: Relation) -> Relation:
    """The join of two relations."""
    return _Joined.of(plan, left, right).relation()


@dataclass(frozen=True)
class _Joined:
    """A join with its conditions sorted.

    `keys` are equalities, each with whether NULL equals NULL; `left_only` are conditions of a
    semijoin or an antijoin that read the left side only; `rest` are those that are left.
    """

    plan: Join
    left: Relation
    right: Relation
    keys: tuple[tuple[Expr, Expr, bool], ...]
    rest: tuple[Expr, ...]
    left_only: tuple[Expr, ...]

    @classmethod
    def of(cls, plan: Join, left: Relation, right: Relation) -> _Joined:
        """The join, with its conditions sorted."""
        there = set(plan.left.columns), set(plan.right.columns)
        keys: list[tuple[Expr, Expr, bool]] = []
        rest: list[Expr] = []
        left_only: list[Expr] = []
        for e in plan.on:
            pair = equality(e, *there)
            if pair is not None:
                keys.append((*pair, isinstance(e, exp.NullSafeEQ)))
            elif plan.how in ("anti", "mark") and refs(e) and refs(e) <= there[0]:
                left_only.append(e)
            else:
                rest.append(e)
        if any(safe for *_, safe in keys):
            plain = [a for a, _, safe in keys if not safe and isinstance(left.type(a), Optional)]
            rest += [exp.Not(this=exp.Is(this=a.copy(), expression=exp.Null())) for a in plain]
        return cls(plan, left, right, tuple(keys), tuple(rest), tuple(left_only))

    def relation(self) -> Relation:
        """The relation that the join makes."""
        match self.plan.how:
            case "mark":
                return self._marked()
            case "semi":
                return self.left.with_stream(self._semi(self.left.stream))
            case "anti":
                return self.left.with_stream(self._anti())
        return replace(self._pair, stream=self._pairs())

    @property
    def _pair(self) -> Relation:
        """The pairs of rows, without their stream."""
        places = self.left.under(LEFT) | self.right.under(RIGHT)
        return Relation(None, places, self.left.kinds | self.right.kinds, self.left.text)

    # -- what the operators take

    def _arguments(self) -> dict[str, Any]:
        """The keys of both sides, and the condition of the pairs."""
        where = None
        if self.rest:
            condition = self._pair.function(all_of(self.rest), "boolean")
            where = row_expr(condition, pair_of(self.left.row, self.right.row))
        if not self.keys:
            return {"on": (joins.ONE_KEY, joins.ONE_KEY), "where": where}
        kinds = [self._kind(a, b) for a, b, _ in self.keys]
        left = key_of(self.left, [a for a, *_ in self.keys], kinds)
        right = key_of(self.right, [b for _, b, _ in self.keys], kinds)
        return {
            "on": (left, right),
            "null_safe": any(safe for *_, safe in self.keys),
            "where": where,
        }

    def _kind(self, a: Expr, b: Expr) -> str:
        """The type in which two sides of an equality are compared."""
        kinds = self.left.kind(a), self.right.kind(b)
        kind = common_kind(*kinds)
        if kind is None:
            reason = f"a join compares {kinds[0]} with {kinds[1]}"
            raise failure(self.left.text, a, reason, "cast one of them")
        return kind

    # -- the joins

    def _pairs(self) -> Any:
        how: Any = self.plan.how
        streams = self.left.stream, self.right.stream
        given = self._arguments()
        if not self.keys and how in ("inner", "left"):
            return _cross_join(*streams, how=how, where=given["where"])
        if how == "inner":
            return _join(*streams, **given)
        return _outer_join(*streams, how=how, **given)

    def _semi(self, stream: Any) -> Any:
        return _semijoin(stream, self.right.stream, **self._arguments())

    def _anti(self) -> Any:
        """The rows without a match. Those that a condition on them alone leaves out have none."""
        if not self.left_only:
            return _antijoin(self.left.stream, self.right.stream, **self._arguments())
        chosen = filtered(self.left, self.left_only)
        none = _antijoin(chosen.stream, self.right.stream, **self._arguments())
        untrue = coalesced(exp.Not(this=all_of(self.left_only)), exp.true())
        return add(filtered(self.left, (untrue,)).stream, none)

    def _marked(self) -> Relation:
        """All rows of the left side, each with whether it has a match."""
        mark = self.plan.mark
        assert mark is not None
        chosen = filtered(self.left, self.left_only) if self.left_only else self.left
        there = self._with_mark(self._semi(chosen.stream), mark, value=True)
        rest = self._with_mark(self._anti(), mark, value=False)
        return replace(there, stream=add(there.stream, rest.stream))

    def _with_mark(self, stream: Any, mark: Column, *, value: bool) -> Relation:
        columns = self.plan.left.columns
        items = [*((c, ref(c)) for c in columns), (mark, exp.Boolean(this=value))]
        return projected(self.left.with_stream(stream), items)
