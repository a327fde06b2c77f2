"""What a step computes on the driver: streams made of few rows that it has."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from stepping_spark.expr import Expr
from stepping_spark.local import Failed, FanOut, Local, Rows
from stepping_spark.lower import LOWER, Lowering
from stepping_spark.metrics import Cost
from stepping_spark.operators import Fused, Operator
from stepping_spark.plan import Plan
from stepping_spark.projection import Projection, fetched
from stepping_spark.relations import Array, concat, consolidate, empty
from stepping_spark.schema import Schema, StreamType
from stepping_spark.store import Held
from stepping_spark.terms import Leaf, Member, is_nothing
from stepping_spark.working import Made, Step, failed, rows_of, schema_of

LOCAL_ROWS = 2_000_000  # what a stream reads at most, to be computed on the driver


class Driver:
    """Computes streams of one plan with Arrow, Spark evaluating their functions of rows."""

    def __init__(self, plan: Plan, projection: Projection, local_rows: int) -> None:
        self.plan = plan
        self.local_rows = local_rows
        self._projection = projection

    def computed(self, step: Step, m: Member) -> Made | None:
        """A stream; None where it is one for Spark."""
        begun = time.perf_counter()
        rows: Rows = {}
        held: Held
        if is_nothing(m.term, step.is_empty):
            held, how = empty(m.vertex.type.schema), "nothing to do"
        elif self._is_small(step, m) and not step.is_for_spark(m):
            try:
                held, how = self._local(step, m, rows), "driver"
            except FanOut:
                return None
        else:
            return None
        return Made(m, held, Cost((time.perf_counter() - begun) * 1e3, 0, how), rows)

    def _is_small(self, step: Step, m: Member) -> bool:
        """Whether the driver has all that a stream is made of, and it is few rows."""
        rows = rows_of(*(p for leaf in m.leaves for p in step.parts(leaf)))
        return rows is not None and (rows <= self.local_rows or m.only_picks)

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
            raise failed(self.plan, e.vertex, e.part, e.__cause__) from e.__cause__
        except Exception as e:
            raise failed(self.plan, m.vertex, 0, e) from e

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
        parts = step.parts(leaf)
        tables = [_selected(p, wanted) for p in parts if isinstance(p, pa.Table)]
        assert len(tables) == len(parts)  # `_is_small` has seen to it
        return concat(tables, schema)


def _selected(table: pa.Table, names: list[str]) -> pa.Table:
    return table if table.column_names == names else table.select(names)
