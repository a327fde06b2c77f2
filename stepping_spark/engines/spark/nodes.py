"""What each node means in Spark SQL: one function from the texts of relations to a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepping_spark.engines.spark.changes import change_in_one_pass, collated_change
from stepping_spark.engines.spark.groups import collated, listed, top
from stepping_spark.engines.spark.text import (
    ONE_TASK,
    WEIGHT,
    added_up,
    consolidated,
    equal,
    names,
    spread,
)
from stepping_spark.engines.spark.windows import distance_of, units_sql, windowed
from stepping_spark.expressions.expr import Build, Expr, Literal
from stepping_spark.expressions.index import Key
from stepping_spark.physical import (
    AntiJoin,
    Argument,
    Before,
    ChangeOf,
    CollatedChange,
    Contributions,
    Due,
    EquiJoin,
    Fold,
    Gather,
    Hole,
    Negate,
    Physical,
    Pieces,
    Positive,
    Project,
    Rank,
    Totals,
    Union,
    Unnest,
    Where,
    Windowed,
    walk,
)
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.literals import text as quoted
from stepping_spark.rows.schema import COUNT, GroupedType, Schema, columns_of
from stepping_spark.rows.sql_text import Sql, any_of, closed
from stepping_spark.rows.types import Struct, quote
from stepping_spark.sums.overflow import opposite, product
from stepping_spark.sums.sql import contributions, factors, totals


@dataclass(frozen=True)
class Query:
    """The text of a query, and the relations that it names.

    `consolidated` says that it has each row once, grouped by all of its columns.
    """

    text: str
    uses: frozenset[str]
    consolidated: bool = False


class Computing(Protocol):
    """Adds columns to a query that SQL text cannot express."""

    def __call__(self, query: Query, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        """The query's text, and the text of each expression over its rows, called `row`."""


@dataclass
class Context:
    """Renders a tree of nodes over queries.

    `few` rows are read and given; of many, `small` names the relations that can be sent to all
    workers. `now` is the time of the step, as a literal.
    """

    computed: Computing
    apart: Callable[[Query], str]  # gives it as a relation of its own
    few: bool
    small: frozenset[str]
    now: str
    args: Sequence[Query] = ()
    filled: Sequence[Query] = ()  # what stands for holes, within the change of a fold

    @property
    def one_task(self) -> str:
        """The hint that keeps few rows in one task."""
        return ONE_TASK if self.few else ""

    def query(self, n: Physical) -> Query:
        """The query of a node, with the columns of its schema, in order."""
        return Query(NODES[type(n)](self, n), self.uses(n))

    def kept(self, n: Physical) -> Query:
        """The query of a stream that is to be kept: sums of many rows are added up in it."""
        if isinstance(n, Contributions) and not self.few:
            once = _added_up(self, n)
            if once is not None:
                return Query(once, self.uses(n), consolidated=True)
        return self.query(n)

    def text(self, n: Physical) -> str:
        """The text of that query."""
        return NODES[type(n)](self, n)

    def uses(self, n: Physical) -> frozenset[str]:
        """The relations that a node reads."""
        found = [self.args[a.number].uses for a in walk(n) if isinstance(a, Argument)]
        found += [self.filled[a.number].uses for a in walk(n) if isinstance(a, Hole)]
        return frozenset().union(*found)

    def over(self, n: Physical, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        """The text of a node's query, and of expressions over its rows."""
        return self.computed(self.query(n), exprs, row)

    def side(self, text: str) -> str:
        """One side of a join."""
        return f"(SELECT {self.one_task} * FROM ({text}))"

    def hint(self, left: Physical | None, right: Physical) -> str:
        """How two sides are joined; only the right one of an anti join can be sent to all."""
        if self.few:
            return "/*+ SHUFFLE_HASH(r) */"
        for side, n in (("r", right), ("l", left)):
            uses = frozenset() if n is None else self.uses(n)
            if uses and uses <= self.small:
                return f"/*+ BROADCAST({side}) */"
        return ""


def _argument(run: Context, n: Argument) -> str:
    return run.args[n.number].text


def _hole(run: Context, n: Hole) -> str:
    return run.filled[n.number].text


def _project(run: Context, n: Project) -> str:
    query, texts = run.over(n.of, n.exprs, "t")
    columns = []
    for cell, x in zip(n.cells, texts, strict=True):
        columns += (
            spread(x, cell.columns) if cell.spread else [f"{x} AS {quote(cell.columns[0][0])}"]
        )
    diffs = [f"t.{quote(d)}" for d, _ in n.schema.diffs]
    return f"SELECT {', '.join([*columns, *diffs])} FROM ({query}) t"


def _where(run: Context, n: Where) -> str:
    query, (condition,) = run.over(n.of, n.exprs, "t")
    return f"SELECT {names(n.schema.all, 't')} FROM ({query}) t WHERE {condition}"


def _due(run: Context, n: Due) -> str:
    columns = names(n.schema.all, "t")
    return f"SELECT {columns} FROM ({run.text(n.of)}) t WHERE t.`time` <= {run.now}"


def _before(run: Context, n: Before) -> str:
    query, (value,) = run.over(n.of, n.exprs, "t")
    ((column, t),) = n.greatest.schema.columns
    latest = distance_of(closed(f"g.{quote(column)}"), t)
    limit = f"SELECT max({latest}) - {units_sql(n.distance, t)} FROM ({run.text(n.greatest)}) g"
    is_before = f"coalesce({distance_of(value, t)} < ({limit}), false)"
    kept = closed(f"NOT {is_before}") if n.others else is_before
    return f"SELECT {names(n.schema.all, 't')} FROM ({query}) t WHERE {kept}"


def _unnest(run: Context, n: Unnest) -> str:
    query, (lists,) = run.over(n.of, n.exprs, "t")
    carried = [f"t.{quote(c)}" for c, _ in n.carried]
    exploded = ", ".join([f"explode({lists}) AS item", *carried, f"t.{COUNT}"])
    count = f"t.{COUNT}"
    if n.weight is not None:
        count = f"{product(_at(n.weight), closed(count))} AS {COUNT}"
    columns = [
        f"{_at(path)} AS {quote(c)}" for path, (c, _) in zip(n.paths, n.columns, strict=True)
    ]
    shown = ", ".join([*columns, *carried, count])
    return f"SELECT {shown} FROM (SELECT {exploded} FROM ({query}) t) t"


def _at(path: tuple[str, ...]) -> Sql:
    return closed(".".join(["t.item", *map(quote, path)]))


def _union(run: Context, n: Union) -> str:
    return " UNION ALL ".join(f"({run.text(p)})" for p in n.parts)


def _negate(run: Context, n: Negate) -> str:
    return _negated(run.text(n.of), n.schema)


def _negated(query: str, schema: Schema) -> str:
    diffs = [f"{opposite(closed(f't.{quote(d)}'), t)} AS {quote(d)}" for d, t in schema.diffs]
    columns = [f"t.{quote(c)}" for c, _ in schema.columns]
    return f"SELECT {', '.join(columns + diffs)} FROM ({query}) t"


def _equi_join(run: Context, n: EquiJoin) -> str:
    exprs: tuple[list[Expr], list[Expr]] = ([*n.left_key], [*n.right_key])
    for side, e in n.cells:
        exprs[side].append(e)
    left, of_left = run.over(n.left, exprs[0], "l")
    right, of_right = run.over(n.right, exprs[1], "r")
    keys = len(n.left_key)
    on = equal(of_left[:keys], of_right[:keys])
    rest = (iter(of_left[keys:]), iter(of_right[keys:]))
    cells = [
        f"{next(rest[side])} AS {quote(c)}"
        for (side, _), (c, _) in zip(n.cells, n.columns, strict=True)
    ]
    many = product(closed(f"l.{COUNT}"), closed(f"r.{COUNT}"))
    return (
        f"SELECT {run.hint(n.left, n.right)} {', '.join(cells)}, {many} AS {COUNT} "
        f"FROM {run.side(left)} l JOIN {run.side(right)} r ON {on}"
    )


def _anti_join(run: Context, n: AntiJoin) -> str:
    left, key = run.over(n.left, n.key, "l")
    right = run.text(n.right)
    columns = names(n.schema.all, "l")
    same = equal(key, [closed(f"r.{quote(c)}") for c, _ in n.right.schema.columns])
    null = any_of(f"{k} IS NULL" for k in key)
    # Rows without a key are no part of a join, which would send them all to one worker.
    absent = (
        f"SELECT {run.hint(None, n.right)} {columns} FROM {run.side(left)} l "
        f"LEFT ANTI JOIN {run.side(right)} r ON {same} WHERE NOT {null}"
    )
    return f"({absent}) UNION ALL (SELECT {columns} FROM {run.side(left)} l WHERE {null})"


def _contributions(run: Context, n: Contributions) -> str:
    return contributions(*_picked(run, n), n.pick.type, n.schema)


def _added_up(run: Context, n: Contributions) -> str | None:
    """What many rows add to the sum of each key, each sum once; None for sums that have items."""
    found = factors(*_picked(run, n), n.pick.type, n.schema, _ones(n.pick))
    if found is None:
        return None
    query, limbs, same = found
    by, diffs = names(n.schema.columns), n.schema.diffs
    return added_up(query, by, diffs, few=False, given=limbs, same=same)


def _ones(pick: Expr) -> set[str]:
    """The fields of a row of numbers that are 1, as in a count."""
    if not isinstance(pick, Build) or not isinstance(pick.type, Struct):
        return set()
    fields = zip(pick.type.fields, pick.fields, strict=True)
    return {n for (n, _), e in fields if e == Literal(INT, 1)}


def _picked(run: Context, n: Contributions) -> tuple[str, Sql | None, Sql]:
    """The text of the rows that contribute, and of their keys and values."""
    split = () if n.key is None else n.key.parts
    query, texts = run.over(n.of, (*split, n.pick), "t")
    return query, None if n.key is None else _rebuilt(n.key, texts[:-1]), texts[-1]


def _rebuilt(key: Key, texts: list[Sql]) -> Sql:
    if key.parts == (key.expr,):
        return texts[0]
    assert isinstance(key.type, Struct)
    named = zip(key.type.fields, texts, strict=True)
    return closed(f"named_struct({', '.join(f'{quoted(n)}, {x}' for (n, _), x in named)})")


def _rows(run: Context, of: Physical, keys: Sequence[Expr] = ()) -> str:
    """The rows of a relation, added up."""
    return consolidated(run.text(of), of.schema, keys, few=run.few)


def _positive(run: Context, n: Positive) -> str:
    by = names(n.schema.columns)
    rows = f"SELECT {run.one_task} {names(n.schema.all)} FROM ({run.text(n.of)})"
    weight = WEIGHT if n.counted else "1L"
    return f"SELECT {by}, {weight} AS {COUNT} FROM ({rows}) GROUP BY {by} HAVING {WEIGHT} > 0"


def _rank(run: Context, n: Rank) -> str:
    return top(n, _rows(run, n.of, n.keys))


def _gather(run: Context, n: Gather) -> str:
    return listed(n, _rows(run, n.of))


def _windowed(run: Context, n: Windowed) -> str:
    uses = run.uses(n)
    return windowed(n, _rows(run, n.of, n.keys), lambda text: run.apart(Query(text, uses)))


def _pieces(run: Context, n: Pieces) -> str:
    return collated(n, _rows(run, n.of))


def _totals(run: Context, n: Totals) -> str:
    summed = totals(f"SELECT {run.one_task} * FROM ({_rows(run, n.of)})", n.type)
    if isinstance(n.type, GroupedType):
        return f"SELECT `_total_` AS `left`, `_key_` AS `right`, 1L AS {COUNT} FROM ({summed})"
    value = n.type.sum.value
    columns = [f"`_total_` AS {quote(c)}" for c, _ in n.schema.columns]
    if isinstance(value, Struct):
        columns = spread(closed("`_total_`"), columns_of(value))
    return f"SELECT {', '.join(columns)}, 1L AS {COUNT} FROM ({summed})"


def _change_of(run: Context, n: ChangeOf) -> str:
    return _old_and_new(run, n, equal=False).text


def _collated_change(run: Context, n: CollatedChange) -> str:
    run.filled = [_old_and_new(run, part, equal=True) for part in n.parts]
    pieces = f"SELECT {run.one_task} * FROM ({run.text(n.pieces.of)})"
    return collated_change(n.pieces, pieces)


def _old_and_new(run: Context, n: ChangeOf, *, equal: bool) -> Query:
    """The new rows of a fold, and the old ones with negative weights.

    With `equal`, those too that are the same before and after.
    """
    state, change = run.query(n.state), run.query(n.change)
    uses = state.uses | change.uses
    found = change_in_one_pass(n, state.text, change.text, few=run.few, equal=equal)
    if found is None:
        both = Query(f"({state.text}) UNION ALL ({change.text})", uses)
        before, after = (_filled(run, n.fold, of) for of in (state, both))
        found = f"({after}) UNION ALL ({_negated(before, n.schema)})"
    return Query(found, uses)


def _filled(run: Context, fold: Fold, of: Query) -> str:
    run.filled = (of,)
    return run.text(fold)


NODES: dict[type[Physical], Callable[[Context, Any], str]] = {
    AntiJoin: _anti_join,
    Argument: _argument,
    Before: _before,
    ChangeOf: _change_of,
    CollatedChange: _collated_change,
    Contributions: _contributions,
    Due: _due,
    EquiJoin: _equi_join,
    Gather: _gather,
    Hole: _hole,
    Negate: _negate,
    Pieces: _pieces,
    Positive: _positive,
    Project: _project,
    Rank: _rank,
    Totals: _totals,
    Union: _union,
    Unnest: _unnest,
    Where: _where,
    Windowed: _windowed,
}
