"""Runs a step of a plan: stage by stage, each as few Spark queries as can be."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from stepping_spark.blame import failing_vertex
from stepping_spark.body import Fixpoint
from stepping_spark.codec import conform
from stepping_spark.errors import StepError, SteppingError
from stepping_spark.expr import Expr
from stepping_spark.graph import Vertex
from stepping_spark.iterations import Run
from stepping_spark.local import Local
from stepping_spark.loops import Loop
from stepping_spark.lower import ONE, Lowering, consolidated, for_many_rows
from stepping_spark.metrics import StepMetrics, VertexMetrics
from stepping_spark.operators import IdentityPrint
from stepping_spark.plan import Plan
from stepping_spark.projection import Projection
from stepping_spark.python_rows import apply_python
from stepping_spark.relations import Array, concat, consolidate, one_array
from stepping_spark.schema import Schema
from stepping_spark.session import count_jobs, get_session, no_constraints
from stepping_spark.source import Sources
from stepping_spark.spark_types import first_line
from stepping_spark.store import Held, Store
from stepping_spark.terms import Leaf, Member, Read, Ref, Stage, State, Term
from stepping_spark.types import quote
from stepping_spark.values import answer

DRIVER_ROWS = 100_000  # what a stage reads at most, for its results to come to the driver unasked
LOCAL_ROWS = 20_000  # what a stream reads at most, to be computed on the driver without a job
SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
_PLAN_NUMBERS = itertools.count(1)


@dataclass
class Step:
    """The values of one step, as they come to be known."""

    number: int
    values: dict[Vertex, Held]
    sources: Sources
    metrics: StepMetrics
    reads: dict[Leaf, tuple[Held, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A stream as it was computed, and what that took."""

    member: Member
    held: Held
    ms: float
    jobs: int | None
    how: str
    rows_in: int = 0  # beyond what its term reads


class Scheduler:
    """Steps one plan against one store."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        spark: SparkSession | None = None,
        local_rows: int = LOCAL_ROWS,
    ) -> None:
        self.local_rows = local_rows
        self.plan = plan
        self.store = store
        self._spark = spark
        self._settings = _settings(spark) if spark is not None else {}
        self._projection = Projection(lambda: self.spark)
        self._prefix = f"step{next(_PLAN_NUMBERS)}"
        self._lowered: dict[tuple[Member, ...], tuple[Lowering, list[str]]] = {}
        self._adders: dict[Vertex, list[State]] = {}
        for s in plan.states:
            self._adders.setdefault(s.change, []).append(s)

    @property
    def spark(self) -> SparkSession:
        """The session, started when it is first needed."""
        if self._spark is None:
            self._spark = get_session()
            self._settings = _settings(self._spark)
        return self._spark

    def run(self, number: int, inputs: Mapping[Vertex, Held]) -> tuple[list[Held], StepMetrics]:
        """Compute a step, and add its changes to the store; the caller commits."""
        if self._spark is not None and _settings(self._spark) != self._settings:
            raise StepError(
                f"the session had {self._settings} when the first step ran, and has "
                f"{_settings(self._spark)} now: row functions would say something else of rows "
                "that are there already; set it back"
            )
        metrics = StepMetrics(number)
        sources = Sources(lambda: self.spark)
        step = Step(number, dict(inputs), sources, metrics)
        try:
            for v, held in inputs.items():
                self._add(step, v, held)
            for stage in self.plan.stages:
                self._run_stage(step, stage)
        finally:
            sources.drop()
        return [step.values[v] for v in self.plan.outputs], metrics

    # -- a stage

    def _run_stage(self, step: Step, stage: Stage) -> None:
        for read in stage.reads:
            if read not in step.reads:
                step.reads[read] = self._read(step, read)
        looping = [m for m in stage.members if m.vertex in self.plan.loops]
        rest = [m for m in stage.members if m.vertex not in self.plan.loops]
        for made in self._computed(step, rest):
            self._done(step, made)
        for loop in dict.fromkeys(self.plan.loops[m.vertex] for m in looping):
            of_loop = [m for m in looping if self.plan.loops[m.vertex] is loop]
            self._loop(step, loop, of_loop)

    def _computed(self, step: Step, members: Sequence[Member]) -> Iterator[Made]:
        """Streams that wait for no others of these."""
        queries: list[Member] = []
        for m in members:
            begun = time.perf_counter()
            if m.python is not None:
                held, how = self._python(step, m), "python"
            elif self._is_small(step, m):
                held, how = self._local(step, m), "driver"
            else:
                queries.append(m)
                continue
            yield Made(m, held, (time.perf_counter() - begun) * 1e3, 0, how)
        if queries:
            yield from self._query(step, queries)

    def _loop(self, step: Step, loop: Loop, members: Sequence[Member]) -> None:
        """The streams that a recursion gives."""
        begun, jobs = time.perf_counter(), step.metrics.jobs

        def compute(wanted: Sequence[Member], parts: Mapping[Leaf, tuple[Held, ...]]) -> list[Held]:
            inner = Step(step.number, {}, step.sources, step.metrics, dict(parts))
            made = {m.member: m.held for m in self._computed(inner, wanted)}
            return [made[m] for m in wanted]

        run = Run(loop, self.store, self._projection, self._state_around, compute)
        given = run.run([step.values[v] for v in loop.inputs])
        step.metrics.iterations[str(loop.path)] = run.iterations
        step.metrics.add_jobs(run.jobs)
        ms = (time.perf_counter() - begun) * 1e3
        after = step.metrics.jobs
        taken = None if jobs is None or after is None else after - jobs
        for m in members:
            assert isinstance(m.vertex.operator, Fixpoint)
            held = given[m.vertex.operator.number]
            self._done(step, Made(m, held, ms, taken, "loop", run.rows))

    def _state_around(self, change: Vertex, key: tuple[Expr, ...]) -> State:
        return self.plan.state_of(Read(change, key))

    def _parts(self, step: Step, leaf: Leaf) -> tuple[Held, ...]:
        return (step.values[leaf.vertex],) if isinstance(leaf, Ref) else step.reads[leaf]

    def _python(self, step: Step, m: Member) -> Held:
        (leaf,) = m.leaves
        path, line = self.plan.names[m.vertex]
        (held,) = self._parts(step, leaf)
        return apply_python(m.vertex, held, f"{path} ({line})")

    def _is_small(self, step: Step, m: Member) -> bool:
        """Whether the driver has all that a stream is made of, and it is few rows."""
        parts = [p for leaf in m.leaves for p in self._parts(step, leaf)]
        tables = [p for p in parts if isinstance(p, pa.Table)]
        return len(tables) == len(parts) and sum(t.num_rows for t in tables) <= self.local_rows

    def _local(self, step: Step, m: Member) -> Held:
        context = Local(
            table=lambda leaf: self._table(step, leaf),
            project=lambda table, schema, exprs: self._evaluate(step, table, schema, exprs),
        )
        path, line = self.plan.names[m.vertex]
        try:
            return consolidate(context.term(m.term), m.vertex.type.schema)
        except StepError as e:
            raise StepError(f"{path} ({line}): {e}; the store is as it was before the step") from e
        except SteppingError:
            raise
        except Exception as e:
            raise StepError(
                f"{path} ({line}): {m.vertex.operator.name} failed: {first_line(e)}; the store "
                "is as it was before the step"
            ) from e

    def _evaluate(
        self, step: Step, table: pa.Table, schema: Schema, exprs: tuple[Expr, ...]
    ) -> list[Array]:
        named = tuple((f"e{i}", e) for i, e in enumerate(exprs))
        with count_jobs(self.spark) as jobs:
            made = self._projection.select(table, schema, named, beside=False)
        step.metrics.add_jobs(jobs.count)
        assert isinstance(made, pa.Table)
        step.metrics.queries += 1
        return [one_array(made.column(n)) for n, _ in named]

    def _table(self, step: Step, leaf: Leaf) -> pa.Table:
        schema = schema_of(leaf)
        wanted = schema.arrow.names
        parts = self._parts(step, leaf)
        tables = [p.select(wanted) for p in parts if isinstance(p, pa.Table)]
        assert len(tables) == len(parts)  # `_is_small` has seen to it
        return concat(tables, schema)

    # -- a query for several streams

    def _query(self, step: Step, members: list[Member]) -> Iterator[Made]:
        key = tuple(members)
        if key not in self._lowered:
            low = Lowering(f"{self._prefix}_{len(self._lowered)}")
            self._lowered[key] = (low, [low.term(m.term) for m in members])
        low, texts = self._lowered[key]
        rows = 0
        large = False
        for leaf, name in low.leaves.items():
            parts = self._parts(step, leaf)
            rows += sum(p.num_rows for p in parts if isinstance(p, pa.Table))
            large = large or any(isinstance(p, DataFrame) for p in parts)
            step.sources.define(name, parts, schema_of(leaf))
        begun = time.perf_counter()
        try:
            with count_jobs(self.spark) as jobs:
                for d in low.derived:
                    step.sources.derive(d)
                run = self._large if large or rows > DRIVER_ROWS else self._small
                held = run(step, members, texts)
        except SteppingError:
            raise
        except Exception as e:
            raise self._blame(step, members, e) from e
        ms = (time.perf_counter() - begun) * 1e3
        step.metrics.queries += 1
        step.metrics.add_jobs(jobs.count)
        for m, h in zip(members, held, strict=True):
            yield Made(m, h, ms, jobs.count, "spark")

    def _small(self, step: Step, members: list[Member], texts: list[str]) -> list[Held]:
        """One query for all: each stream a struct column of its own, NULL in others' rows."""
        schemas = [m.vertex.type.schema for m in members]
        if len(members) == 1:
            query = f"SELECT {ONE} * FROM ({texts[0]})"
            table = conform(step.sources.sql(query).toArrow(), schemas[0])
            return [consolidate(table, schemas[0])]
        columns = [
            f"STRUCT<{', '.join(f'{quote(n)}: {t.ddl}' for n, t in s.all)}>" for s in schemas
        ]
        terms = []
        for i, text in enumerate(texts):
            row = ", ".join(f"'{n}', {quote(n)}" for n, _ in schemas[i].all)
            cells = [
                f"{f'named_struct({row})' if j == i else f'CAST(NULL AS {c})'} AS m{j}"
                for j, c in enumerate(columns)
            ]
            terms.append(f"(SELECT {i} AS tag, {', '.join(cells)} FROM ({text}))")
        query = f"SELECT {ONE} * FROM ({' UNION ALL '.join(terms)})"
        union = step.sources.sql(query).toArrow()
        return [_untagged(union, i, s) for i, s in enumerate(schemas)]

    def _large(self, step: Step, members: list[Member], texts: list[str]) -> list[Held]:
        """A query for each, side by side; results stay in Spark unless they prove to be small."""

        def one(m: Member, text: str) -> Held:
            schema = m.vertex.type.schema
            query = for_many_rows(consolidated(text, schema))
            with count_jobs(self.spark) as jobs:  # Spark counts by thread
                frame = step.sources.sql(query).localCheckpoint()
                few = frame.count() <= DRIVER_ROWS
                held = conform(frame.toArrow(), schema) if few else frame
            step.metrics.add_jobs(jobs.count)
            return held

        with no_constraints(self.spark), ThreadPoolExecutor(max_workers=4) as pool:
            return list(pool.map(one, members, texts))

    def _blame(self, step: Step, members: list[Member], error: Exception) -> StepError:
        """Say which vertex failed: run the terms of a failed query again, from the leaves up."""
        for m in members:
            vertex = failing_vertex(m.term, lambda t: self._probe(step, t))
            if vertex is not None:
                path, line = self.plan.names[vertex]
                return StepError(
                    f"{path} ({line}): {vertex.operator.name} failed: {first_line(error)}\n"
                    "The store is as it was before the step: mend the rows or the function, and "
                    "step again"
                )
        shown = ", ".join(str(self.plan.names[m.vertex][0]) for m in members)
        return StepError(f"{shown}: {first_line(error)}; the store is as it was before the step")

    def _probe(self, step: Step, t: Term) -> None:
        low = Lowering(step.sources.name("probe"))
        text = low.term(t)
        for leaf, name in low.leaves.items():
            step.sources.define(name, self._parts(step, leaf), schema_of(leaf))
        for d in low.derived:
            step.sources.derive(d)
        step.sources.sql(text).toArrow()

    # -- the store

    def _read(self, step: Step, read: Read) -> tuple[Held, ...]:
        state = self.plan.state_of(read)
        keys = None
        if read.by is not None:
            keys = self._keys(step, read, state)
            if isinstance(keys, pa.Table) and not keys.num_rows:
                return ()
        wanted = [n for n, _ in read.change.type.schema.all]
        return tuple(
            p.select(*wanted) if isinstance(p, DataFrame) else p.select(wanted)
            for p in self.store.read(state.register.name, keys)
        )

    def _keys(self, step: Step, read: Read, state: State) -> Held:
        assert read.by is not None
        held, schema = step.values[read.by], read.by.type.schema
        return self._projection.keys(
            held, schema, state.register.key, read.by_key, nulls=read.nulls
        )

    def _add(self, step: Step, v: Vertex, held: Held) -> None:
        for state in self._adders.get(v, ()):
            rows = held
            if state.stored:
                rows = self._projection.select(held, v.type.schema, state.stored, beside=True)
            if isinstance(rows, DataFrame) or rows.num_rows:
                self.store.add(state.register.name, rows)

    def _done(self, step: Step, made: Made) -> None:
        v = made.member.vertex
        step.values[v] = made.held
        if isinstance(v.operator, IdentityPrint):
            print(f"{v.operator.label}: {answer(made.held, v.type)!r}")
        self._add(step, v, made.held)
        record(step, self.plan, made, lambda leaf: self._parts(step, leaf))


def _settings(spark: SparkSession) -> dict[str, str | None]:
    """The settings that change what functions of rows give."""
    return {name: spark.conf.get(name) for name in SETTINGS}


def schema_of(leaf: Leaf) -> Schema:
    """The schema of what a leaf reads."""
    return (leaf.change if isinstance(leaf, Read) else leaf.vertex).type.schema


def _untagged(union: pa.Table, tag: int, schema: Schema) -> pa.Table:
    ours = union.filter(pc.equal(union.column("tag"), pa.scalar(tag)))
    rows: Any = one_array(ours.column(f"m{tag}"))
    table = pa.Table.from_arrays(rows.flatten(), names=[n for n, _ in schema.all])
    return consolidate(conform(table, schema), schema)


def record(step: Step, plan: Plan, made: Made, parts: Callable[[Leaf], tuple[Held, ...]]) -> None:
    """Note what materialising a stream took, for it and for the vertices within its term."""
    m, held = made.member, made.held
    path = str(plan.names[m.vertex][0])
    rows_in = made.rows_in
    for leaf in m.leaves:
        rows_in += sum(p.num_rows for p in parts(leaf) if isinstance(p, pa.Table))
    rows_out = held.num_rows if isinstance(held, pa.Table) else None
    step.metrics.vertices[path] = VertexMetrics(
        path, rows_in, rows_out, made.ms, made.jobs, made.how
    )
    for v in m.inner:
        inner = str(plan.names[v][0])
        step.metrics.vertices.setdefault(
            inner, VertexMetrics(inner, None, None, 0.0, 0, made.how, within=path)
        )
