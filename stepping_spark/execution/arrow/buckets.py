"""The first rows of groups of which the large ones are in buckets: see `BucketedTop`.

A step changes a group that has few rows as a whole, and of a large group the buckets of the changed
rows. The rows that are stored say which groups are in buckets: see `Buckets.large`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from stepping_spark.circuit.physical import BUCKET, BucketedRank, Hole
from stepping_spark.execution.arrow.folds import most_of_a_key, rank_kernel
from stepping_spark.execution.arrow.groups import (
    by_numbers,
    counts_of,
    first_with_ties,
    key_ids,
    positions,
    ranks,
    restricting,
)
from stepping_spark.execution.arrow.kernels import Context, Kernel, Mask, sum_of
from stepping_spark.expressions.arrow_evaluator import Ask, relation_of, values_of
from stepping_spark.expressions.expr import Field
from stepping_spark.plan.step_ir import other_columns
from stepping_spark.relations.arrow import Ids, concat, negate, one_array
from stepping_spark.relations.hashing import bucket_numbers
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import COUNT, Schema


@dataclass(frozen=True)
class _Groups:
    """The groups of some relations: the number of each row's group, and masks by that number."""

    ids: list[Ids]
    large: Mask  # whether the group is in buckets
    growing: Mask  # whether it is not, and may have more than `read_whole` rows after the change


class Buckets:
    """Prepares one `BucketedRank` for all steps."""

    def __init__(self, n: BucketedRank) -> None:
        rank, schema = n.rank, n.schema
        self._rank, self._buckets, self._schema = rank, n.buckets, schema
        self._read_whole = n.read_whole
        self._key_of = values_of(schema, rank.keys)
        self._order_of = values_of(schema, [e for e, _ in rank.order])
        self.other_columns = other_columns(schema, rank.keys)
        self._in_buckets = Schema((*schema.columns, (BUCKET, INT)), schema.diffs)
        by_bucket = (*rank.keys, Field(INT, (BUCKET,)))
        self._ranked = rank_kernel(replace(rank, of=Hole(self._in_buckets), keys=by_bucket))
        self._restrict = restricting(self._in_buckets, by_bucket, rank.order, rank.n)
        self._relation = relation_of(self._in_buckets)

    def large(self, firsts: DriverRelation, change: pa.Table, ask: Ask) -> Mask | None:
        """Which rows of a change are in groups that are in buckets; None if none is.

        These are the groups of which other rows are stored than the first ones.
        """
        if np.maximum(counts_of(firsts.table), 0).sum() <= self._rank.n:
            return None
        table = firsts.added_up().table if self._rank.ties else firsts.table
        of_firsts, of_change = self._numbers([table, change], ask)
        in_buckets = self._are_in_buckets(table, of_firsts, ask)
        if not in_buckets.any():
            return None
        large = np.isin(of_change, of_firsts[in_buckets])
        return large if large.any() else None

    def restricted(
        self, parts: Sequence[DriverRelation], change: pa.Table, large: Mask | None, ask: Ask
    ) -> list[DriverRelation]:
        """The rows of a state that a change can affect, and all rows of groups that may grow."""
        if self._restrict is None:
            return list(parts)
        tables = [p.table for p in parts]
        groups = self._groups(tables, change, large, ask)
        in_buckets, growing = [], []
        for table, ids in zip([*tables, change], groups.ids, strict=True):
            grows = groups.growing[ids]
            growing.append(table.filter(pa.array(grows)))
            in_buckets.append(self._placed(table, ids, groups.large, ~grows))
        often = len(parts) if all(p.consolidated for p in parts) else sum(map(len, tables))
        rest = self._restrict(in_buckets[:-1], in_buckets[-1], often, ask.zone)
        both = zip([*map(_unplaced, rest), *growing[:-1]], [*parts, *parts], strict=True)
        return [DriverRelation(t, self._schema, p.consolidated) for t, p in both if t.num_rows]

    def are_small(self, ask: Ask, old: pa.Table, change: pa.Table) -> bool:
        """Whether each group has few rows after the change, if none is in buckets before."""
        if old.num_rows + change.num_rows <= self._read_whole:
            return True
        keys = [self._key_of(t, ask) for t in (old, change)]
        columns = [pa.chunked_array(parts, parts[0].type) for parts in zip(*keys, strict=True)]
        names = [f"k{i}" for i in range(len(columns))]
        return most_of_a_key(pa.table(columns, names=names), names) <= self._read_whole

    def change(
        self, run: Context, old: DriverRelation, change: DriverRelation, firsts: DriverRelation
    ) -> DriverRelation:
        """The change of the first rows, if some groups are in buckets, or may grow so large."""
        tables = old.table, change.table
        groups = self._groups([old.table], change.table, run.state_notes.in_buckets, run.ask)
        grown = self._grown(tables, groups)
        before, after = (
            DriverRelation(self._placed(t, i, groups.large, ~grown[i]), self._in_buckets)
            for t, i in zip(tables, groups.ids, strict=True)
        )
        parts = [_unplaced(self._ranked(run, before, after).table)]
        if grown.any():
            new = [
                DriverRelation(self._placed(t, i, grown, grown[i]), self._in_buckets)
                for t, i in zip(tables, groups.ids, strict=True)
            ]
            parts.append(_unplaced(self._ranked(run, sum_of(new, self._in_buckets)).table))
            keys = change.table.filter(pa.array(grown[groups.ids[-1]]))
            of_firsts, of_keys = self._numbers([firsts.table, keys], run.ask)
            gone = firsts.table.filter(pa.array(np.isin(of_firsts, of_keys)))
            parts.append(negate(gone, self._schema))
        return DriverRelation(concat(parts, self._schema), self._schema)

    def _numbers(self, tables: Sequence[pa.Table], ask: Ask) -> list[Ids]:
        """The number of each row's group, the same in all tables."""
        columns = zip(*(self._key_of(t, ask) for t in tables), strict=True)
        ids = key_ids([one_array(pa.chunked_array(parts, parts[0].type)) for parts in columns])
        return np.split(ids, np.cumsum([len(t) for t in tables])[:-1])

    def _groups(
        self, state: Sequence[pa.Table], change: pa.Table, large: Mask | None, ask: Ask
    ) -> _Groups:
        ids = self._numbers([*state, change], ask)
        number = max(int(i.max(initial=-1)) for i in ids) + 1
        in_buckets = np.zeros(number, np.bool_)
        if large is not None:
            in_buckets[ids[-1][large]] = True
        counts = [np.bincount(i, minlength=number) for i in ids]
        # A store may return other groups too, which the change does not touch.
        growing = ~in_buckets & (sum(counts) > self._read_whole) & (counts[-1] > 0)
        return _Groups(ids, in_buckets, growing)

    def _are_in_buckets(self, firsts: pa.Table, ids: Ids, ask: Ask) -> Mask:
        """Which rows are in groups of which other rows are there than the first ones.

        Without ties their weights say so: of the first n rows, they are at most n.
        """
        n, weights = self._rank.n, counts_of(firsts)
        number = int(ids.max(initial=-1)) + 1
        if not self._rank.ties:
            return np.asarray(np.bincount(ids, weights, number)[ids] > n)
        order = list(zip(self._order_of(firsts, ask), self._rank.order, strict=True))
        by = [ids, *(r if up else ~r for column, (_, up) in order for r in ranks(column))]
        at, _ = by_numbers(by)
        columns = [column.take(positions(at)) for column, _ in order]
        is_first = first_with_ties(ids[at], weights[at], columns, n)
        others = np.zeros(number, np.bool_)
        others[ids[at][~is_first]] = True
        return others[ids]

    def _grown(self, tables: Sequence[pa.Table], groups: _Groups) -> Mask:
        """Which of the growing groups have more than `read_whole` rows after the change."""
        growing = groups.growing
        if not growing.any():
            return growing
        numbered = []
        for table, of_table in zip(tables, groups.ids, strict=True):
            grows = growing[of_table]
            rows = self._with(table.filter(pa.array(grows)), of_table[grows])
            numbered.append(DriverRelation(rows, self._in_buckets))
        new = sum_of(numbered, self._in_buckets).added_up().table
        present = np.asarray(one_array(new.column(BUCKET)))[counts_of(new) > 0]
        return np.asarray(np.bincount(present, minlength=len(growing)) > self._read_whole)

    def _placed(self, table: pa.Table, ids: Ids, large: Mask, chosen: Mask) -> pa.Table:
        """Some rows with their buckets, which are 0 for small groups."""
        if not chosen.all():
            table, ids = table.filter(pa.array(chosen)), ids[chosen]
        numbers = np.zeros(len(ids), np.int64)
        of_large = large[ids]
        if of_large.any():
            rows = table.filter(pa.array(of_large))
            numbers[of_large] = bucket_numbers(rows, self.other_columns, self._buckets)
        return self._with(table, numbers)

    def _with(self, table: pa.Table, numbers: Any) -> pa.Table:
        columns = [one_array(table.column(name)) for name, _ in self._schema.columns]
        counts = one_array(table.column(COUNT))
        return self._relation([*columns, pa.array(numbers, pa.int64()), counts])


def _unplaced(table: pa.Table) -> pa.Table:
    return table.drop_columns([BUCKET])


def bucketed_kernel(n: BucketedRank, state: Kernel, change: Kernel, firsts: Kernel) -> Kernel:
    """The kernel of first rows of groups of which the large ones are in buckets."""
    buckets, rank = Buckets(n), rank_kernel(n.rank)

    def bucketed(run: Context) -> DriverRelation:
        old, more = state(run), change(run)
        if run.state_notes.in_buckets is None and buckets.are_small(run.ask, old.table, more.table):
            return rank(run, old, more)
        return buckets.change(run, old, more, firsts(run))

    return bucketed
