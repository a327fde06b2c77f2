"""Reads the registers of a plan for a step: whole, by key, by due time, or after a prefix.

Decides whether the equal rows of several batches are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import SHOWN_ROWS, SteppingError, too_late
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import Lateness, Vertex
from stepping_spark.circuit.operators import Top
from stepping_spark.execution.arrow.groups import Restrict, restricting
from stepping_spark.execution.arrow.kernels import StateNotes
from stepping_spark.execution.arrow.window_delta import CUT_ROWS
from stepping_spark.execution.partial_reads import BucketReads, KnownPrefixes, RelationParts
from stepping_spark.execution.sql_scope import Projection
from stepping_spark.execution.step import Step, failed_key, rows_of
from stepping_spark.expressions.expr import ticks, time_of, units_of
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import (
    BucketedRead,
    Clock,
    Leaf,
    Materialized,
    Read,
    RegisterPlan,
    Selection,
    is_of_fold,
    is_of_window,
    reads_of,
)
from stepping_spark.relations.codec import conform, decode
from stepping_spark.relations.placement import FEW_ROWS
from stepping_spark.relations.relation import DriverRelation, Relation, added_up, plus
from stepping_spark.relations.store import Now, StepStore
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import VALUE, Schema, ZSetType
from stepping_spark.rows.types import unwrap

DUE_TIMES = 10_000
"""Times between two steps that are looked up one by one, in state that is stored by due time.

Beyond: that state is read whole.
"""


def keys_of(read: Read, state: RegisterPlan) -> tuple[tuple[Vertex, Selection], ...]:
    """The streams by whose keys a register is read, each with the selection of these keys."""
    names = state.register.key
    keys = ((k.of, Selection.of_key(k.of.type.schema, names, k.key)) for k in read.by)
    return tuple(keys)


def times_of(
    clock: Clock, step: Step, before: Callable[[Read], RelationParts]
) -> tuple[Any, Any] | None:
    """(Previous time or None, current time); None if no time has passed since the last step."""
    if not clock.marks:
        return step.since, step.now
    since: list[int | None] = []
    now: list[int] = []
    for greatest, distance in clock.marks:
        old = greatest_of(before(Read(greatest)), clock.time)
        new = greatest_of((step.values[greatest],), clock.time)
        if old is None and new is None:
            return None
        # All times before the watermark are due: the last of them is one unit before it.
        since.append(None if old is None else old - distance - 1)
        now.append(max(x for x in (old, new) if x is not None) - distance - 1)
    earlier = [x for x in since if x is not None]
    first = min(earlier) if len(earlier) == len(since) else None
    if first == min(now):
        return None
    return None if first is None else time_of(first, clock.time), time_of(min(now), clock.time)


def greatest_of(parts: RelationParts, t: RowType) -> int | None:
    """The greatest time of a relation of times, as a number; weights do not count."""
    times = []
    for part in parts:
        latest: Any = pc.max(part.fetched().table.column(VALUE))
        if latest.is_valid:
            times.append(units_of(t.decode(latest.as_py()), t))
    return max(times, default=None)


def check_in_time(
    relation: Relation, v: Vertex, label: str, x: Lateness, old: RelationParts
) -> None:
    """Raise `InputError` if there are late rows; `relation` has the late rows of a change."""
    if relation.is_empty:
        return
    assert isinstance(v.type, ZSetType)
    rows = relation.table
    if relation.frame is not None:
        rows = conform(relation.frame.limit(SHOWN_ROWS + 1).toArrow(), v.type.schema)
    assert rows is not None
    if not rows.num_rows:
        return
    t = unwrap(x.at.type)
    latest = greatest_of(old, t)
    shown = [row for row, _ in decode(rows.slice(0, SHOWN_ROWS + 1), v.type)]
    greatest = None if latest is None else time_of(latest, t)
    raise too_late(shown, f"input {label!r}", label, str(x.at), greatest, x.said)


_MANY = 4  # rows of a change per old row at its keys from which on adding up takes too long


class Registers:
    """The registers of one plan in one store, as its steps read them."""

    def __init__(
        self, plan: Plan, store: StepStore, projection: Projection, limits: Limits
    ) -> None:
        self._plan = plan
        self._store = store
        self._projection = projection
        self._limits = limits
        self._serves = {r: plan.state_of(r) for stage in plan.stages for r in stage.reads}
        self._old_of = {r: replace(r, new=False) for r in self._serves if r.new}
        self._serves |= {old: self._serves[new] for new, old in self._old_of.items()}
        self._keys_of = {r: keys_of(r, state) for r, state in self._serves.items()}
        self._has_cuts = any(r.cut is not None for r in self._serves)
        self._prefixes = KnownPrefixes(store)
        self._in_buckets = BucketReads(store, projection)
        members = [m for stage in plan.stages for m in stage.members]
        self._restricts: dict[Read, Restrict | None] = {}
        self._as_stored = reads_of(members, is_of_window)
        """The reads whose equal rows are not added up: few of them are needed, or only counts."""
        self._as_stored |= {r.buckets.firsts for r in self._serves if r.buckets is not None}
        self.of_folds = reads_of(members, is_of_fold)
        """The reads of folds, whose rows a query of Spark adds up anyway."""

    def begin(self) -> None:
        """Get ready for a step."""
        if self._has_cuts:
            self._prefixes.begin(self._store.last_step())

    def skip(self) -> None:
        """Leave the step to tasks."""
        self._prefixes.skip()

    def committed(self) -> None:
        """Keep the prefixes of the step that was just committed."""
        if self._has_cuts:
            self._prefixes.committed()

    def read(self, step: Step, read: Read) -> tuple[Relation, ...]:
        """The rows of a register that a stage reads, in parts that add up to them."""
        if read.new:
            return self._new(step, read)
        if step.first:
            return ()
        state = self._serves[read]
        keys: Relation | None = None
        if read.due:
            times = times_of(read.due, step, lambda r: self.old(step, r))
            if times is None:
                return ()
            keys = self._due(times, read.due, state)
        elif read.by:
            keys = self._keys(step, read)
        if keys is not None and keys.is_empty:
            return ()
        if keys is not None and (read.cut is not None or read.buckets is not None):
            whole = partial(self._store.read, state.register.name, keys)
            if read.buckets is not None:
                return self._read_buckets(step, read, read.buckets, whole)
            return self._read_cut(step, read, keys, whole)
        parts = self._stored(read, keys)
        if keys is None or read in self._as_stored:
            return parts
        if read.first is not None:
            parts = self._first(step, read, read.first, parts)
        rows = rows_of(*parts)
        if read in self.of_folds and (rows is None or rows > self._limits.local_rows):
            return parts  # the query adds them up
        if rows is not None and rows > FEW_ROWS and self._joins_add_up(read, rows):
            return parts
        return added_up(parts, read.change.type.schema)

    def _joins_add_up(self, read: Read, rows: int) -> bool:
        """Whether the joins that read these batches add up so many rows themselves."""
        return rows >= self._limits.eager_rows and self._plan.is_added_up_by_joins(read)

    def _stored(self, read: Read, keys: Relation | None) -> RelationParts:
        """The batches of a register, with the columns of its stream; with keys, only their rows."""
        schema = read.change.type.schema
        batches = self._store.read(self._serves[read].register.name, keys)
        return tuple([p.select(schema, beside=True) for p in batches])

    def _new(self, step: Step, read: Read) -> tuple[Relation, ...]:
        """The new value of a register, as the old value and the change.

        The driver adds up both if the change has few rows compared with the old value. Then a
        deleted row is not joined twice, only to cancel out later.
        """
        old, change = self.old(step, self._old_of[read]), step.values[read.change]
        parts = tuple([p for p in (*old, change) if not p.is_empty])
        if not (read.by and old):
            return parts
        rows, more = rows_of(*old), rows_of(change)
        if not rows or more is None or more > _MANY * rows:
            return parts
        if rows > FEW_ROWS and self._joins_add_up(read, rows):
            return parts
        return added_up(parts, read.change.type.schema)

    def _first(
        self, step: Step, read: Read, top: Top, parts: tuple[Relation, ...]
    ) -> tuple[Relation, ...]:
        """Rows of each key that contain its first rows, before this step and after it."""
        schema, change, rows = read.change.type.schema, step.values[read.change], rows_of(*parts)
        if change.table is None or rows is None or rows <= CUT_ROWS:
            return parts
        if read not in self._restricts:
            self._restricts[read] = restricting(schema, top.keys, top.order, top.n)
        restrict = self._restricts[read]
        if restrict is None:
            return parts
        tables = [p.table for p in parts if p.table is not None]
        often = len(parts) if all(p.consolidated for p in parts) else rows
        tables_left = restrict(tables, change.table, often, self._projection.zone)
        both = zip(tables_left, parts, strict=True)
        return tuple(DriverRelation(t, schema, p.consolidated) for t, p in both if t.num_rows)

    def _read_cut(
        self, step: Step, read: Read, keys: Relation, whole: Callable[[], RelationParts]
    ) -> tuple[Relation, ...]:
        """The rows of a window's partitions; only the last rows, if prefixes cover the others."""
        parts, prefixes = self._prefixes.read(read, keys, self._serves[read], whole)
        step.state_notes[read] = StateNotes(prefixes)
        if prefixes.old:
            step.read_whole[read] = whole
        schema = read.change.type.schema
        return tuple([p.select(schema) for p in parts])

    def _read_buckets(
        self, step: Step, read: Read, buckets: BucketedRead, whole: Callable[[], RelationParts]
    ) -> tuple[Relation, ...]:
        """The rows of small groups, and of large groups those in the buckets of changed rows."""
        state, ((changed, key),) = self._serves[read], self._keys_of[read]
        firsts, change = self.old(step, buckets.firsts), step.values[changed]
        return self._in_buckets.read(step, read, state, key, firsts, change, whole)

    def read_whole(self, step: Step, m: Materialized) -> list[Leaf]:
        """Repeat the reads of a stream that had some rows of the keys; returns these reads."""
        cut = [x for x in m.leaves if x in step.read_whole]
        for read in cut:
            assert isinstance(read, Read)
            schema = read.change.type.schema
            step.reads[read] = tuple(p.select(schema) for p in step.read_whole.pop(read)())
            if read.cut is not None:
                step.state_notes[read] = StateNotes(self._prefixes.forget(read))
            step.sizes.clear()
        return cut

    def _keys(self, step: Step, read: Read) -> Relation:
        some = []
        for v, key in self._keys_of[read]:
            relation = step.values[v]
            if not relation.is_empty:
                some.append((relation, key))
        if not some:
            return relation
        try:
            if len(some) == 1:
                return self._projection.keys(*some[0], nulls=read.nulls)
            if read.by not in step.keys:
                parts = [
                    self._projection.keys(relation, key, nulls=read.nulls) for relation, key in some
                ]
                step.keys[read.by] = plus(parts, parts[0].schema).distinct(nulls=read.nulls)
        except SteppingError:
            raise
        except Exception as e:
            raise failed_key(self._serves[read].register.name, e) from e
        return step.keys[read.by].renamed(self._serves[read].register.key)

    def old(self, step: Step, read: Read) -> tuple[Relation, ...]:
        """The old value of a register, whether the stage reads it or not."""
        if read not in step.reads:
            if read not in self._serves:
                self._serves[read] = self._plan.state_of(read)
                self._keys_of[read] = keys_of(read, self._serves[read])
            step.reads[read] = self.read(step, read)
        return step.reads[read]

    def _due(self, times: tuple[Now, Now], clock: Clock, state: RegisterPlan) -> Relation | None:
        """The times since the last step, as keys; None if there are too many to list."""
        (name,) = state.register.key
        (t,) = (t for n, t in state.register.schema.columns if n == name)
        since, now = times
        instants = ticks(since, now, clock.time, DUE_TIMES)
        if instants is None or (clock.marks and since is None):
            return None
        keys = pa.table({name: pa.array(instants, t.arrow)})
        return DriverRelation(keys, Schema(((name, t),), ()), consolidated=True)
