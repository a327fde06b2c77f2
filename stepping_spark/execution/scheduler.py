"""Runs a step of a plan: whole in Spark's tasks, or by stages on the driver and in Spark SQL."""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from stepping_spark.base.errors import StepError, SteppingError
from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.base.packages import SparkSession
from stepping_spark.circuit.graph import Fixpoint, Vertex
from stepping_spark.circuit.operators import IdentityPrint
from stepping_spark.execution.arrow_executor import CalledByRow, Driver
from stepping_spark.execution.fixpoint import Run
from stepping_spark.execution.io import answer, check_there
from stepping_spark.execution.materialize import Materializer, null_field
from stepping_spark.execution.registers import Registers, check_in_time
from stepping_spark.execution.spark_executor import SparkExecutor
from stepping_spark.execution.sql_scope import Projection, SqlScope
from stepping_spark.execution.step import (
    Computed,
    Deferred,
    Step,
    failed_key,
    null_error,
    rows_of,
)
from stepping_spark.execution.task_executor import TaskExecutor
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.zones import known_zone
from stepping_spark.plan.loop import LoopPlan
from stepping_spark.plan.metrics import Cost, StepMetrics
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.segments import NotInTasks
from stepping_spark.plan.step_ir import Leaf, Materialized, Read, RegisterPlan, Stage, refs
from stepping_spark.relations.arrow import may_have_null
from stepping_spark.relations.relation import FanOut, Relation, SparkRelation
from stepping_spark.relations.store import Now, StepStore
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.sql_text import literal
from stepping_spark.spark.session import (
    JobCounter,
    advise,
    get_session,
    is_stopped,
    running_session,
    zone_to_come,
)

_ZONE, _PARSER = "spark.sql.session.timeZone", "spark.sql.legacy.timeParserPolicy"
_NAMES = (
    "spark.sql.ansi.enabled",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    _PARSER,
    _ZONE,
)


def checked(spark: SparkSession, before: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session. Raises `StepError` if the state was made with other settings."""
    settings = {name: str(spark.conf.get(name)) for name in _NAMES}
    for name, value in before.items():
        if settings.get(name, value) != value:
            raise StepError(
                f"the session has {name} = {settings[name]!r}, and the state was made with "
                f"{value!r}: functions of rows would give other results for rows that are in "
                f"the state already; set it back with spark.conf.set({name!r}, {value!r})"
            )
    return settings


def zone_of(settings: Mapping[str, str]) -> dt.tzinfo | None:
    """The time zone of functions of times; None if it is unknown, or only Spark has its rules."""
    return None if settings.get(_PARSER) == "LEGACY" else known_zone(settings.get(_ZONE, ""))


def _print(v: Vertex, relation: Relation) -> None:
    """Print a stream if its operator is `IdentityPrint`."""
    if isinstance(v.operator, IdentityPrint):
        print(f"{v.operator.label}: {answer(relation, v.type)!r}")


_UNKNOWN = (None, None)
"""The rows in and out of a vertex if they were not counted."""


class Scheduler:
    """Steps one plan against one store; with `keeps=False` it adds nothing to registers."""

    def __init__(
        self,
        plan: Plan,
        store: StepStore,
        spark: SparkSession | None = None,
        *,
        limits: Limits = DEFAULT,
        keeps: bool = True,
    ) -> None:
        self.limits = limits
        self._few_rows = min(limits.task_rows, limits.local_rows)
        self.plan = plan
        self.store = store
        self._spark = spark
        self.settings: Mapping[str, str] | None = None
        """The settings of the session, once a step has used it; the store keeps them."""
        self._settings: Mapping[str, str] | None = None  # of the session, or of the state
        self._projection = Projection(lambda: self.spark)
        self._projection.zone = self._zone
        self._jobs: JobCounter | None = None
        self._tasks = TaskExecutor(plan, store, lambda: self.spark, self._zone, limits, keeps=keeps)
        self._stepping = False
        self._registers = Registers(plan, store, self._projection, limits)
        self._driver = Driver(plan, self._projection, limits)
        self._adders: dict[Vertex, list[RegisterPlan]] = {}
        self._inputs = {v: str(plan.names[v][0]) for v in plan.graph.inputs}
        self._outputs = plan.graph.named_outputs
        self._strict = {v: label for label, v in plan.graph.strict.items()}
        refused = ((k, x) for k, x in plan.graph.lateness.items() if x.refused)
        self._late = {x.late: (label, x) for label, x in refused}
        self._looked_at = {v for v in plan.graph.walk() if isinstance(v.operator, IdentityPrint)}
        self._looked_at |= self._strict.keys() | self._late.keys()
        self._named: dict[Materialized, tuple[str, tuple[tuple[str, Vertex | None], ...]]] = {}
        self._once = Materializer(plan, self._projection, self._adders, limits)
        self._queries = SparkExecutor(
            plan, lambda: self.spark, self._once, self._registers.of_folds
        )
        for s in plan.states if keeps else ():
            self._adders.setdefault(s.change, []).append(s)

    @property
    def spark(self) -> SparkSession:
        """The session, started when it is first needed."""
        if self._spark is None:
            self._spark = get_session()
            advise(self._spark)
        if self._stepping and self._jobs is None:
            if is_stopped(self._spark):
                raise StepError(
                    "the Spark session that this stepper works with has been stopped; make a new "
                    "one, st.Stepper(graph, store), which takes the active session, or starts one"
                )
            self.settings = checked(self._spark, self.settings or self.store.last_settings())
            self._jobs = JobCounter(self._spark)
            self._jobs.__enter__()
        return self._spark

    @contextmanager
    def counting(self, metrics: StepMetrics) -> Iterator[None]:
        """Count the Spark jobs of a step; costs nothing if it uses no session."""
        self._jobs, self._stepping = None, True
        try:
            yield
        finally:
            self._stepping = False
            if self._jobs is not None:
                self._jobs.__exit__(*sys.exc_info())
                metrics.add_jobs(self._jobs.count)

    def _zone(self) -> dt.tzinfo | None:
        """The time zone in the settings of the state; otherwise the one of the session.

        If no session runs, it is the zone that a session would be started with; none is started.
        """
        if not self.settings and not self.store.last_settings():
            session = self._spark or running_session()
            if session is not None:
                self.settings = checked(session, {})
            elif (zone := zone_to_come()) is not None:
                self.settings = {_ZONE: zone}
            else:
                return None
        return zone_of(self.settings or self.store.last_settings())

    def limits_of_frames(self) -> Limits:
        """The limits for changes that are DataFrames. From here on, jobs are counted.

        If tasks can take large steps, the driver fetches more rows of a DataFrame: tasks read
        fetched rows twice as fast as rows in Spark.
        """
        limits = self.limits
        if not self._tasks.may_take(self.spark):
            return limits
        return replace(limits, local_rows=max(limits.local_rows, limits.fetched_rows))

    def session_of_tasks(self) -> SparkSession | None:
        """The running session, if its tasks can take steps; starts none."""
        return self._tasks.session()

    def key_kept_by(self, v: Vertex) -> tuple[str, ...] | None:
        """The key of the first register of a stream: see `Materializer.key_kept_by`."""
        return self._once.key_kept_by(v)

    def run(
        self,
        metrics: StepMetrics,
        inputs: Mapping[Vertex, Relation],
        now: Now,
        *,
        since: Now,
        first: bool,
    ) -> list[Relation]:
        """Compute a step, and add its changes to the store; the caller commits.

        `since` is the time of the last step; `first` is true if there was none.
        """
        few = True  # inlined: saves a function call in small steps
        for relation in inputs.values():
            few = few and relation.table is not None and len(relation.table) <= self._few_rows
        if not few:
            placed = self._tasks.placed(inputs)
            if placed.on_driver:
                metrics.not_in_tasks = placed.why
            else:
                outputs = self._in_tasks(metrics, inputs, now, placed.why, first=first)
                if outputs is not None:
                    return outputs
        asked = self._projection.queries
        self._projection.asked.clear()
        self._registers.begin()
        settings = self.settings or self.store.last_settings()
        if settings is not self._settings:
            if settings and self.settings is None:
                session = running_session()
                if session is not None:
                    checked(session, settings)
            self._settings = settings
        step = self._step(inputs, now, since, metrics, first=first)
        try:
            for v, relation in inputs.items():
                if isinstance(relation, SparkRelation) and v in self._adders:
                    step.values[v] = self._once.computed(step, v, relation, checked=True)
                self._add(step, v, step.values[v])
                metrics.inputs[self._inputs[v]] = step.values[v].rows
            for stage in self.plan.stages:
                self._run_stage(step, stage)
        finally:
            self._driver.end()
            step.end()
        metrics.queries += self._projection.queries - asked
        metrics.asked = tuple(self._projection.asked)
        given = []
        for name, v in zip(self._outputs, self.plan.outputs, strict=True):
            given.append(step.values[v])
            metrics.outputs[name] = given[-1].rows
        return given

    def _step(
        self,
        inputs: Mapping[Vertex, Relation],
        now: Now,
        since: Now,
        metrics: StepMetrics,
        *,
        first: bool,
    ) -> Step:
        return Step(
            dict(inputs),
            now,
            since,
            lambda: SqlScope(lambda: self.spark, self._now_in_sql(now)),
            metrics,
            first=first,
        )

    def _in_tasks(
        self,
        metrics: StepMetrics,
        inputs: Mapping[Vertex, Relation],
        now: Now,
        why: str,
        *,
        first: bool,
    ) -> list[Relation] | None:
        """The outputs of a step that Spark's tasks take; None if they cannot."""
        try:
            taken = self._tasks.run(inputs, now)
        except NotInTasks as e:
            metrics.not_in_tasks = str(e)
            return None
        self._registers.skip()
        for v, relation in taken.looked_at.items():
            if not relation.is_empty:
                self._refuse(self._step({}, now, now, metrics, first=first), v, relation)
            _print(v, relation)
        metrics.queries += 1
        metrics.iterations.update(taken.iterations)
        for v, given in inputs.items():
            metrics.inputs[self._inputs[v]] = given.rows
        jobs = 1
        for m, done in taken.done.items():
            cost = Cost(done.ms, jobs, "tasks", why)
            path, within = str(self.plan.names[m.vertex][0]), self._within(m, None)
            metrics.note(path, cost, done.read, done.given, {p: _UNKNOWN for p, _ in within})
            jobs = 0
        for register, rows in taken.added.items():
            metrics.keep(register, rows)
        metrics.outputs = dict(zip(self._outputs, [x.rows for x in taken.outputs], strict=True))
        return taken.outputs

    def projected(self, relation: Relation, state: RegisterPlan) -> Relation:
        """Rows of a stream with the columns of its register's key."""
        try:
            return self._projection.select(relation, state.selection)
        except SteppingError:
            raise
        except Exception as e:
            raise failed_key(state.register.name, e) from e

    def committed(self) -> None:
        """Keep the prefixes of windows from the step that was just committed."""
        self._registers.committed()

    # -- a stage

    def _run_stage(self, step: Step, stage: Stage) -> None:
        for m in stage.projections:
            for stream in self._computed(step, [m]):
                self._done(step, stream)
        for read in stage.reads:
            if read not in step.reads:
                step.reads[read] = self._registers.read(step, read)
        loops = self.plan.loops
        rest = [m for m in stage.members if m.vertex not in loops] if loops else stage.members
        for stream in self._computed(step, rest):
            self._done(step, stream)
        looping = [m for m in stage.members if m.vertex in loops] if loops else ()
        for loop in dict.fromkeys(loops[m.vertex] for m in looping) if looping else ():
            self._loop(step, loop, [m for m in looping if loops[m.vertex] is loop])

    def _computed(self, step: Step, members: Sequence[Materialized]) -> Iterator[Computed]:
        """Compute streams that need no other stream of the stage."""
        if self.plan.joined_by_readers:
            joining = [self._joining(step, m) for m in members]
            members = [m for m in joining if not self._is_left(step, m)]
        self._driver.begin(step, members)
        for_spark: dict[Materialized, Deferred] = {}
        for m in members:
            is_python = m.python is not None and not step.size(m).is_empty
            stream = self._python(step, m) if is_python else self._driver.computed(step, m)
            cut = self._registers.read_whole(step, m) if isinstance(stream, Deferred) else ()
            if cut:
                self._driver.forget(cut)
                stream = self._driver.computed(step, m)
            if isinstance(stream, Deferred):
                for_spark[m] = stream
            else:
                yield stream
        for m, deferred in for_spark.items():
            yield self._queries.computed(step, m, deferred.why)

    def _is_left(self, step: Step, m: Materialized) -> bool:
        """Whether to leave a join to its readers, each of which adds up many rows before it."""
        if m.vertex not in self.plan.joined_by_readers or step.size(m).is_empty:
            return False
        sides = [rows_of(*step.parts(leaf)) for leaf in m.leaves]
        counted = [rows for rows in sides if rows is not None]
        if len(counted) < len(sides) or sum(counted) > self.limits.local_rows:
            return False
        if max(counted) < self.limits.eager_rows:
            return False
        step.left_to_readers.add(m.vertex)
        return True

    def _joining(self, step: Step, m: Materialized) -> Materialized:
        """A stream whose term contains the join that was left to it, if any was."""
        left = (
            (v for v in refs(m.term) if v in step.left_to_readers) if step.left_to_readers else ()
        )
        return next((self.plan.joined_by_readers[v][m] for v in left), m)

    def _loop(self, step: Step, loop: LoopPlan, members: Sequence[Materialized]) -> None:
        """Compute the recursive streams of a loop."""
        begun = time.perf_counter()
        within = 0.0  # milliseconds of the streams of the body, which have metrics of their own

        def compute(
            wanted: Sequence[Materialized], parts: Mapping[Leaf, tuple[Relation, ...]]
        ) -> list[Relation]:
            nonlocal within
            inner = Step({}, step.now, step.since, lambda: step.sources, step.metrics, dict(parts))
            started = time.perf_counter()
            streams = {computed.stream: computed for computed in self._computed(inner, wanted)}
            within += (time.perf_counter() - started) * 1e3
            for m, computed in streams.items():
                if m.may_make_null:
                    self._check_nulls(computed)
                self._note(inner, computed, loop)
            return [streams[m].relation for m in wanted]

        run = Run(loop, self.store, self._projection, self._state_around, compute)
        results = run.run([step.values[v] for v in loop.inputs])
        step.metrics.iterations[str(loop.path)] = run.iterations
        for register, rows in run.additions:
            step.metrics.keep(register, rows)
        ms = (time.perf_counter() - begun) * 1e3 - within
        why = "a recursion" if run.iterations else "a recursion; an input is empty"
        cost = Cost(ms, run.jobs, "loop", why)
        for m in members:
            assert isinstance(m.vertex.operator, Fixpoint)
            self._done(step, Computed(m, results[m.vertex.operator.number], cost, {}, run.rows))
            cost = Cost(0.0, 0, "loop", why, within=self._path(members[0]))

    def _state_around(self, change: Vertex, key: tuple[Expr, ...]) -> RegisterPlan:
        return self.plan.state_of(Read(change, key))

    def _python(self, step: Step, m: Materialized) -> Computed:
        begun = time.perf_counter()
        (leaf,) = m.leaves
        path, line = self.plan.names[m.vertex]
        called = CalledByRow.of(m.vertex, f"{path} ({line})")
        (relation,) = step.parts(leaf)
        why = "a Python function, of rows in Spark"
        result: Relation | None = None
        jobs: int | None = 0
        if relation.table is not None:
            try:
                result = called.apply(relation.table, self.limits.given_rows)
                why = "a Python function, of rows on the driver"
            except FanOut as e:
                why = f"a Python function; {e}"
        if result is None:
            with JobCounter(self.spark) as counted:
                frame = relation.in_spark(lambda: self.spark).frame
                result = self._once.computed(step, m.vertex, called.apply_in_spark(frame))
            jobs = counted.count
        return Computed(m, result, Cost((time.perf_counter() - begun) * 1e3, jobs, "python", why))

    # -- a step's values

    def _now_in_sql(self, now: Now) -> str:
        for t in self.plan.times:
            return literal(t.encode(now, "now"), t)
        return "NULL"

    def _add(self, step: Step, v: Vertex, relation: Relation) -> None:
        for state in self._adders.get(v, ()):
            rows = step.for_registers.get(state.register.name, relation)
            if state.stored and state.register.name not in step.for_registers:
                rows = self.projected(relation, state)
            if not rows.is_empty:
                self.store.add(state.register.name, rows)
                step.metrics.keep(state.register.name, rows.rows)

    def _done(self, step: Step, computed: Computed) -> None:
        m, relation = computed.stream, computed.relation
        if m.may_make_null:
            self._check_nulls(computed)
        if m.vertex in self._looked_at:
            self._refuse(step, m.vertex, relation)
            _print(m.vertex, relation)
        step.values[m.vertex] = relation
        self._add(step, m.vertex, relation)
        self._note(step, computed)

    def _refuse(self, step: Step, v: Vertex, relation: Relation) -> None:
        """Raise `InputError` for rows that an input must not have."""
        if v in self._strict:
            assert isinstance(v.type, ZSetType)
            check_there(relation, v.type, f"input {self._strict[v]!r}")
        if v in self._late:
            label, x = self._late[v]
            read = Read(self.plan.graph.loops[x.greatest])
            old = () if relation.is_empty else self._registers.old(step, read)
            check_in_time(relation, v, label, x, old)

    def _check_nulls(self, computed: Computed) -> None:
        """Refuse a NULL in a field whose type has none; streams in Spark were tested there."""
        table = computed.relation.table
        if table is not None and may_have_null(table):
            null = null_field(table, computed.relation.schema)
            if null is not None:
                path, line = self.plan.names[computed.stream.vertex]
                raise null_error(null, f"{path} ({line})")

    def _note(self, step: Step, computed: Computed, loop: LoopPlan | None = None) -> None:
        """Add a stream to the metrics; in a loop, under its name there."""
        m, names = computed.stream, loop.names if loop else self.plan.names
        read = step.size(m).rows
        read = None if read is None else read + computed.rows_in
        if m not in self._named:
            self._named[m] = (str(names[m.vertex][0]), self._within(m, loop))
        path, within = self._named[m]
        inner: dict[str, tuple[int | None, int | None]] = {}
        for p, v in within:
            inner[p] = computed.rows.get(v, _UNKNOWN) if v else _UNKNOWN
        step.metrics.note(path, computed.cost, read, rows_of(computed.relation), inner)

    def _within(
        self, m: Materialized, loop: LoopPlan | None
    ) -> tuple[tuple[str, Vertex | None], ...]:
        """The vertices within a stream, by path; None for those that a pass fused into another."""
        names, origins = loop.names if loop else self.plan.names, self.plan.graph.origins
        inner: dict[str, Vertex | None] = {str(names[v][0]): v for v in m.inner}
        for v in (m.vertex, *m.inner) if loop is None else ():
            of = (origins[v], *origins[v].parts) if v in origins else ()
            taken = [o for each in of for o in (each, *each.beside)]
            inner.update((str(o.path), None) for o in taken if str(o.path) not in inner)
        inner.pop(str(names[m.vertex][0]), None)
        return tuple(inner.items())

    def _path(self, m: Materialized) -> str:
        return str(self.plan.names[m.vertex][0])
