"""What a step asks of Spark: several streams in one query where they are small."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from stepping_spark.blame import failing_vertex
from stepping_spark.codec import conform
from stepping_spark.errors import StepError, SteppingError
from stepping_spark.few import brought
from stepping_spark.lower import ONE, Lowering, for_many_rows
from stepping_spark.metrics import Cost
from stepping_spark.nulls import null_tests
from stepping_spark.plan import Plan
from stepping_spark.relations import consolidate, one_array
from stepping_spark.schema import Schema
from stepping_spark.session import count_jobs, no_constraints
from stepping_spark.spark_types import first_line
from stepping_spark.store import Held
from stepping_spark.terms import Member, Read, Term
from stepping_spark.types import quote
from stepping_spark.working import Made, Step, failed, null_error, schema_of

SMALL_ROWS = 100_000  # what a query of one partition reads at most
_PLAN_NUMBERS = itertools.count(1)


class Queries:
    """Computes streams of one plan with Spark."""

    def __init__(self, plan: Plan, spark: Callable[[], SparkSession]) -> None:
        self.plan = plan
        self._spark = spark
        self._prefix = f"step{next(_PLAN_NUMBERS)}"
        self._lowered: dict[tuple[Member, ...], tuple[Lowering, list[str]]] = {}

    def computed(self, step: Step, members: list[Member]) -> Iterator[Made]:
        """Streams that wait for none of each other."""
        key = tuple(members)
        if key not in self._lowered:
            low = Lowering(f"{self._prefix}_{len(self._lowered)}")
            self._lowered[key] = (low, [low.term(m.term) for m in members])
        low, texts = self._lowered[key]
        rows = 0
        large = False
        for leaf, name in low.leaves.items():
            parts = step.parts(leaf)
            rows += sum(p.num_rows for p in parts if isinstance(p, pa.Table))
            large = large or any(isinstance(p, DataFrame) for p in parts)
            keyed = isinstance(leaf, Read) and leaf.by is not None
            step.sources.define(name, parts, schema_of(leaf), added_up=keyed)
        begun = time.perf_counter()
        try:
            with count_jobs(self._spark()) as jobs:
                for d in low.derived:
                    step.sources.derive(d)
                run = self._large if large or rows > SMALL_ROWS else self._small
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
            cost = Cost(0.0, 0, "spark", within=str(self.plan.names[members[0].vertex][0]))

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
            query = for_many_rows(text)
            with count_jobs(self._spark()) as jobs:  # Spark counts by thread
                frame = step.sources.sql(query).localCheckpoint()
                path, line = self.plan.names[m.vertex]
                held = settled(frame, schema, f"{path} ({line})")
            return held, jobs.count

        with no_constraints(self._spark()), ThreadPoolExecutor(max_workers=4) as pool:
            made = list(pool.map(one, members, texts))
        for _, jobs in made:
            step.metrics.add_jobs(jobs)
        return [held for held, _ in made]

    def _blame(self, step: Step, members: list[Member], error: Exception) -> StepError:
        """Say which vertex failed: run the terms of a failed query again, from the leaves up."""
        for m in members:
            found = failing_vertex(m.term, lambda t: self._probe(step, t))
            if found is not None:
                return failed(self.plan, *found, error)
        shown = ", ".join(str(self.plan.names[m.vertex][0]) for m in members)
        return StepError(f"{shown}: {first_line(error)}; the store is as it was before the step")

    def _probe(self, step: Step, t: Term) -> None:
        low = Lowering(step.sources.name("probe"))
        text = low.term(t)
        for leaf, name in low.leaves.items():
            step.sources.define(name, step.parts(leaf), schema_of(leaf))
        for d in low.derived:
            step.sources.derive(d)
        step.sources.sql(text).toArrow()


def _untagged(union: pa.Table, tag: int, schema: Schema) -> pa.Table:
    ours = union.filter(pc.equal(union.column("tag"), pa.scalar(tag)))
    rows: Any = one_array(ours.column(f"m{tag}"))
    table = pa.Table.from_arrays(rows.flatten(), names=[n for n, _ in schema.all])
    return consolidate(conform(table, schema), schema)


def settled(frame: DataFrame, schema: Schema, where: str) -> Held:
    """The rows of a DataFrame that Spark has computed: on the driver, if they are few."""
    tests = null_tests(schema)
    nulls = [f"count_if({test}) AS n{i}" for i, (_, test) in enumerate(tests)]
    counts = frame.selectExpr("count(1) AS n", *nulls).first()
    assert counts is not None
    for i, (name, _) in enumerate(tests):
        if counts[f"n{i}"]:
            raise null_error(name, where)
    few = brought(frame, schema, counts["n"])
    return frame if few is None else few
