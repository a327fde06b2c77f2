"""Runs a step of a plan: stage by stage, each as few Spark queries as can be."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from stepping_spark.blame import failing_vertex
from stepping_spark.body import Fixpoint
from stepping_spark.clock import ticks
from stepping_spark.codec import conform
from stepping_spark.errors import StepError, SteppingError
from stepping_spark.expr import Expr
from stepping_spark.graph import Vertex
from stepping_spark.iterations import Run
from stepping_spark.literals import literal
from stepping_spark.local import Failed, FanOut, Local, Rows
from stepping_spark.loops import Loop
from stepping_spark.lower import LOWER, ONE, Lowering, consolidated, for_many_rows
from stepping_spark.metrics import Cost, StepMetrics
from stepping_spark.nulls import null_field, null_tests
from stepping_spark.operators import Fused, IdentityPrint, Operator, parts_of
from stepping_spark.plan import Plan
from stepping_spark.projection import Projection, fetched
from stepping_spark.python_rows import apply_python, apply_python_in_spark
from stepping_spark.relations import Array, concat, consolidate, empty, one_array
from stepping_spark.schema import Schema, StreamType
from stepping_spark.session import JobCounter, count_jobs, get_session, no_constraints
from stepping_spark.source import Sources
from stepping_spark.spark_types import first_line
from stepping_spark.store import Held, Now, Store
from stepping_spark.terms import Leaf, Member, Read, Ref, Stage, State, Term, is_nothing
from stepping_spark.types import quote
from stepping_spark.values import answer

DRIVER_ROWS = 100_000  # what a stage reads at most, for its results to come to the driver unasked
LOCAL_ROWS = 20_000  # what a stream reads at most, to be computed on the driver
SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
_PLAN_NUMBERS = itertools.count(1)


@dataclass
class Step:
    """The values of one step, as they come to be known."""

    values: dict[Vertex, Held]
    now: Now
    since: Now
    sources: Sources
    metrics: StepMetrics
    reads: dict[Leaf, tuple[Held, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A stream as it was computed, and what that took."""

    member: Member
    held: Held
    cost: Cost
    rows: Rows = field(default_factory=dict)  # that the vertices within it read and gave
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
        self._jobs: JobCounter | None = None
        self._stepping = False
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
        if self._stepping and self._jobs is None:
            self._jobs = count_jobs(self._spark)
            self._jobs.__enter__()
        return self._spark

    @contextmanager
    def counting(self, metrics: StepMetrics) -> Iterator[None]:
        """Count the Spark jobs of a step; costs nothing where it has none."""
        self._jobs, self._stepping = None, True
        try:
            yield
        finally:
            self._stepping = False
            if self._jobs is not None:
                self._jobs.__exit__(*sys.exc_info())
                metrics.add_jobs(self._jobs.count)

    def count_from_here(self) -> None:
        """Count jobs that are run before the scheduler needs a session itself."""
        _ = self.spark

    def run(self, metrics: StepMetrics, inputs: Mapping[Vertex, Held], now: Now) -> list[Held]:
        """Compute a step, and add its changes to the store; the caller commits."""
        if self._spark is not None and _settings(self._spark) != self._settings:
            raise StepError(
                f"the session had {self._settings} when the first step ran, and has "
                f"{_settings(self._spark)} now: row functions would say something else of rows "
                "that are there already; set it back"
            )
        sources = Sources(lambda: self.spark, self._now_in_sql(now))
        step = Step(dict(inputs), now, self.store.last_now(), sources, metrics)
        try:
            for v, held in inputs.items():
                self._add(step, v, held)
            for stage in self.plan.stages:
                self._run_stage(step, stage)
        finally:
            sources.drop()
        return [step.values[v] for v in self.plan.outputs]

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
            made = self._on_driver(step, m)
            if made is None:
                queries.append(m)
            else:
                yield made
        if queries:
            yield from self._query(step, queries)

    def _on_driver(self, step: Step, m: Member) -> Made | None:
        """A stream as it is computed here; None where it is not one for the driver."""
        begun = time.perf_counter()
        rows: Rows = {}
        held: Held
        if m.python is None and is_nothing(m.term, lambda x: self._is_empty(step, x)):
            held, how = empty(m.vertex.type.schema), "nothing to do"
        elif m.python is not None:
            held, how = self._python(step, m), "python"
        elif self._is_small(step, m):
            try:
                held, how = self._local(step, m, rows), "driver"
            except FanOut:
                return None
        else:
            return None
        return Made(m, held, Cost((time.perf_counter() - begun) * 1e3, 0, how), rows)

    def _loop(self, step: Step, loop: Loop, members: Sequence[Member]) -> None:
        """The streams that a recursion gives."""
        begun = time.perf_counter()
        jobs: list[int | None] = [0]

        def compute(wanted: Sequence[Member], parts: Mapping[Leaf, tuple[Held, ...]]) -> list[Held]:
            inner = Step({}, step.now, step.since, step.sources, step.metrics, dict(parts))
            made = {m.member: m for m in self._computed(inner, wanted)}
            jobs.extend(m.cost.jobs for m in made.values())
            return [made[m].held for m in wanted]

        run = Run(loop, self.store, self._projection, self._state_around, compute)
        given = run.run([step.values[v] for v in loop.inputs])
        step.metrics.iterations[str(loop.path)] = run.iterations
        ms = (time.perf_counter() - begun) * 1e3
        jobs.append(run.jobs)
        taken = None if None in jobs else sum(j or 0 for j in jobs)
        cost = Cost(ms, taken, "loop")
        for m in members:
            assert isinstance(m.vertex.operator, Fixpoint)
            made = Made(m, given[m.vertex.operator.number], cost, {}, run.rows)
            self._done(step, made)
            cost = Cost(0.0, 0, "loop", within=self._path(members[0]))

    def _state_around(self, change: Vertex, key: tuple[Expr, ...]) -> State:
        return self.plan.state_of(Read(change, key))

    def _parts(self, step: Step, leaf: Leaf) -> tuple[Held, ...]:
        return (step.values[leaf.vertex],) if isinstance(leaf, Ref) else step.reads[leaf]

    def _is_empty(self, step: Step, leaf: Leaf) -> bool:
        """Whether a leaf is known to have no rows, without a job."""
        parts = self._parts(step, leaf)
        return all(isinstance(p, pa.Table) and not p.num_rows for p in parts)

    def _python(self, step: Step, m: Member) -> Held:
        (leaf,) = m.leaves
        path, line = self.plan.names[m.vertex]
        (held,) = self._parts(step, leaf)
        if isinstance(held, pa.Table):
            return apply_python(m.vertex, held, f"{path} ({line})")
        applied = apply_python_in_spark(m.vertex, held, f"{path} ({line})")
        return _settled(applied, m.vertex.type.schema, f"{path} ({line})")

    def _is_small(self, step: Step, m: Member) -> bool:
        """Whether the driver has all that a stream is made of, and it is few rows."""
        parts = [p for leaf in m.leaves for p in self._parts(step, leaf)]
        tables = [p for p in parts if isinstance(p, pa.Table)]
        return len(tables) == len(parts) and sum(t.num_rows for t in tables) <= self.local_rows

    def _local(self, step: Step, m: Member, rows: Rows) -> Held:
        context = Local(
            table=lambda leaf: self._table(step, leaf),
            project=lambda table, schema, exprs: self._evaluate(step, table, schema, exprs),
            chain=lambda table, t, parts: self._chain(step, table, t, parts),
            now=step.now,
            rows=rows,
        )
        try:
            return consolidate(context.term(m.term), m.vertex.type.schema)
        except FanOut:
            raise
        except Failed as e:
            assert e.__cause__ is not None
            raise self._failed(e.vertex, e.part, e.__cause__) from e.__cause__
        except Exception as e:
            raise self._failed(m.vertex, 0, e) from e

    def _failed(self, v: Vertex, part: int, error: BaseException) -> StepError:
        """What a user is told of a vertex that failed, or of one of the operators fused in it."""
        origins = self.plan.graph.origins[v].parts if v in self.plan.graph.origins else ()
        path, line = self.plan.names[v]
        if origins:
            path, line = origins[part].path, origins[part].line
        name = parts_of(v.operator)[part].name
        what = str(error) if isinstance(error, SteppingError) else f"failed: {first_line(error)}"
        return StepError(
            f"{path} ({line}): {name} {what}\nThe store is as it was before the step: mend the "
            "rows or the function, and step again"
        )

    def _evaluate(
        self, step: Step, table: pa.Table, schema: Schema, exprs: tuple[Expr, ...]
    ) -> list[Array]:
        step.metrics.queries += 1
        return self._projection.values(table, schema, exprs)

    def _chain(
        self, step: Step, table: pa.Table, t: StreamType, parts: Sequence[Operator]
    ) -> pa.Table:
        """What linear operators make of a relation, one after the other, asked of Spark at once."""
        step.metrics.queries += 1
        name = step.sources.name("chain")
        low = Lowering(name)
        step.sources.define(name, (table,), t.schema)
        text = LOWER[Fused](low, Fused(tuple(parts)), [f"SELECT * FROM {name}"], [t])
        for d in low.derived:
            step.sources.derive(d)
        made = Fused(tuple(parts)).type_of(t)
        columns = fetched(step.sources.sql(text), [c for _, c in made.schema.all])
        return pa.Table.from_arrays(columns, schema=made.schema.arrow)

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
            keyed = isinstance(leaf, Read) and leaf.by is not None
            step.sources.define(name, parts, schema_of(leaf), added_up=keyed)
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
        cost = Cost(ms, jobs.count, "spark")
        for m, h in zip(members, held, strict=True):
            yield Made(m, h, cost)
            cost = Cost(0.0, 0, "spark", within=self._path(members[0]))

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

        def one(m: Member, text: str) -> tuple[Held, int | None]:
            schema = m.vertex.type.schema
            query = for_many_rows(consolidated(text, schema))
            with count_jobs(self.spark) as jobs:  # Spark counts by thread
                frame = step.sources.sql(query).localCheckpoint()
                path, line = self.plan.names[m.vertex]
                held = _settled(frame, schema, f"{path} ({line})")
            return held, jobs.count

        with no_constraints(self.spark), ThreadPoolExecutor(max_workers=4) as pool:
            made = list(pool.map(one, members, texts))
        for _, jobs in made:
            step.metrics.add_jobs(jobs)
        return [held for held, _ in made]

    def _blame(self, step: Step, members: list[Member], error: Exception) -> StepError:
        """Say which vertex failed: run the terms of a failed query again, from the leaves up."""
        for m in members:
            found = failing_vertex(m.term, lambda t: self._probe(step, t))
            if found is not None:
                return self._failed(*found, error)
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
        keys: Held | None = None
        if read.due:
            keys = self._due(step, state)
        elif read.by is not None:
            keys = self._keys(step, read, state)
        if isinstance(keys, pa.Table) and not keys.num_rows:
            return ()
        schema = read.change.type.schema
        wanted = [n for n, _ in schema.all]
        parts = tuple(
            p.select(*wanted) if isinstance(p, DataFrame) else p.select(wanted)
            for p in self.store.read(state.register.name, keys)
        )
        return parts if keys is None else added_up(parts, schema)

    def _keys(self, step: Step, read: Read, state: State) -> Held:
        assert read.by is not None
        held, schema = step.values[read.by], read.by.type.schema
        if isinstance(held, pa.Table) and not held.num_rows:
            return held
        return self._projection.keys(
            held, schema, state.register.key, read.by_key, nulls=read.nulls
        )

    def _due(self, step: Step, state: State) -> pa.Table | None:
        """The times that have come since the last step, as keys; None: too many to name."""
        (name,) = state.register.key
        (t,) = (t for n, t in state.register.schema.columns if n == name)
        time = dict(state.change.type.schema.columns)["time"]
        found = ticks(step.since, step.now, time)
        return None if found is None else pa.table({name: pa.array(found, t.arrow)})

    def _now_in_sql(self, now: Now) -> str:
        for t in self.plan.times:
            return literal(t.encode(now, "now"), t)
        return "NULL"

    def _add(self, step: Step, v: Vertex, held: Held) -> None:
        for state in self._adders.get(v, ()):
            rows = held
            if state.stored:
                rows = self._projection.select(held, v.type.schema, state.stored, beside=True)
            if isinstance(rows, DataFrame) or rows.num_rows:
                self.store.add(state.register.name, rows)

    def _done(self, step: Step, made: Made) -> None:
        m, held = made.member, made.held
        path, line = self.plan.names[m.vertex]
        if isinstance(held, pa.Table):
            null = null_field(held, m.vertex.type.schema)
            if null is not None:
                raise null_error(null, f"{path} ({line})")
        step.values[m.vertex] = held
        if isinstance(m.vertex.operator, IdentityPrint):
            print(f"{m.vertex.operator.label}: {answer(held, m.vertex.type)!r}")
        self._add(step, m.vertex, held)
        read = _rows(*(p for leaf in m.leaves for p in self._parts(step, leaf)))
        read = None if read is None else read + made.rows_in
        inner = {str(self.plan.names[v][0]): made.rows.get(v, (None, None)) for v in m.inner}
        step.metrics.note(str(path), made.cost, read, _rows(held), inner)

    def _path(self, m: Member) -> str:
        return str(self.plan.names[m.vertex][0])


def _settings(spark: SparkSession) -> dict[str, str | None]:
    """The settings that change what functions of rows give."""
    return {name: spark.conf.get(name) for name in SETTINGS}


def added_up(parts: tuple[Held, ...], schema: Schema) -> tuple[Held, ...]:
    """What batches have for the keys of a change, as one: before a join, not after it.

    Rows that came in one batch and went in another would each be joined with all that they match.
    Those that Spark holds are left to a query to add up.
    """
    tables = [p for p in parts if isinstance(p, pa.Table)]
    if len(tables) < 2:
        return parts
    frames = [p for p in parts if isinstance(p, DataFrame)]
    return (*frames, consolidate(concat(tables, schema), schema))


def schema_of(leaf: Leaf) -> Schema:
    """The schema of what a leaf reads."""
    return (leaf.change if isinstance(leaf, Read) else leaf.vertex).type.schema


def _untagged(union: pa.Table, tag: int, schema: Schema) -> pa.Table:
    ours = union.filter(pc.equal(union.column("tag"), pa.scalar(tag)))
    rows: Any = one_array(ours.column(f"m{tag}"))
    table = pa.Table.from_arrays(rows.flatten(), names=[n for n, _ in schema.all])
    return consolidate(conform(table, schema), schema)


def _settled(frame: DataFrame, schema: Schema, where: str) -> Held:
    """The rows of a DataFrame that Spark has computed: on the driver, if they are few."""
    tests = null_tests(schema)
    nulls = [f"count_if({test}) AS n{i}" for i, (_, test) in enumerate(tests)]
    counts = frame.selectExpr("count(1) AS n", *nulls).first()
    assert counts is not None
    for i, (name, _) in enumerate(tests):
        if counts[f"n{i}"]:
            raise null_error(name, where)
    return conform(frame.toArrow(), schema) if counts["n"] <= DRIVER_ROWS else frame


def null_error(name: str, where: str) -> StepError:
    return StepError(
        f"{where}: {name} is NULL, and its type says that it never is; say `| None` in the type, "
        "or give it a value (F.coalesce); the store is as it was before the step"
    )


def _rows(*parts: Held) -> int | None:
    """How many rows there are, if that is known without counting."""
    tables = [p.num_rows for p in parts if isinstance(p, pa.Table)]
    return sum(tables) if len(tables) == len(parts) else None
