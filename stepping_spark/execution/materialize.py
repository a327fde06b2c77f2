"""Materializes large streams once, in the layout of the first register that stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stepping_spark.execution.bounds import Bound
from stepping_spark.execution.nulls import null_tests
from stepping_spark.execution.projection import Projection
from stepping_spark.execution.step import Step, null_error
from stepping_spark.graph.graph import Vertex
from stepping_spark.limits import Limits
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.terms import State
from stepping_spark.spark import fetch
from stepping_spark.spark.checkpoint import kept_apart, settle
from stepping_spark.spark.relation import Relation, SparkRelation


class Once:
    """Computes DataFrames of streams, each once; fetches those with few rows to the driver.

    If a register will keep a stream, its rows are consolidated and partitioned for the register
    here. Other readers of the stream in this step use the same rows, and the store need not do it
    again.
    """

    def __init__(
        self,
        plan: Plan,
        projection: Projection,
        adders: Mapping[Vertex, Sequence[State]],
        limits: Limits,
    ) -> None:
        self._plan = plan
        # The driver fetches rows that it will compute with.
        self._most_rows = fetch.most_fetched(limits)
        # And those that a store will look up the keys of, or keep, once for all of these.
        # A change of a key is often two rows or four: what goes, and what comes.
        self._most_kept = max(self._most_rows, 4 * limits.looked_up_keys)
        reads = [r for stage in plan.stages for r in stage.reads]
        self._keys = {keys.of for r in reads for keys in r.by}
        self._limits = limits
        self._projection = projection
        self._adders = adders

    def computed(
        self, step: Step, v: Vertex, made: SparkRelation, *, checked: bool = False
    ) -> Relation:
        """The value of a stream, which may be read again and again.

        A StepError names a field that is NULL and never should be, unless that was `checked`.
        """
        path, line = self._plan.names[v]
        where = f"{path} ({line})"
        schema = v.type.schema
        tests = [] if checked else null_tests(schema)
        state = self._first(v)
        if state is None:
            kept = kept_apart(made, tests)
        elif made.is_settled(state.register.schema, state.register.key):
            kept = made
        else:
            rows = self._projection.select(made, state.stored, beside=True)
            assert isinstance(rows, SparkRelation)
            kept = settle(rows, state.register.key, where, tests=tests)
        if kept.nulls:
            raise null_error(kept.nulls[0], where)
        most, most_bytes = self._most_fetched(v, kept.rows or 0)
        few = fetch.fetch_if_few(kept, self._limits, most_rows=most, most_bytes=most_bytes)
        if state is not None:
            step.kept[state.register.name] = kept if few is None else few
        own = kept.select(schema, beside=True)
        if few is None:
            return own
        here = replace(few.select(schema), consolidated=True)
        if here.nbytes > self._limits.broadcast_bytes or here.rows > self._most_rows:
            step.in_spark[v] = own  # a large query is not to send it back
        return here

    def are_few(self, v: Vertex, bound: Bound) -> bool:
        """Whether the driver will fetch a stream, and may do so without a copy in Spark's memory.

        It is small enough for one job to fetch it, and to be sent back to Spark.
        """
        most, most_bytes = self._most_fetched(v, bound.rows)
        limits = self._limits
        return not fetch.why_not_fetched(
            bound.rows,
            bound.nbytes,
            limits,
            most_rows=min(most, limits.fetched_rows),
            most_bytes=min(most_bytes, limits.piece_bytes, limits.broadcast_bytes),
        )

    def _most_fetched(self, v: Vertex, rows: int) -> tuple[int, int]:
        """How many rows and bytes the driver fetches of a stream that has so many rows."""
        if rows > self._most_rows and (v in self._adders or v in self._keys):
            return self._most_kept, self._limits.piece_bytes
        return self._most_rows, self._limits.fetched_bytes

    def key_kept_by(self, v: Vertex) -> tuple[str, ...] | None:
        """The columns by which the first register keeps a stream; None: none that it has."""
        state = self._first(v)
        return None if state is None or state.stored else state.register.key

    def _first(self, v: Vertex) -> State | None:
        """The register that keeps a stream, if any; preferably one without additional columns."""
        states = self._adders.get(v, ())
        return min(states, key=lambda s: (len(s.stored), not s.register.key), default=None)
