"""The operators of groups in Spark SQL, and the change of a fold in one pass.

The rows of the state and those of the change are added up together, once with the change and once
without it. So state is read, exchanged and sorted once, and not for old and new apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepping_spark.circuit.physical import (
    ChangeOf,
    Fold,
    Gather,
    LargestByKey,
    Positive,
    Rank,
    Totals,
)
from stepping_spark.execution.spark.text import consolidated, key_names, names, ordered
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.portable import known
from stepping_spark.relations.sums.overflow import zero
from stepping_spark.relations.sums.sql import same as same_sum
from stepping_spark.relations.sums.sql import value_of
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import COUNT, GroupedType, Schema
from stepping_spark.rows.sql_text import Sql, all_of, closed
from stepping_spark.rows.types import ListOf, Optional, Struct, quote, unwrap

FIXED_WIDTH = ("bool", "int", "float", "Decimal", "date", "datetime", "LocalDateTime", "timedelta")


@dataclass(frozen=True)
class Extreme:
    """The first row of each key, where that is the least or largest value of one column.

    All other columns are keys, so that there are no ties.
    """

    function: str
    column: str
    keys: tuple[tuple[str, str], ...]  # the columns, each with the name of its key

    def of(self, condition: str) -> str:
        """The value, as an aggregate over some of the rows."""
        return f"{self.function}({quote(self.column)}) FILTER (WHERE {condition})"

    def row(self, value: str) -> str:
        """The columns of the row that has the value."""
        return ", ".join(f"{key or value} AS {quote(n)}" for n, key in self.keys)


def extreme(op: Rank) -> Extreme | None:
    """The aggregate that finds the first row of each key; None where that takes an order."""
    if op.n != 1 or op.ties or not op.order:
        return None
    *before, (last, up) = op.order
    if not isinstance(last, Field) or len(last.path) != 1:
        return None
    columns, (name,) = dict(op.of.schema.columns), last.path
    t = columns.get(name)
    if t is None or not is_fixed_width(t):
        return None  # Spark sorts for aggregates of others
    knows = before == [(known(last), False)]
    if (before and not knows) or (up and isinstance(t, Optional) and not knows):
        return None  # an aggregate leaves out NULL, so it has to come last
    keys = {k.path: f"_k{i}_" for i, k in enumerate(op.keys) if isinstance(k, Field)}
    found = tuple((n, "" if n == name else keys.get((n,))) for n in columns)
    if any(key is None for _, key in found):
        return None
    return Extreme("min" if up else "max", name, tuple((n, key or "") for n, key in found))


def top(op: Rank, query: str) -> str:
    """The first rows of a consolidated query, which has the keys beside its rows."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    count = f"CAST(least(t.{COUNT}, {op.n}L) AS DECIMAL(20, 0))"
    if op.ties:
        return _with_ties(op, query, count)
    found = extreme(op)
    if found is not None:
        there = closed(f"{COUNT} > 0")
        grouped = f"SELECT {by}, {found.of(there)} AS _v_ FROM ({query}) GROUP BY {by}"
        some = closed(f"count_if({there}) > 0")
        return f"SELECT {found.row('_v_')}, 1L AS {COUNT} FROM ({grouped} HAVING {some})"
    if op.n == 1:
        # Spark sorts and numbers rows in a fraction of the time that it takes to add them up.
        order = ordered(op.order, op.of.schema.columns, "t")
        numbered = f"row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS _at_"
        ranked = f"SELECT t.*, {numbered} FROM ({query}) t WHERE t.{COUNT} > 0"
        return f"SELECT {shown}, 1L AS {COUNT} FROM ({ranked}) WHERE _at_ = 1"
    window = (
        f"OVER (PARTITION BY {by} ORDER BY {ordered(op.order, op.of.schema.columns, 't')} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    before = f"coalesce(sum({count}) {window}, 0)"
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    kept = f"CAST(least({COUNT}, {op.n}L - _before_) AS BIGINT) AS {COUNT}"
    return f"SELECT {shown}, {kept} FROM ({ranked}) WHERE _before_ < {op.n}"


def _with_ties(op: Rank, query: str, count: str) -> str:
    """The rows with few rows before them in the order; ties are not before each other."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    order = ordered(op.order, (), "t")
    peers = ", ".join([by, *(e.sql("t") for e, _ in op.order)])
    so_far = f"sum({count}) OVER (PARTITION BY {by} ORDER BY {order})"
    before = closed(f"{so_far} - sum({count}) OVER (PARTITION BY {peers})")
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    return f"SELECT {shown}, {COUNT} FROM ({ranked}) WHERE _before_ < {op.n}"


def listed(op: Gather, query: str) -> str:
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


@dataclass(frozen=True)
class Largest:
    """The largest value of a column in each group, where a group has at most one.

    Spark sorts the rows to find the largest structs. So the fields of a struct are found apart, as
    far as they have a fixed width, which Spark does by hashing.
    """

    column: str
    type: RowType
    name: str

    @property
    def value(self) -> str:
        """The value, of the columns of `sums`; NULL if the group has none."""
        if not self._fields:
            return quote(self.name)
        fields = ", ".join(f"{self._field(n)} AS {quote(n)}" for n in self._fields)
        return f"if({self._field('')} > 0, struct({fields}), NULL)"

    def sums(self, condition: str = "") -> list[str]:
        """The aggregates that it takes, over all rows or some."""
        where = f" FILTER (WHERE {condition})" if condition else ""
        column = quote(self.column)
        if not self._fields:
            return [f"max({column}){where} AS {quote(self.name)}"]
        found = [f"max({column}.{quote(n)}){where} AS {self._field(n)}" for n in self._fields]
        return [*found, f"count({column}){where} AS {self._field('')}"]

    @property
    def _fields(self) -> list[str]:
        t = unwrap(self.type)
        if not isinstance(t, Struct) or not all(is_fixed_width(f) for _, f in t.fields):
            return []
        return [n for n, _ in t.fields]

    def _field(self, name: str) -> str:
        return quote(f"{self.name}.{name}")


def is_fixed_width(t: RowType) -> bool:
    """Whether Spark has a place of a fixed width for the values of a type."""
    bare = unwrap(t)
    return isinstance(bare, Atom) and bare.name in FIXED_WIDTH


def collated(op: LargestByKey, query: str) -> str:
    """The rows made of a consolidated query's pieces."""
    ((key, _), *pieces) = op.of.schema.columns
    largest = [Largest(n, t, n) for n, t in pieces]
    sums = ", ".join(s for a in largest for s in a.sums())
    values = ", ".join(f"{a.value} AS {quote(a.name)}" for a in largest)
    kept = all_of(f"{quote(n)} IS NOT NULL" for n, _ in pieces[: op.required])
    grouped = f"SELECT {quote(key)}, {sums} FROM ({query}) WHERE {COUNT} > 0 GROUP BY {quote(key)}"
    rows = f"SELECT {quote(key)}, {values} FROM ({grouped})"
    return f"SELECT *, 1L AS {COUNT} FROM ({rows}) WHERE {kept}"


OLD = "_old_count_"


def old(diff: str) -> str:
    """The column that has what a diff was before the change."""
    return f"_old{diff}" if diff.startswith("_") else f"_old_{diff}"


def change_in_one_pass(
    n: ChangeOf, state: str, change: str, *, few: bool, equal: bool = False
) -> str | None:
    """The change of a fold, of the texts of its state and change; None: not so in one pass.

    Old rows have negative weights, and new ones positive weights. Rows that stay as they are have
    none of the two, or, with `equal`, both.
    """
    render = _CHANGES.get(type(n.fold))
    if render is None or (isinstance(n.fold, Totals) and not _is_plain(n.fold)):
        return None
    found = render(n.fold, n.state.schema, state, change, few, equal)
    return f"SELECT {names(n.schema.all)} FROM ({found}) WHERE {COUNT} <> 0"


def collated_change(op: LargestByKey, query: str) -> str:
    """The change of collated rows, of a query of all their pieces: old ones negative, new ones not.

    Each key has a piece at most once before and once after.
    """
    found = _old_and_new(op, query, (closed(f"{COUNT} > 0"), closed(f"{COUNT} < 0")))
    return f"SELECT {names(op.schema.all)} FROM ({found}) WHERE {COUNT} <> 0"


def _is_plain(fold: Totals) -> bool:
    """Whether a group is one row: it has no floats, and nothing distinguishes its rows."""
    return isinstance(fold.type, GroupedType) and fold.type.sum.item is None


def _both(schema: Schema, state: str, change: str, few: bool, keys: Sequence[Expr] = ()) -> str:
    """The rows of a state and its change, with what their diffs are and what they were.

    Of keys there are columns beside the rows; many rows are partitioned by them.
    """
    columns = names(schema.columns)
    diffs = names(schema.diffs)
    before = ", ".join(f"{quote(d)} AS {quote(old(d))}" for d, _ in schema.diffs)
    none = ", ".join(f"{zero(t)} AS {quote(old(d))}" for d, t in schema.diffs)
    rows = (
        f"(SELECT {columns}, {diffs}, {before} FROM ({state})) UNION ALL "
        f"(SELECT {columns}, {diffs}, {none} FROM ({change}))"
    )
    both = (*schema.diffs, *((old(d), t) for d, t in schema.diffs))
    return consolidated(rows, Schema(schema.columns, both), keys, few=few)


def _positive(
    fold: Positive, schema: Schema, state: str, change: str, few: bool, equal: bool
) -> str:
    assert not equal, "only folds by a key have rows before and after"
    weight = closed(f"if({COUNT} > 0, 1L, 0L) - if({OLD} > 0, 1L, 0L)")
    if fold.counted:
        weight = closed(f"greatest({COUNT}, 0L) - greatest({OLD}, 0L)")
    rows = _both(schema, state, change, few)
    return f"SELECT {names(schema.columns)}, {weight} AS {COUNT} FROM ({rows})"


def _rank(fold: Rank, schema: Schema, state: str, change: str, few: bool, equal: bool) -> str:
    rows = _both(schema, state, change, few, fold.keys)
    by = key_names(fold.keys)
    found = extreme(fold)
    if found is not None:
        return _extreme(found, by, rows, equal)
    order = ordered(fold.order, () if fold.ties else schema.columns, "t")
    peers = ", ".join([by, *(e.sql("t") for e, _ in fold.order)])
    shown, kept = [], []
    for column in (COUNT, OLD):
        # No more than a partition has rows, times n: far from 64 bits.
        count = f"least(greatest(t.{column}, 0L), {fold.n}L)"
        total = f"sum({count})"
        window = f"PARTITION BY {by} ORDER BY {order}"
        if fold.ties:
            before = closed(f"{total} OVER ({window}) - {total} OVER (PARTITION BY {peers})")
            some = f"if(_before{column} < {fold.n}, greatest({column}, 0L), 0L)"
        else:
            rows_so_far = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
            before = closed(f"{total} OVER ({window} {rows_so_far}) - {count}")
            room = f"greatest({fold.n}L - _before{column}, 0L)"
            some = f"least(greatest({column}, 0L), {room})"
        shown.append(f"{before} AS _before{column}")
        kept.append(some)
    ranked = f"SELECT t.*, {', '.join(shown)} FROM ({rows}) t"
    if not equal:
        return f"SELECT {names(schema.columns)}, {' - '.join(kept)} AS {COUNT} FROM ({ranked})"
    new, was = kept
    counts = f"explode(array({new}, -{was})) AS _kept_"
    both = f"SELECT {names(schema.columns)}, {counts} FROM ({ranked})"
    return f"SELECT {names(schema.columns)}, _kept_ AS {COUNT} FROM ({both})"


def _extreme(found: Extreme, by: str, rows: str, equal: bool) -> str:
    new, was = (closed(f"{column} > 0") for column in (COUNT, OLD))
    grouped = (
        f"SELECT {by}, {found.of(new)} AS _v_, count_if({new}) AS _n_, "
        f"{found.of(was)} AS _old_v_, count_if({was}) AS _old_n_ FROM ({rows}) GROUP BY {by}"
    )
    parts = ", ".join(
        f"named_struct('v', {side}v_, 'w', if({side}n_ > 0, {sign}, 0L))"
        for side, sign in (("_", "1L"), ("_old_", "-1L"))
    )
    both = f"SELECT {by}, explode(array({parts})) AS _part_ FROM ({grouped})"
    if not equal:
        both += " WHERE (_n_ > 0) <> (_old_n_ > 0) OR NOT (_v_ <=> _old_v_)"
    return f"SELECT {found.row('_part_.v')}, _part_.w AS {COUNT} FROM ({both})"


def _pieces(
    fold: LargestByKey, schema: Schema, state: str, change: str, few: bool, equal: bool
) -> str:
    rows = _both(schema, state, change, few)
    return _old_and_new(fold, rows, (closed(f"{COUNT} > 0"), closed(f"{OLD} > 0")))


def _old_and_new(fold: LargestByKey, rows: str, conditions: tuple[Sql, Sql]) -> str:
    """The rows made of pieces that meet the first condition, less those of the second."""
    columns = fold.of.schema.columns
    key, *pieces = (quote(c) for c, _ in columns)
    structs, sums, values, sides = [], [], [], []
    for sign, side, there in zip(("1L", "-1L"), ("new", "old"), conditions, strict=True):
        for i, (c, t) in enumerate(columns[1:]):
            largest = Largest(c, t, f"{side}{i}")
            sums += largest.sums(there)
            values.append(f"{largest.value} AS `{side}{i}`")
        sums.append(f"count_if({there}) AS `{side}`")
        values.append(f"`{side}`")
        cells = ", ".join(f"'{i}', `{side}{i}`" for i, _ in enumerate(pieces))
        required = (closed(f"`{side}{i}` IS NOT NULL") for i in range(fold.required))
        alive = all_of([closed(f"`{side}` > 0"), *required])
        structs.append(f"named_struct('w', if({alive}, {sign}, 0L), {cells})")
        sides.append([alive, *(f"`{side}{i}`" for i, _ in enumerate(pieces))])
    grouped = f"SELECT {key}, {', '.join(sums)} FROM ({rows}) GROUP BY {key}"
    found = f"SELECT {key}, {', '.join(values)} FROM ({grouped})"
    same = all_of(closed(f"{new} <=> {old}") for new, old in zip(*sides, strict=True))
    exploded = f"explode(array({', '.join(structs)})) AS part"
    parts = f"SELECT {key}, {exploded} FROM ({found}) WHERE NOT ({same})"
    shown = ", ".join(f"part.`{i}` AS {p}" for i, p in enumerate(pieces))
    return f"SELECT {key}, {shown}, part.w AS {COUNT} FROM ({parts})"


def _totals(fold: Totals, schema: Schema, state: str, change: str, few: bool, equal: bool) -> str:
    rows = _both(schema, state, change, few)
    structs = []
    for sign, named in (("1L", lambda d: d), ("-1L", old)):
        cells = ", ".join(f"'{d}', {quote(named(d))}" for d, _ in schema.diffs)
        alive = f"if({quote(named('_rows_'))} <> 0, {sign}, 0L)"
        structs.append(f"named_struct('_weight_', {alive}, {cells})")
    parts = f"SELECT `_key_`, explode(array({', '.join(structs)})) AS part FROM ({rows})"
    if not equal:
        parts += f" WHERE NOT {same_sum(fold.type.sum, old)}"
    sums = ", ".join(f"part.{quote(d)}" for d, _ in schema.diffs)
    there = f"SELECT `_key_`, part.`_weight_`, {sums} FROM ({parts}) WHERE part.`_weight_` <> 0"
    value = value_of(fold.type.sum)
    return f"SELECT {value} AS `left`, `_key_` AS `right`, `_weight_` AS {COUNT} FROM ({there})"


_CHANGES: dict[type[Fold], Callable[[Any, Schema, str, str, bool, bool], str]] = {
    LargestByKey: _pieces,
    Positive: _positive,
    Rank: _rank,
    Totals: _totals,
}
