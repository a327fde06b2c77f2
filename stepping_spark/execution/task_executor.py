"""Takes whole steps in Spark's tasks: one job, whose tasks compute with Arrow."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.base.scratch import ScratchFolder
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Linearity, parts_of
from stepping_spark.execution import tasks
from stepping_spark.execution.step import rows_of
from stepping_spark.execution.tasks import (
    LOOKED_AT,
    NOTES,
    OUTPUTS,
    STAYING,
    Done,
    Job,
    Notes,
    SegmentRunner,
)
from stepping_spark.expressions.arrow_evaluator import ZoneOf
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.segments import (
    LargeOutput,
    NotInTasks,
    NotThisTime,
    Segments,
    segments_of,
)
from stepping_spark.plan.step_ir import Materialized, is_of_window
from stepping_spark.relations.blobs import (
    DDL,
    Blob,
    BlobFile,
    blob_row,
    blobs_of,
    in_parts,
    unpacked,
)
from stepping_spark.relations.placement import Placement, bytes_given_in_a_task, resources
from stepping_spark.relations.relation import (
    KEPT_BYTES,
    DriverRelation,
    Relation,
    SparkRelation,
    computed_once,
    fetch_if_few,
)
from stepping_spark.relations.store import AddedRows, Now, StepStore, TaskStore
from stepping_spark.relations.transfer import LOCAL
from stepping_spark.spark.session import (
    first_line,
    is_cancelled,
    raised_by_java,
    raised_in_worker,
    running_session,
    runs_here,
    with_settings,
)

_NUMBERS = itertools.count(1)
_PART_BYTES, _LEAST_BYTES = 64 << 20, 1 << 17
"""The approximate limits of the bytes of a change for each part of the keys, upper and lower."""


@dataclass(frozen=True)
class StepInTasks:
    """A step that tasks have taken: outputs, costs of streams, and added rows by register.

    `looked_at` has rows for which the step is refused, and printed streams. `iterations` has the
    number of iterations of each loop.
    """

    outputs: list[Relation]
    done: Mapping[Materialized, Done]
    added: Mapping[str, int]
    looked_at: Mapping[Vertex, DriverRelation]
    iterations: Mapping[str, int]


@dataclass(frozen=True)
class _Cut:
    """A plan cut for tasks: its segments, and their pickled form for workers, under a name."""

    name: str
    segments: Segments
    pickled: bytes
    called: bytes
    here: SegmentRunner  # for rows on the driver


class TaskExecutor:
    """Takes steps of one plan in tasks, with a store that they can read and write.

    With `keeps=False`, tasks add nothing to registers.
    """

    def __init__(
        self,
        plan: Plan,
        store: StepStore,
        spark: Callable[[], SparkSession],
        zone: ZoneOf,
        limits: Limits,
        *,
        keeps: bool = True,
    ) -> None:
        self._plan = plan
        self._keeps = keeps
        self._zone = zone
        self._store = store
        self._spark = spark
        self._limits = limits
        self._cuts: dict[frozenset[Vertex], _Cut] = {}
        self._refused: dict[frozenset[Vertex], str] = {}  # by the inputs that are empty
        self._refuses = "" if isinstance(store, TaskStore) else "the store's state is not for tasks"

    def _cut(self, empty: frozenset[Vertex]) -> _Cut:
        """The plan cut for steps in which these inputs are empty."""
        if empty not in self._cuts:
            of_all = None if empty else self._of_all_inputs
            segments = of_all or segments_of(self._plan, empty, keeps=self._keeps)
            try:
                pickled, called = tasks.pickled(self._plan, segments), tasks.called_in(self._plan)
            except (AttributeError, TypeError, pickle.PicklingError) as e:
                raise NotInTasks(f"the plan cannot be sent to workers: {first_line(e)}") from e
            here = SegmentRunner(self._plan, segments, called, self._limits, self._zone)
            name = f"{os.getpid()} {next(_NUMBERS)}"
            if len(self._cuts) >= tasks.MOST_KEPT:
                self._cuts.clear()
            self._cuts[empty] = _Cut(name, segments, pickled, called, here)
        return self._cuts[empty]

    @cached_property
    def _gives_rows_of_inputs(self) -> bool:
        """Whether an output maps rows of inputs one by one, and so may be as large as they are."""
        return any(map(_is_of_rows, self._plan.graph.outputs))

    @cached_property
    def _has_windows(self) -> bool:
        """Whether a stream is the change of a window."""
        return any(is_of_window(v.operator) for v in self._plan.graph.walk())

    @cached_property
    def _of_all_inputs(self) -> Segments | None:
        """The segments of a step in which all inputs change; None if tasks cannot take it."""
        try:
            return segments_of(self._plan, keeps=self._keeps)
        except NotInTasks as e:
            self._refused[frozenset()] = str(e)
            return None

    def may_take(self, spark: SparkSession) -> bool:
        """Whether tasks of a session can take steps, according to the plan and the store."""
        whole = self._of_all_inputs is not None and not self._why_not(frozenset())
        return whole and self._serves(spark)

    def session(self) -> SparkSession | None:
        """The running session, if its tasks can take steps of any size; starts none.

        None if one task computes a stream for all keys: it has no more memory than the driver.
        """
        whole = self._of_all_inputs
        if whole is None or whole.uncut or self._why_not(frozenset()):
            return None
        session = running_session()
        return session if session is not None and self._serves(session) else None

    def _serves(self, spark: SparkSession) -> bool:
        """Whether tasks of a session can reach the state."""
        store = self._store
        return isinstance(store, TaskStore) and store.serves_tasks(here=runs_here(spark))

    def _why_not(self, empty: frozenset[Vertex]) -> str:
        """The reason why tasks cannot take a step with these empty inputs; "" if they can."""
        return self._refuses or self._refused.get(empty, "")

    def placed(self, inputs: Mapping[Vertex, Relation]) -> Placement:
        """The place for a step: tasks, or as each of its streams is placed by itself."""
        limits, changes = self._limits, inputs.values()
        rows = rows_of(*changes)
        if rows is None:
            counted = sum(relation.rows or 0 for relation in changes)
            if any(relation.rows is None for relation in changes):
                return Placement(
                    True, "the rows of a DataFrame were not counted, and queries read its columns"
                )
            if counted <= limits.task_rows:
                return Placement(True, "")
            return Placement(
                False,
                f"the change has more than task_rows={limits.task_rows:,} rows, some of them in "
                "Spark",
            )
        if rows > limits.local_rows:
            return Placement(
                False, f"the change has more than local_rows={limits.local_rows:,} rows"
            )
        if self._of_all_inputs is not None and self._of_all_inputs.uncut:
            return Placement(True, "one task would compute a stream for all keys")
        nbytes = sum(relation.nbytes or 0 for relation in changes)
        first = not self._store.last_step()
        return resources(limits).of_step(rows, nbytes, windowed=self._has_windows, first=first)

    def run(self, inputs: Mapping[Vertex, Relation], now: Now) -> StepInTasks:
        """Take a step, and add its changes to the store; the caller commits.

        Raises `NotInTasks` if tasks cannot take it. Then nothing was added. No later step with
        changes of the same inputs is tried, unless the reason was the rows of this one.
        """
        empty = frozenset(v for v, relation in inputs.items() if relation.is_empty)
        try:
            if why := self._why_not(empty):
                raise NotInTasks(why)
            nbytes = sum(relation.nbytes or 0 for relation in inputs.values())
            many = nbytes > KEPT_BYTES and self._gives_rows_of_inputs
            try:
                return self._run(empty, inputs, now, staying=many)
            except LargeOutput:  # nothing of that job is committed
                return self._run(empty, inputs, now, staying=True)
        except NotThisTime:
            raise
        except NotInTasks as e:
            self._refused[empty] = str(e)
            raise

    def _run(
        self,
        empty: frozenset[Vertex],
        inputs: Mapping[Vertex, Relation],
        now: Now,
        *,
        staying: bool,
    ) -> StepInTasks:
        store, cut = self._store, self._cut(empty)
        spark = self._spark()
        assert isinstance(store, TaskStore)
        if not self._serves(spark):
            raise NotInTasks("they cannot read or write the state where it is")
        state = store.for_tasks()
        at_once = resources(self._limits).tasks
        nbytes = sum(relation.nbytes or 0 for relation in inputs.values())
        elsewhere = None if runs_here(spark) else spark
        given_bytes = bytes_given_in_a_task(self._limits, elsewhere)
        limits = replace(self._limits, given_bytes=given_bytes)
        of_part = min(_PART_BYTES, max(given_bytes // 4, _LEAST_BYTES))
        parts = max(at_once, nbytes // of_part)
        job = Job(
            plan_name=cut.name,
            plan=cut.pickled,
            versions=tasks.versions(),
            parts=parts,
            first_is_distinct=all(relation.frame is None for relation in inputs.values()),
            staying=staying,
            most_bytes=KEPT_BYTES // parts,
            state=state,
            now=now,
            since=store.last_now(),
            zone=self._zone(),
            limits=limits,
            called=cut.called,
        )
        with self._first_blobs(spark, job, inputs, cut) as (frame, first):
            for number in range(first, len(cut.segments.segments)):
                work = partial(tasks.run_segment, job, number)
                frame = in_parts(frame, parts).mapInArrow(work, DDL)
            store.merge_meanwhile(sum(relation.rows or 0 for relation in inputs.values()))
            if not staying:
                return self._step_of(_fetched(frame), store, cut.segments.apart)
            with _in_workers():
                # Not a checkpoint: Spark would derive conditions on all values of the inputs.
                blobs = frame.persist()
                try:
                    table = blobs.where(f"tag < {STAYING}").toArrow()
                    _check(table)
                    numbers = range(len(self._plan.outputs))
                    outputs = [self._staying(i, blobs, parts) for i in numbers]
                finally:
                    blobs.unpersist()
        return self._step_of(table, store, cut.segments.apart, outputs)

    @contextmanager
    def _first_blobs(
        self, spark: SparkSession, job: Job, inputs: Mapping[Vertex, Relation], cut: _Cut
    ) -> Iterator[tuple[DataFrame, int]]:
        """The blobs of the first segments, and the number of the next one.

        The first segment is computed here for rows on the driver. If all rows are on the driver,
        and tasks run on this machine, they read the blobs for their parts of the keys from a file.
        """
        with ExitStack() as stack:
            file = None
            if job.first_is_distinct and len(cut.segments.segments) > 1 and runs_here(spark):
                with suppress(OSError):  # the disk may be full
                    folder = ScratchFolder()
                    stack.callback(folder.remove)
                    path = str(folder.path / "blobs")
                    file = BlobFile.written(path, self._blobs(job, inputs, cut))
            if file is None:
                stack.close()
                yield self._sent(spark, job, inputs, cut), 1
            else:
                numbers = spark.range(0, job.parts, 1, job.parts)
                yield numbers.mapInArrow(partial(tasks.run_second, job, file), DDL), 2

    def _blobs(self, job: Job, inputs: Mapping[Vertex, Relation], cut: _Cut) -> Iterator[Blob]:
        """The blobs of the first segment for rows on the driver."""
        here = {
            v: relation for v, relation in inputs.items() if isinstance(relation, DriverRelation)
        }
        yield from cut.here.run_first_segment(here, job, nullcontext(self._store))
        yield from ((part, NOTES, pickle.dumps(Notes())) for part in range(job.parts))

    def _sent(
        self, spark: SparkSession, job: Job, inputs: Mapping[Vertex, Relation], cut: _Cut
    ) -> DataFrame:
        """The blobs of the first segment, as a DataFrame."""
        rows = pa.Table.from_batches([blob_row(*b) for b in self._blobs(job, inputs, cut)])
        with with_settings(spark, {LOCAL: "0"}):
            frame = spark.createDataFrame(rows, DDL)
        for number, relation in enumerate(map(inputs.__getitem__, self._plan.graph.inputs)):
            if relation.frame is not None:
                work = partial(tasks.run_source, job, number)
                # mapInArrow reads a dot in a name as a field access.
                rows_there = relation.frame.toDF(
                    *[f"c{i}" for i in range(len(relation.schema.all))]
                )
                frame = frame.unionAll(rows_there.mapInArrow(work, DDL))
        return frame

    def _staying(self, number: int, blobs: DataFrame, parts: int) -> Relation:
        """An output that stays in Spark."""
        schema = self._plan.outputs[number].type.schema
        types = ", ".join(f"c{i} {t.ddl}" for i, (_, t) in enumerate(schema.all))
        parts_of_blobs = in_parts(blobs.where(f"tag = {STAYING + number}"), parts)
        rows = parts_of_blobs.mapInArrow(partial(tasks.rows_of_output, schema), types)
        named = rows.toDF(*schema.arrow.names)
        relation = computed_once(SparkRelation(named, schema, consolidated=True))
        return fetch_if_few(relation, self._limits) or relation

    def _step_of(
        self,
        table: pa.Table,
        store: TaskStore,
        apart: frozenset[Vertex],
        outputs: list[Relation] | None = None,
    ) -> StepInTasks:
        blobs: dict[int, list[Any]] = {}
        notes = []
        for _, tag, data in blobs_of(table):
            if tag == NOTES:
                notes.append(pickle.loads(data))
            else:
                blobs.setdefault(tag, []).append(data)
        for error in (n.error for n in notes if n.error is not None):
            raise error
        added: dict[str, list[AddedRows]] = {}
        done: dict[Materialized, Done] = {}
        iterations: dict[str, int] = {}
        members = tasks.streams_of(self._plan)
        for note in notes:
            iterations |= note.iterations
            for rows in note.added:
                added.setdefault(rows.register, []).append(rows)
            for i, x in note.done.items():
                whole = done.setdefault(members[i], Done())
                whole.read, whole.given = whole.read + x.read, whole.given + x.given
                whole.ms = max(whole.ms, x.ms)
        for name, some in added.items():
            store.add_written(name, some)
        if outputs is None:
            outputs = [
                _rows(v, blobs.get(OUTPUTS + i), distinct=v in apart)
                for i, v in enumerate(self._plan.outputs)
            ]
        of_streams = enumerate(tasks.looked_at(self._plan))
        looked_at = {v: _rows(v, blobs.get(LOOKED_AT + i)) for i, v in of_streams}
        counts = {name: sum(x.rows for x in some) for name, some in added.items()}
        return StepInTasks(outputs, done, counts, looked_at, iterations)


def _rows(v: Vertex, blobs: list[Any] | None, *, distinct: bool = False) -> DriverRelation:
    """The consolidated rows of a stream in blobs; with `distinct`, these have distinct rows."""
    if blobs is None:
        return DriverRelation.empty(v.type.schema)
    return DriverRelation(unpacked(blobs), v.type.schema, distinct).added_up()


def _check(table: pa.Table) -> None:
    """Raise the error of a task, before other tasks compute useless results."""
    notes = (pickle.loads(data) for _, tag, data in blobs_of(table) if tag == NOTES)
    for error in (n.error for n in notes if n.error is not None):
        raise error


_ONE_BY_ONE = (Linearity.LINEAR, Linearity.BILINEAR, Linearity.TEMPORAL, Linearity.LOOK_UP)


def _is_of_rows(v: Vertex) -> bool:
    one_by_one = all(p.linearity in _ONE_BY_ONE for p in parts_of(v.operator))
    return one_by_one and (not v.inputs or any(map(_is_of_rows, v.inputs)))


def _fetched(frame: DataFrame) -> pa.Table:
    with _in_workers():
        return frame.toArrow()


@contextmanager
def _in_workers() -> Iterator[None]:
    """Turn errors of Spark into `NotInTasks`, except for a job that the user has cancelled.

    An error of Python comes again, as a module that workers lack, if no table was its reason; a
    worker that was lost need not.
    """
    try:
        yield
    except (raised.PySparkException, raised_by_java.Py4JJavaError) as e:
        if is_cancelled(e):
            raise
        if isinstance(e, raised.PythonException) and raised_in_worker(e) is None:
            raise NotInTasks(f"Spark's Python workers failed: {first_line(e)}") from e
        raise NotThisTime(f"Spark's tasks failed: {first_line(e)}") from e
