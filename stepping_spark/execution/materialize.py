"""Stores streams that Spark computed, once for all readers and registers.

Adds up their equal rows, if needed, and finds NULLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from stepping_spark.base.errors import StepError
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import parts_of
from stepping_spark.execution.sql_scope import Projection
from stepping_spark.execution.step import Step, failed, null_error
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import RegisterPlan
from stepping_spark.relations import relation
from stepping_spark.relations.arrow import one_array
from stepping_spark.relations.placement import LOOKED_UP_KEYS
from stepping_spark.relations.relation import Relation, SparkRelation, computed_once, settle
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Optional, Struct, quote


def null_field(table: pa.Table, schema: Schema) -> str | None:
    """The first field that is NULL in a row and has no `| None` in its type; None if none is."""
    for name, t in schema.columns:
        path = _null_in(one_array(table.column(name)), t, name)
        if path is not None:
            return path
    return None


def _null_in(array: Any, t: RowType, name: str) -> str | None:
    if isinstance(t, Optional):
        t = t.inner
        if isinstance(t, Struct) and array.null_count:
            array = array.drop_null()
    elif array.null_count:
        return name
    if isinstance(t, Struct):
        for (field, inner), part in zip(t.fields, array.flatten(), strict=True):
            path = _null_in(part, inner, f"{name}.{field}")
            if path is not None:
                return path
    return None


def null_tests(schema: Schema) -> list[tuple[str, str]]:
    """The fields without `| None` in their type, each with its test for NULL in SQL."""
    return [test for n, t in schema.columns for test in _tests(quote(n), t, n, "")]


def _tests(value: str, t: RowType, name: str, not_null: str) -> Iterator[tuple[str, str]]:
    if isinstance(t, Optional):
        t = t.inner
        not_null += f"{value} IS NOT NULL AND "
    else:
        yield name, f"{not_null}{value} IS NULL"
    if isinstance(t, Struct):
        for field, inner in t.fields:
            yield from _tests(f"{value}.{quote(field)}", inner, f"{name}.{field}", not_null)


class Materializer:
    """Computes DataFrames of streams, each once; fetches those with few rows to the driver.

    If a register will keep a stream, its rows are consolidated and partitioned for the register
    here. Other readers of the stream in this step use the same rows, and the store does not
    consolidate them again.
    """

    def __init__(
        self,
        plan: Plan,
        projection: Projection,
        adders: Mapping[Vertex, Sequence[RegisterPlan]],
        limits: Limits,
    ) -> None:
        self._plan = plan
        reads = [r for stage in plan.stages for r in stage.reads]
        self._keys = {keys.of for r in reads for keys in r.by}
        self._limits = limits
        self._projection = projection
        self._adders = adders

    def computed(
        self,
        step: Step,
        v: Vertex,
        result: SparkRelation,
        *,
        checked: bool = False,
        cancels: bool = False,
    ) -> Relation:
        """The computed value of a stream, which may be read any number of times.

        Raises `StepError` for a NULL in a field whose type has none, unless this was `checked`.
        With `cancels`, rows of the result may cancel out, so it is consolidated.
        """
        path, line = self._plan.names[v]
        where = f"{path} ({line})"
        schema = v.type.schema
        tests = [] if checked else null_tests(schema)
        state = self._first(v)
        if state is None:
            kept = (
                settle(result, (), where, tests=tests) if cancels else computed_once(result, tests)
            )
        elif result.is_settled(state.register.schema, state.register.key):
            kept = result
        else:
            rows = self._projection.select(result, state.selection)
            assert isinstance(rows, SparkRelation)
            kept = settle(rows, state.register.key, where, tests=tests)
        if kept.nulls:
            raise null_error(kept.nulls[0], where)
        most, most_bytes = self._most_fetched(v, kept.rows or 0)
        try:
            few = relation.fetch_if_few(kept, self._limits, most_rows=most, most_bytes=most_bytes)
        except StepError as e:  # a sum does not fit
            raise failed(self._plan, v, len(parts_of(v.operator)) - 1, e) from e
        if state is not None:
            step.for_registers[state.register.name] = kept if few is None else few
        if few is None:
            return kept.select(schema, beside=True)
        return replace(few.select(schema), consolidated=True)

    def _most_fetched(self, v: Vertex, rows: int) -> tuple[int, int]:
        """The most rows and bytes that the driver fetches of a stream with `rows` rows."""
        # The driver fetches rows for its own computations.
        most = relation.most_fetched(self._limits)
        if rows > most and (v in self._adders or v in self._keys):
            # It also fetches rows whose keys a store will look up, or that a store will keep.
            # A change of a key is often two rows or four: old and new ones.
            return max(most, 4 * LOOKED_UP_KEYS), relation.PIECE_BYTES
        return most, self._limits.fetched_bytes

    def key_kept_by(self, v: Vertex) -> tuple[str, ...] | None:
        """The key of the first register of a stream; None without one, or for computed columns."""
        state = self._first(v)
        return None if state is None or state.stored else state.register.key

    def _first(self, v: Vertex) -> RegisterPlan | None:
        """The register that stores a stream, if any; preferably one without computed columns."""
        states = self._adders.get(v, ())
        return min(states, key=lambda s: (len(s.stored), not s.register.key), default=None)
