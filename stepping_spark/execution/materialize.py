"""Large streams, each computed once: as the first register that is to keep it will have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from stepping_spark.execution.nulls import null_tests
from stepping_spark.execution.projection import Projection
from stepping_spark.execution.step import Step, null_error
from stepping_spark.graph.graph import Vertex
from stepping_spark.limits import Limits
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.terms import State
from stepping_spark.spark import fetch
from stepping_spark.spark.checkpoint import measure, settle, settled_by
from stepping_spark.store import Held


class Once:
    """Computes DataFrames of streams; what is few rows comes to the driver.

    What a register is going to keep is consolidated and partitioned for it here, so that whatever
    else reads the stream in this step has that too, and the store has nothing more to do.
    """

    def __init__(
        self,
        plan: Plan,
        projection: Projection,
        adders: Mapping[Vertex, Sequence[State]],
        limits: Limits,
    ) -> None:
        self._plan = plan
        # What the driver is not to compute with, it need not have.
        self._most_rows = max(limits.local_rows, limits.sampled_rows)
        self._limits = limits
        self._projection = projection
        self._adders = adders

    def computed(self, step: Step, v: Vertex, frame: DataFrame, *, checked: bool = False) -> Held:
        """The value of a stream, which may be read again and again.

        A StepError names a field that is NULL and never should be, unless that was `checked`.
        """
        path, line = self._plan.names[v]
        where = f"{path} ({line})"
        schema = v.type.schema
        tests = [] if checked else null_tests(schema)
        state = self._first(v)
        if state is None:
            kept = frame.localCheckpoint()
            measured = measure(kept, schema, tests)
        else:
            schema, key = state.register.schema, state.register.key
            settled = settled_by(frame, schema, key)
            if settled is None:
                rows = self._projection.select(frame, v.type.schema, state.stored, beside=True)
                assert isinstance(rows, DataFrame)
                settled = settle(rows, schema, key, where, tests=tests)
            kept, measured = settled.frame, settled.measured
        if measured.nulls:
            raise null_error(measured.nulls[0], where)
        table = fetch.brought(
            kept,
            schema,
            measured,
            limits=self._limits,
            most_rows=self._most_rows,
            once=state is not None,
        )
        own = [n for n, _ in v.type.schema.all]
        if state is not None:
            step.kept[state.register.name] = kept if table is None else table
            if state.stored:
                kept = kept.select(*own)
                table = None if table is None else table.select(own)
        if table is not None and table.nbytes > self._limits.broadcast_bytes:
            step.in_spark[v] = kept  # a large query is not to send it back
        return kept if table is None else table

    def key_kept_by(self, v: Vertex) -> tuple[str, ...] | None:
        """The columns by which the first register keeps a stream; None: none that it has."""
        state = self._first(v)
        return None if state is None or state.stored else state.register.key

    def _first(self, v: Vertex) -> State | None:
        """The register that a stream is kept in, if there is one; without more columns, if so."""
        states = self._adders.get(v, ())
        return min(states, key=lambda s: (len(s.stored), not s.register.key), default=None)
