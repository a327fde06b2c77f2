"""Computes streams on the driver; Spark and Python evaluate functions of rows for it."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from stepping_spark.base.errors import InputError, StepError, SteppingError
from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import DataFrame, raised
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Fused, Map, Operator, trees_of
from stepping_spark.circuit.physical import Unnest, walk
from stepping_spark.execution.arrow.kernels import Context, NeedsPrefix
from stepping_spark.execution.arrow.nodes import Compute, Evaluation, Failed, RowCounts, compute
from stepping_spark.execution.spark.nodes import Rendering
from stepping_spark.execution.sql_scope import COLLECTED_ROWS, Projection
from stepping_spark.execution.step import Computed, Deferred, Step, failed, rows_of, schema_of
from stepping_spark.expressions.arrow_evaluator import Ask
from stepping_spark.expressions.expr import Expr, PythonCall, for_spark
from stepping_spark.plan.eager import columns_read
from stepping_spark.plan.metrics import Cost
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import Leaf, Materialized, Read, Ref
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.codec import decode, encode
from stepping_spark.relations.placement import FEW_ROWS, Resources, Workload, resources
from stepping_spark.relations.relation import (
    DriverRelation,
    FanOut,
    LazyScan,
    Relation,
    SparkRelation,
    check_cut,
    most_fetched,
    on_driver,
    why_not_fetched,
)
from stepping_spark.rows.schema import COUNT, Schema, StreamType, ZSetType, in_groups
from stepping_spark.rows.types import ListOf
from stepping_spark.spark.session import first_line, raised_in_worker

PYTHON_ROWS = 2_000_000
"""The most result rows of Python functions in a process: each is an object of some 100 bytes."""


class StageInputs:
    """The relations of a stage, and the values that Spark evaluates over their rows.

    A stream needs the same functions of a relation in each step. So from the second step on, one
    query evaluates the functions that all streams of a stage need of a relation. Each relation has
    a query of its own: a projection of one local relation needs no Spark job, a union needs one.
    """

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._wanted: dict[Materialized, dict[Leaf, dict[tuple[Expr, ...], None]]] = {}
        self._leaves: dict[Leaf, DriverRelation] = {}

    def begin(
        self, step: Step, members: Sequence[Materialized], is_ours: Callable[[Materialized], bool]
    ) -> None:
        """Evaluate at once all functions that streams on the driver need of the same relation."""
        self._leaves.clear()
        wanted: dict[Leaf, list[tuple[Expr, ...]]] = {}
        for m in members if self._wanted else ():
            if m in self._wanted and is_ours(m) and not step.size(m).is_empty:
                for leaf, questions in self._wanted[m].items():
                    wanted.setdefault(leaf, []).extend(questions)
        for leaf, asked in wanted.items():
            rows = rows_of(*step.parts(leaf))
            if len(asked) > 1 and rows is not None and 0 < rows <= COLLECTED_ROWS:
                exprs = [e for some in asked for e in some]
                # If this fails, each stream evaluates its own functions, to name the failing one.
                with suppress(Exception):
                    self._projection.values(self.leaf(step, leaf).table, schema_of(leaf), exprs)

    def drop(self, m: Materialized) -> None:
        """Forget the functions of a stream that Spark computes after all."""
        self._wanted.pop(m, None)

    def end(self) -> None:
        """Forget the relations and their values."""
        self._leaves.clear()
        self._projection.forget()

    def leaf(self, step: Step, leaf: Leaf) -> DriverRelation:
        """The relation of a leaf whose parts are all on the driver."""
        relation = self._leaves.get(leaf)
        if relation is None:
            schema = (leaf.change if isinstance(leaf, Read) else leaf.vertex).type.schema
            relations: list[DriverRelation] = []
            for p in step.parts(leaf):
                assert isinstance(p, DriverRelation)
                if p.table.num_rows:
                    relations.append(p if p.schema is schema else p.select(schema))
            if len(relations) == 1 and relations[0].table.schema.equals(schema.arrow):
                relation = relations[0]
            elif relations:
                relation = DriverRelation(on_driver(relations, schema), schema)
            else:
                relation = DriverRelation(schema.empty, schema, consolidated=True)
            self._leaves[leaf] = relation
        return relation

    def forget(self, leaves: Sequence[Leaf]) -> None:
        """Forget the relations of leaves that will be read again."""
        for leaf in leaves:
            self._leaves.pop(leaf, None)

    def values(
        self, m: Materialized, table: pa.Table, schema: Schema, exprs: tuple[Expr, ...]
    ) -> list[Array]:
        """The values of the expressions of a stream over the rows of a relation."""
        for leaf in m.leaves:
            if leaf in self._leaves and self._leaves[leaf].table is table:
                self._wanted.setdefault(m, {}).setdefault(leaf, {})[exprs] = None
                break
        return self._projection.values(table, schema, exprs)


class Placed(NamedTuple):
    """Whether the driver computes a stream, the reason, and whether the stream reads many rows.

    Many rows are summed before they are joined.
    """

    on_driver: bool
    why: str
    many: bool = False


class Driver:
    """Computes streams of one plan with Arrow. Spark evaluates the functions that Arrow lacks."""

    def __init__(self, plan: Plan, projection: Projection, limits: Limits) -> None:
        self.plan = plan
        self.limits = limits
        self._projection = projection
        self._questions = StageInputs(projection)
        self._prepared: dict[tuple[Materialized, bool], tuple[Compute, Ask]] = {}
        self._read: dict[Materialized, Mapping[Leaf, frozenset[str]]] = {}
        self._asked: dict[str, None] = {}  # the functions that Spark evaluates for a stream
        self._resources: Resources | None = None  # of this step, once they are needed

    def begin(self, step: Step, members: Sequence[Materialized]) -> None:
        """Get ready to compute streams that do not need each other."""

        def is_ours(m: Materialized) -> bool:
            return self._is_ours(step, m, step.size(m).rows).on_driver

        self._questions.begin(step, members, is_ours)

    def end(self) -> None:
        """Forget the relations of the stage."""
        self._questions.end()
        self._resources = None

    def forget(self, leaves: Sequence[Leaf]) -> None:
        """Forget the values of reads that will be repeated."""
        self._questions.forget(leaves)

    def computed(self, step: Step, m: Materialized) -> Computed | Deferred:
        """Compute a stream, or return the reason for which Spark has to."""
        begun, asked, jobs = time.perf_counter(), self._projection.queries, self._projection.jobs
        self._asked.clear()
        rows: RowCounts = {}
        relation: Relation
        size = step.size(m)
        if size.is_empty:
            relation, how = DriverRelation.empty(m.vertex.type.schema), "nothing to do"
            why = "an input is empty"
        else:
            placed = self._is_ours(step, m, size.rows)
            why = placed.why
            if not placed.on_driver:
                return Deferred(why)
            try:
                relation, run = self._local(step, m, many=placed.many)
            except NeedsPrefix:
                return Deferred("a change matters to rows of a partition that were not read")
            except FanOut as e:
                self._questions.drop(m)
                return Deferred(str(e), many=True)
            how, rows, why = "driver", run.rows, "; ".join([why, *run.notes])
        if self._asked:
            why += f"; asks Spark for {', '.join(self._asked)} ({self.plan.names[m.vertex][1]})"
        ms, now = (time.perf_counter() - begun) * 1e3, self._projection.jobs
        taken = None if jobs is None or now is None else now - jobs
        if self._projection.queries == asked:
            taken = 0
        return Computed(m, relation, Cost(ms, taken, how, why), rows)

    def _is_ours(self, step: Step, m: Materialized, rows: int | None) -> Placed:
        """Whether the driver computes a stream, and why.

        It has all rows that the stream reads, and is estimated to be faster than Spark.
        """
        if rows is None:
            in_spark = (x for x in m.leaves if any(p.table is None for p in step.parts(x)))
            return Placed(False, self._in_spark(step, next(in_spark)))
        most, many = self.limits.local_rows, rows >= self.limits.eager_rows
        if rows <= min(most, FEW_ROWS):
            return Placed(True, f"rows read: {rows:,}; a Spark query would take longer", many)
        if m.only_projects:
            return Placed(True, "it only picks fields", many)
        if rows > most:
            return Placed(False, f"rows read: {rows:,}, more than local_rows={most:,}")
        if self._resources is None:
            self._resources = resources(self.limits)
        sent = _bytes(step, m.leaves)
        read = self._read_of_many(m) if many else {}
        nbytes = _bytes(step, m.leaves, read)
        work = Workload(rows, nbytes, sent=sent, added_up=bool(read))
        placed = self._resources.placed(work)
        return Placed(placed.on_driver, f"it reads {work}: {placed.why}", many)

    def _read_of_many(self, m: Materialized) -> Mapping[Leaf, frozenset[str]]:
        """The columns that a stream reads if it sums many rows before it joins them."""
        if m not in self._read:
            self._read[m] = columns_read(m.term)
        return self._read[m]

    def _in_spark(self, step: Step, leaf: Leaf) -> str:
        """A message: an input of a stream is in Spark, and why the driver has not fetched it."""
        (relation, *others), why = step.parts(leaf), ""
        if isinstance(relation, LazyScan):
            return f"{self._name(leaf)} is read from its files or table, and not kept"
        if not others and relation.rows is not None and relation.nbytes is not None:
            most = most_fetched(self.limits)
            why = why_not_fetched(relation.rows, relation.nbytes, self.limits, most_rows=most)
        return f"{self._name(leaf)} is in Spark" + (f": {why}" if why else "")

    def _name(self, leaf: Leaf) -> str:
        if isinstance(leaf, Read):
            return self.plan.state_of(leaf).register.name
        return str(self.plan.names[leaf.vertex][0])

    def _local(
        self, step: Step, m: Materialized, *, many: bool
    ) -> tuple[DriverRelation, Evaluation]:
        if (m, many) not in self._prepared:
            ask = Ask(partial(self._ask, m), self._projection.zone)
            self._prepared[m, many] = compute(m.term, eagerly=many), ask
        computed, ask = self._prepared[m, many]
        evaluation = Evaluation(
            leaf=partial(self._questions.leaf, step),
            chain=partial(self._chain, step),
            context=Context(ask=ask, now=step.now, limits=self.limits),
            state_notes=step.state_notes,
        )
        try:
            relation, schema = computed(evaluation), m.vertex.type.schema
            if relation.schema is not schema:
                relation = DriverRelation(relation.table, schema, relation.consolidated)
            added_up = not many or not self.plan.is_added_up_by_joins(Ref(m.vertex))
            return relation.added_up() if added_up else relation, evaluation
        except (FanOut, NeedsPrefix):
            raise
        except Failed as e:
            assert e.__cause__ is not None
            raise failed(self.plan, e.vertex, e.part, e.__cause__) from e.__cause__
        except Exception as e:
            raise failed(self.plan, m.vertex, 0, e) from e

    def _ask(
        self, m: Materialized, table: pa.Table, schema: Schema, exprs: tuple[Expr, ...]
    ) -> list[Array]:
        asked = dict.fromkeys(for_spark(exprs))
        self._check_few(table, "what " + ", ".join(asked) + " is computed of")
        self._asked.update(asked)
        return self._questions.values(m, table, schema, exprs)

    def _chain(
        self, step: Step, table: pa.Table, t: StreamType, parts: Sequence[Operator]
    ) -> pa.Table:
        """Apply linear operators to a relation, one after the other, in one query of Spark."""
        names = " and ".join(p.name for p in parts)
        self._check_few(table, f"what {names} is given")
        self._asked[f"{names} as a whole"] = None
        name = step.sources.name("chain")
        rendering = Rendering(name)
        step.sources.define(name, (DriverRelation(table, t.schema),), t.schema)
        query = rendering.parts(parts, [rendering.relation(name, t)], (t,))
        for d in rendering.derived:
            step.sources.derive(d)
        result = Fused(tuple(parts)).type_of(t)
        grows = any(isinstance(n, Unnest) for n in walk(*trees_of(parts, (t,))))
        text = query.text
        most = min(self.limits.given_rows, self.limits.fetched_rows)
        if grows:
            text = f"SELECT * FROM ({text}) LIMIT {most + 1}"
        columns = self._projection.fetched(
            step.sources.sql(text, query.uses),
            [c for _, c in result.schema.all],
            few=table.num_rows <= COLLECTED_ROWS and not grows,
        )
        if grows:
            check_cut(len(columns[0]), parts[-1].name, most)
        return pa.Table.from_arrays(columns, schema=result.schema.arrow)

    def _check_few(self, table: pa.Table, what: str) -> None:
        """Leave a stream to Spark if too many of its rows would go to Spark and come back."""
        rows, most = table.num_rows, self.limits.fetched_rows
        if rows > most:
            raise FanOut(f"{what} has {rows:,} rows, more than fetched_rows={most:,}")


def _bytes(
    step: Step,
    leaves: Sequence[Leaf],
    read: Mapping[Leaf, frozenset[str]] = MappingProxyType({}),
) -> int:
    """The bytes of the relations of leaves.

    `read` has the columns that count, for leaves that are not read whole.
    """
    parts = {p: read.get(leaf) for leaf in leaves for p in step.parts(leaf)}
    return sum(_bytes_of(p.table, names) for p, names in parts.items() if p.table is not None)


def _bytes_of(table: pa.Table, names: frozenset[str] | None) -> int:
    if names is None:
        return table.nbytes
    return sum(table.column(n).nbytes for n in (*names, COUNT))


Pairs = Iterable[tuple[Any, int]]


@dataclass(frozen=True)
class CalledByRow:
    """A vertex with a Python function, as workers get it: its operator and its types."""

    operator: Operator
    source: ZSetType
    result: ZSetType
    where: str  # for messages

    @classmethod
    def of(cls, v: Vertex, where: str) -> CalledByRow:
        """The call of the function of a vertex."""
        source, result = v.inputs[0].type, v.type
        assert isinstance(source, ZSetType) and isinstance(result, ZSetType)
        return cls(v.operator, source, result, where)

    def apply(self, table: pa.Table, most: int) -> DriverRelation:
        """Apply the function to a consolidated relation in Arrow.

        Raises `StepError`, with the row, if the function raises an exception or returns a value of
        another type. Raises `FanOut` for more rows than `most` or `PYTHON_ROWS`.
        """
        called = _called(self.operator, decode(table, self.source), self.where)
        if isinstance(self.operator, Map):
            rows = encode(called, self.result, self.where)
            return DriverRelation(rows, self.result.schema).added_up()
        most = min(most, PYTHON_ROWS)
        pairs = list(itertools.islice(called, most + 1))
        check_cut(len(pairs), self.operator.name, most)
        return DriverRelation(encode(pairs, self.result, self.where), self.result.schema).added_up()

    def apply_in_spark(self, frame: DataFrame) -> SparkRelation:
        """Apply the function in Spark's Python workers; the result is computed, without lineage.

        If the Python of the workers lacks a module, the `StepError` says how to choose another.
        """

        def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in incoming:
                rows = decode(pa.Table.from_batches([batch]), self.source)
                called = _called(self.operator, rows, self.where)
                yield from encode(called, self.result, self.where).to_batches()

        schema = frame.sparkSession.createDataFrame([], self.result.schema.ddl).schema
        try:
            result = frame.mapInArrow(batches, schema).localCheckpoint()
        except raised.PySparkException as e:
            raise of_worker(e, self.where) from e
        return SparkRelation(result, self.result.schema)


def of_worker(e: raised.PySparkException, where: str) -> StepError:
    """The error of a Python worker of Spark, for a user."""
    ours = raised_in_worker(e)
    if ours is not None:
        return StepError(ours[1])
    missing = re.search(r"^ModuleNotFoundError: (.*)$", str(e), re.MULTILINE)
    if missing:
        return StepError(
            f"{where}: Spark's Python workers: {missing[1]}; they run another Python than this "
            "program, or are elsewhere: install it there, or have the environment variable "
            f"PYSPARK_PYTHON say {sys.executable!r} before the session is started"
        )
    return StepError(
        f"{where}: failed in Spark's Python workers: {first_line(e)}; the store is as it was "
        "before the step"
    )


def _called(operator: Operator, rows: Pairs, where: str) -> Iterator[tuple[Any, int]]:
    f: PythonCall = operator.f  # type: ignore[attr-defined]
    for row, count in rows:
        try:
            value = f.value(row)
            if isinstance(f.type, ListOf) and value is not None:
                value = list(value)
        except SteppingError:
            raise
        except Exception as e:
            raise StepError(
                f"{where}: {f.name} raised {type(e).__name__}: {e}, for the row {row!r}; the "
                "store is as it was before the step"
            ) from e
        try:
            f.type.encode(value, f"{f.name} of {row!r}")
        except InputError as e:
            raise StepError(f"{where}: {e}; correct it, or its annotation") from None
        carried = operator.carried  # type: ignore[attr-defined]
        for item, weight in operator.items(value):  # type: ignore[attr-defined]
            yield in_groups(item, row, carried), count * weight
