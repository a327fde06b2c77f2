"""The part of a step in a task of Spark: segments of a plan, computed with Arrow for some keys.

Tasks send blobs to each other. If the tag of a blob is the number of a route, it has rows of the
route's stream.
"""

from __future__ import annotations

import functools
import gc
import io
import pickle
import sys
import time
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from stepping_spark.base.errors import SHOWN_ROWS, FixpointError, SteppingError
from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import cloudpickle
from stepping_spark.circuit.graph import Fixpoint, Vertex
from stepping_spark.execution.arrow_executor import CalledByRow, Driver, Placed
from stepping_spark.execution.fixpoint import Run
from stepping_spark.execution.io import absent
from stepping_spark.execution.materialize import null_field
from stepping_spark.execution.partial_reads import RelationParts
from stepping_spark.execution.registers import Registers
from stepping_spark.execution.sql_scope import Projection
from stepping_spark.execution.step import Deferred, Step, null_error, schema_of
from stepping_spark.expressions.arrow_evaluator import ZoneOf
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.segments import (
    ANYWHERE,
    EVERYWHERE,
    KeyParts,
    LargeOutput,
    LoopPiece,
    NotInTasks,
    NotThisTime,
    Piece,
    Route,
    Segments,
    TooMany,
)
from stepping_spark.plan.step_ir import Leaf, Materialized, Read, RegisterPlan, Selection
from stepping_spark.relations.arrow import may_have_null
from stepping_spark.relations.blobs import (
    Blob,
    BlobFile,
    blob_row,
    blobs_of,
    cut,
    gathered,
    packed,
    unpacked,
)
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import DriverRelation, Relation, on_driver
from stepping_spark.relations.store import AddedRows, Now, StepStore, TaskState
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import first_line

NOTES, LOOKED_AT, OUTPUTS, STAYING = -1, 1 << 19, 1 << 20, 1 << 21
"""The tags of notes, of the first stream that the driver looks at, of the first output, and of the
first output that stays in Spark."""

_LARGE = "an output is more than the driver fetches"

RouteRows: TypeAlias = Mapping[Route, DriverRelation]


@dataclass(frozen=True)
class Job:
    """The description of a step for its tasks."""

    plan_name: str  # under which a worker keeps the plan
    plan: bytes
    versions: str
    parts: int
    first_is_distinct: bool  # one process computes the first segment, and sends distinct rows
    staying: bool  # whether outputs stay in Spark, and are not fetched
    most_bytes: int  # of a task's output, for the driver to fetch it
    state: TaskState
    now: Now
    since: Now
    zone: Any
    limits: Limits
    called: bytes  # Python functions, by the numbers of streams


@dataclass
class Done:
    """The rows in and out of a stream in a task, and its milliseconds."""

    read: int = 0
    given: int = 0
    ms: float = 0.0


@dataclass
class Notes:
    """A message of a task to the driver: files of registers, costs of streams, or its error.

    An error other than `NotInTasks` is the error of the step.
    """

    added: list[AddedRows] = field(default_factory=list)
    done: dict[int, Done] = field(default_factory=dict)
    iterations: dict[str, int] = field(default_factory=dict)  # of loops, by their paths
    error: NotInTasks | SteppingError | None = None


def versions() -> str:
    """The versions that a worker must share with the driver."""
    return f"Python {sys.version_info[:2]}, Arrow {pa.__version__}"


class _ArrowOnly(Driver):
    """Computes each stream with Arrow, whatever its size."""

    def _is_ours(self, step: Step, m: Materialized, rows: int | None) -> Placed:
        return Placed(True, "", (rows or 0) >= self.limits.eager_rows)


def _no_spark() -> NoReturn:
    raise NotInTasks("only Spark knows a function for some of the values")


def streams_of(plan: Plan) -> list[Materialized]:
    """The streams that a step computes, also in loops; the number of a stream is its position."""
    in_loops = (m for x in dict.fromkeys(plan.loops.values()) for r in x.rounds for m in r.members)
    return [*(m for stage in plan.stages for m in stage.streams), *in_loops]


def called_in(plan: Plan) -> bytes:
    """The Python functions of a plan, for workers; empty if it has none."""
    called = {
        i: CalledByRow.of(m.vertex, "{} ({})".format(*plan.names[m.vertex]))
        for i, m in enumerate(streams_of(plan))
        if m.python is not None
    }
    pickled: bytes = cloudpickle.dumps(called) if called else b""  # type: ignore[no-untyped-call]
    return pickled


def looked_at(plan: Plan) -> list[Vertex]:
    """The streams for whose rows the driver refuses a step, and the printed streams.

    The number of a stream is its position.
    """
    late = (x.late for x in plan.graph.lateness.values() if x.refused)
    return [*plan.graph.strict.values(), *late, *plan.printed]


class _PartRegisters(Registers):
    """Reads registers for one part of the keys; of rows that are due by time it reads a share."""

    def __init__(self, of: SegmentRunner, state: StepStore, part: int, parts: int) -> None:
        super().__init__(of.plan, state, of.projection, of.limits)
        self._part, self._of = part, parts

    def _stored(self, read: Read, keys: Relation | None) -> RelationParts:
        stored = super()._stored(read, keys)
        if read.due is None:
            return stored
        return tuple(x for x in map(self._share, stored) if not x.is_empty)

    def _share(self, relation: Relation) -> Relation:
        assert relation.table is not None
        rows = relation.table.num_rows
        begin, end = (rows * n // self._of for n in (self._part, self._part + 1))
        return DriverRelation(relation.table.slice(begin, end - begin), relation.schema)


class SegmentRunner:
    """Computes the segments of one plan for parts of the keys."""

    def __init__(
        self, plan: Plan, segments: Segments, called: bytes, limits: Limits, zone: ZoneOf
    ) -> None:
        self.plan = plan
        self._called = called
        self.segments = segments
        self.number_of = {m.vertex: i for i, m in enumerate(streams_of(plan))}
        self._looked_at = {v: i for i, v in enumerate(looked_at(plan))}
        self._routes = tuple(segments.sent)
        self._keys_of: dict[Route, Selection] = {}
        self.limits = limits
        self.projection = Projection(_no_spark)
        self.projection.zone = zone
        self.driver = _ArrowOnly(plan, self.projection, limits)

    @functools.cached_property
    def called(self) -> Mapping[int, CalledByRow]:
        """The Python functions, by the numbers of their streams."""
        functions: dict[int, CalledByRow] = pickle.loads(self._called)
        return functions

    def run_part(
        self, number: int, part: int, blobs: Mapping[int, Sequence[Any]], job: Job
    ) -> Iterator[Blob]:
        """The blobs of a segment for a part of the keys: for later tasks, and for the driver."""
        relations = {}
        for tag, rows in blobs.items():
            route = self._routes[tag]
            if route in self.segments.segments[number].reads:
                distinct = job.first_is_distinct and self.segments.sent[route][0] == 0
                relation = DriverRelation(unpacked(rows), route.vertex.type.schema, distinct)
                relations[route] = relation.added_up()
            if self.segments.sent[route][1] > number:
                yield from ((part, tag, b) for b in rows)
        yield from self._blobs(number, part, relations, job, job.state.attempt())

    def run_first_segment(
        self,
        changes: Mapping[Vertex, DriverRelation],
        job: Job,
        state: AbstractContextManager[StepStore],
    ) -> Iterator[Blob]:
        """The blobs of the first segment, for rows of some inputs; it adds nothing to the state."""
        relations = {
            Route(v, None): relation.added_up() for v, relation in changes.items() if relation.rows
        }
        yield from self._blobs(0, 0, relations, job, state)

    def _blobs(
        self,
        number: int,
        part: int,
        relations: RouteRows,
        job: Job,
        attempt: AbstractContextManager[StepStore],
    ) -> Iterator[Blob]:
        """The blobs of a segment: rows for later segments, outputs, and notes."""
        notes = Notes()
        try:
            with attempt as state:
                values = _Attempt(self, number, part, relations, job, state, notes).computed()
                notes.added += state.added if isinstance(state, TaskState) else ()
            yield from self._blobs_for_later(number, part, values, job.parts)
            for i, v in enumerate(self.plan.outputs):
                if v in values:
                    yield from self._output(i, part, values[v], job)
            for v, i in self._looked_at.items():
                if v in values and values[v].rows:
                    rows = self._shown_rows(v, values[v].added_up(), job)
                    yield from ((part, LOOKED_AT + i, b) for b in packed(rows))
        except (NotInTasks, FixpointError) as e:
            notes.error = e
        except Exception as e:  # other ways to compute the step give better messages
            notes.error = NotThisTime(f"a task failed: {first_line(e)}")
        yield part, NOTES, pickle.dumps(notes)

    def _shown_rows(self, v: Vertex, relation: DriverRelation, job: Job) -> pa.Table:
        """Some of the rows for which a change is refused; all rows of a printed stream."""
        if v in self.plan.printed:
            if relation.nbytes > job.most_bytes:
                raise NotThisTime("a printed stream is more than the driver fetches")
            return relation.table
        rows = absent(relation.table) if v in self.plan.graph.strict.values() else relation.table
        return rows.slice(0, SHOWN_ROWS + 1)

    def _output(self, number: int, here: int, relation: DriverRelation, job: Job) -> Iterator[Blob]:
        """The rows of an output, for the driver or for readers in Spark.

        For readers in Spark, equal rows of several segments are sent to the same part.
        """
        if job.staying:
            everywhere = Route(self.plan.outputs[number], ANYWHERE)
            for part, rows in self._cut(relation, everywhere, job.parts, here):
                yield from ((part, STAYING + number, b) for b in packed(rows))
            return
        if self.plan.outputs[number] in self.segments.apart:
            relation = relation.added_up()
        if relation.nbytes > job.most_bytes:
            raise LargeOutput(_LARGE)
        yield from ((here, OUTPUTS + number, b) for b in packed(relation.table))

    def _blobs_for_later(
        self, number: int, here: int, values: Mapping[Vertex, DriverRelation], parts: int
    ) -> Iterator[Blob]:
        """The rows that a segment sends to later segments."""
        for tag, route in enumerate(self._routes):
            first, last = self.segments.sent[route]
            relation = values.get(route.vertex)
            if relation is not None and relation.rows and first == number < last:
                for part, rows in self._cut(relation, route, parts, here):
                    yield from ((part, tag, b) for b in packed(rows))

    def _cut(
        self, relation: DriverRelation, route: Route, parts: int, here: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each part of the keys."""
        if route.key == EVERYWHERE:
            yield from ((part, relation.table) for part in range(parts))
            return
        if not route.key or parts == 1:
            yield here if route.key is None else 0, relation.table
            return
        keys, names = relation.table, [n for n, _ in relation.schema.columns]
        if route.key != ANYWHERE:
            if route not in self._keys_of:
                named = tuple((f"key_{i}", e) for i, e in enumerate(route.key))
                self._keys_of[route] = Selection(relation.schema, named, beside=False)
            chosen = self._keys_of[route]
            selected = self.projection.select(relation, chosen)
            assert selected.table is not None
            keys, names = selected.table, [n for n, _ in chosen.exprs]
        yield from cut(relation.table, keys, names, parts)


class _Attempt:
    """Computes a segment once, for one part of the keys."""

    def __init__(
        self,
        runner: SegmentRunner,
        number: int,
        part: int,
        relations: RouteRows,
        job: Job,
        state: StepStore,
        notes: Notes,
    ) -> None:
        self._of = runner
        self._segment = runner.segments.segments[number]
        self._part = part
        self._blobs = relations
        self._job = job
        self._state = state
        self._notes = notes
        # Changes are streams of the first segment.
        self._values = {route.vertex: rows for route, rows in relations.items() if number == 0}
        self._registers = _PartRegisters(runner, state, part, job.parts)
        self._routes: dict[Vertex, Route] = {}  # of the streams in `_step`
        self._step = self._new_step()

    def computed(self) -> Mapping[Vertex, DriverRelation]:
        """The streams of the segment; adds their rows to registers."""
        self._registers.begin()
        try:
            for piece in self._segment.pieces:
                if self._part > 0 and piece.whole:
                    continue
                if isinstance(piece, LoopPiece):
                    self._run_loop(piece)
                else:
                    self._compute(piece)
        finally:
            self._of.driver.end()
        for of, route in self._segment.adds:
            relation = self._rows(route)
            if relation.rows:
                rows = self._of.projection.select(relation, of.selection)
                self._state.add(of.register.name, rows)
        return self._values

    def _compute(self, piece: Piece) -> None:
        v = piece.member.vertex
        if any(self._routes.get(x, r) != r for x, r in piece.routes.items()):
            self._of.driver.end()
            self._routes, self._step = {}, self._new_step()
        self._routes.update(piece.routes)
        self._step.values.update({x: self._rows(r) for x, r in piece.routes.items()})
        rows = self._computed(piece.member)
        if v in self._values:  # another summand
            both = pa.concat_tables([self._values[v].table, rows.table])
            rows = DriverRelation(both, rows.schema).added_up()
        self._values[v] = rows

    def _computed(self, m: Materialized) -> DriverRelation:
        for leaf in m.leaves:
            if isinstance(leaf, Read) and leaf not in self._step.reads:
                self._step.reads[leaf] = self._registers.read(self._step, leaf)
        return self._computed_in(self._step, m)

    def _computed_in(self, step: Step, m: Materialized) -> DriverRelation:
        begun = time.perf_counter()
        if m.python is not None:
            relation = self._called(step, m)
        else:
            result = self._of.driver.computed(step, m)
            if isinstance(result, Deferred):
                raise (TooMany if result.many else NotInTasks)(result.why)
            assert isinstance(result.relation, DriverRelation)
            relation = result.relation
        if may_have_null(relation.table):
            null = null_field(relation.table, relation.schema)
            if null is not None:
                path, line = self._of.plan.names[m.vertex]
                raise null_error(null, f"{path} ({line})")
        done = self._notes.done.setdefault(self._of.number_of[m.vertex], Done())
        done.read += step.size(m).rows or 0
        done.given += relation.rows
        done.ms += (time.perf_counter() - begun) * 1e3
        return relation

    def _called(self, step: Step, m: Materialized) -> DriverRelation:
        """The result of a Python function of rows, called in the process of a task."""
        (leaf,) = m.leaves
        rows = on_driver(step.parts(leaf), schema_of(leaf))
        if not rows.num_rows:
            return DriverRelation.empty(m.vertex.type.schema)
        distinct = DriverRelation(rows, schema_of(leaf)).added_up()
        called = self._of.called[self._of.number_of[m.vertex]]
        return called.apply(distinct.table, self._of.limits.given_rows)

    def _run_loop(self, piece: LoopPiece) -> None:
        """Run a recursion to its end; adds its rows to its registers."""
        loop, plan, job = piece.loop, self._of.plan, self._job
        begun = time.perf_counter()
        nbytes = 0

        def compute(
            wanted: Sequence[Materialized], parts: Mapping[Leaf, RelationParts]
        ) -> list[Relation]:
            nonlocal nbytes
            step = Step({}, job.now, job.since, _no_spark, StepMetrics(0), dict(parts))
            self._of.driver.end()
            computed = [self._computed_in(step, m) for m in wanted]
            nbytes += sum(relation.nbytes for relation in computed)
            if nbytes > job.limits.given_bytes:
                raise TooMany("a recursion has more rows than a task has memory for")
            return [*computed]

        def state_around(change: Vertex, key: KeyParts) -> RegisterPlan:
            return plan.state_of(Read(change, key))

        run = Run(loop, self._state, self._of.projection, state_around, compute)
        empty = (DriverRelation.empty(v.type.schema) for v in loop.inputs)
        routes = map(piece.routes.get, loop.inputs)
        relations = [
            no if route is None else self._rows(route)
            for route, no in zip(routes, empty, strict=True)
        ]
        outputs = run.run(relations)
        self._notes.iterations[str(loop.path)] = run.iterations
        for m in piece.members:
            assert isinstance(m.vertex.operator, Fixpoint)
            relation = outputs[m.vertex.operator.number]
            assert isinstance(relation, DriverRelation)
            self._values[m.vertex] = relation
            ms = (time.perf_counter() - begun) * 1e3
            self._notes.done[self._of.number_of[m.vertex]] = Done(run.rows, relation.rows, ms)
            begun = time.perf_counter()

    def _rows(self, route: Route) -> DriverRelation:
        """The rows of a route in this part of the keys."""
        relation = self._values.get(route.vertex) if route.key is None else None
        relation = relation or self._blobs.get(route)
        return DriverRelation.empty(route.vertex.type.schema) if relation is None else relation

    def _new_step(self) -> Step:
        job, first = self._job, not self._state.last_step()
        empty: dict[Vertex, Relation] = {
            v: DriverRelation.empty(v.type.schema) for v in self._of.segments.empty
        }
        return Step(empty, job.now, job.since, _no_spark, StepMetrics(0), first=first)


class _Pickler(pickle.Pickler):
    """Leaves out the classes and functions of users: workers need none, and may lack them."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type | types.FunctionType):
            return NotImplemented
        home = obj.__module__.partition(".")[0]
        if home == "stepping_spark" and _is_in_module(obj):
            return NotImplemented
        if home in sys.stdlib_module_names and home != "__main__":
            return NotImplemented
        return _absent, (f"{obj.__module__}.{obj.__qualname__}",)


def _is_in_module(obj: Any) -> bool:
    """Whether workers find an object by its name; not a row class made from a source's schema."""
    return hasattr(sys.modules[obj.__module__], obj.__qualname__.partition(".")[0])


@functools.cache
def _absent(name: str) -> type:
    """A class in place of a user's class or function: its objects have the same fields."""
    return type(name, (types.SimpleNamespace,), {"__hash__": lambda row: hash(repr(row))})


def pickled(plan: Plan, segments: Segments) -> bytes:
    """A plan for workers."""
    sink = io.BytesIO()
    _Pickler(sink).dump((plan, segments))
    return sink.getvalue()


_KEPT: dict[str, SegmentRunner] = {}
"""The plans that a worker has computed, by their names."""

MOST_KEPT = 8
"""Plans, or segments of a plan for other empty inputs, that are cached. Beyond: all are dropped."""


def _runner_of(job: Job) -> SegmentRunner:
    runner = _KEPT.get(job.plan_name)
    if runner is None:
        if len(_KEPT) >= MOST_KEPT:
            _KEPT.clear()
        plan, segments = pickle.loads(job.plan)
        zone = job.zone
        runner = _KEPT[job.plan_name] = SegmentRunner(
            plan, segments, job.called, job.limits, lambda: zone
        )
        gc.freeze()
    return runner


def run_segment(
    job: Job, number: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute a segment for the parts of the keys in a task."""
    parts: dict[int, dict[int, list[Any]]] = {}
    nbytes: Counter[int] = Counter()
    for batch in batches:
        for part, tag, data in blobs_of(batch):
            tagged = parts.setdefault(part, {})
            if not 0 <= tag < LOOKED_AT:  # for the driver
                yield blob_row(part, tag, data)
                continue
            nbytes[part] += data.size
            if nbytes[part] <= job.limits.given_bytes:
                tagged.setdefault(tag, []).append(data)
            else:  # many rows of one key
                tagged.clear()
    for part, blobs in parts.items():
        why: NotInTasks | None = None
        if versions() != job.versions:
            why = NotInTasks(f"workers have {versions()}, and the driver {job.versions}")
        elif nbytes[part] > job.limits.given_bytes:
            why = TooMany("a part of the keys has more rows than a task has memory for")
        if why is not None:
            yield blob_row(part, NOTES, pickle.dumps(Notes(error=why)))
            continue
        for blob in _runner_of(job).run_part(number, part, blobs, job):
            yield blob_row(*blob)


def run_second(
    job: Job, file: BlobFile, parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute the second segment for the parts of the keys whose numbers a task has.

    The driver has computed the first segment, and written its blobs to the file.
    """
    for batch in parts:
        for part in batch.column(0).to_numpy().tolist():
            yield from run_segment(job, 1, file.of_part(part))


def rows_of_output(schema: Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The consolidated rows of an output in the blobs of a task, which has whole parts."""
    parts: dict[int, list[Any]] = {}
    for batch in batches:
        for part, _, data in blobs_of(batch):
            parts.setdefault(part, []).append(data)
    for blobs in parts.values():
        yield from DriverRelation(unpacked(blobs), schema).added_up().table.to_batches()


def run_source(
    job: Job, number: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute the first segment for rows of an input in a DataFrame."""
    runner = _runner_of(job)
    v = runner.plan.graph.inputs[number]
    nbytes = 0
    for rows in gathered(batches):
        table = conform(rows.rename_columns(v.type.schema.arrow.names), v.type.schema)
        relation = DriverRelation(table, v.type.schema)
        for part, tag, blob in runner.run_first_segment({v: relation}, job, job.state.attempt()):
            nbytes += len(blob) if OUTPUTS <= tag < STAYING else 0
            if nbytes > job.most_bytes // job.parts:
                yield blob_row(part, NOTES, pickle.dumps(Notes(error=LargeOutput(_LARGE))))
                return
            yield blob_row(part, tag, blob)
