"""The change of a fold in one pass: its old and its new result, from the same rows.

The rows of the state and those of the change are added up together, once with the change and once
without it. So state is read, exchanged and sorted once, and not for old and new apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stepping_spark.engines.spark.groups import Extreme, Largest, extreme
from stepping_spark.engines.spark.text import consolidated, key_names, names, ordered
from stepping_spark.expressions.expr import Expr
from stepping_spark.physical import ChangeOf, Fold, Pieces, Positive, Rank, Totals
from stepping_spark.rows.schema import COUNT, GroupedType, Schema
from stepping_spark.rows.sql_text import Sql, all_of, closed
from stepping_spark.rows.types import quote
from stepping_spark.sums.overflow import zero
from stepping_spark.sums.sql import same as same_sum
from stepping_spark.sums.sql import value_of

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


def collated_change(op: Pieces, query: str) -> str:
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


def _pieces(fold: Pieces, schema: Schema, state: str, change: str, few: bool, equal: bool) -> str:
    rows = _both(schema, state, change, few)
    return _old_and_new(fold, rows, (closed(f"{COUNT} > 0"), closed(f"{OLD} > 0")))


def _old_and_new(fold: Pieces, rows: str, conditions: tuple[Sql, Sql]) -> str:
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
    Pieces: _pieces,
    Positive: _positive,
    Rank: _rank,
    Totals: _totals,
}
