"""Materializes large streams once, within bounds of their size, and finds NULLs in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.physical import (
    Argument,
    Contributions,
    Negate,
    Physical,
    Project,
    Union,
    Where,
    walk,
)
from stepping_spark.execution.sql_scope import Projection
from stepping_spark.execution.step import Step, null_error
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import Materialized, RegisterPlan, nodes
from stepping_spark.relations import relation
from stepping_spark.relations.arrow import one_array
from stepping_spark.relations.placement import LOOKED_UP_KEYS
from stepping_spark.relations.relation import Relation, SparkRelation, kept_apart, settle
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote


@dataclass(frozen=True)
class SizeBound:
    """The most rows and bytes that a stream can have.

    Each row has `width` bytes; `loose` counts the bytes of all texts and lists.
    """

    rows: int
    width: int
    loose: int

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return self.rows * self.width + self.loose

    def beside(self, other: SizeBound) -> SizeBound:
        """The rows of both in one table, in which each row has the columns of both."""
        return SizeBound(self.rows + other.rows, self.width + other.width, self.loose + other.loose)


def bound(step: Step, m: Materialized) -> SizeBound | None:
    """The upper bound of a stream, from the sizes of its inputs; None if it is unknown.

    It is known for streams that make at most one row of each row, and copy or drop its texts and
    lists. The type of another value gives its width.
    """
    if not _is_row_by_row(m):
        return None
    rows = loose = 0
    for leaf, times in m.times_read.items():
        for p in step.parts(leaf):
            if p.rows is None or p.nbytes is None:
                return None
            rows += times * p.rows
            fixed = sum(_least(t) for _, t in p.schema.all)
            loose += times * max(p.nbytes - p.rows * fixed, 0)
    types = [t for _, t in m.vertex.type.schema.all]
    return SizeBound(rows, sum(map(_most, types)), sum(map(_copies, types)) * loose)


def together(bounds: Mapping[Materialized, SizeBound], most_bytes: int) -> list[list[Materialized]]:
    """The streams in groups, in their order; each group fits a table of limited bytes."""
    groups: list[list[Materialized]] = []
    whole: SizeBound | None = None
    for m, own in bounds.items():
        both = own if whole is None else whole.beside(own)
        if whole is None or both.nbytes > most_bytes:
            groups.append([])
            both = own
        groups[-1].append(m)
        whole = both
    return groups


def _is_row_by_row(m: Materialized) -> bool:
    return all(_is_simple(n) for node in nodes(m.term) for tree in node.trees for n in walk(tree))


def _is_simple(n: Physical) -> bool:
    if isinstance(n, Contributions):
        return not n.type.sum.item and _are_copies(n.exprs)
    if isinstance(n, Project):
        return _are_copies(n.exprs)
    return isinstance(n, Argument | Negate | Union | Where)


def _are_copies(exprs: Iterable[Expr]) -> bool:
    """Whether all texts and lists among the values of expressions are copies of fields."""
    return all(map(_is_copy, exprs))


def _is_copy(e: Expr) -> bool:
    if isinstance(e, Build):
        return _are_copies(e.fields)
    return isinstance(e, Field) or not _copies(e.type)


def _copies(t: RowType) -> int:
    """How many parts of a value may have any width."""
    return sum(map(_is_loose, _parts(t)))


def _most(t: RowType) -> int:
    """The most bytes of a value, besides those of texts and lists."""
    return sum(4 if _is_loose(p) else max(p.arrow.bit_width // 8, 1) for p in _parts(t))


def _least(t: RowType) -> int:
    """The least bytes of a value; Arrow has eight truth values in a byte."""
    return sum(0 if _is_loose(p) else p.arrow.bit_width // 8 for p in _parts(t))


def _is_loose(t: RowType) -> bool:
    """Whether a value is a text or a list, of any width."""
    return isinstance(t, ListOf | ZSetOf) or t.ddl in ("STRING", "BINARY")


def _parts(t: RowType) -> Iterator[RowType]:
    """The types of the values that a value consists of."""
    if isinstance(t, Optional):
        yield from _parts(t.inner)
    elif isinstance(t, Struct):
        for _, f in t.fields:
            yield from _parts(f)
    else:
        yield t


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


def _tests(value: str, t: RowType, name: str, there: str) -> Iterator[tuple[str, str]]:
    if isinstance(t, Optional):
        t = t.inner
        there += f"{value} IS NOT NULL AND "
    else:
        yield name, f"{there}{value} IS NULL"
    if isinstance(t, Struct):
        for field, inner in t.fields:
            yield from _tests(f"{value}.{quote(field)}", inner, f"{name}.{field}", there)


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
        self, step: Step, v: Vertex, result: SparkRelation, *, checked: bool = False
    ) -> Relation:
        """The value of a stream, which may be read any number of times.

        A `StepError` names a field that is NULL and never should be, unless that was `checked`.
        """
        path, line = self._plan.names[v]
        where = f"{path} ({line})"
        schema = v.type.schema
        tests = [] if checked else null_tests(schema)
        state = self._first(v)
        if state is None:
            kept = kept_apart(result, tests)
        elif result.is_settled(state.register.schema, state.register.key):
            kept = result
        else:
            rows = self._projection.select(result, state.selection)
            assert isinstance(rows, SparkRelation)
            kept = settle(rows, state.register.key, where, tests=tests)
        if kept.nulls:
            raise null_error(kept.nulls[0], where)
        most, most_bytes = self._most_fetched(v, kept.rows or 0)
        few = relation.fetch_if_few(kept, self._limits, most_rows=most, most_bytes=most_bytes)
        if state is not None:
            step.kept[state.register.name] = kept if few is None else few
        own = kept.select(schema, beside=True)
        if few is None:
            return own
        here = replace(few.select(schema), consolidated=True)
        if here.nbytes > self._limits.broadcast_bytes or here.rows > relation.most_fetched(
            self._limits
        ):
            step.in_spark[v] = own  # a large query is not to send it back
        return here

    def are_few(self, v: Vertex, bound: SizeBound) -> bool:
        """Whether the driver will fetch a stream, and may do so without a copy in Spark's memory.

        It is small enough for one job to fetch it, and to be sent back to Spark.
        """
        most, most_bytes = self._most_fetched(v, bound.rows)
        limits = self._limits
        return not relation.why_not_fetched(
            bound.rows,
            bound.nbytes,
            limits,
            most_rows=min(most, limits.fetched_rows),
            most_bytes=min(most_bytes, relation.PIECE_BYTES, limits.broadcast_bytes),
        )

    def _most_fetched(self, v: Vertex, rows: int) -> tuple[int, int]:
        """How many rows and bytes the driver fetches of a stream that has so many rows."""
        # The driver fetches rows that it will compute with.
        most = relation.most_fetched(self._limits)
        if rows > most and (v in self._adders or v in self._keys):
            # And those that a store will look up the keys of, or keep, once for all of these.
            # A change of a key is often two rows or four: what goes, and what comes.
            return max(most, 4 * LOOKED_UP_KEYS), relation.PIECE_BYTES
        return most, self._limits.fetched_bytes

    def key_kept_by(self, v: Vertex) -> tuple[str, ...] | None:
        """The columns by which the first register keeps a stream; None if these are not its own."""
        state = self._first(v)
        return None if state is None or state.stored else state.register.key

    def _first(self, v: Vertex) -> RegisterPlan | None:
        """The register that keeps a stream, if any; preferably one without additional columns."""
        states = self._adders.get(v, ())
        return min(states, key=lambda s: (len(s.stored), not s.register.key), default=None)
