"""Runs a loop within a step: iteration by iteration, as long as there is anything to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.errors import FixpointError
from stepping_spark.execution.loop_state import (
    Keys,
    Layers,
    hashes_of,
    having,
    is_empty,
    numbers,
    settled,
)
from stepping_spark.execution.projection import Projection
from stepping_spark.expressions.expr import Expr
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Linearity
from stepping_spark.limits import Limits
from stepping_spark.plan.loop import ITERATION, LookUp, Loop, Round, due_at, without
from stepping_spark.plan.terms import Leaf, Member, Side, Slice, State, When
from stepping_spark.relations.arrow import concat, consolidate, distinct_rows, empty
from stepping_spark.relations.hashes import Hashes
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import quote
from stepping_spark.spark.session import count_jobs
from stepping_spark.store import Held, Store

Kept: TypeAlias = tuple[Vertex, tuple[Expr, ...]]
Compute = Callable[[Sequence[Member], Mapping[Leaf, tuple[Held, ...]]], list[Held]]


class Run:
    """A loop in one step.

    `iterations`, `rows` (read on the driver) and `jobs` (beside those of `compute`) tell what it
    did.
    """

    def __init__(
        self,
        loop: Loop,
        store: Store,
        projection: Projection,
        state_around: Callable[[Vertex, tuple[Expr, ...]], State],
        compute: Compute,
        limits: Limits,
    ) -> None:
        self._limits = limits
        self.iterations = 0
        self.rows = 0
        self.jobs: int | None = 0
        self._loop = loop
        self._store = store
        self._projection = projection
        self._compute = compute
        self._states = {(s.change, s.key): s for s in loop.states}
        for x in loop.look_ups:
            if x.kept in loop.outside:
                self._states[x.kept, x.key] = state_around(loop.outside[x.kept], x.key)
        self._now: dict[Vertex, Held] = {}
        self._now_by_key: dict[Kept, Held] = {}
        # What was looked at in this round.
        self._slices: dict[Slice, tuple[Held, ...]] = {}
        self._hashes: dict[tuple[Slice, ...], Hashes | None] = {}
        self._kept = {k: self._layers(k) for k in self._states}
        self._changed = {k: self._layers(k) for k in self._states}
        self._given = {v: Layers(v.type.schema, (), ITERATION, limits) for v in loop.body.outputs}
        self._keys = {
            (x.kept, x.key): Keys(self._key_schema(x).columns, limits) for x in loop.look_ups
        }

    def _layers(self, kept: Kept) -> Layers:
        key = self._states[kept].register.key
        return Layers(kept[0].type.schema, key, ITERATION, self._limits)

    def run(self, inputs: Sequence[Held]) -> list[Held]:
        """The change of each recursive stream, from those of the streams around.

        Adds to the store what the loop keeps.
        """
        body = self._loop.body
        given = {
            v: self._settled(held, v.type.schema)
            for v, held in zip(body.inputs, inputs, strict=True)
        }
        k: int | None = 0 if any(not is_empty(h) for h in given.values()) else None
        while k is not None:
            if k >= self._loop.operator.max_iterations:
                raise self._endless()
            self._iterate(k, given)
            given = {
                leaf: self._now[v] for leaf, v in body.loops.items() if not is_empty(self._now[v])
            }
            k = k + 1 if given else self._due_after(k)
        self._keep()
        return self._outputs()

    # -- an iteration

    def _iterate(self, k: int, given: Mapping[Vertex, Held]) -> None:
        self.iterations += 1
        body = self._loop.body
        self._now = {}
        for v in (*body.inputs, *body.loops):
            self._came(v, given.get(v, empty(v.type.schema)), k)
        for r in self._loop.rounds:
            self._run_round(r, k)

    def _came(self, v: Vertex, held: Held, k: int) -> None:
        self._now[v] = held
        if v in self._given and not is_empty(held):
            with self._counted(held):
                self._given[v].add_at(held, k)
        for kept, state in self._states.items():
            if kept[0] is v:
                rows = held
                if state.stored and not is_empty(held):
                    rows = self._projection.select(held, v.type.schema, state.stored, beside=True)
                self._now_by_key[kept] = rows
                with self._counted(rows):
                    self._changed[kept].add_at(rows, k)

    def _run_round(self, r: Round, k: int) -> None:
        for x in r.look_ups:
            self._look_up(x)
        self._slices, self._hashes = {}, {}
        wanted: list[Member] = []
        parts: dict[Leaf, tuple[Held, ...]] = {}
        for m in r.members:
            term = without(m.term, lambda s: not self._slice(s, k)) if self._is_due(m, k) else None
            if term is None:
                self._came(m.vertex, empty(m.vertex.type.schema), k)
                continue
            wanted.append(Member(m.vertex, term))
            parts.update((x, self._slice(x, k)) for x in wanted[-1].leaves if isinstance(x, Slice))
        self.rows += sum(p.num_rows for some in parts.values() for p in some if _on_driver(p))
        for m, held in zip(wanted, self._compute(wanted, parts), strict=True):
            if m.python is not None:
                held = self._settled(held, m.vertex.type.schema)
            self._came(m.vertex, held, k)

    def _is_due(self, m: Member, k: int) -> bool:
        """Whether anything of what a stream is made of changes, or is kept, at the iteration."""
        if m.vertex.operator.linearity is not Linearity.PER_KEY:
            return True  # its term is empty otherwise
        return any(self._slice(s, k) for s in due_at(m.vertex))

    def _slice(self, s: Slice, k: int) -> tuple[Held, ...]:
        """The parts of a slice, none of them empty."""
        if s not in self._slices:
            schema = s.vertex.type.schema
            self._slices[s] = tuple(_select(p, schema) for p in self._with_keys(s, k))
        return self._slices[s]

    def _with_keys(self, s: Slice, k: int) -> tuple[Held, ...]:
        if s.side is Side.CHANGED and s.when is When.NOW:
            held = self._now_by_key[s.vertex, s.key] if s.key else self._now[s.vertex]
            return () if is_empty(held) else (held,)
        layers = (self._kept if s.side is Side.KEPT else self._changed)[s.vertex, s.key]
        if s.near not in self._hashes:
            self._hashes[s.near] = self._near(s.near, k)
        return layers.at(k, s.when, self._hashes[s.near])

    def _near(self, slices: tuple[Slice, ...], k: int) -> Hashes | None:
        """The hashes of the keys of slices; None for none, and where the driver cannot say."""
        if not slices:
            return None
        found = []
        for other in slices:
            key = self._states[other.vertex, other.key].register.key
            for part in self._with_keys(other, k):
                if not _on_driver(part):
                    return None
                found.append(hashes_of(part, key))
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)

    # -- what is kept

    def _key_schema(self, x: LookUp) -> Schema:
        """The key columns of what is looked up."""
        register = self._states[x.kept, x.key].register
        types = dict(register.schema.columns)
        return Schema(tuple((n, types[n]) for n in register.key), ())

    def _look_up(self, x: LookUp) -> None:
        """Fetch what is kept at keys of the changes of this iteration, unless it is there."""
        change = self._now_by_key[x.by, x.by_key]
        if is_empty(change):
            return
        register = self._states[x.kept, x.key].register
        with self._counted(change):
            keys = self._keys[x.kept, x.key].unseen(self._keys_of(change, x))
        if is_empty(keys):
            return
        schema = self._key_schema(x)
        for part in self._store.read(register.name, keys):
            found = having(part, keys, register.schema, schema)
            found = self._settled(found, register.schema)
            if is_empty(found):
                continue
            self.rows += found.num_rows if _on_driver(found) else 0
            with self._counted(found):
                if x.kept in self._loop.outside:
                    self._kept[x.kept, x.key].add_at(found, 0)  # the same at each iteration
                else:
                    self._kept[x.kept, x.key].add(found)

    def _keys_of(self, rows: Held, x: LookUp) -> Held:
        """The distinct keys of rows of `x.by`, called as those of `x.kept`."""
        own = self._states[x.by, x.by_key].register.key
        names = self._states[x.kept, x.key].register.key
        if isinstance(rows, DataFrame):
            keys = rows.select([quote(n) for n in own]).toDF(*names)
            return (keys if x.nulls else keys.dropna()).distinct()
        return distinct_rows(
            rows.select(list(own)).rename_columns(list(names)), drop_nulls=not x.nulls
        )

    def _due_after(self, k: int) -> int | None:
        """The next iteration at which something is kept of what the step has changed."""
        found: set[int] = set()
        for x in self._loop.look_ups:
            if x.kept in self._loop.outside:
                continue
            tables, in_spark = self._kept[x.kept, x.key].after(k)
            found |= in_spark
            changed = self._changed[x.by, x.by_key]
            live = self._live(changed, x) if tables and changed.on_driver else None
            for table in tables:
                if live is not None:  # what has cancelled out needs nothing any more
                    held = having(table, live, Schema(()), self._key_schema(x))
                    assert isinstance(held, pa.Table)
                    table = held
                found.update(numbers(table.column(ITERATION).unique()))
        return min(found, default=None)

    def _live(self, changed: Layers, x: LookUp) -> Held:
        """The keys of what the step has changed so far."""
        state = self._states[x.by, x.by_key]
        types = dict(state.register.schema.columns)
        extra = tuple((n, types[n]) for n, _ in state.stored)
        schema = Schema(changed.schema.columns + extra, changed.schema.diffs)
        tables = [p.select(schema.arrow.names) for p in changed.parts if _on_driver(p)]
        return self._keys_of(consolidate(concat(tables, schema), schema), x)

    def _settled(self, held: Held, schema: Schema) -> Held:
        with self._counted(held):
            return settled(held, schema, self._limits)

    @contextmanager
    def _counted(self, held: Held) -> Iterator[None]:
        """Count the jobs that a DataFrame takes."""
        if not isinstance(held, DataFrame):
            yield
            return
        with count_jobs(held.sparkSession) as jobs:
            yield
        self.jobs = None if self.jobs is None or jobs.count is None else self.jobs + jobs.count

    def _keep(self) -> None:
        """Add what the step changes, by iteration, to the store."""
        for state in self._loop.states:
            for part in self._changed[state.change, state.key].parts:
                self._store.add(state.register.name, _select(part, state.register.schema))

    def _outputs(self) -> list[Held]:
        wanted: list[Member] = []
        found: dict[Vertex, Held] = {}
        parts: dict[Leaf, tuple[Held, ...]] = {}
        for v in self._loop.body.outputs:
            schema = v.type.schema
            found[v] = empty(schema)
            whole = Slice(v, when=When.SO_FAR)
            parts[whole] = tuple(_select(p, schema) for p in self._given[v].parts)
            if parts[whole]:
                wanted.append(Member(v, whole))
        found.update(zip((m.vertex for m in wanted), self._compute(wanted, parts), strict=True))
        return [found[v] for v in self._loop.body.outputs]

    def _endless(self) -> FixpointError:
        loop = self._loop
        rows = {
            str(loop.names[v][0]): h.num_rows if isinstance(h, pa.Table) else h.count()
            for v, h in self._now.items()
            if v in loop.body.outputs
        }
        return FixpointError(loop.operator.endless(f"{loop.path} ({loop.line})", rows))


def _select(held: Held, schema: Schema) -> Held:
    """The columns of the schema, in order."""
    if isinstance(held, DataFrame):
        return held.select([quote(n) for n, _ in schema.all])
    return held.select(schema.arrow.names)


def _on_driver(held: Held) -> TypeGuard[pa.Table]:
    return isinstance(held, pa.Table)
