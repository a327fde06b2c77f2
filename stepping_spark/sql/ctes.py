"""The queries of WITH: which of them are read, and the plans of recursive ones.

WITH RECURSIVE has an anchor and a recursive part, a function of the rows found before. It is
maintained if the recursive part is linear in these rows: it consists of maps, filters, unions, and
joins with relations that do not depend on them. Then the result for a set of rows is the sum of the
results for each row. So it does not matter that SQL applies the recursive part to the rows of the
last iteration, and a fixpoint applies it to all rows.

If the rows are joined with themselves, it does matter. Then each row has the number of its
iteration, and only rows with the same number are joined.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from stepping_spark.sql.inner_joins import equality
from stepping_spark.sql.names import Scope, same
from stepping_spark.sql.plan import (
    LateralView,
    PlanColumn,
    RecursiveQuery,
    RecursiveRows,
    RelationalPlan,
    Scalar,
    SelectList,
    SetOf,
    SqlJoin,
    WhereClause,
    as_items,
    conjuncts,
    free,
    keeping,
    nodes,
    ref,
    refs,
    with_sources,
)

if TYPE_CHECKING:
    from stepping_spark.sql.query import QueryScope

SHAPE = "write WITH RECURSIVE name AS (SELECT … UNION ALL SELECT … FROM name …)"

JOINS = (
    "it is on one side of an inner join, or on the left of EXISTS and IN; with UNION ALL also on "
    "the left of a LEFT JOIN whose conditions are equalities, and of NOT EXISTS"
)

BOTH = (
    "it is on both sides of a join, which has a meaning in inner joins and with UNION ALL: rows of "
    "one iteration are joined; join it with the table of its first part instead"
)


def used_queries(node: Scalar, with_: exp.With) -> list[exp.CTE]:
    """The queries of a WITH that its query reads, directly or indirectly, in their order."""
    names: set[str] = set()
    for part in node.iter_expressions():
        if part is not with_:
            names |= _unqualified(part)
    queries: list[exp.CTE] = []
    for cte in reversed(with_.expressions):
        if cte.alias.lower() in names:
            queries.insert(0, cte)
            names |= _unqualified(cte.this)
    return queries


def _unqualified(node: Scalar) -> set[str]:
    """The names of the tables without a schema in a query."""
    return {t.name.lower() for t in node.find_all(exp.Table) if not t.args.get("db")}


def table_named(node: Scalar, name: str) -> exp.Table | None:
    """The first table of this name without a schema in a query, or None."""
    tables = (t for t in node.find_all(exp.Table) if not t.args.get("db"))
    return next((t for t in tables if same(t.name, name)), None)


def recursive_query(
    queries: QueryScope, cte: exp.CTE, plans: dict[str, RelationalPlan], outer: Scope | None
) -> RelationalPlan:
    """The plan of a recursive query of WITH. `plans` has the queries before it."""
    name, union = cte.alias, cte.this
    table = table_named(union, name)
    bare = not any(union.args.get(k) for k in ("with_", "order", "limit", "offset"))
    if not isinstance(union, exp.Union) or not bare or table_named(union.left, name) is not None:
        reason = f"{name} reads itself, and is no UNION of what it begins with and what follows"
        queries.fail(table, reason, SHAPE)
    anchor = queries.planned(union.left, outer)
    named = [c.name for c in cte.args["alias"].args.get("columns") or ()]
    names = named or [c.name for c in anchor.columns]
    if len(names) != len(anchor.columns):
        queries.fail(cte, f"{name} names {len(names)} columns of {len(anchor.columns)}")
    rows = RecursiveRows(tuple(PlanColumn(n, name) for n in names))
    plans[name.lower()] = rows
    step = queries.planned(union.right, outer)
    if len(step.columns) != len(names):
        queries.fail(
            table,
            f"the recursive part of {name} has {len(step.columns)} columns, and its first part "
            f"{len(names)}",
        )
    if free(anchor) or free(step):
        queries.fail(
            table,
            f"{name} reads columns of an outer query",
            "join the outer query with it, by a column that it has",
        )
    every = union.args.get("distinct") is False
    most = cte.meta.get("level")
    if most == 0:
        queries.fail(cte, f"{name} may not begin to recur: its level is 0", "write a higher one")
    columns = tuple(PlanColumn(n, name) for n in names)
    reason = _not_linear(step, rows, every=every)
    if reason:
        queries.fail(table, f"{name} in its own recursive part: {reason}")
    query = RecursiveQuery(name, every, anchor, step, rows, columns, most)
    return _by_iterations(query) if any(_joins_itself(n, rows) for n in nodes(step)) else query


def _not_linear(step: RelationalPlan, rows: RecursiveRows, *, every: bool) -> str:
    """Why the recursive part is not linear in the rows; "" if it is.

    With `every` (UNION ALL), rows are counted, so outer joins and antijoins are linear, too.
    """
    for node in nodes(step):
        if rows not in nodes(node) or node is rows:
            continue
        match node:
            case SelectList() | WhereClause() | LateralView():
                continue
            case SetOf(kind="union", all=True):
                if every and not all(rows in nodes(side) for side in node.sources()):
                    return "a SELECT beside it that does not read it comes again and again"
                continue
            case SqlJoin():
                if _joins_itself(node, rows):
                    if every and node.how == "inner":
                        continue
                    return BOTH
                if _is_linear_join(node, rows, every=every):
                    continue
                return JOINS
        return "it has no aggregate, DISTINCT, window, LIMIT, nor set operation but UNION ALL"
    return ""


def _is_linear_join(plan: SqlJoin, rows: RecursiveRows, *, every: bool) -> bool:
    """Whether the join is linear in the side with the rows."""
    if plan.how == "inner":
        return True
    own, other = (plan.right, plan.left) if plan.how == "right" else (plan.left, plan.right)
    if plan.how == "full" or rows not in nodes(own):
        return False
    if plan.how == "semi":
        return True
    sides = set(own.columns), set(other.columns)
    conditions = [e for on in plan.on for e in conjuncts(on)]
    return every and all(equality(e, *sides) or refs(e) <= sides[1] for e in conditions)


# -- rows that are joined with themselves


def _joins_itself(plan: RelationalPlan, rows: RecursiveRows) -> bool:
    """Whether the rows are on both sides of a join."""
    return isinstance(plan, SqlJoin) and all(rows in nodes(side) for side in plan.sources())


def _by_iterations(query: RecursiveQuery) -> RelationalPlan:
    """The query whose rows have the number of their iteration.

    SQL's result is Σ Yₙ, where Y₀ = A and Yₙ₊₁ = F(Yₙ). It is the fixpoint of Y = A × {0} + {(x, n
    + 1) : x ∈ F(σ_n(Y))}, since rows of F(σ_n(Y)) come of rows with the number n only, and F
    consists of linear operators and joins.
    """
    first, number = PlanColumn("iteration"), PlanColumn("iteration")
    rows = RecursiveRows((*query.rows.new_columns, PlanColumn("iteration")))
    anchor = SelectList(
        query.anchor, (*as_items(query.anchor.columns), (first, exp.Literal.number(0)))
    )
    step, last = _with_number(query.step, rows)
    following = exp.Add(this=ref(last), expression=exp.Literal.number(1))
    again = SelectList(step, (*as_items(query.step.columns), (PlanColumn("iteration"), following)))
    columns = (*query.new_columns, number)
    whole = replace(query, anchor=anchor, step=again, rows=rows, new_columns=columns)
    return keeping(whole, query.new_columns)


def _with_number(plan: RelationalPlan, rows: RecursiveRows) -> tuple[RelationalPlan, PlanColumn]:
    """A part of the recursive part with the iteration of its rows, and its column."""
    number = PlanColumn("iteration")
    match plan:
        case RecursiveRows():
            *columns, iteration = rows.new_columns
            return SelectList(rows, (*as_items(columns), (number, ref(iteration)))), number
        case SelectList():
            source, iteration = _with_number(plan.source, rows)
            return SelectList(source, (*plan.items, (number, ref(iteration)))), number
        case SetOf():
            sides = []
            for side in plan.sources():
                numbered, iteration = _with_number(side, rows)
                sides.append(keeping(numbered, (*side.columns, iteration)))
            left, right = sides
            return replace(
                plan, left=left, right=right, new_columns=(*plan.new_columns, number)
            ), number
        case SqlJoin():
            return _join_with_number(plan, rows)
    (source,) = plan.sources()
    numbered, iteration = _with_number(source, rows)
    return with_sources(plan, numbered), iteration


def _join_with_number(plan: SqlJoin, rows: RecursiveRows) -> tuple[RelationalPlan, PlanColumn]:
    """A join with the iteration; if both sides have recursive rows, only of the same iteration."""
    numbers: list[PlanColumn] = []
    sides = []
    for side in plan.sources():
        numbered = side
        if any(isinstance(n, RecursiveRows) for n in nodes(side)):
            numbered, iteration = _with_number(side, rows)
            numbers.append(iteration)
        sides.append(numbered)
    left, right = sides
    same = (exp.EQ(this=ref(numbers[0]), expression=ref(numbers[1])),) if len(numbers) > 1 else ()
    return replace(plan, left=left, right=right, on=(*plan.on, *same)), numbers[0]
