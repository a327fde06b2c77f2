"""Computes the streams of a step with Spark; one query computes several small ones."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import StepError, SteppingError
from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Fused, parts_of
from stepping_spark.execution.materialize import Materializer, SizeBound, bound, together
from stepping_spark.execution.spark.nodes import Rendering, SqlQuery
from stepping_spark.execution.spark.text import ONE_TASK
from stepping_spark.execution.sql_scope import Sent
from stepping_spark.execution.step import Computed, Deferred, Step, failed, rows_of, schema_of
from stepping_spark.plan.metrics import Cost
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import Apply, Leaf, Materialized, Read, Ref, Term, nodes
from stepping_spark.relations.arrow import one_array, widest_row
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import (
    PIECE_BYTES,
    DriverRelation,
    FanOut,
    LazyScan,
    Relation,
    SparkRelation,
    check_cut,
)
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import quote
from stepping_spark.spark.session import (
    count_jobs,
    first_line,
    for_thread,
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


SMALL_ROWS = 100_000
"""Rows that a query of one partition reads, for several streams together.

Beyond: each stream has its own query, with as many partitions as the session has.
"""

SMALL_BYTES = 32 << 20
"""Bytes that such a query reads: Spark has several copies of them and of the results in memory.

Beyond: each stream has its own query, as with more rows.
"""

SMALL_GIVEN_BYTES = 64 << 20
"""Bytes in the result of such a query, estimated by the widest rows that it reads.

Beyond: it runs as a large query.
"""

STREAMS_TOGETHER = 8
"""Streams in one small query: each join and sum reserves some memory of its only task.

Beyond: another query computes the rest.
"""

QUERIES_AT_ONCE = 4
"""Large queries that run at the same time. Beyond: further queries wait."""

_PLAN_NUMBERS = itertools.count(1)


class SparkExecutor:
    """Computes streams of one plan with Spark."""

    def __init__(
        self,
        plan: Plan,
        spark: Callable[[], SparkSession],
        once: Materializer,
        of_folds: Set[Read],
        limits: Limits,
    ) -> None:
        self.plan = plan
        self._of_folds = of_folds  # the reads that queries add up anyway
        self.limits = limits
        self._spark = spark
        self._once = once
        self._prefix = f"step{next(_PLAN_NUMBERS)}"
        self._names: dict[tuple[Materialized, ...], dict[Leaf, str]] = {}
        self._rendered: dict[
            tuple[tuple[Materialized, ...], bool], tuple[Rendering, list[SqlQuery]]
        ] = {}
        self._numbers = itertools.count()

    def computed(self, step: Step, why: Mapping[Materialized, Deferred]) -> Iterator[Computed]:
        """Compute streams that do not need each other; `why` has the reason for each."""
        small = [m for m in why if not why[m].many]
        for members in (small, [m for m in why if why[m].many]):
            for i in range(0, len(members), STREAMS_TOGETHER):
                yield from self._together(step, members[i : i + STREAMS_TOGETHER], why)

    def _together(
        self, step: Step, members: list[Materialized], why: Mapping[Materialized, Deferred]
    ) -> list[Computed]:
        named = self._named(members)
        few = not why[members[0]].many and self._is_small(step, named)
        small: set[str] = set()
        sent: Sent = {}
        for leaf, name in named.items():
            parts = step.parts_for_spark(leaf)
            nbytes = sum(p.table.nbytes for p in parts if p.table is not None)
            here = all(p.table is not None for p in parts)
            if here and nbytes <= self.limits.broadcast_bytes:
                small.add(name)
            added_up = self._is_added_up(leaf)
            step.sources.define(name, parts, schema_of(leaf), added_up=added_up, sent=sent)
        with no_constraints(self._spark()):
            try:
                if few:
                    queries, most = self._queries(step, members), self._most(step, members)
                    with suppress(FanOut):
                        return self._fetched(step, members, queries, why, most)
                queries = self._queries(step, members, few=False, small=frozenset(small))
                return self._large(step, members, queries, why)
            except SteppingError:
                raise
            except Exception as e:
                raise self._blame(step, members, e) from e

    def _is_added_up(self, leaf: Leaf) -> bool:
        """Whether a query consolidates the rows of several batches before it joins them."""
        is_old = isinstance(leaf, Read) and bool(leaf.by) and not leaf.new
        return is_old and leaf not in self._of_folds

    def _named(self, members: Sequence[Materialized]) -> dict[Leaf, str]:
        """The names of the relations that streams read."""
        key = tuple(members)
        if key not in self._names:
            leaves = dict.fromkeys(leaf for m in members for leaf in m.leaves)
            prefix = f"{self._prefix}_{len(self._names)}"
            self._names[key] = {leaf: f"{prefix}_{i}" for i, leaf in enumerate(leaves)}
        return self._names[key]

    def _is_small(self, step: Step, leaves: Iterable[Leaf]) -> bool:
        """Whether a query is known to read few rows and few bytes."""
        parts = dict.fromkeys(p for leaf in leaves for p in step.parts_for_spark(leaf))
        rows = rows_of(*parts)
        nbytes = sum(p.table.nbytes for p in parts if p.table is not None)
        few = rows is not None and rows <= SMALL_ROWS
        return few and nbytes <= SMALL_BYTES

    def _most(self, step: Step, members: Sequence[Materialized]) -> int:
        """The most rows of a small query's result, if all are as wide as the widest input."""
        widest = 1
        for leaf in self._named(members):
            tables = [p.table for p in step.parts_for_spark(leaf) if p.table is not None]
            times = max(m.times_read[leaf] for m in members)
            widest += times * max(map(widest_row, tables), default=0)
        return min(self.limits.given_rows, SMALL_GIVEN_BYTES // widest)

    def _queries(
        self,
        step: Step,
        members: Sequence[Materialized],
        *,
        few: bool = True,
        small: frozenset[str] = frozenset(),
    ) -> list[SqlQuery]:
        """The queries of streams, whose inputs are all defined."""
        key, now = (tuple(members), few), step.sources.now
        known = self._rendered.get(key)  # one of few rows, and the last one of many
        if known is None or (known[0].small, known[0].now) != (small, now):
            prefix = f"{self._prefix}_r{next(self._numbers)}"
            made = Rendering(prefix, self._named(members), few, small, now)
            known = self._rendered[key] = (made, [made.stream(m.term) for m in members])
        rendering, queries = known
        for d in rendering.derived:
            step.sources.derive(d)
        return queries

    def _fetched(
        self,
        step: Step,
        members: Sequence[Materialized],
        queries: Sequence[SqlQuery],
        why: Mapping[Materialized, Deferred],
        most: int | None = None,
    ) -> list[Computed]:
        """One query for all: each stream a struct column of its own, NULL in others' rows.

        With `most` it runs in one task, and raises `FanOut` where there are more rows than that.
        """
        begun = time.perf_counter()
        schemas = [m.vertex.type.schema for m in members]
        texts = [q.text for q in queries]
        text = texts[0] if len(members) == 1 else _tagged(texts, schemas)
        if most is not None:
            text = f"SELECT {ONE_TASK} * FROM ({text}) LIMIT {most + 1}"
        uses = frozenset().union(*(q.uses for q in queries))
        step.metrics.queries += 1
        with count_jobs(self._spark()) as jobs:  # Spark counts by thread
            found = step.sources.sql(text, uses).toArrow()
        if most is not None:
            check_cut(found.num_rows, "a query", most)
        rows = [_untagged(found, i, s) for i, s in enumerate(schemas)] if members[1:] else [found]
        held = [self._added_up(m, table) for m, table in zip(members, rows, strict=True)]
        ms = (time.perf_counter() - begun) * 1e3
        first, *others = zip(members, held, strict=True)
        host = str(self.plan.names[members[0].vertex][0])
        return [
            Computed(*first, Cost(ms, jobs.count, "spark", why[first[0]].why)),
            *(Computed(m, h, Cost(0.0, 0, "spark", why[m].why, host)) for m, h in others),
        ]

    def _added_up(self, m: Materialized, table: pa.Table) -> DriverRelation:
        """The rows that Spark returned for a stream, consolidated; an error names the stream."""
        schema = m.vertex.type.schema
        try:
            return DriverRelation(conform(table, schema), schema).added_up()
        except SteppingError as e:
            last = len(parts_of(m.vertex.operator)) - 1
            raise failed(self.plan, m.vertex, last, e) from e

    def _large(
        self,
        step: Step,
        members: list[Materialized],
        queries: list[SqlQuery],
        why: Mapping[Materialized, Deferred],
    ) -> list[Computed]:
        """Queries side by side: one for each stream, and one for all streams bound to be small.

        The driver fetches the latter. Other results stay in Spark unless they prove to be small.
        """

        def one(m: Materialized, query: SqlQuery) -> list[Computed]:
            begun = time.perf_counter()
            with count_jobs(self._spark()) as jobs:  # Spark counts by thread
                frame = step.sources.sql(query.text, query.uses)
                _check_rest(step, m, frame)
                made = _relation(frame, m.vertex.type.schema, query)
                if m in passed:
                    step.passed[m.vertex] = m
                    held: Relation = made
                else:
                    held = self._once.computed(step, m.vertex, made)
            ms = (time.perf_counter() - begun) * 1e3
            return [Computed(m, held, Cost(ms, jobs.count, "spark", why[m].why))]

        passed = {m for m in members if step.passes(m.vertex)}
        of = dict(zip(members, queries, strict=True))
        few = self._few(step, (m for m in members if m not in passed))
        calls = [partial(one, m, query) for m, query in of.items() if m not in few]
        step.metrics.queries += len(calls) - len(passed)
        for some in together(few, PIECE_BYTES):
            calls.append(partial(self._fetched, step, some, [of[m] for m in some], why))
        spark = self._spark()
        with ThreadPoolExecutor(max_workers=QUERIES_AT_ONCE) as pool:
            made = pool.map(lambda call: call(), [for_thread(spark, call) for call in calls])
            return [computed for some in made for computed in some]

    def _few(self, step: Step, members: Iterable[Materialized]) -> dict[Materialized, SizeBound]:
        """The streams that are bound to be small, with their bounds."""
        bounds = ((m, bound(step, m)) for m in members)
        return {m: b for m, b in bounds if b is not None and self._once.are_few(m.vertex, b)}

    def _blame(self, step: Step, members: list[Materialized], error: Exception) -> SteppingError:
        """The error of a failed query, with its input or vertex: parts run from the leaves up."""
        shown = ", ".join(str(self.plan.names[m.vertex][0]) for m in members)
        if "OutOfMemoryError" in str(error):
            return StepError(
                f"{shown}: Spark has not enough memory ({first_line(error)}); give it more "
                "(spark.driver.memory, and spark.executor.memory on a cluster), or feed the change "
                "in several steps; the store is as it was before the step"
            )
        leaves = {leaf for m in members for leaf in m.leaves}
        for v, where in self.plan.graph.named_inputs:
            read = step.values.get(v)
            if Ref(v) in leaves and isinstance(read, LazyScan):
                try:
                    _compute(read.frame)
                except raised.PySparkException as e:
                    return blamed(e, where)
        for m in members:
            for part in self._with_passed(step, m):
                failure = failing_vertex(part.term, lambda t: self._probe(step, t))
                if failure is not None:
                    return failed(self.plan, *failure, error)
        return StepError(f"{shown}: {first_line(error)}; the store is as it was before the step")

    def _with_passed(self, step: Step, m: Materialized) -> Iterator[Materialized]:
        """A stream, after the streams that its query computes too."""
        for leaf in m.leaves:
            if isinstance(leaf, Ref) and leaf.vertex in step.passed:
                yield from self._with_passed(step, step.passed[leaf.vertex])
        yield m

    def _probe(self, step: Step, t: Term) -> None:
        prefix = step.sources.name("probe")
        leaves = Materialized.leaves_of(t)
        named = {leaf: f"{prefix}_{i}" for i, leaf in enumerate(leaves)}
        rendering = Rendering(prefix, named, now=step.sources.now)
        query = rendering.term(t)
        for leaf, name in named.items():
            step.sources.define(name, step.parts(leaf), schema_of(leaf))
        for d in rendering.derived:
            step.sources.derive(d)
        _compute(step.sources.sql(query.text, query.uses))


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


def _relation(frame: DataFrame, schema: Schema, query: SqlQuery) -> SparkRelation:
    """The DataFrame of a query as a relation, with the known properties of its rows."""
    by = tuple(n for n, _ in schema.columns) if query.consolidated else None
    return SparkRelation(frame, schema, query.consolidated, by)


def _tagged(texts: list[str], schemas: list[Schema]) -> str:
    """The rows of several queries, each in a column of its own, with the number of its query."""
    columns = [f"STRUCT<{', '.join(f'{quote(n)}: {t.ddl}' for n, t in s.all)}>" for s in schemas]
    terms = []
    for i, text in enumerate(texts):
        row = ", ".join(f"'{n}', {quote(n)}" for n, _ in schemas[i].all)
        cells = [
            f"{f'named_struct({row})' if j == i else f'CAST(NULL AS {c})'} AS m{j}"
            for j, c in enumerate(columns)
        ]
        terms.append(f"(SELECT {i} AS tag, {', '.join(cells)} FROM ({text}))")
    return " UNION ALL ".join(terms)


def _untagged(union: pa.Table, tag: int, schema: Schema) -> pa.Table:
    ours = union.filter(pc.equal(union.column("tag"), pa.scalar(tag)))
    rows: Any = one_array(ours.column(f"m{tag}"))
    return pa.Table.from_arrays(rows.flatten(), names=[n for n, _ in schema.all])
