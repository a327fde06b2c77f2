"""The relations and expressions in the queries of a step: small relations as text, others as views.

Expressions over rows of the driver are the projection of a local relation. Spark's optimizer
computes it, and `collect` returns the rows without a job; `toArrow` runs a job, and is faster from
some thousands of rows on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.base.errors import SteppingError
from stepping_spark.base.packages import Column, DataFrame, SparkSession
from stepping_spark.execution.spark.nodes import DerivedTable
from stepping_spark.execution.spark.text import consolidated, names
from stepping_spark.expressions.arrow_evaluator import ZoneOf, evaluator, unknown_zone
from stepping_spark.expressions.expr import Expr, fields_of, for_spark
from stepping_spark.expressions.symbolic import to_column
from stepping_spark.plan.step_ir import Selection
from stepping_spark.relations.arrow import Array, canonical, one_array, shown_row
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation, on_driver
from stepping_spark.relations.transfer import column, frame_of
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.sql_text import literal
from stepping_spark.rows.types import Optional, quote
from stepping_spark.spark.session import JobCounter, in_session, is_about_values

COLLECTED_ROWS = 5_000
"""Rows of the driver whose functions Spark evaluates without a job, returning row by row.

Beyond: Spark runs a job, which returns Arrow. Both took equally long at about 5,000 rows.
"""

KNOWN_RELATIONS = 100
"""Small relations whose function values are cached within a step.

Beyond: the whole cache is dropped.
"""

INLINE_CELLS = 500
"""Values of a relation up to which it is written into the text of a query.

Beyond: the query reads a view of an Arrow table.
"""

INLINE_BYTES = 64 << 10
"""Bytes of such a relation, which may have long texts: a query keeps several copies of it.

Beyond: the query reads a view.
"""

_NUMBERS = itertools.count(1)

Sent: TypeAlias = dict[tuple[int, str], tuple[pa.Table, DataFrame]]
"""Tables as DataFrames, by the table's identity and its schema in Spark."""


class SqlScope:
    """Named relations for the queries of one step; `drop` them at its end."""

    def __init__(self, spark: Callable[[], SparkSession], now: str = "NULL") -> None:
        self._spark = spark
        self.now = now
        """The time of the step, as a literal."""
        self._inline: dict[str, str] = {}
        self._views: list[str] = []

    def name(self, kind: str) -> str:
        """A name that is unique in this process."""
        return f"{kind}_{next(_NUMBERS)}"

    def define(
        self,
        name: str,
        parts: tuple[Relation, ...],
        schema: Schema,
        *,
        added_up: bool = False,
        sent: Sent | None = None,
    ) -> None:
        """Define the sum of some relations under a name; `added_up` consolidates equal rows.

        `sent` collects the tables that were sent to Spark, so that a table with two names is sent
        once.
        """
        frames = [p.frame for p in parts if p.frame is not None]
        table = on_driver(parts, schema)
        if not frames and is_inline(table, schema):
            self._inline[name] = inline(table, schema)
            return
        if table.num_rows:
            sent, key = {} if sent is None else sent, (id(table), schema.ddl)
            if key not in sent:
                sent[key] = table, frame_of(table, schema, self._spark())
            frames.append(sent[key][1])
        self._inline.pop(name, None)
        if len(frames) == 1:
            self._view(name, frames[0])
            return
        single = []
        for i, frame in enumerate(frames):
            self._view(f"{name}_part{i}", frame)
            single.append(f"SELECT {names(schema.all)} FROM {name}_part{i}")
        union = " UNION ALL ".join(single)
        self._inline[name] = consolidated(union, schema) if added_up else union

    def derive(self, d: DerivedTable) -> None:
        """Define a query with additional columns, which have no SQL text, as a view."""
        frame = self.sql(d.query.text, d.query.uses)
        if d.bucket is not None:
            frame = d.bucket.beside(frame)
        self._view(d.name, frame.select("*", *[c.alias(n) for n, c in d.columns]))

    def sql(self, text: str, uses: Iterable[str]) -> DataFrame:
        """The DataFrame of a query that uses these named relations."""
        used = [(n, self._inline[n]) for n in sorted(uses) if n in self._inline]
        if used:
            text = f"WITH {', '.join(f'{n} AS ({q})' for n, q in used)} {text}"
        return self._spark().sql(text)

    def drop(self) -> None:
        """Forget all names."""
        for name in self._views:
            self._spark().catalog.dropTempView(name)
        self._views.clear()
        self._inline.clear()

    def _view(self, name: str, frame: DataFrame) -> None:
        in_session(frame, self._spark()).createOrReplaceTempView(name)
        self._views.append(name)


def is_inline(table: pa.Table, schema: Schema) -> bool:
    """Whether a relation is small enough for the text of a query."""
    cells = table.num_rows * sum(_cells(t.arrow) for _, t in schema.all)
    return cells <= INLINE_CELLS and table.nbytes <= INLINE_BYTES


def _cells(t: pa.DataType) -> int:
    if pa.types.is_struct(t):
        return sum(_cells(f.type) for f in t)
    return 4 if pa.types.is_list(t) else 1


def inline(table: pa.Table, schema: Schema) -> str:
    """A small relation as the text of a query."""
    columns = names(schema.all)
    if not table.num_rows:
        nothing = ", ".join(f"CAST(NULL AS {t.ddl}) AS {quote(n)}" for n, t in schema.all)
        return f"SELECT {nothing} WHERE false"
    rows = ", ".join(
        f"({', '.join(literal(row[n], t) for n, t in schema.all)})" for row in table.to_pylist()
    )
    return f"SELECT {columns} FROM VALUES {rows} AS t({columns})"


class Projection:
    """Evaluates expressions over relations; caches their Columns.

    It caches values over small relations on the driver until `forget`. `queries` and `jobs` count
    the queries that have fetched values from Spark; `jobs` is None if Spark does not tell.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self.queries = 0
        self.jobs: int | None = 0
        self.asked: dict[str, None] = {}  # functions of keys that Spark has evaluated
        self.zone: ZoneOf = unknown_zone
        self._spark = spark
        self._columns: dict[Expr, Column] = {}
        self._known: dict[int, tuple[pa.Table, dict[Expr, Array]]] = {}  # by the table's identity

    def select(self, relation: Relation, chosen: Selection) -> Relation:
        """The relation of named expressions over a relation, with or without its own columns."""
        if chosen.beside and not chosen.exprs:
            return relation
        once = chosen.beside and relation.consolidated
        if relation.table is not None:
            return DriverRelation(self._selected(relation.table, chosen), chosen.schema, once)
        assert relation.frame is not None
        shown = [self._column(e).alias(n) for n, e in chosen.exprs]
        if chosen.beside:
            own = (relation.schema.columns, relation.schema.diffs)
            before, after = ([column(n) for n, _ in part] for part in own)
            shown = [*before, *shown, *after]
        return SparkRelation(relation.frame.select(*shown), chosen.schema, once)

    def _selected(self, table: pa.Table, chosen: Selection) -> pa.Table:
        """The selected columns, canonical. Spark evaluates the expressions that Arrow cannot."""
        arrays: list[Any] = []
        asked = []
        for (_, e), compute in zip(chosen.exprs, chosen.evaluators, strict=True):
            arrays.append(None if compute is None else compute(table, self.zone))
            if arrays[-1] is None:
                asked.append(e)
        if asked:
            if table.num_rows:
                self.asked.update(dict.fromkeys(for_spark(asked)))
            answers = iter(self.values(table, chosen.of, asked))
            arrays = [next(answers) if c is None else c for c in arrays]
        if chosen.schema.has_floats:
            arrays = [canonical(c) for c in arrays]
        if chosen.beside:
            own = table.columns
            diffs = len(own) - len(chosen.of.diffs)
            arrays = [*own[:diffs], *arrays, *own[diffs:]]
        return chosen.relation(arrays)

    def values(self, table: pa.Table, schema: Schema, exprs: Sequence[Expr]) -> list[Array]:
        """The values of expressions over the rows of a relation on the driver, in their order."""
        if not table.num_rows:
            return [pa.array([], e.type.arrow) for e in exprs]
        if table.num_rows > COLLECTED_ROWS:
            return self._evaluated_or_noted(table, schema, exprs)
        if len(self._known) > KNOWN_RELATIONS:
            self.forget()
        _, cached = self._known.setdefault(id(table), (table, {}))
        missing = [e for e in dict.fromkeys(exprs) if e not in cached]
        if missing:
            values = self._evaluated_or_noted(table, schema, missing)
            cached.update(zip(missing, values, strict=True))
        return [cached[e] for e in exprs]

    def forget(self) -> None:
        """Forget the cached values."""
        self._known.clear()

    def _evaluated_or_noted(
        self, table: pa.Table, schema: Schema, exprs: Sequence[Expr]
    ) -> list[Array]:
        """The values of expressions; an error that a value causes gets a note with its row."""
        try:
            return self._evaluated(table, schema, exprs)
        except Exception as e:
            if type(e) is SteppingError:  # there is no Spark to ask
                self._note_uncomputed(e, table, schema, exprs)
            elif is_about_values(e):
                self._note_row(e, table, schema, exprs)
            raise

    def _note_row(
        self, error: Exception, table: pa.Table, schema: Schema, exprs: Sequence[Expr]
    ) -> None:
        """Note the first row of a relation for which Spark fails."""

        def fails(rows: pa.Table) -> bool:
            try:
                self._evaluated(rows, schema, exprs)
            except Exception as e:
                return is_about_values(e)
            return False

        _note_first(error, table, schema, fails)

    def _note_uncomputed(
        self, error: Exception, table: pa.Table, schema: Schema, exprs: Sequence[Expr]
    ) -> None:
        """Note the first row that needs Spark, if Arrow computes the expressions of other rows."""
        kernels = [compute for e in exprs if (compute := evaluator(e)) is not None]

        def fails(rows: pa.Table) -> bool:
            return any(compute(rows, self.zone) is None for compute in kernels)

        if len(kernels) == len(exprs) and not fails(table.slice(0, 0)):
            _note_first(error, table, schema, fails)

    def _evaluated(self, table: pa.Table, schema: Schema, exprs: Sequence[Expr]) -> list[Array]:
        types = [e.type for e in exprs]
        table, schema = _read_by(exprs, table, schema)
        if is_inline(table, schema):
            source = inline(table, schema)
            if all(e.in_sql for e in exprs):
                texts = ", ".join(f"{e.sql('t')} AS e{i}" for i, e in enumerate(exprs))
                return self.fetched(self._spark().sql(f"SELECT {texts} FROM ({source}) t"), types)
            frame = self._spark().sql(source)
        else:
            frame = frame_of(table, schema, self._spark())
        shown = [self._column(e).alias(f"e{i}") for i, e in enumerate(exprs)]
        few = table.num_rows <= COLLECTED_ROWS
        return self.fetched(frame.select(*shown), types, few=few)

    def fetched(
        self, frame: DataFrame, types: Sequence[RowType], *, few: bool = True
    ) -> list[Array]:
        """The columns of a DataFrame, with these types; `few` means a few local rows.

        Local rows of simple types are collected without a job.
        """
        self.queries += 1
        if few and all(map(_is_simple, types)):
            rows = frame.collect()
            return [pa.array([r[i] for r in rows], t.arrow) for i, t in enumerate(types)]
        with JobCounter(self._spark()) as jobs:
            schema = Schema(tuple(zip(frame.columns, types, strict=True)), ())
            columns = [one_array(c) for c in conform(frame.toArrow(), schema).columns]
        self.jobs = None if self.jobs is None or jobs.count is None else self.jobs + jobs.count
        return columns

    def keys(self, relation: Relation, key: Selection, *, nulls: bool) -> Relation:
        """The distinct keys of a relation's rows; without `nulls`, no keys with a NULL."""
        return self.select(relation, key).distinct(nulls=nulls)

    def _column(self, e: Expr) -> Column:
        spark_column = self._columns.get(e)
        if spark_column is None:
            spark_column = self._columns[e] = to_column(e)
        return spark_column


def _note_first(
    error: Exception, table: pa.Table, schema: Schema, fails: Callable[[pa.Table], bool]
) -> None:
    """Add a note with the first row of a relation that fails by itself, found by halving."""
    while table.num_rows > 1:
        half = table.num_rows // 2
        first = table.slice(0, half)
        table = first if fails(first) else table.slice(half)
    if fails(table):
        shown = shown_row({n: table.column(n)[0].as_py() for n, _ in schema.columns})
        error.add_note(f"for the row ({shown})")


def _read_by(exprs: Sequence[Expr], table: pa.Table, schema: Schema) -> tuple[pa.Table, Schema]:
    """The columns that expressions read, if they are known; at least one column."""
    fields = [f for e in exprs for f in fields_of(e)]
    if not all(e.in_sql for e in exprs) or any(not f.path for f in fields):
        return table, schema
    read = {f.path[0] for f in fields}
    columns = tuple((n, t) for n, t in schema.columns if n in read) or schema.columns[:1]
    if not columns:
        return table, schema
    return table.select([n for n, _ in columns]), Schema(columns, ())


# Types whose Python values Arrow accepts; not instants, which PySpark returns in the local zone.
_SIMPLE = ("bool", "int", "float", "str", "bytes", "Decimal", "date")


def _is_simple(t: RowType) -> bool:
    bare = t.inner if isinstance(t, Optional) else t
    return isinstance(bare, Atom) and bare.name in _SIMPLE
