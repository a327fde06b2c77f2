"""The Spark SQL of each node, and the queries of a plan's terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepping_spark.base.packages import Column
from stepping_spark.circuit.operators import Operator, trees_of
from stepping_spark.circuit.physical import (
    BUCKET,
    AntiJoin,
    Argument,
    BelowGreatest,
    BucketedRank,
    ChangeOf,
    CollatedChange,
    Contributions,
    Due,
    EquiJoin,
    Fold,
    Gather,
    Hole,
    LargestByKey,
    Negate,
    NoRows,
    Physical,
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
from stepping_spark.execution.spark.buckets import BucketColumn
from stepping_spark.execution.spark.text import (
    WEIGHT,
    consolidated,
    equal,
    key_names,
    names,
    ordered,
    spread,
)
from stepping_spark.execution.spark.windows import as_number, units_sql, windowed
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.index import Key
from stepping_spark.expressions.symbolic import to_column
from stepping_spark.plan.step_ir import Apply, Leaf, Term, other_columns, type_of
from stepping_spark.relations.sums.overflow import opposite, product
from stepping_spark.relations.sums.sql import contributions, totals
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import COUNT, GroupedType, Schema, StreamType, columns_of
from stepping_spark.rows.sql_text import Sql, all_of, any_of, closed
from stepping_spark.rows.sql_text import text as quoted
from stepping_spark.rows.types import ListOf, Struct, quote


@dataclass(frozen=True)
class SqlQuery:
    """The text of a query, and the names of its relations."""

    text: str
    uses: frozenset[str]


class Computing(Protocol):
    """Adds columns to a query that SQL text cannot express."""

    def __call__(self, query: SqlQuery, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        """The query's text, and the text of each expression over its rows, called `row`."""


class Separating(Protocol):
    """Makes a query a relation of its own, which may have a column with the buckets of its rows."""

    def __call__(self, query: SqlQuery, bucket: BucketColumn | None = None) -> str:
        """The text of the query of the relation."""


@dataclass
class RenderContext:
    """Renders a tree of nodes over queries; `now` is the time of the step, as a literal."""

    computed: Computing
    apart: Separating
    now: str
    in_buckets: bool  # whether Python workers compute the buckets of rows
    args: Sequence[SqlQuery] = ()
    filled: Sequence[SqlQuery] = ()  # the queries in holes, within the change of a fold

    def query(self, n: Physical) -> SqlQuery:
        """The query of a node, with the columns of its schema, in order."""
        return SqlQuery(NODES[type(n)](self, n), self.uses(n))

    def text(self, n: Physical) -> str:
        """The text of the query of a node."""
        return NODES[type(n)](self, n)

    def uses(self, n: Physical) -> frozenset[str]:
        """The relations that a node reads."""
        reads = [self.args[a.number].uses for a in walk(n) if isinstance(a, Argument)]
        reads += [self.filled[a.number].uses for a in walk(n) if isinstance(a, Hole)]
        return frozenset().union(*reads)

    def over(self, n: Physical, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        """The text of a node's query, and of expressions over its rows."""
        return self.computed(self.query(n), exprs, row)


def _argument(run: RenderContext, n: Argument) -> str:
    return run.args[n.number].text


def _hole(run: RenderContext, n: Hole) -> str:
    return run.filled[n.number].text


def _project(run: RenderContext, n: Project) -> str:
    query, texts = run.over(n.of, n.exprs, "t")
    columns = []
    for cell, x in zip(n.cells, texts, strict=True):
        columns += (
            spread(x, cell.columns) if cell.spread else [f"{x} AS {quote(cell.columns[0][0])}"]
        )
    diffs = [f"t.{quote(d)}" for d, _ in n.schema.diffs]
    return f"SELECT {', '.join([*columns, *diffs])} FROM ({query}) t"


def _where(run: RenderContext, n: Where) -> str:
    query, (condition,) = run.over(n.of, n.exprs, "t")
    return f"SELECT {names(n.schema.all, 't')} FROM ({query}) t WHERE {condition}"


def _due(run: RenderContext, n: Due) -> str:
    columns = names(n.schema.all, "t")
    return f"SELECT {columns} FROM ({run.text(n.of)}) t WHERE t.`time` <= {run.now}"


def _before(run: RenderContext, n: BelowGreatest) -> str:
    query, (value,) = run.over(n.of, n.exprs, "t")
    ((column, t),) = n.greatest.schema.columns
    latest = as_number(closed(f"g.{quote(column)}"), t)
    limit = f"SELECT max({latest}) - {units_sql(n.distance, t)} FROM ({run.text(n.greatest)}) g"
    is_before = f"coalesce({as_number(value, t)} < ({limit}), false)"
    condition = closed(f"NOT {is_before}") if n.others else is_before
    return f"SELECT {names(n.schema.all, 't')} FROM ({query}) t WHERE {condition}"


def _unnest(run: RenderContext, n: Unnest) -> str:
    query, (lists,) = run.over(n.of, n.exprs, "t")
    carried = [f"t.{quote(c)}" for c, _ in n.carried]
    exploded = ", ".join([f"explode({lists}) AS item", *carried, f"t.{COUNT}"])
    count = f"t.{COUNT}"
    if n.weight is not None:
        count = f"{product(_sql_at(n.weight), closed(count))} AS {COUNT}"
    columns = [
        f"{_sql_at(path)} AS {quote(c)}" for path, (c, _) in zip(n.paths, n.columns, strict=True)
    ]
    shown = ", ".join([*columns, *carried, count])
    return f"SELECT {shown} FROM (SELECT {exploded} FROM ({query}) t) t"


def _sql_at(path: tuple[str, ...]) -> Sql:
    return closed(".".join(["t.item", *map(quote, path)]))


def _union(run: RenderContext, n: Union) -> str:
    return " UNION ALL ".join(f"({run.text(p)})" for p in n.parts)


def _no_rows(run: RenderContext, n: NoRows) -> str:
    columns = [f"CAST(NULL AS {t.ddl}) AS {quote(c)}" for c, t in n.schema.all]
    return f"SELECT {', '.join(columns)} WHERE false"


def _negate(run: RenderContext, n: Negate) -> str:
    return _negated(run.text(n.of), n.schema)


def _negated(query: str, schema: Schema) -> str:
    diffs = [f"{opposite(closed(f't.{quote(d)}'), t)} AS {quote(d)}" for d, t in schema.diffs]
    columns = [f"t.{quote(c)}" for c, _ in schema.columns]
    return f"SELECT {', '.join(columns + diffs)} FROM ({query}) t"


def _equi_join(run: RenderContext, n: EquiJoin) -> str:
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
    return f"SELECT {', '.join(cells)}, {many} AS {COUNT} FROM ({left}) l JOIN ({right}) r ON {on}"


def _anti_join(run: RenderContext, n: AntiJoin) -> str:
    left, key = run.over(n.left, n.key, "l")
    right = run.text(n.right)
    columns = names(n.schema.all, "l")
    same = equal(key, [closed(f"r.{quote(c)}") for c, _ in n.right.schema.columns])
    null = any_of(f"{k} IS NULL" for k in key)
    # Rows without a key are no part of a join, which would send them all to one worker.
    absent = (
        f"SELECT {columns} FROM ({left}) l LEFT ANTI JOIN ({right}) r ON {same} WHERE NOT {null}"
    )
    return f"({absent}) UNION ALL (SELECT {columns} FROM ({left}) l WHERE {null})"


def _contributions(run: RenderContext, n: Contributions) -> str:
    split = () if n.key is None else n.key.parts
    query, texts = run.over(n.of, (*split, n.pick), "t")
    key = None if n.key is None else _rebuilt(n.key, texts[:-1])
    return contributions(query, key, texts[-1], n.pick.type, n.schema)


def _rebuilt(key: Key, texts: list[Sql]) -> Sql:
    if key.parts == (key.expr,):
        return texts[0]
    assert isinstance(key.type, Struct)
    named = zip(key.type.fields, texts, strict=True)
    return closed(f"named_struct({', '.join(f'{quoted(n)}, {x}' for (n, _), x in named)})")


def _rows(run: RenderContext, of: Physical, keys: Sequence[Expr] = ()) -> str:
    """The rows of a relation, added up."""
    return consolidated(run.text(of), of.schema, keys)


def _positive(run: RenderContext, n: Positive) -> str:
    by = names(n.schema.columns)
    weight = WEIGHT if n.counted else "1L"
    positive = f"GROUP BY {by} HAVING {WEIGHT} > 0"
    return f"SELECT {by}, {weight} AS {COUNT} FROM ({run.text(n.of)}) {positive}"


def _rank(run: RenderContext, n: Rank) -> str:
    return _top(n, _rows(run, n.of, n.keys))


def _bucketed(run: RenderContext, n: BucketedRank) -> str:
    """The new rows of the keys of a change, less the old ones; large groups are in buckets.

    Only rows of large groups pass Python workers. Where these cannot compute buckets, no group has
    any.
    """
    keys, rows, uses = n.rank.keys, names(n.schema.all), run.uses(n)
    by, number = key_names(keys), f"_k{len(keys)}_"
    computed = ", ".join(f"{k.sql('t')} AS _k{i}_" for i, k in enumerate(keys))
    keyed = f"SELECT {names(n.schema.all, 't')}, {computed}"
    same = all_of(f"a._k{i}_ <=> b._k{i}_" for i, _ in enumerate(keys))
    change = run.text(n.change)
    touched = f"LEFT SEMI JOIN (SELECT {computed} FROM ({change}) t) b ON {same}"
    both = consolidated(f"({run.text(n.state)}) UNION ALL ({change})", n.schema, keys)
    present = f"SELECT {rows}, {by} FROM ({both}) a {touched} WHERE {COUNT} > 0"
    new = f"SELECT {rows}, {by}, 0L AS {number} FROM ({present})"
    if run.in_buckets:
        many = f"SELECT {by} FROM ({present}) GROUP BY {by} HAVING count(*) > {n.read_whole}"
        of_many = f"JOIN ({many}) b ON {same}"
        of_large = SqlQuery(f"SELECT {rows} FROM ({present}) a LEFT SEMI {of_many}", uses)
        column = BucketColumn(n.schema, other_columns(n.schema, keys), n.buckets)
        new = (
            f"{keyed}, t.{BUCKET} AS {number} FROM ({run.apart(of_large, column)}) t UNION ALL "
            f"SELECT {rows}, {by}, 0L AS {number} FROM ({present}) a LEFT ANTI {of_many}"
        )
    first = _top(dataclasses.replace(n.rank, keys=(*keys, Field(INT, (BUCKET,)))), new)
    old = f"SELECT {rows} FROM ({keyed} FROM ({run.text(n.firsts)}) t) a {touched}"
    return f"({first}) UNION ALL ({_negated(old, n.schema)})"


def _gather(run: RenderContext, n: Gather) -> str:
    return _lists_of_groups(n, _rows(run, n.of))


def _windowed(run: RenderContext, n: Windowed) -> str:
    uses = run.uses(n)
    return windowed(n, _rows(run, n.of, n.keys), lambda text: run.apart(SqlQuery(text, uses)))


def _pieces(run: RenderContext, n: LargestByKey) -> str:
    return _collated(n, _rows(run, n.of))


def _totals(run: RenderContext, n: Totals) -> str:
    summed = totals(_rows(run, n.of), n.type)
    if isinstance(n.type, GroupedType):
        return f"SELECT `_total_` AS `left`, `_key_` AS `right`, 1L AS {COUNT} FROM ({summed})"
    value = n.type.sum.value
    columns = [f"`_total_` AS {quote(c)}" for c, _ in n.schema.columns]
    if isinstance(value, Struct):
        columns = spread(closed("`_total_`"), columns_of(value))
    return f"SELECT {', '.join(columns)}, 1L AS {COUNT} FROM ({summed})"


def _change_of(run: RenderContext, n: ChangeOf) -> str:
    return _new_less_old(run, n).text


def _collated_change(run: RenderContext, n: CollatedChange) -> str:
    """The rows made of new pieces, less those made of old ones, whose weights are negative."""
    pieces = n.pieces.of
    run.filled = [_new_less_old(run, part) for part in n.parts]
    both = run.text(pieces)
    new, old = (_collated(n.pieces, x) for x in (both, _negated(both, pieces.schema)))
    return f"({new}) UNION ALL ({_negated(old, n.schema)})"


def _new_less_old(run: RenderContext, n: ChangeOf) -> SqlQuery:
    """The new rows of a fold, and the old ones with negative weights."""
    state, change = run.query(n.state), run.query(n.change)
    uses = state.uses | change.uses
    both = SqlQuery(f"({state.text}) UNION ALL ({change.text})", uses)
    before, after = (_filled(run, n.fold, of) for of in (state, both))
    return SqlQuery(f"({after}) UNION ALL ({_negated(before, n.schema)})", uses)


def _filled(run: RenderContext, fold: Fold, of: SqlQuery) -> str:
    run.filled = (of,)
    return run.text(fold)


def _top(op: Rank, query: str) -> str:
    """The first rows of a consolidated query, which has the columns of the keys too."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    count = f"CAST(least(t.{COUNT}, {op.n}L) AS DECIMAL(20, 0))"
    if op.ties:
        return _with_ties(op, query, count)
    window = (
        f"OVER (PARTITION BY {by} ORDER BY {ordered(op.order, op.of.schema.columns, 't')} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    before = f"coalesce(sum({count}) {window}, 0)"
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    weight = f"CAST(least({COUNT}, {op.n}L - _before_) AS BIGINT) AS {COUNT}"
    return f"SELECT {shown}, {weight} FROM ({ranked}) WHERE _before_ < {op.n}"


def _with_ties(op: Rank, query: str, count: str) -> str:
    """The rows that fewer than n rows precede in the order; ties do not precede each other."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    order = ordered(op.order, (), "t")
    peers = ", ".join([by, *(e.sql("t") for e, _ in op.order)])
    so_far = f"sum({count}) OVER (PARTITION BY {by} ORDER BY {order})"
    before = closed(f"{so_far} - sum({count}) OVER (PARTITION BY {peers})")
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    return f"SELECT {shown}, {COUNT} FROM ({ranked}) WHERE _before_ < {op.n}"


def _lists_of_groups(op: Gather, query: str) -> str:
    """The lists of a consolidated query's rows."""
    order = ordered(op.order, op.of.schema.columns, "t")
    ranked = (
        f"SELECT {op.key.sql('t')} AS k, {op.item.sql('t')} AS v, t.{COUNT} AS n, row_number() "
        f"OVER (PARTITION BY {op.key.sql('t')} ORDER BY {order}) AS at "
        f"FROM ({query}) t WHERE t.{COUNT} > 0"
    )
    # As structs, because collect_list leaves out NULLs.
    rows = "array_sort(collect_list(named_struct('at', at, 'v', named_struct('v', v), 'n', n)))"
    repeated = f"flatten(transform({rows}, r -> array_repeat(r.v, CAST(r.n AS INT))))"
    items = f"CAST(transform({repeated}, r -> r.v) AS {ListOf(op.item.type).ddl})"
    return f"SELECT {items} AS `left`, k AS `right`, 1L AS {COUNT} FROM ({ranked}) GROUP BY k"


def _collated(op: LargestByKey, query: str) -> str:
    """The rows made of a consolidated query's pieces."""
    ((key, _), *pieces) = op.of.schema.columns
    largest = ", ".join(f"max({quote(n)}) AS {quote(n)}" for n, _ in pieces)
    condition = all_of(f"{quote(n)} IS NOT NULL" for n, _ in pieces[: op.required])
    rows = f"SELECT {quote(key)}, {largest} FROM ({query}) WHERE {COUNT} > 0 GROUP BY {quote(key)}"
    return f"SELECT *, 1L AS {COUNT} FROM ({rows}) WHERE {condition}"


NODES: dict[type[Physical], Callable[[RenderContext, Any], str]] = {
    AntiJoin: _anti_join,
    Argument: _argument,
    BelowGreatest: _before,
    BucketedRank: _bucketed,
    ChangeOf: _change_of,
    CollatedChange: _collated_change,
    Contributions: _contributions,
    Due: _due,
    EquiJoin: _equi_join,
    Gather: _gather,
    Hole: _hole,
    Negate: _negate,
    NoRows: _no_rows,
    LargestByKey: _pieces,
    Positive: _positive,
    Project: _project,
    Rank: _rank,
    Totals: _totals,
    Union: _union,
    Unnest: _unnest,
    Where: _where,
    Windowed: _windowed,
}


@dataclass(frozen=True)
class DerivedTable:
    """A relation of a query's columns and of Columns that SQL text cannot express.

    It may have the numbers of its rows' buckets too.
    """

    name: str
    query: SqlQuery
    columns: tuple[tuple[str, Column], ...]
    bucket: BucketColumn | None = None


@dataclass
class Rendering:
    """Makes the texts of terms, over relations with the given names.

    `derived` are relations that must be defined, in order, before a text runs.
    """

    prefix: str
    names: Mapping[Leaf, str] = field(default_factory=dict)
    now: str = "NULL"
    in_buckets: bool = False  # whether Python workers compute the buckets of rows
    derived: list[DerivedTable] = field(default_factory=list)

    def term(self, t: Term) -> SqlQuery:
        """The query with the columns of the term's schema, in order."""
        if not isinstance(t, Apply):
            return self.relation(self.names[t], type_of(t))
        args = [self.term(a) for a in t.args]
        return self.parts(t.parts, args, t.types)

    def _context(self, args: Sequence[SqlQuery]) -> RenderContext:
        return RenderContext(self._computed, self._apart, self.now, self.in_buckets, args)

    def relation(self, name: str, t: StreamType) -> SqlQuery:
        """The query of all rows of a relation."""
        return SqlQuery(f"SELECT {names(t.schema.all)} FROM {name}", frozenset((name,)))

    def parts(
        self,
        parts: Sequence[Operator],
        args: Sequence[SqlQuery],
        types: tuple[StreamType, ...],
    ) -> SqlQuery:
        """The query of operators, applied to relations one after the other."""
        for tree in trees_of(parts, types):
            args = [self._context(args).query(tree)]
        (query,) = args
        return query

    def _computed(self, query: SqlQuery, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        opaque = [e for e in dict.fromkeys(exprs) if not e.in_sql]
        if not opaque:
            return query.text, [e.sql(row) for e in exprs]
        columns = {e: f"_c{i}_" for i, e in enumerate(opaque)}
        shown = tuple((c, to_column(e)) for e, c in columns.items())
        table = self._apart(query, columns=shown)
        texts = [
            e.sql(row) if e.in_sql else closed(f"{quote(row)}.{quote(columns[e])}") for e in exprs
        ]
        return table, texts

    def _apart(
        self,
        query: SqlQuery,
        bucket: BucketColumn | None = None,
        columns: tuple[tuple[str, Column], ...] = (),
    ) -> str:
        name = f"{self.prefix}_c{len(self.derived)}"
        self.derived.append(DerivedTable(name, query, columns, bucket))
        return f"SELECT * FROM {name}"
