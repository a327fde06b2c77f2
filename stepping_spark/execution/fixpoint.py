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

    They have the columns of the stream and of the key, and a column of iterations.
    """

    def __init__(self, schema: Schema, key: Sequence[str], iteration: str) -> None:
        self.schema = schema
        self.key = tuple(key)
        self._iteration = iteration
        self._runs = SortedRuns(self.key)
        self._frames: list[tuple[DataFrame, frozenset[int]]] = []

    def add(self, relation: Relation) -> None:
        """Add rows with their iterations; a relation in Spark must be materialised."""
        if relation.table is not None:
            self._runs.add(relation.table)
            return
        assert relation.frame is not None
        iterations = relation.frame.select(self._iteration).distinct().toArrow().column(0)
        self._frames.append((relation.frame, frozenset(numbers(iterations))))
        if len(self._frames) > LOOP_PARTS:  # Spark's plans must not grow
            whole = functools.reduce(DataFrame.unionAll, [f for f, _ in self._frames])
            these = frozenset(i for _, some in self._frames for i in some)
            self._frames = [(checkpoint(whole), these)]

    def add_at(self, relation: Relation, k: int) -> None:
        """Add rows of one iteration."""
        names = self.schema.arrow.names
        if relation.frame is not None:
            frame = relation.frame.withColumn(self._iteration, F.lit(k).cast("bigint"))
            self.add(SparkRelation(frame.select(*map(quote, names)), self.schema))
        elif relation.table is not None and relation.table.num_rows:
            at = pa.array(np.full(relation.table.num_rows, k, np.int64))
            table = relation.table.append_column(self._iteration, at)
            self.add(DriverRelation(table.select(names), self.schema))

    def at(self, k: int, when: When, near: Hashes | None = None) -> tuple[Relation, ...]:
        """The rows of some iterations, in non-empty parts, with all their columns.

        With hashes of keys, only rows with such a key; rows in Spark are not filtered.
        """
        relations: list[Relation] = []
        tables = self._runs.tables if near is None else self._runs.at(near)
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
        self._runs.append(_sorted(hashes_of(table, self._key), table))
        while len(self._runs) > 1 and self._runs[-2][1].num_rows < 2 * self._runs[-1][1].num_rows:
            (old, older), (new, newer) = self._runs.pop(-2), self._runs.pop(-1)
            both = pa.concat_tables([older, newer])
            self._runs.append(_sorted(np.concatenate([old, new]), both))

    def at(self, keys: Hashes) -> list[pa.Table]:
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


def _sorted(hashes: Hashes, table: pa.Table) -> tuple[Hashes, pa.Table]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], table.take(order).combine_chunks()


def _matches(i: int, when: When, k: int) -> bool:
    return i == k if when is When.NOW else i < k if when is When.BEFORE else i <= k


def numbers(column: ArrowColumn) -> list[int]:
    """The values of a column of iterations."""
    values: Any = column.to_pylist()
    return list(values)


def settled(relation: Relation) -> Relation:
    """The computed relation: on the driver if it has few rows, else in Spark without lineage."""
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


class SeenKeys:
    """The distinct keys that were looked up so far."""

    def __init__(self, columns: Columns) -> None:
        self._schema = Schema(columns, ())
        self._here = DriverRelation.empty(self._schema)
        self._in_spark: list[Relation] = []

    def unseen(self, keys: Relation) -> Relation:
        """The keys that were not added before; adds them."""
        before: list[Relation] = [self._here, *self._in_spark]
        for seen in before:
            keys = keys.having(seen, among=False)
        keys = settled(keys)
        if keys.table is None:
            self._in_spark.append(keys)
        else:
            table = pa.concat_tables([self._here.table, keys.table])
            if table.column(0).num_chunks > LOOP_PARTS:
                table = table.combine_chunks()
            self._here = DriverRelation(table, self._schema)
        return keys


KeptStream: TypeAlias = tuple[Vertex, tuple[Expr, ...]]
ComputeMembers = Callable[
    [Sequence[Materialized], Mapping[Leaf, tuple[Relation, ...]]], list[Relation]
]


class Run:
    """A loop in one step.

    `iterations`, `rows` (read on the driver) and `jobs` (beside those of `compute`) count its work.
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
        self.kept: list[tuple[str, int | None]] = []  # registers, and the rows added to them
        self._loop = loop
        self._store = store
        self._projection = projection
        self._compute = compute
        self._states = {(s.change, s.key): s for s in loop.states}
        for x in loop.look_ups:
            if x.kept in loop.outside:
                self._states[x.kept, x.key] = state_around(loop.outside[x.kept], x.key)
        self._now: dict[Vertex, Relation] = {}
        self._now_by_key: dict[KeptStream, Relation] = {}
        # The slices of this round.
        self._slices: dict[Slice, tuple[Relation, ...]] = {}
        self._hashes: dict[tuple[Slice, ...], Hashes | None] = {}
        self._kept = {k: self._layers(k) for k in self._states}
        self._changed = {k: self._layers(k) for k in self._states}
        self._given = {
            v: Layers(_with_iteration(v.type.schema), (), ITERATION) for v in loop.body.outputs
        }
        self._keys = {(x.kept, x.key): SeenKeys(self._key_schema(x).columns) for x in loop.look_ups}

    def _layers(self, slices: KeptStream) -> Layers:
        state = self._states[slices]
        stored = tuple((n, e.type) for n, e in state.stored)
        schema = _with_iteration(slices[0].type.schema, stored)
        return Layers(schema, state.register.key, ITERATION)

    def run(self, inputs: Sequence[Relation]) -> list[Relation]:
        """The change of each recursive stream, from the changes of the streams outside the loop.

        Adds the changes of the loop's registers to the store.
        """
        body = self._loop.body
        changes = {
            v: self._settled(relation) for v, relation in zip(body.inputs, inputs, strict=True)
        }
        k: int | None = 0 if any(not h.is_empty for h in changes.values()) else None
        while k is not None:
            if k >= self._loop.operator.max_iterations:
                raise self._endless()
            self._iterate(k, changes)
            changes = {
                leaf: self._now[v] for leaf, v in body.loops.items() if not self._now[v].is_empty
            }
            k = k + 1 if changes else self._due_after(k)
        self._keep()
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
        self._now[v] = relation
        if v in self._given and not relation.is_empty:
            with self._counted(relation):
                self._given[v].add_at(relation, k)
        for register, state in self._states.items():
            if register[0] is v:
                rows = relation
                if state.stored and not relation.is_empty:
                    rows = self._projection.select(relation, state.selection)
                self._now_by_key[register] = rows
                with self._counted(rows):
                    self._changed[register].add_at(rows, k)

    def _run_round(self, r: Round, k: int) -> None:
        for x in r.look_ups:
            self._look_up(x)
        self._slices, self._hashes = {}, {}
        wanted: list[Materialized] = []
        parts: dict[Leaf, tuple[Relation, ...]] = {}
        for m in r.members:
            left = self._without_empty(m, k) if self._is_due(m, k) else None
            if left is None:
                self._record(m.vertex, DriverRelation.empty(m.vertex.type.schema), k)
                continue
            wanted.append(left)
            parts.update((x, self._slice(x, k)) for x in left.leaves if isinstance(x, Slice))
        self.rows += sum(_here(p) for some in parts.values() for p in some)
        for m, relation in zip(wanted, self._compute(wanted, parts), strict=True):
            if m.python is not None:
                relation = self._settled(relation)
            elif isinstance(relation, SparkRelation):
                relation = self._each_row_once(m.vertex, relation)
            self._record(m.vertex, relation, k)

    def _each_row_once(self, v: Vertex, relation: SparkRelation) -> Relation:
        """The consolidated stream. Without rows that cancel out, no further iteration is due."""
        if relation.consolidated:
            return replace(relation, frame=in_few_partitions(relation.frame))
        path, line = self._loop.names[v]
        return self._settled(relation.added_up(too_large(f"{path} ({line})")))

    def _without_empty(self, m: Materialized, k: int) -> Materialized | None:
        """The stream without the parts that have no rows at the iteration; None if none is left."""
        slices = (x for x in m.leaves if isinstance(x, Slice))
        return without(m, frozenset(x for x in slices if not self._slice(x, k)))

    def _is_due(self, m: Materialized, k: int) -> bool:
        """Whether a leaf of a stream has a change or a state at the iteration."""
        if m.vertex.operator.linearity is not Linearity.PER_KEY:
            return True  # `_left` finds out whether its term is empty
        return any(self._slice(s, k) for s in due_at(m.vertex))

    def _slice(self, s: Slice, k: int) -> tuple[Relation, ...]:
        """The non-empty parts of a slice."""
        if s not in self._slices:
            schema = s.vertex.type.schema
            self._slices[s] = tuple(p.select(schema) for p in self._with_keys(s, k))
        return self._slices[s]

    def _with_keys(self, s: Slice, k: int) -> tuple[Relation, ...]:
        if s.side is Side.CHANGED and s.when is When.NOW:
            relation = self._now_by_key[s.vertex, s.key] if s.key else self._now[s.vertex]
            return () if relation.is_empty else (relation,)
        layers = (self._kept if s.side is Side.KEPT else self._changed)[s.vertex, s.key]
        if s.near not in self._hashes:
            self._hashes[s.near] = self._near(s.near, k)
        return layers.at(k, s.when, self._hashes[s.near])

    def _near(self, slices: tuple[Slice, ...], k: int) -> Hashes | None:
        """The hashes of the keys of slices; None if there are no keys, or if Spark holds them."""
        if not slices:
            return None
        hashes = []
        for other in slices:
            key = self._states[other.vertex, other.key].register.key
            for part in self._with_keys(other, k):
                if part.table is None:
                    return None
                hashes.append(hashes_of(part.table, key))
        return distinct_numbers(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)

    # -- the state

    def _key_schema(self, x: StateRead) -> Schema:
        """The key columns of a look-up."""
        register = self._states[x.kept, x.key].register
        types = dict(register.schema.columns)
        return Schema(tuple((n, types[n]) for n in register.key), ())

    def _look_up(self, x: StateRead) -> None:
        """Fetch the state at the keys of the changes of this iteration, unless it was fetched."""
        change = self._now_by_key[x.by, x.by_key]
        if change.is_empty:
            return
        register = self._states[x.kept, x.key].register
        with self._counted(change):
            keys = self._keys[x.kept, x.key].unseen(self._keys_of(change, x))
        if keys.is_empty:
            return
        for part in self._store.read(register.name, keys):
            rows = part.having(keys)
            rows = self._settled(rows)
            if rows.is_empty:
                continue
            self.rows += _here(rows)
            with self._counted(rows):
                if x.kept in self._loop.outside:
                    self._kept[x.kept, x.key].add_at(rows, 0)  # the same at each iteration
                else:
                    self._kept[x.kept, x.key].add(rows)

    def _keys_of(self, rows: Relation, x: StateRead) -> Relation:
        """The distinct keys of rows of `x.by`, under the names of the keys of `x.kept`."""
        own = self._states[x.by, x.by_key].register.key
        names = self._states[x.kept, x.key].register.key
        types = dict(rows.schema.columns)
        keys = rows.select(Schema(tuple((n, types[n]) for n in own), ()))
        return keys.renamed(names).distinct(nulls=x.nulls)

    def _due_after(self, k: int) -> int | None:
        """The next iteration for which stored rows have a key that the step has changed."""
        iterations: set[int] = set()
        for x in self._loop.look_ups:
            if x.kept in self._loop.outside:
                continue
            tables, in_spark = self._kept[x.kept, x.key].after(k)
            iterations |= in_spark
            changed = self._changed[x.by, x.by_key]
            live = self._live(changed, x) if tables and changed.on_driver else None
            for table in tables:
                rows: Relation = table
                if live is not None:  # keys whose changes cancel out need no other iteration
                    rows = table.having(live)
                assert rows.table is not None
                iterations.update(numbers(rows.table.column(ITERATION).unique()))
        return min(iterations, default=None)

    def _live(self, changed: Layers, x: StateRead) -> Relation:
        """The keys that the step has changed so far."""
        state = self._states[x.by, x.by_key]
        types = dict(state.register.schema.columns)
        extra = tuple((n, types[n]) for n, _ in state.stored)
        of = state.change.type.schema
        schema = Schema(of.columns + extra, of.diffs)
        rows = on_driver([p.select(schema) for p in changed.parts], schema)
        return self._keys_of(DriverRelation(rows, schema).added_up(), x)

    def _settled(self, relation: Relation) -> Relation:
        with self._counted(relation):
            return settled(relation)

    @contextmanager
    def _counted(self, relation: Relation) -> Iterator[None]:
        """Count the Spark jobs that are run for a relation."""
        if relation.frame is None:
            yield
            return
        with JobCounter(relation.frame.sparkSession) as jobs:
            yield
        self.jobs = None if self.jobs is None or jobs.count is None else self.jobs + jobs.count

    def _keep(self) -> None:
        """Add the changes of the step, by iteration, to the store."""
        for state in self._loop.states:
            for part in self._changed[state.change, state.key].parts:
                self._store.add(state.register.name, part.select(state.register.schema))
                self.kept.append((state.register.name, part.rows))

    def _outputs(self) -> list[Relation]:
        wanted: list[Materialized] = []
        outputs: dict[Vertex, Relation] = {}
        parts: dict[Leaf, tuple[Relation, ...]] = {}
        for m in self._loop.gives:
            schema = m.vertex.type.schema
            outputs[m.vertex] = DriverRelation.empty(schema)
            (whole,) = m.leaves
            parts[whole] = tuple(p.select(schema) for p in self._given[m.vertex].parts)
            if parts[whole]:
                wanted.append(m)
        outputs.update(zip((m.vertex for m in wanted), self._compute(wanted, parts), strict=True))
        return [outputs[v] for v in self._loop.body.outputs]

    def _endless(self) -> FixpointError:
        loop = self._loop
        rows = {
            str(loop.names[v][0]): h.frame.count() if h.frame is not None else h.rows or 0
            for v, h in self._now.items()
            if v in loop.body.outputs
        }
        return FixpointError(loop.operator.endless(f"{loop.path} ({loop.line})", rows))


def _with_iteration(schema: Schema, stored: Columns = ()) -> Schema:
    """The schema of a loop's rows: their columns, the iteration, and stored columns of a key."""
    return Schema((*schema.columns, (ITERATION, INT), *stored), schema.diffs)


def _here(relation: Relation) -> int:
    """The rows that the driver has."""
    return 0 if relation.table is None else relation.table.num_rows
