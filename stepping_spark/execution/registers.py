"""Reads the registers of a plan for a step: whole, at the keys of a change, or what is due."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from stepping_spark.engines.arrow.first_rows import Restrict, restricting
from stepping_spark.execution.due import times_of
from stepping_spark.execution.prefixes import KnownPrefixes
from stepping_spark.execution.projection import Projection
from stepping_spark.execution.step import Step, rows_of
from stepping_spark.expressions.clock import ticks
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Top
from stepping_spark.limits import Limits
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.terms import (
    Clock,
    Leaf,
    Member,
    Read,
    State,
    is_of_fold,
    is_of_window,
    reads_of,
)
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.placement import is_sent_whole
from stepping_spark.spark.relation import DriverRelation, Relation, added_up, plus
from stepping_spark.store import Now, SizedStore, StepStore

_MANY = 4  # rows of a change for each old row at its keys: to add them up would take too long


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
        self._read_by: dict[Vertex, list[Read]] = {}
        for read in self._serves:
            for keys in read.by:
                self._read_by.setdefault(keys.of, []).append(read)
        self._has_cuts = any(r.cut is not None for r in self._serves)
        self._prefixes = KnownPrefixes(store, limits)
        members = [m for stage in plan.stages for m in stage.members]
        self._restricts: dict[Read, Restrict | None] = {}
        self._of_windows = reads_of(members, is_of_window)
        self.of_folds = reads_of(members, is_of_fold)
        """The reads whose rows a query of Spark adds up anyway."""

    def begin(self) -> None:
        """Get ready for a step."""
        if self._has_cuts:
            self._prefixes.begin(self._store.last_step())

    def committed(self) -> None:
        """What was read last is committed."""
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
        elif any(k.of in step.passed for k in read.by):
            return self._parts(read, self._store.read(state.register.name))
        elif read.by:
            keys = self._keys(step, read, state)
        if keys is not None and keys.is_empty:
            return ()
        if read.cut is not None and keys is not None:
            return self._read_cut(step, read, keys, state)
        parts = self._parts(read, self._store.read(state.register.name, keys))
        if keys is None or read in self._of_windows:
            return parts
        if read.first is not None:
            parts = self._first(step, read, read.first, parts)
        rows = rows_of(*parts)
        if read in self.of_folds and (rows is None or rows > self._limits.local_rows):
            return parts  # the query adds them up
        return added_up(parts, read.change.type.schema)

    @staticmethod
    def _parts(read: Read, found: tuple[Relation, ...]) -> tuple[Relation, ...]:
        """What a store gives of a register, as rows of its stream."""
        return tuple(p.select(read.change.type.schema, beside=True) for p in found)

    def need_no_keys(self, v: Vertex) -> bool:
        """Whether a stream may be left to the query of the one that reads it, in Spark.

        It may if all registers that are read by its keys are small enough to be sent whole.
        """
        return v in self._plan.passing and all(map(self._is_small, self._read_by.get(v, ())))

    def _is_small(self, read: Read) -> bool:
        if not isinstance(self._store, SizedStore):
            return False
        size = self._store.size(self._serves[read].register.name)
        return is_sent_whole(size.rows, size.nbytes, self._limits)

    def _new(self, step: Step, read: Read) -> tuple[Relation, ...]:
        """The old value and the change.

        The driver adds them up where the change is not many rows beside the old ones. A row that
        goes is then not joined twice, to cancel out later.
        """
        old, change = self.old(step, self._old_of[read]), step.values[read.change]
        parts = tuple(p for p in (*old, change) if not p.is_empty)
        rows, more = rows_of(*old), rows_of(change)
        if not read.by or not rows or more is None or more > _MANY * rows:
            return parts
        return added_up(parts, read.change.type.schema)

    def _first(
        self, step: Step, read: Read, top: Top, parts: tuple[Relation, ...]
    ) -> tuple[Relation, ...]:
        """The rows of each key that its first rows are among, before this step and after it."""
        schema, change, rows = read.change.type.schema, step.values[read.change], rows_of(*parts)
        if change.table is None or rows is None or rows <= self._limits.cut_rows:
            return parts
        if read not in self._restricts:
            self._restricts[read] = restricting(schema, top.keys, top.order, top.n)
        restrict = self._restricts[read]
        if restrict is None:
            return parts
        tables = [p.table for p in parts if p.table is not None]
        often = len(parts) if all(p.consolidated for p in parts) else rows
        kept = restrict(tables, change.table, often, self._projection.in_utc)
        both = zip(kept, parts, strict=True)
        return tuple(DriverRelation(t, schema, p.consolidated) for t, p in both if t.num_rows)

    def _read_cut(
        self, step: Step, read: Read, keys: Relation, state: State
    ) -> tuple[Relation, ...]:
        """The rows of a window's partitions: the last ones, where the others are known."""
        step.whole[read] = lambda: self._store.read(state.register.name, keys)
        parts, step.prefixes[read] = self._prefixes.read(read, keys, state, step.whole[read])
        schema = read.change.type.schema
        return tuple(p.select(schema) for p in parts)

    def read_whole(self, step: Step, m: Member) -> list[Leaf]:
        """Read the partitions of windows whole for a stream; those for which that was not done."""
        cut = [x for x in m.leaves if isinstance(x, Read) and step.is_cut(x)]
        for read in cut:
            schema = read.change.type.schema
            step.reads[read] = tuple(p.select(schema) for p in step.whole[read]())
            step.prefixes[read] = self._prefixes.forget(read)
        return list(cut)

    def _keys(self, step: Step, read: Read, state: State) -> Relation:
        names = state.register.key
        streams = [(step.values[keys.of], keys.key) for keys in read.by]
        some = [(held, key) for held, key in streams if not held.is_empty]
        if len(some) < 2:
            ((held, key),) = some or streams[:1]
            if held.is_empty:
                return held
            return self._projection.keys(held, names, key, nulls=read.nulls)
        if read.by not in step.keys:
            parts = [self._projection.keys(x, names, key, nulls=read.nulls) for x, key in some]
            step.keys[read.by] = plus(parts, parts[0].schema).distinct(nulls=read.nulls)
        return step.keys[read.by].renamed(names)

    def old(self, step: Step, read: Read) -> tuple[Relation, ...]:
        """The old value of a register, whether the stage reads it or not."""
        if read not in step.reads:
            if read not in self._serves:
                self._serves[read] = self._plan.state_of(read)
            step.reads[read] = self.read(step, read)
        return step.reads[read]

    def _due(self, times: tuple[Now, Now], clock: Clock, state: State) -> Relation | None:
        """The times since the last step, as keys; None if there are too many to list."""
        (name,) = state.register.key
        (t,) = (t for n, t in state.register.schema.columns if n == name)
        since, now = times
        found = ticks(since, now, clock.time, self._limits.due_times)
        if found is None or (clock.marks and since is None):
            return None
        keys = pa.table({name: pa.array(found, t.arrow)})
        return DriverRelation(keys, Schema(((name, t),), ()), consolidated=True)
