"""Computes streams on the driver, if it has all rows that they read and Spark is not faster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from stepping_spark.engines.arrow.evaluation import Compute, Evaluation, Failed, Rows, compute
from stepping_spark.engines.arrow.kernels import Context, NeedsPrefix
from stepping_spark.engines.spark.rendering import Rendering
from stepping_spark.execution.metrics import Cost
from stepping_spark.execution.projection import Projection
from stepping_spark.execution.row_functions import Questions
from stepping_spark.execution.step import Computed, Deferred, Step, failed
from stepping_spark.expressions.arrow import Ask
from stepping_spark.expressions.expr import Expr, for_spark
from stepping_spark.graph.operators import Fused, Operator, trees_of
from stepping_spark.limits import Limits
from stepping_spark.physical import Unnest, walk
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.terms import Leaf, Member, Read, refs
from stepping_spark.relations.arrow import Array
from stepping_spark.rows.schema import Schema, StreamType
from stepping_spark.spark.fetch import FanOut, check_cut, most_fetched, why_not_fetched
from stepping_spark.spark.placement import FEW_ROWS, Resources, Work, resources
from stepping_spark.spark.relation import DriverRelation, Relation, Scan


class Driver:
    """Computes streams of one plan with Arrow, Spark evaluating their functions of rows."""

    def __init__(self, plan: Plan, projection: Projection, limits: Limits) -> None:
        self.plan = plan
        self.limits = limits
        self._projection = projection
        self._questions = Questions(projection, limits)
        self._prepared: dict[Member, Compute] = {}
        self._asked: dict[str, None] = {}  # what the stream being computed asks Spark for
        self._resources: Resources | None = None  # of this step, once they are asked for

    def begin(self, step: Step, members: Sequence[Member]) -> None:
        """Get ready to compute streams that do not need each other."""
        self._questions.begin(step, members, lambda m: self._is_ours(step, m)[0])

    def end(self) -> None:
        """Forget what was read."""
        self._questions.end()
        self._resources = None

    def forget(self, leaves: Sequence[Leaf]) -> None:
        """Forget what was read, which is read again."""
        self._questions.forget(leaves)

    def computed(self, step: Step, m: Member) -> Computed | Deferred:
        """Compute a stream, or say why Spark has to compute it."""
        begun, asked, jobs = time.perf_counter(), self._projection.queries, self._projection.jobs
        self._asked.clear()
        rows: Rows = {}
        held: Relation
        if step.is_nothing(m):
            held, how = DriverRelation.empty(m.vertex.type.schema), "nothing to do"
            why = "an input is empty"
        else:
            is_ours, why = self._is_ours(step, m)
            if not is_ours:
                return Deferred(why)
            try:
                held, how = self._local(step, m, rows), "driver"
            except NeedsPrefix:
                return Deferred("a change matters to rows of a partition that were not read")
            except FanOut as e:
                self._questions.drop(m)
                return Deferred(str(e), many=True)
        if self._asked:
            why += f"; asks Spark for {', '.join(self._asked)} ({self.plan.names[m.vertex][1]})"
        ms, now = (time.perf_counter() - begun) * 1e3, self._projection.jobs
        taken = None if jobs is None or now is None else now - jobs
        if self._projection.queries == asked:
            taken = 0
        return Computed(m, held, Cost(ms, taken, how, why), rows)

    def _is_ours(self, step: Step, m: Member) -> tuple[bool, str]:
        """Whether the driver computes a stream, and why.

        It has all rows that the stream reads, and is estimated to be faster than Spark.
        """
        rows = step.rows_read(m)
        if rows is None:
            in_spark = (x for x in m.leaves if any(p.table is None for p in step.parts(x)))
            return False, self._in_spark(step, next(in_spark))
        most = self.limits.local_rows
        if step.is_for_spark(m):
            return False, "its inputs and its readers are in Spark"
        if rows <= min(most, FEW_ROWS):
            return True, f"rows read: {rows:,}; a Spark query would take longer"
        if m.only_projects and (rows <= most or not any(v in step.in_spark for v in refs(m.term))):
            return True, "it only picks fields"
        if rows > most:
            return False, f"rows read: {rows:,}, more than local_rows={most:,}"
        if self._resources is None:
            self._resources = resources(self.limits)
        work = Work(rows, _bytes(step, m.leaves), sent=_bytes(step, m.leaves, only_here=True))
        placed = self._resources.placed(work)
        return placed.on_driver, f"it reads {work}: {placed.why}"

    def _in_spark(self, step: Step, leaf: Leaf) -> str:
        """That what a stream reads is in Spark; and why the driver has not fetched it."""
        (found, *others), why = step.parts(leaf), ""
        if isinstance(found, Scan):
            return f"{self._name(leaf)} is read from its files or table, and not kept"
        if not others and found.rows is not None and found.nbytes is not None:
            most = most_fetched(self.limits)
            why = why_not_fetched(found.rows, found.nbytes, self.limits, most_rows=most)
        return f"{self._name(leaf)} is in Spark" + (f": {why}" if why else "")

    def _name(self, leaf: Leaf) -> str:
        if isinstance(leaf, Read):
            return self.plan.state_of(leaf).register.name
        return str(self.plan.names[leaf.vertex][0])

    def _local(self, step: Step, m: Member, rows: Rows) -> DriverRelation:
        questions = self._questions
        context = Context(
            ask=Ask(partial(self._ask, m), questions.in_utc),
            now=step.now,
            is_once=questions.is_once,
            limits=self.limits,
            prefixes=lambda table: questions.prefixes(step, table),
        )
        evaluation = Evaluation(
            table=lambda leaf: questions.table(step, leaf),
            chain=lambda table, t, parts: self._chain(step, table, t, parts),
            context=context,
            rows=rows,
        )
        found = self._prepared.get(m)
        if found is None:
            found = self._prepared[m] = compute(m.term)
        try:
            made, schema = found(evaluation), m.vertex.type.schema
            once = made is context.made_once or questions.is_once(made, schema)
            return DriverRelation(made, schema, consolidated=once).added_up()
        except (FanOut, NeedsPrefix):
            raise
        except Failed as e:
            assert e.__cause__ is not None
            raise failed(self.plan, e.vertex, e.part, e.__cause__) from e.__cause__
        except Exception as e:
            raise failed(self.plan, m.vertex, 0, e) from e

    def _ask(
        self, m: Member, table: pa.Table, schema: Schema, exprs: tuple[Expr, ...]
    ) -> list[Array]:
        self._asked.update(dict.fromkeys(for_spark(exprs)))
        return self._questions.values(m, table, schema, exprs)

    def _chain(
        self, step: Step, table: pa.Table, t: StreamType, parts: Sequence[Operator]
    ) -> pa.Table:
        """Apply linear operators to a relation, one after the other, in one query of Spark."""
        self._asked[" and ".join(p.name for p in parts) + " as a whole"] = None
        name = step.sources.name("chain")
        rendering = Rendering(name)
        step.sources.define(name, (DriverRelation(table, t.schema),), t.schema)
        query = rendering.parts(parts, [rendering.relation(name, t)], (t,))
        for d in rendering.derived:
            step.sources.derive(d)
        made = Fused(tuple(parts)).type_of(t)
        grows = any(isinstance(n, Unnest) for n in walk(*trees_of(parts, (t,))))
        text = query.text
        if grows:
            text = f"SELECT * FROM ({text}) LIMIT {self.limits.given_rows + 1}"
        columns = self._projection.fetched(
            step.sources.sql(text, query.uses),
            [c for _, c in made.schema.all],
            few=table.num_rows <= self.limits.collected_rows and not grows,
        )
        if grows:
            check_cut(len(columns[0]), parts[-1].name, self.limits.given_rows)
        return pa.Table.from_arrays(columns, schema=made.schema.arrow)


def _bytes(step: Step, leaves: Sequence[Leaf], *, only_here: bool = False) -> int:
    """The bytes that leaves read; or the bytes of them that only the driver has."""
    of = step.parts_for_spark if only_here else step.parts
    parts = dict.fromkeys(p for leaf in leaves for p in of(leaf))
    return sum(p.table.nbytes for p in parts if p.table is not None)
