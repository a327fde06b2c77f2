"""Stages the rows of a step in temporary tables, and writes them to the table of a sink.

The temporary tables have the constraints and the indexes of the sink's table. So Postgres refuses
wrong rows before a step is committed, without a change to the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import sql

from stepping_spark.pipeline.changes import TableForm, not_unique
from stepping_spark.pipeline.postgres.link import Link, listed, run
from stepping_spark.pipeline.postgres.types import Unfit, rows_of
from stepping_spark.pipeline.protocols import REFRESHED
from stepping_spark.rows.names import as_in_table, to_table
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark
from stores.postgres.connection import Connection

STEPS = "stepping_spark_steps"
"""The table in a schema with the owner and the last step of each table of a view."""

FEW = 1_000
"""The most rows of a step without ANALYZE: the planner finds them by key without statistics."""

SAME = "hash_record_extended(ROW({names}), 0)"
"""The hash by which rows of a table without a key are found: its index has no size limit."""


@dataclass(frozen=True)
class StagedRows:
    """The rows of a step in temporary tables, and the number of rows in each."""

    step: int
    change: ZSetSpark[Any]
    rows: dict[str, int]

    def name(self, part: str) -> sql.Identifier:
        """The temporary table of a part."""
        return sql.Identifier("pg_temp", f"stepping_{part}")


class Staging:
    """Stages, compares and writes the steps of one view."""

    def __init__(self, link: Link, schema: pa.Schema, key: Sequence[str], *, feed: bool) -> None:
        self._link = link
        self._form = TableForm(schema, tuple(key), feed, f"table {link.table!r}")
        self._columns = as_in_table(schema)

    def stage(
        self, connection: Connection, step: int, change: ZSetSpark[Any], *, anew: bool
    ) -> StagedRows:
        """Copy the rows into temporary tables, and compare them with the table.

        It compares nothing if the rows replace all rows of the table (`anew`).
        """
        rows = change.to_arrow()
        if self._form.changes:
            parts = {"fed": self._form.feed(rows, step)}
        elif self._form.key:
            split = self._form.split(rows)
            parts = {"gone": split.gone, "changed": split.changed, "came": split.came}
        else:
            parts = {"counted": rows}
        counts = {part: rows.num_rows for part, rows in parts.items() if rows.num_rows}
        staged = StagedRows(step, change, counts)
        for part in counts:
            # Deleted rows have negative counts, which a constraint may forbid.
            checked = "" if part == "counted" else " INCLUDING CONSTRAINTS"
            rows = to_table(parts[part], self._form.columns)
            self._copy(connection, staged.name(part), rows, checked)
            if part == "counted" or (part != "fed" and counts[part] > FEW):
                run(connection, "ANALYZE {name}", name=staged.name(part))
        if not anew:
            self._compare(connection, staged)
        return staged

    def _copy(
        self, connection: Connection, to: sql.Identifier, rows: pa.Table, checked: str
    ) -> None:
        run(connection, "DROP TABLE IF EXISTS {name}", name=to)
        like = f"LIKE {{table}} INCLUDING DEFAULTS INCLUDING INDEXES{checked}"
        text = f"CREATE TEMPORARY TABLE {{name}} ({like})"
        run(connection, text, name=to, table=self._link.name)
        names = listed(rows.schema.names, lambda c: c)
        copying = sql.SQL("COPY {} ({}) FROM STDIN").format(to, names).as_bytes()
        try:
            values = rows_of(rows)
        except Unfit as e:
            raise self._link.failure(
                f"{e}; the step is refused before it is committed: correct the rows or the query, "
                "and run again"
            ) from e
        with connection.cursor().copy(copying) as copy:
            for row in values:
                copy.write_row(row)

    def has(
        self, connection: Connection, staged: StagedRows, step: int, change: ZSetSpark[Any]
    ) -> bool:
        """Whether this connection still has the staged rows of the step."""
        text = "SELECT pg_catalog.to_regclass($1) IS NOT NULL"
        return (
            staged.step == step
            and staged.change is change
            and all(
                run(connection, text, staged.name(part).as_string()).fetchall()[0][0]
                for part in staged.rows
            )
        )

    def _same(self) -> sql.Composable:
        """The condition that a row `t` of the table and a staged row `s` have the same key."""
        if not self._form.key:
            columns = [sql.Identifier(name) for name in self._columns.names]
            sides = (
                sql.SQL(", ").join(sql.SQL(f"{of}.{{}}").format(c) for c in columns) for of in "ts"
            )
            hashes = [sql.SQL(SAME).format(names=side) for side in sides]
            equal = [sql.SQL("t.{0} IS NOT DISTINCT FROM s.{0}").format(c) for c in columns]
            return sql.SQL(" AND ").join([sql.SQL(" = ").join(hashes), *equal])
        return sql.SQL(" AND ").join(
            sql.SQL(
                "(t.{0} = s.{0} OR (t.{0} IS NULL AND s.{0} IS NULL))"
                if self._columns.field(name).nullable
                else "t.{0} = s.{0}"
            ).format(sql.Identifier(name))
            for name in self._form.order
        )

    def _compare(self, connection: Connection, staged: StagedRows) -> None:
        """Refuse new rows whose key exists, and deleted or changed rows that do not exist."""
        names = {"table": self._link.name, "same": self._same()}
        for part in ("gone", "changed"):
            if part in staged.rows:
                text = "SELECT count(*) FROM {table} t JOIN {s} s ON {same}"
                counts = run(connection, text, s=staged.name(part), **names).fetchall()
                self._check_all(counts[0][0], staged.rows[part])
        if "came" in staged.rows:
            text = (
                "SELECT {key} FROM {s} s WHERE EXISTS (SELECT FROM {table} t WHERE {same}) LIMIT 1"
            )
            key = listed(self._form.order, lambda c: sql.SQL("s.{}").format(c))
            double = run(connection, text, key=key, s=staged.name("came"), **names).fetchone()
            if double is not None:
                values = dict(zip(self._form.key, double, strict=True))
                raise not_unique(self._form.where, self._form.key, values)
        if "counted" in staged.rows:
            text = f"""
                SELECT count(*) FROM {{s}} s WHERE {COUNT} < -(SELECT coalesce(sum(t.{COUNT}), 0)
                FROM {{table}} t WHERE {{same}})
            """
            counts = run(connection, text, s=staged.name("counted"), **names).fetchall()
            of = staged.rows["counted"]
            self._check_all(of - counts[0][0], of)

    def write(self, connection: Connection, staged: StagedRows) -> int:
        """Write the staged rows to the table, and drop them; returns how many rows it grew by."""
        more = 0
        names = {"table": self._link.name, "same": self._same()}
        for part, rows in staged.rows.items():
            names["s"] = staged.name(part)
            if part == "gone":
                text = "DELETE FROM {table} t USING {s} s WHERE {same}"
                self._check_all(run(connection, text, **names).rowcount, rows)
                more -= rows
            elif part == "changed":
                setting = listed(self._columns.names, lambda c: sql.SQL("{0} = s.{0}").format(c))
                text = "UPDATE {table} t SET {set} FROM {s} s WHERE {same}"
                self._check_all(run(connection, text, set=setting, **names).rowcount, rows)
            else:
                more += self._insert(connection, names, counted=part == "counted")
            run(connection, "DROP TABLE {s}", **names)
        return more

    def _insert(
        self, connection: Connection, names: dict[str, sql.Composable], *, counted: bool
    ) -> int:
        """Insert rows, or add counted rows to existing rows and delete those with the count 0."""
        names = {**names, "columns": listed(self._form.schema.names, lambda c: c)}
        text = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {s} s"
        if not counted:
            return run(connection, text, **names).rowcount
        sums = f"SET {COUNT} = t.{COUNT} + s.{COUNT}"
        run(connection, f"UPDATE {{table}} t {sums} FROM {{s}} s WHERE {{same}}", **names)
        text += " WHERE NOT EXISTS (SELECT FROM {table} t WHERE {same})"
        came = run(connection, text, **names).rowcount
        text = f"DELETE FROM {{table}} t USING {{s}} s WHERE {{same}} AND t.{COUNT} = 0"
        return came - run(connection, text, **names).rowcount

    def _check_all(self, done: int, expected: int) -> None:
        if done != expected:
            raise self._link.failure(
                f"of {expected} rows that the step changes, {done} are there: somebody else has "
                "changed its rows. Nobody else may write a table that a pipeline writes: restore "
                f"what was there; or {REFRESHED}"
            )
