"""Has Spark evaluate functions of rows for the driver, with one query for each relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from stepping_spark.engines.arrow.kernels import Prefixes
from stepping_spark.execution.projection import Projection
from stepping_spark.execution.step import Step, rows_of, schema_of
from stepping_spark.expressions.expr import Expr
from stepping_spark.limits import Limits
from stepping_spark.plan.terms import Leaf, Member
from stepping_spark.relations.arrow import Array
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.relation import on_driver


class Questions:
    """Has Spark evaluate functions of rows, those of a stage together if possible.

    A stream wants of a relation what it wanted when it was computed before; so from the second
    step on, all that the streams of a stage want of one is asked at once. Not of several: a
    projection of one local relation is no Spark job, and a union of them is.
    """

    def __init__(self, projection: Projection, limits: Limits) -> None:
        self._most = limits.collected_rows
        self._projection = projection
        self._wanted: dict[Member, dict[Leaf, dict[tuple[Expr, ...], None]]] = {}
        self._tables: dict[Leaf, pa.Table] = {}
        self._once: list[tuple[pa.Table, Schema]] = []  # those of them that are consolidated

    @property
    def in_utc(self) -> bool:
        """Whether the session's time zone is known to be UTC."""
        return self._projection.in_utc

    def begin(
        self, step: Step, members: Sequence[Member], is_ours: Callable[[Member], bool]
    ) -> None:
        """Evaluate at once all functions that streams on the driver need of the same relation."""
        self._tables.clear()
        self._once.clear()
        wanted: dict[Leaf, list[tuple[Expr, ...]]] = {}
        for m in members if self._wanted else ():
            if m in self._wanted and is_ours(m) and not step.is_nothing(m):
                for leaf, questions in self._wanted[m].items():
                    wanted.setdefault(leaf, []).extend(questions)
        for leaf, asked in wanted.items():
            rows = rows_of(*step.parts(leaf))
            if len(asked) > 1 and rows is not None and 0 < rows <= self._most:
                exprs = [e for some in asked for e in some]
                # Whose function fails is seen when each asks for its own.
                with suppress(Exception):
                    self._projection.values(self.table(step, leaf), schema_of(leaf), exprs)

    def drop(self, m: Member) -> None:
        """Forget the functions of a stream that the driver does not compute after all."""
        self._wanted.pop(m, None)

    def end(self) -> None:
        """Forget the relations and their values."""
        self._tables.clear()
        self._once.clear()
        self._projection.forget()

    def table(self, step: Step, leaf: Leaf) -> pa.Table:
        """The relation that a leaf stands for; its parts are all on the driver."""
        found = self._tables.get(leaf)
        if found is None:
            schema = schema_of(leaf)
            there = []
            for p in step.parts(leaf):
                assert p.table is not None
                if len(p.table):
                    there.append(p.select(schema))
            found = on_driver(there, schema)
            if leaf in step.prefixes:
                found = found.slice(0)  # `prefixes` knows the leaf by its table
            self._tables[leaf] = found
            if len(there) == 1 and there[0].consolidated:
                self._once.append((found, schema))
        return found

    def forget(self, leaves: Sequence[Leaf]) -> None:
        """Forget the relations of leaves, which are read again."""
        for leaf in leaves:
            self._tables.pop(leaf, None)

    def prefixes(self, step: Step, table: pa.Table) -> Prefixes | None:
        """What is known of the partitions of a window's state, by its table."""
        leaf = next((leaf for leaf, t in self._tables.items() if t is table), None)
        return None if leaf is None else step.prefixes.get(leaf)

    def is_once(self, table: pa.Table, schema: Schema) -> bool:
        """Whether a table is that of a leaf, and known to have each row of the schema once."""
        return any(t is table and s == schema for t, s in self._once)

    def values(
        self, m: Member, table: pa.Table, schema: Schema, exprs: tuple[Expr, ...]
    ) -> list[Array]:
        """The values of the expressions of a stream over the rows of a relation."""
        leaf = next((leaf for leaf in m.leaves if self._tables.get(leaf) is table), None)
        if leaf is not None:
            self._wanted.setdefault(m, {}).setdefault(leaf, {})[exprs] = None
        return self._projection.values(table, schema, exprs)
