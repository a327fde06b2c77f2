"""Computes the streams of a step that neither the driver nor tasks compute, each by a query."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from functools import cached_property
from types import UnionType

from stepping_spark.base.errors import StepError, SteppingError
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Fused, parts_of
from stepping_spark.circuit.physical import (
    BucketedRank,
    ChangeOf,
    CollatedChange,
    Physical,
    walk,
)
from stepping_spark.execution.materialize import Materializer
from stepping_spark.execution.spark.buckets import workers_compute
from stepping_spark.execution.spark.nodes import Rendering, SqlQuery
from stepping_spark.execution.sql_scope import Sent
from stepping_spark.execution.step import Computed, Step, failed, schema_of
from stepping_spark.plan.metrics import Cost
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import Apply, Leaf, Materialized, Read, Ref, Term, nodes
from stepping_spark.relations.relation import LazyScan, SparkRelation
from stepping_spark.spark.session import (
    JobCounter,
    first_line,
    no_constraints,
    times_planned,
)
from stepping_spark.zsets.from_dataframe import blamed


def failing_vertex(t: Term, run: Callable[[Term], None]) -> tuple[Vertex, int] | None:
    """The first vertex, from the leaves up, whose own term fails, and the part of it that fails."""
    for node in nodes(t):
        for i, prefix in enumerate(_prefixes(node)):
            try:
                run(prefix)
            except Exception:
                return node.vertex, i
    return None


def _prefixes(node: Apply) -> Iterator[Apply]:
    parts = parts_of(node.operator)
    for i in range(1, len(parts)):
        yield dataclasses.replace(node, operator=Fused(parts[:i]))
    yield node


_PLAN_NUMBERS = itertools.count(1)


class SparkExecutor:
    """Computes streams of one plan with Spark, each by a query of its own."""

    def __init__(
        self,
        plan: Plan,
        spark: Callable[[], SparkSession],
        once: Materializer,
        of_folds: Set[Read],
    ) -> None:
        self.plan = plan
        self._of_folds = of_folds  # the reads of folds, which queries add up anyway
        self._spark = spark
        self._once = once
        self._prefix = f"step{next(_PLAN_NUMBERS)}"
        self._numbers = itertools.count()
        self._rendered: dict[Materialized, tuple[Rendering, SqlQuery]] = {}

    @cached_property
    def _workers_compute(self) -> bool:
        """Whether Python workers compute the buckets of rows."""
        return workers_compute(self._spark())

    def computed(self, step: Step, m: Materialized, why: str) -> Computed:
        """Compute a stream; `why` is the reason why Spark must compute it."""
        begun = time.perf_counter()
        step.metrics.queries += 1
        with no_constraints(self._spark()), JobCounter(self._spark()) as jobs:
            try:
                query = self._query(step, m)
                frame = step.sources.sql(query.text, query.uses)
                _check_rest(step, m, frame)
                relation = SparkRelation(frame, m.vertex.type.schema)
                stored = self._once.computed(step, m.vertex, relation, cancels=_has(m, _OLD_ROWS))
            except SteppingError:
                raise
            except Exception as e:
                raise self._blame(step, m, e) from e
        ms = (time.perf_counter() - begun) * 1e3
        return Computed(m, stored, Cost(ms, jobs.count, "spark", why))

    def _query(self, step: Step, m: Materialized) -> SqlQuery:
        """The query of a stream; defines the relations of its inputs."""
        rendered = self._rendered.get(m)
        if rendered is None or rendered[0].now != step.sources.now:
            prefix = f"{self._prefix}_{next(self._numbers)}"
            names = {leaf: f"{prefix}_{i}" for i, leaf in enumerate(m.leaves)}
            in_buckets = _has(m, BucketedRank) and self._workers_compute
            rendering = Rendering(f"{prefix}_r", names, step.sources.now, in_buckets)
            rendered = self._rendered[m] = rendering, rendering.term(m.term)
        rendering, query = rendered
        self._define(step, rendering, self._is_added_up)
        return query

    @staticmethod
    def _define(step: Step, rendering: Rendering, is_added_up: Callable[[Leaf], bool]) -> None:
        """Define the relations of a query under their names."""
        sent: Sent = {}
        for leaf, name in rendering.names.items():
            parts, added_up = step.parts(leaf), is_added_up(leaf)
            step.sources.define(name, parts, schema_of(leaf), added_up=added_up, sent=sent)
        for d in rendering.derived:
            step.sources.derive(d)

    def _is_added_up(self, leaf: Leaf) -> bool:
        """Whether a query consolidates the rows of several batches before it joins them."""
        is_old = isinstance(leaf, Read) and bool(leaf.by) and not leaf.new
        return is_old and leaf not in self._of_folds

    def _blame(self, step: Step, m: Materialized, error: Exception) -> SteppingError:
        """The error of a failed query, with the input or vertex that fails when run on its own."""
        shown = str(self.plan.names[m.vertex][0])
        if "OutOfMemoryError" in str(error):
            return StepError(
                f"{shown}: Spark has not enough memory ({first_line(error)}); give it more "
                "(spark.driver.memory, and spark.executor.memory on a cluster), or feed the change "
                "in several steps; the store is as it was before the step"
            )
        for v, where in self.plan.graph.named_inputs:
            read = step.values.get(v)
            if Ref(v) in m.leaves and isinstance(read, LazyScan):
                try:
                    _compute(read.frame)
                except raised.PySparkException as e:
                    return blamed(e, where)
        failure = failing_vertex(m.term, lambda t: self._probe(step, t))
        if failure is not None:
            return failed(self.plan, *failure, error)
        return StepError(f"{shown}: {first_line(error)}; the store is as it was before the step")

    def _probe(self, step: Step, t: Term) -> None:
        prefix = step.sources.name("probe")
        names = {leaf: f"{prefix}_{i}" for i, leaf in enumerate(Materialized.leaves_of(t))}
        rendering = Rendering(prefix, names, step.sources.now)
        query = rendering.term(t)
        self._define(step, rendering, lambda _: False)
        _compute(step.sources.sql(query.text, query.uses))


_OLD_ROWS = BucketedRank | ChangeOf | CollatedChange
"""The nodes whose queries return old and new rows that may cancel out."""


def _has(m: Materialized, kinds: type[Physical] | UnionType) -> bool:
    """Whether a stream is computed by nodes of these kinds."""
    trees = (tree for node in nodes(m.term) for tree in node.trees)
    return any(isinstance(n, kinds) for tree in trees for n in walk(tree))


def _compute(frame: DataFrame) -> None:
    """Compute all rows of a DataFrame, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def _check_rest(step: Step, m: Materialized, frame: DataFrame) -> None:
    """Check inputs whose checks Spark's optimizer has removed from a query."""
    scans = [p for leaf in m.leaves for p in step.parts(leaf) if isinstance(p, LazyScan)]
    checks = Counter(scan.check for scan in scans)
    if any(times_planned(frame, check) < n for check, n in checks.items()):
        for scan in scans:
            _compute(scan.frame)
