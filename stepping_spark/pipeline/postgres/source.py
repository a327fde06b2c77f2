"""A table of Postgres as a source, by a log of changes that triggers write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from psycopg import sql

from stepping_spark.errors import SourceError, SteppingError
from stepping_spark.pipeline.positions import numbers_of
from stepping_spark.pipeline.postgres.link import Link, columns_of, run
from stepping_spark.pipeline.postgres.types import arrays_of
from stepping_spark.pipeline.protocols import Batch, Portion, Position
from stepping_spark.pipeline.remedies import ANEW
from stepping_spark.rows.schema import COUNT
from stores.postgres.connection import LONGEST, Connection

LOG = "_changes"

_INSTALL = """
LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;
CREATE TABLE {log} (
    _id bigint GENERATED ALWAYS AS IDENTITY,
    _xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    _count_ smallint NOT NULL,
    _row jsonb,
    PRIMARY KEY (_xid, _id)
);
CREATE FUNCTION {log}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS
$stepping$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        INSERT INTO {log} (_count_, _row) SELECT -1, pg_catalog.to_jsonb(t) FROM {table} t;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD IS NOT DISTINCT FROM NEW THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO {log} (_count_, _row) VALUES (-1, pg_catalog.to_jsonb(OLD));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {log} (_count_, _row) VALUES (1, pg_catalog.to_jsonb(NEW));
    END IF;
    RETURN NULL;
END
$stepping$;
REVOKE ALL ON FUNCTION {log}() FROM PUBLIC;
CREATE TRIGGER {rows} AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {log}();
CREATE TRIGGER {whole} BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {log}();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER {rows};
ALTER TABLE {table} ENABLE ALWAYS TRIGGER {whole};
INSERT INTO {log} (_count_, _row) SELECT 1, pg_catalog.to_jsonb(t) FROM {table} t;
"""

_UNINSTALL = """
DROP TRIGGER IF EXISTS {rows} ON {table};
DROP TRIGGER IF EXISTS {whole} ON {table};
DROP FUNCTION IF EXISTS {log}();
DROP TABLE IF EXISTS {log};
"""

# All transactions before the oldest one that runs have ended, so nothing is added before it.
_HORIZON = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint"

_NEW = "(_xid, _id) > ($1::text::xid8, $2) AND _xid < $3::text::xid8 AND _count_ <> 0"


class PostgresSource:
    """The changes that a log has after a position.

    A position is (transaction, id, log): all is read up to the row of the log with this id of this
    transaction, in the order of transactions; `log` tells whether it is still the same log. Read
    are transactions before the oldest one that still runs: none that is read later is before them.
    """

    unit = "transaction"
    counts = "log row"
    """What the first number of a position counts, as messages say it."""

    def __init__(self, url: str, schema: str, table: str, *, trim: bool) -> None:
        self._link = Link(url, schema, table, "source", SourceError)
        self._trim = trim
        self._columns = pa.schema([])
        self._log = sql.Identifier(schema, log_of(table))

    # -- the log

    def install(self) -> bool:
        """Make the log and the triggers; False: they are there already."""
        if len(log_of(self._link.table).encode()) > LONGEST:
            raise self._link.failure("its name is too long for that of its log")
        with self._link.changing("could not be given a log of changes") as connection:
            self._check_table(connection)
            if columns_of(connection, self._link.schema, log_of(self._link.table)):
                return False
            self._execute(connection, _INSTALL)
        return True

    def uninstall(self) -> None:
        """Remove the log and the triggers."""
        with self._link.changing("could not have its log of changes removed") as connection:
            self._check_table(connection)
            self._execute(connection, _UNINSTALL)

    def _execute(self, connection: Connection, text: str) -> None:
        names = {
            "table": self._link.name,
            "log": self._log,
            "rows": sql.Identifier("stepping_spark_rows"),
            "whole": sql.Identifier("stepping_spark_whole"),
        }
        connection.execute(sql.SQL(text).format(**names).as_string())

    def _check_table(self, connection: Connection) -> None:
        if not columns_of(connection, self._link.schema, self._link.table):
            raise self._link.failure("it is not there; check the name and schema=")

    # -- what a pipeline calls

    def open(self, columns: pa.Schema) -> None:
        """Say which columns are wanted."""
        self._columns = columns

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def behind(self, after: Position | None) -> int | None:
        """The rows of the log that were not read, of transactions that can be."""
        with self._link.transaction("could not be looked at") as connection:
            transaction, number, _ = self._after(connection, after)
            horizon = self._horizon(connection)
            text = f"SELECT count(*) FROM {{log}} WHERE {_NEW}"
            found = run(connection, text, str(transaction), number, str(horizon), log=self._log)
            return int(found.fetchall()[0][0])

    def look(self, after: Position | None, portion: Portion) -> None:
        """Refuse a log and a table that `read` refuses."""
        with self._link.transaction("could not be looked at") as connection:
            self._after(connection, after)
            self._there(connection)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The changes of the next transactions, or of a part of one."""
        with self._link.transaction("could not be read") as connection:
            transaction, number, log = self._after(connection, after)
            horizon = self._horizon(connection)
            bounds = str(transaction), number, str(horizon)
            last = self._last(connection, bounds, portion)
            if last is None:
                return None
            until, rows, versions = last
            found = self._rows(connection, (*bounds[:2], str(until)), rows)
        counts, ids, *values = zip(*found, strict=True)
        columns = arrays_of(values, self._columns, self._link.failure)
        table = pa.table(
            [*columns, pa.array(counts, pa.int64())], names=[*self._columns.names, COUNT]
        )
        return Batch((until, ids[-1], log), (table,), versions)

    def confirm(self, position: Position) -> None:
        """Remove from the log what is committed, where this is wanted."""
        if self._trim:
            transaction, number, _ = numbers_of(position)
            self._forget(transaction, number)

    def _last(
        self, connection: Connection, bounds: tuple[str, int, str], portion: Portion
    ) -> tuple[int, int | None, int] | None:
        """The last transaction that is read now, how many of its rows if not all, and of how many.

        None where there is nothing new.
        """
        text = (
            f"SELECT _xid::text::bigint, count(*) FROM {{log}} WHERE {_NEW} "
            "GROUP BY _xid ORDER BY _xid"
        )
        limit = "" if portion.versions is None else f" LIMIT {portion.versions}"
        found = run(connection, text + limit, *bounds, log=self._log).fetchall()
        if not found:
            return None
        total = versions = 0
        until = int(found[0][0])
        for transaction, rows in found:
            total += rows
            if portion.rows is not None and total > portion.rows:
                break
            until, versions = int(transaction), versions + 1
        if versions == 0:
            return until, portion.rows, 0
        return until, None, versions

    def _rows(
        self, connection: Connection, bounds: tuple[str, int, str], rows: int | None
    ) -> list[tuple[Any, ...]]:
        """Counts, ids and columns of the rows of the log; in order."""
        there = self._there(connection)
        wanted = sql.SQL(", ").join(
            sql.SQL("r.{}").format(sql.Identifier(there[n.lower()])) for n in self._columns.names
        )
        text = (
            "SELECT c._count_, c._id, {wanted} FROM {log} c, "
            "LATERAL pg_catalog.jsonb_populate_record(NULL::{table}, c._row) r "
            "WHERE (_xid, _id) > ($1::text::xid8, $2) AND _xid <= $3::text::xid8 AND _count_ <> 0 "
            "ORDER BY _xid, _id" + ("" if rows is None else f" LIMIT {rows}")
        )
        names: dict[str, sql.Composable] = {
            "wanted": wanted, "log": self._log, "table": self._link.name,
        }  # fmt: skip
        return run(connection, text, *bounds, **names).fetchall()

    def _there(self, connection: Connection) -> dict[str, str]:
        """The columns of the table by their names in small letters; all that are wanted."""
        there = {n.lower(): n for n in columns_of(connection, self._link.schema, self._link.table)}
        missing = [n for n in self._columns.names if n.lower() not in there]
        if missing:
            raise self._link.failure(
                f"there is no column {', '.join(missing)}; the columns are "
                f"{', '.join(there.values())}; change the row class, or the table"
            )
        return there

    def _horizon(self, connection: Connection) -> int:
        return int(connection.execute(_HORIZON).fetchall()[0][0])

    def _after(self, connection: Connection, after: Position | None) -> tuple[int, int, int]:
        """The position, which is checked: the log is the same, and has what comes after it."""
        name = f"{self._log.as_string()}"
        ((log,),) = connection.execute(
            "SELECT pg_catalog.to_regclass($1)::oid::bigint", [name]
        ).fetchall()
        if log is None:
            raise self._not_installed()
        transaction, number, known = (0, 0, int(log)) if after is None else numbers_of(after)
        if known != log:
            raise self._link.failure(
                "its log of changes is another one than the one that was read: it was created "
                f"again; {ANEW}"
            )
        text = "SELECT _xid::text::bigint, _id FROM {log} WHERE _count_ = 0"
        for trimmed in run(connection, text, log=self._log).fetchall():
            if trimmed > (transaction, number):
                raise self._link.failure(
                    "its log of changes was trimmed (trim=True), and what this pipeline has not "
                    f"read is gone: uninstall the log and install it again, and {ANEW}"
                )
        return transaction, number, int(log)

    def _not_installed(self) -> SteppingError:
        return self._link.failure(
            "it has no log of changes; install it once, by a user who may create triggers: "
            f"stepping-spark source install URL {self._link.table} --schema {self._link.schema}, "
            "or st.Postgres(…).install()"
        )

    def _forget(self, transaction: int, number: int) -> None:
        """Remove what is committed from the log; a row without a count says up to where."""
        with self._link.changing("could not be trimmed") as connection:
            text = "DELETE FROM {log} WHERE (_xid, _id) <= ($1::text::xid8, $2)"
            run(connection, text, str(transaction), number, log=self._log)
            text = (
                "INSERT INTO {log} (_xid, _id, _count_) OVERRIDING SYSTEM VALUE "
                "VALUES ($1::text::xid8, $2, 0)"
            )
            run(connection, text, str(transaction), number, log=self._log)


def log_of(table: str) -> str:
    """The name of a table's log."""
    return f"{table}{LOG}"
