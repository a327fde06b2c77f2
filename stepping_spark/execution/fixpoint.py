"""Runs a recursion within a step, iteration by iteration, until nothing changes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import FixpointError
from stepping_spark.base.packages import DataFrame
from stepping_spark.base.packages import functions as F
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Linearity
from stepping_spark.execution.sql_scope import Projection
from stepping_spark.expressions.expr import Expr
from stepping_spark.plan.loop import ITERATION, LoopPlan, Round, StateRead, due_at, without
from stepping_spark.plan.step_ir import Leaf, Materialized, RegisterPlan, Side, Slice, When
from stepping_spark.relations.arrow import ArrowColumn, distinct_numbers
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import Hashes, key_hashes
from stepping_spark.relations.relation import (
    DriverRelation,
    Relation,
    SparkRelation,
    on_driver,
    too_large,
)
from stepping_spark.relations.store import StepStore
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import Columns, Schema
from stepping_spark.rows.types import quote
from stepping_spark.spark.session import JobCounter, no_constraints

LOOP_ROWS = 100_000
"""Rows of one iteration that the driver fetches from Spark. Beyond: they stay in Spark."""

LOOP_PARTS = 8
"""Parts of one stream that iterations leave behind. Beyond: they are merged."""

_TEST = {When.NOW: "=", When.BEFORE: "<", When.SO_FAR: "<="}
_COMPARE = {When.NOW: pc.equal, When.BEFORE: pc.less, When.SO_FAR: pc.less_equal}


class Layers:
    """Rows of a stream with their iterations, on the driver and in Spark.

    They have the columns of the stream and of the key, and a column of iterations. Each DataFrame
    is kept with the numbers of its iterations, so that an iteration without rows needs no job.
    """

    def __init__(self, schema: Schema, key: Sequence[str], iteration: str) -> None:
        self.schema = schema
        self.key = tuple(key)
        self._iteration = iteration
        self._runs = SortedRuns(self.key)
        self._frames: list[tuple[DataFrame, frozenset[int]]] = []

    def add(self, relation: Relation) -> None:
        """Add rows with their iterations; a relation in Spark must be materialised.

        For a relation in Spark, a job fetches the numbers of its iterations.
        """
        if relation.table is not None:
            self._runs.add(relation.table)
            return
        assert relation.frame is not None
        iterations = relation.frame.select(self._iteration).distinct().toArrow().column(0)
        self._frames.append((relation.frame, frozenset(iteration_numbers(iterations))))
        if len(self._frames) > LOOP_PARTS:  # Spark's plans must not grow
            union = functools.reduce(DataFrame.unionAll, [f for f, _ in self._frames])
            union_iterations = frozenset(
                i for _, frame_iterations in self._frames for i in frame_iterations
            )
            self._frames = [(checkpoint(union), union_iterations)]

    def add_at(self, relation: Relation, k: int) -> None:
        """Add rows of iteration `k`, which have no column of iterations yet."""
        names = self.schema.arrow.names
        if relation.frame is not None:
            frame = relation.frame.withColumn(self._iteration, F.lit(k).cast("bigint"))
            self.add(SparkRelation(frame.select(*map(quote, names)), self.schema))
        elif relation.table is not None and relation.table.num_rows:
            iteration_column = pa.array(np.full(relation.table.num_rows, k, np.int64))
            table = relation.table.append_column(self._iteration, iteration_column)
            self.add(DriverRelation(table.select(names), self.schema))

    def parts_at(self, k: int, when: When, keys: Hashes | None = None) -> tuple[Relation, ...]:
        """The rows of iteration `k`, or before it, or up to it, with all their columns.

        They come in parts, of which those on the driver are not empty. With hashes of keys, the
        parts on the driver have only rows with such a key; rows in Spark are not filtered by key.
        """
        relations: list[Relation] = []
        tables = self._runs.tables if keys is None else self._runs.with_keys(keys)
        for table in tables:
            chosen = table.filter(_COMPARE[when](table.column(self._iteration), pa.scalar(k)))
            if chosen.num_rows:
                relations.append(DriverRelation(chosen, self.schema))
        test = f"{quote(self._iteration)} {_TEST[when]} {k}"
        for frame, iterations in self._frames:
            if any(_matches(i, when, k) for i in iterations):
                relations.append(SparkRelation(frame.where(test), self.schema))
        return tuple(relations)

    @property
    def parts(self) -> tuple[Relation, ...]:
        """All rows, with all their columns."""
        return (
            *(DriverRelation(t, self.schema) for t in self._runs.tables),
            *(SparkRelation(f, self.schema) for f, _ in self._frames),
        )

    @property
    def on_driver(self) -> bool:
        """Whether the driver has all rows."""
        return not self._frames

    def after(self, k: int) -> tuple[list[DriverRelation], set[int]]:
        """Later iterations: their rows on the driver, and the numbers of iterations in Spark."""
        tables = [
            t.filter(pc.greater(t.column(self._iteration), pa.scalar(k))) for t in self._runs.tables
        ]
        later = {i for _, some in self._frames for i in some if i > k}
        return [DriverRelation(t, self.schema) for t in tables if t.num_rows], later


class SortedRuns:
    """Tables sorted by the hashes of their keys; small tables are merged as they are added.

    Bisection finds the rows of a few keys among any number of rows.
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = key
        self._runs: list[tuple[Hashes, pa.Table]] = []

    @property
    def tables(self) -> list[pa.Table]:
        """All rows."""
        return [table for _, table in self._runs]

    def add(self, table: pa.Table) -> None:
        """Add rows; without a key, in no order."""
        if not table.num_rows:
            return
        self._runs.append(_in_hash_order(hashes_of(table, self._key), table))
        while len(self._runs) > 1 and self._runs[-2][1].num_rows < 2 * self._runs[-1][1].num_rows:
            (old, older), (new, newer) = self._runs.pop(-2), self._runs.pop(-1)
            both = pa.concat_tables([older, newer])
            self._runs.append(_in_hash_order(np.concatenate([old, new]), both))

    def with_keys(self, keys: Hashes) -> list[pa.Table]:
        """The rows with one of the keys; the hashes of the keys are distinct and in order."""
        pieces = []
        for hashes, table in self._runs:
            begins = np.searchsorted(hashes, keys, side="left")
            counts = np.searchsorted(hashes, keys, side="right") - begins
            ends = np.cumsum(counts)
            if len(ends) and ends[-1]:
                within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
                positions: npt.NDArray[np.int64] = np.repeat(begins, counts) + within
                pieces.append(table.take(positions))
        return pieces


def hashes_of(table: pa.Table, key: Sequence[str]) -> Hashes:
    """The hash of each row's key."""
    return key_hashes(table, key)


def _in_hash_order(hashes: Hashes, table: pa.Table) -> tuple[Hashes, pa.Table]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], table.take(order).combine_chunks()


def _matches(i: int, when: When, k: int) -> bool:
    return i == k if when is When.NOW else i < k if when is When.BEFORE else i <= k


def iteration_numbers(column: ArrowColumn) -> list[int]:
    """The values of a column of iterations."""
    values: Any = column.to_pylist()
    return list(values)


def computed(relation: Relation) -> Relation:
    """The computed relation: on the driver if it has few rows, else in Spark without lineage.

    For a relation in Spark this runs jobs: it is computed, counted, and fetched if it has at most
    `LOOP_ROWS` rows. A relation on the driver is returned as it is.
    """
    if relation.frame is None:
        return relation
    frame = checkpoint(relation.frame)
    rows = frame.count()
    if rows > LOOP_ROWS:
        return SparkRelation(frame, relation.schema, relation.consolidated, rows=rows)
    return DriverRelation(
        conform(frame.toArrow(), relation.schema), relation.schema, relation.consolidated
    )


def checkpoint(frame: DataFrame) -> DataFrame:
    """Compute a DataFrame; returns it without its lineage."""
    with no_constraints(frame.sparkSession):
        return in_few_partitions(frame).localCheckpoint()


def in_few_partitions(frame: DataFrame) -> DataFrame:
    """The DataFrame in at most as many partitions as a shuffle has.

    A union has the partitions of all its parts. An iteration reads the unions of earlier ones, so
    without this their number would double from one iteration to the next.
    """
    partitions = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or ""
    return frame.coalesce(int(partitions)) if partitions.isdecimal() else frame


class LookedUpKeys:
    """The distinct keys that a loop looked up in one register in this step."""

    def __init__(self, columns: Columns) -> None:
        self._schema = Schema(columns, ())
        self._on_driver = DriverRelation.empty(self._schema)
        self._in_spark: list[Relation] = []

    def add_new(self, keys: Relation) -> Relation:
        """Add distinct keys; returns those that were not added before."""
        before: list[Relation] = [self._on_driver, *self._in_spark]
        for added in before:
            keys = keys.having(added, among=False)
        keys = computed(keys)
        if keys.table is None:
            self._in_spark.append(keys)
        else:
            table = pa.concat_tables([self._on_driver.table, keys.table])
            if table.column(0).num_chunks > LOOP_PARTS:
                table = table.combine_chunks()
            self._on_driver = DriverRelation(table, self._schema)
        return keys


KeyedStream: TypeAlias = tuple[Vertex, tuple[Expr, ...]]
"""A stream and the key by which it is looked up; an empty key: it is not looked up by a key."""
ComputeMembers = Callable[
    [Sequence[Materialized], Mapping[Leaf, tuple[Relation, ...]]], list[Relation]
]


class Run:
    """A loop in one step: the executors make one for each loop and step, and call `run` once.

    `iterations`, `rows` (read on the driver) and `jobs` (beside those of `compute`) count its work;
    `jobs` is None if they could not be counted. `compute` computes the streams of a round from the
    rows of their leaves. `state_around` finds the register of a stream outside of the loop, by key.
    """

    def __init__(
        self,
        loop: LoopPlan,
        store: StepStore,
        projection: Projection,
        state_around: Callable[[Vertex, tuple[Expr, ...]], RegisterPlan],
        compute: ComputeMembers,
    ) -> None:
        self.iterations = 0
        self.rows = 0
        self.jobs: int | None = 0
        self.additions: list[tuple[str, int | None]] = []  # registers, and the rows added to them
        self._loop = loop
        self._store = store
        self._projection = projection
        self._compute = compute
        self._states = {(s.change, s.key): s for s in loop.states}
        for look_up in loop.look_ups:
            if look_up.kept in loop.outside:
                self._states[look_up.kept, look_up.key] = state_around(
                    loop.outside[look_up.kept], look_up.key
                )
        # The changes of this iteration; by key, they also have the stored columns of the key.
        self._now: dict[Vertex, Relation] = {}
        self._now_by_key: dict[KeyedStream, Relation] = {}
        # The slices of this round.
        self._slices: dict[Slice, tuple[Relation, ...]] = {}
        self._hashes: dict[tuple[Slice, ...], Hashes | None] = {}
        # By iteration: the state that was looked up, and the changes of this step.
        self._kept = {k: self._empty_layers(k) for k in self._states}
        self._changed = {k: self._empty_layers(k) for k in self._states}
        self._output_layers = {
            v: Layers(_with_iteration(v.type.schema), (), ITERATION) for v in loop.body.outputs
        }
        self._keys = {
            (look_up.kept, look_up.key): LookedUpKeys(self._key_schema(look_up).columns)
            for look_up in loop.look_ups
        }

    def _empty_layers(self, keyed_stream: KeyedStream) -> Layers:
        state = self._states[keyed_stream]
        stored = tuple((n, e.type) for n, e in state.stored)
        schema = _with_iteration(keyed_stream[0].type.schema, stored)
        return Layers(schema, state.register.key, ITERATION)

    def run(self, inputs: Sequence[Relation]) -> list[Relation]:
        """The change of each recursive stream, from the changes of the streams outside the loop.

        Adds the changes of the loop's registers to the store.
        """
        body = self._loop.body
        changes = {
            v: self._computed(relation) for v, relation in zip(body.inputs, inputs, strict=True)
        }
        k: int | None = 0 if any(not change.is_empty for change in changes.values()) else None
        while k is not None:
            if k >= self._loop.operator.max_iterations:
                raise self._endless_error()
            self._iterate(k, changes)
            changes = {
                leaf: self._now[v] for leaf, v in body.loops.items() if not self._now[v].is_empty
            }
            k = k + 1 if changes else self._due_after(k)
        self._add_to_store()
        return self._outputs()

    # -- an iteration

    def _iterate(self, k: int, changes: Mapping[Vertex, Relation]) -> None:
        self.iterations += 1
        body = self._loop.body
        self._now = {}
        for v in (*body.inputs, *body.loops):
            self._record(v, changes.get(v, DriverRelation.empty(v.type.schema)), k)
        for r in self._loop.rounds:
            self._run_round(r, k)

    def _record(self, v: Vertex, relation: Relation, k: int) -> None:
        """Remember the change of a stream at iteration `k`, for later rounds and iterations."""
        self._now[v] = relation
        if v in self._output_layers and not relation.is_empty:
            with self._counted(relation):
                self._output_layers[v].add_at(relation, k)
        for keyed_stream, state in self._states.items():
            if keyed_stream[0] is v:
                rows = relation
                if state.stored and not relation.is_empty:
                    rows = self._projection.select(relation, state.selection)
                self._now_by_key[keyed_stream] = rows
                with self._counted(rows):
                    self._changed[keyed_stream].add_at(rows, k)

    def _run_round(self, round_: Round, k: int) -> None:
        for look_up in round_.look_ups:
            self._look_up(look_up)
        self._slices, self._hashes = {}, {}
        to_compute: list[Materialized] = []
        parts: dict[Leaf, tuple[Relation, ...]] = {}
        for m in round_.members:
            with_rows = self._without_empty(m, k) if self._is_due(m, k) else None
            if with_rows is None:
                self._record(m.vertex, DriverRelation.empty(m.vertex.type.schema), k)
                continue
            to_compute.append(with_rows)
            slices = (s for s in with_rows.leaves if isinstance(s, Slice))
            parts.update((s, self._parts_of(s, k)) for s in slices)
        self.rows += sum(driver_rows_of(p) for leaf_parts in parts.values() for p in leaf_parts)
        for m, relation in zip(to_compute, self._compute(to_compute, parts), strict=True):
            if m.python is not None:
                relation = self._computed(relation)
            elif isinstance(relation, SparkRelation):
                relation = self._each_row_once(m.vertex, relation)
            self._record(m.vertex, relation, k)

    def _each_row_once(self, v: Vertex, relation: SparkRelation) -> Relation:
        """The consolidated stream. Without rows that cancel out, no further iteration is due."""
        if relation.consolidated:
            return replace(relation, frame=in_few_partitions(relation.frame))
        path, line = self._loop.names[v]
        return self._computed(relation.added_up(too_large(f"{path} ({line})")))

    def _without_empty(self, m: Materialized, k: int) -> Materialized | None:
        """The stream without the parts that have no rows at the iteration; None if none is left."""
        slices = (x for x in m.leaves if isinstance(x, Slice))
        return without(m, frozenset(x for x in slices if not self._parts_of(x, k)))

    def _is_due(self, m: Materialized, k: int) -> bool:
        """Whether a leaf of a stream has a change or a state at the iteration."""
        if m.vertex.operator.linearity is not Linearity.PER_KEY:
            return True  # `_without_empty` finds out whether its term is empty
        return any(self._parts_of(s, k) for s in due_at(m.vertex))

    def _parts_of(self, s: Slice, k: int) -> tuple[Relation, ...]:
        """The parts of the rows of a slice, with the columns of its stream; () if it is empty."""
        if s not in self._slices:
            schema = s.vertex.type.schema
            self._slices[s] = tuple(p.select(schema) for p in self._parts_with_keys(s, k))
        return self._slices[s]

    def _parts_with_keys(self, s: Slice, k: int) -> tuple[Relation, ...]:
        """`_parts_of`, also with the iteration or the stored columns of the key."""
        if s.side is Side.CHANGED and s.when is When.NOW:
            relation = self._now_by_key[s.vertex, s.key] if s.key else self._now[s.vertex]
            return () if relation.is_empty else (relation,)
        layers = (self._kept if s.side is Side.KEPT else self._changed)[s.vertex, s.key]
        if s.near not in self._hashes:
            self._hashes[s.near] = self._hashes_of_keys(s.near, k)
        return layers.parts_at(k, s.when, self._hashes[s.near])

    def _hashes_of_keys(self, slices: tuple[Slice, ...], k: int) -> Hashes | None:
        """The hashes of the keys of slices; None if there are no keys, or if Spark holds them."""
        if not slices:
            return None
        hashes = []
        for s in slices:
            key = self._states[s.vertex, s.key].register.key
            for part in self._parts_with_keys(s, k):
                if part.table is None:
                    return None
                hashes.append(hashes_of(part.table, key))
        return distinct_numbers(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)

    # -- the state

    def _key_schema(self, look_up: StateRead) -> Schema:
        """The key columns of a look-up."""
        register = self._states[look_up.kept, look_up.key].register
        types = dict(register.schema.columns)
        return Schema(tuple((n, types[n]) for n in register.key), ())

    def _look_up(self, look_up: StateRead) -> None:
        """Fetch the state at the keys of the changes of this iteration, unless it was fetched."""
        change = self._now_by_key[look_up.by, look_up.by_key]
        if change.is_empty:
            return
        register = self._states[look_up.kept, look_up.key].register
        with self._counted(change):
            keys = self._keys[look_up.kept, look_up.key].add_new(self._keys_of(change, look_up))
        if keys.is_empty:
            return
        state_rows = self._kept[look_up.kept, look_up.key]
        for part in self._store.read(register.name, keys):
            rows = part.having(keys)
            rows = self._computed(rows)
            if rows.is_empty:
                continue
            self.rows += driver_rows_of(rows)
            with self._counted(rows):
                if look_up.kept in self._loop.outside:
                    state_rows.add_at(rows, 0)  # the same at each iteration
                else:
                    state_rows.add(rows)

    def _keys_of(self, rows: Relation, look_up: StateRead) -> Relation:
        """The distinct keys of rows of `x.by`, under the names of the keys of `x.kept`."""
        own = self._states[look_up.by, look_up.by_key].register.key
        names = self._states[look_up.kept, look_up.key].register.key
        types = dict(rows.schema.columns)
        keys = rows.select(Schema(tuple((n, types[n]) for n in own), ()))
        return keys.renamed(names).distinct(nulls=look_up.nulls)

    def _due_after(self, k: int) -> int | None:
        """The next iteration for which stored rows have a key that the step has changed."""
        iterations: set[int] = set()
        for look_up in self._loop.look_ups:
            if look_up.kept in self._loop.outside:
                continue
            tables, in_spark = self._kept[look_up.kept, look_up.key].after(k)
            iterations |= in_spark
            changed = self._changed[look_up.by, look_up.by_key]
            live = self._live_keys(changed, look_up) if tables and changed.on_driver else None
            for table in tables:
                rows: Relation = table
                if live is not None:  # keys whose changes cancel out need no other iteration
                    rows = table.having(live)
                assert rows.table is not None
                iterations.update(iteration_numbers(rows.table.column(ITERATION).unique()))
        return min(iterations, default=None)

    def _live_keys(self, changed: Layers, look_up: StateRead) -> Relation:
        """The keys that the step has changed so far."""
        state = self._states[look_up.by, look_up.by_key]
        types = dict(state.register.schema.columns)
        stored_columns = tuple((n, types[n]) for n, _ in state.stored)
        stream_schema = state.change.type.schema
        schema = Schema(stream_schema.columns + stored_columns, stream_schema.diffs)
        rows = on_driver([p.select(schema) for p in changed.parts], schema)
        return self._keys_of(DriverRelation(rows, schema).added_up(), look_up)

    def _computed(self, relation: Relation) -> Relation:
        with self._counted(relation):
            return computed(relation)

    @contextmanager
    def _counted(self, relation: Relation) -> Iterator[None]:
        """Count the Spark jobs that are run for a relation."""
        if relation.frame is None:
            yield
            return
        with JobCounter(relation.frame.sparkSession) as jobs:
            yield
        self.jobs = None if self.jobs is None or jobs.count is None else self.jobs + jobs.count

    def _add_to_store(self) -> None:
        """Add the changes of the step, by iteration, to the store."""
        for state in self._loop.states:
            for part in self._changed[state.change, state.key].parts:
                self._store.add(state.register.name, part.select(state.register.schema))
                self.additions.append((state.register.name, part.rows))

    def _outputs(self) -> list[Relation]:
        """The changes of the recursive streams: for each, the sum of its changes by iteration."""
        to_compute: list[Materialized] = []
        outputs: dict[Vertex, Relation] = {}
        parts: dict[Leaf, tuple[Relation, ...]] = {}
        for m in self._loop.gives:
            schema = m.vertex.type.schema
            outputs[m.vertex] = DriverRelation.empty(schema)
            (all_changes,) = m.leaves
            parts[all_changes] = tuple(
                p.select(schema) for p in self._output_layers[m.vertex].parts
            )
            if parts[all_changes]:
                to_compute.append(m)
        outputs.update(
            zip((m.vertex for m in to_compute), self._compute(to_compute, parts), strict=True)
        )
        return [outputs[v] for v in self._loop.body.outputs]

    def _endless_error(self) -> FixpointError:
        """The error after too many iterations, with the rows that the last one has changed."""
        loop = self._loop
        rows = {
            str(loop.names[v][0]): now.frame.count() if now.frame is not None else now.rows or 0
            for v, now in self._now.items()
            if v in loop.body.outputs
        }
        return FixpointError(loop.operator.endless(f"{loop.path} ({loop.line})", rows))


def _with_iteration(schema: Schema, stored: Columns = ()) -> Schema:
    """The schema of a loop's rows: their columns, the iteration, and stored columns of a key."""
    return Schema((*schema.columns, (ITERATION, INT), *stored), schema.diffs)


def driver_rows_of(relation: Relation) -> int:
    """The rows that the driver has."""
    return 0 if relation.table is None else relation.table.num_rows
