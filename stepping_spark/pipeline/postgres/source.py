"""A table of Postgres as a source, by a log of changes that triggers write."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from psycopg import sql

from stepping_spark.base.errors import SourceError, SteppingError
from stepping_spark.pipeline.postgres.followed import (
    TRIMS,
    Followed,
    LogShape,
    Note,
    followed_of,
    log_of,
)
from stepping_spark.pipeline.postgres.lines import LinesOfShape, OtherNameError
from stepping_spark.pipeline.postgres.link import Link, run
from stepping_spark.pipeline.postgres.log import ChangeLog
from stepping_spark.pipeline.postgres.types import PostgresKind, arrow_of, suited
from stepping_spark.pipeline.protocols import (
    ANEW,
    MISFITS,
    OTHER_KIND,
    Batch,
    Portion,
    Position,
    numbers_of,
)
from stepping_spark.rows.names import column_of, matched
from stepping_spark.rows.schema import COUNT
from stores.postgres.connection import Connection

# All transactions before the oldest running one have ended, so no line is added before it.
_HORIZON = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint"

# A user without the right to see the statistics of others still sees their process.
_HOLDER = """
SELECT pg_catalog.format('process %s of %s', pid, coalesce(usename, 'an unknown user')), xact_start
FROM pg_catalog.pg_stat_activity WHERE backend_xid = $1::text::xid8::xid
UNION ALL
SELECT pg_catalog.format('PREPARE TRANSACTION %L', gid), prepared
FROM pg_catalog.pg_prepared_xacts WHERE transaction = $1::text::xid8::xid
"""


def horizon_of(connection: Connection) -> int:
    """The number of the oldest running transaction, or of the next one."""
    return int(connection.execute(_HORIZON).fetchall()[0][0])


def holder_of(connection: Connection, transaction: int) -> str:
    """A running transaction in words: its owner, and the time since which it is open."""
    row = run(connection, _HOLDER, str(transaction)).fetchone()
    if row is None:
        return f"transaction {transaction}, which is open on the server"
    whose, since = row
    opened = "open" if since is None else f"open since {since:%Y-%m-%d %H:%M:%S} UTC"
    return f"transaction {transaction} ({whose}), {opened}"


_UNIQUE = """
SELECT DISTINCT array(
    SELECT a.attname::text FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS k (number)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    ORDER BY a.attname
) FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY($1::oid[]) AND i.indisunique AND NOT 0 = ANY(i.indkey)
"""

_AFTER = "(_xid, _id) > ($1::text::xid8, $2) AND _id > $3 AND _row IS NOT NULL AND _count_ <> 0"
_NEW = f"({_AFTER} AND _xid < $4::text::xid8)"

# Lines of one row have the same content, or the same values of the columns of a unique index.
# `unread` are lines before transaction $4, and `later` are lines from it on that were written
# before one of these.
_TORN = f"""
WITH unread AS (
    SELECT _xid, _id, _row FROM {{log}} WHERE {_AFTER} AND _xid < $4::text::xid8 AND _id > $5
), later AS (
    SELECT _xid, _id, _row FROM {{log}} WHERE _xid >= $4::text::xid8 AND _id > $3
        AND _row IS NOT NULL AND _count_ <> 0 AND _id < (SELECT max(_id) FROM unread)
)
SELECT min(u._xid::text::bigint), max(l._xid::text::bigint)
FROM (SELECT * FROM unread, LATERAL (VALUES {{same}}) AS s (kind, same)) u
JOIN (SELECT * FROM later, LATERAL (VALUES {{same}}) AS s (kind, same)) l
    ON l.kind = u.kind AND l.same = u.same AND l._id < u._id
"""

log = logging.getLogger("stepping_spark.pipeline")

LogPlace = tuple[int, int, int, int]
"""A position: the transaction, the line, the log, and the line after which the log begins."""


def _columns_in(shape: LogShape, table: Followed) -> dict[str, tuple[str, PostgresKind]]:
    """The name and kind that columns of a table had in a shape; without columns added later.

    A renamed column is found by its number. One that was dropped and added again is found by its
    name, and so are the columns of another table of the same name.
    """
    oid, columns = shape
    of_number = {number: (name, kind) for number, name, kind in columns if oid == table.oid}
    of_name = {name: (name, kind) for _, name, kind in columns}
    then = {c.name: of_number.get(c.number) or of_name.get(c.name) for c in table.columns}
    return {name: column for name, column in then.items() if column is not None}


class PostgresSource:
    """Reads the changes in a log after a position.

    A position is (transaction, id, log, first): everything is read up to the row of the log with
    this id of this transaction, in the order of transactions; `log` is the oid of the log. The
    source reads transactions before the oldest running one: no later one comes before them. A
    transaction may change a row that one with a larger number has written. Both are read in one
    step: between them, the rows that were read would not be those of a table at any time. A
    source that begins with a log that was installed again reads only lines after `first`, which
    have all rows.
    """

    unit = "transaction"
    counts = "log row"
    """The units for messages: `unit` of a position's first number, `counts` of `behind`."""

    def __init__(self, url: str, schema: str, table: str, *, trim: bool) -> None:
        self._link = Link(url, schema, table, "source", SourceError)
        self._trim = trim
        self._columns = pa.schema([])
        self._log = ChangeLog(self._link)
        self._name = log_of(schema, table)
        self._held = 0  # the transaction of the last message

    # -- the log

    def install(self, *, again: bool = False) -> bool:
        """Create the log and the triggers; False if they exist already."""
        with self._link.changing("could not be given a log of changes") as connection:
            return self._log.install(connection, again=again)

    def uninstall(self) -> bool:
        """Remove the log and the triggers; False if there are none."""
        with self._link.changing("could not have its log of changes removed") as connection:
            return self._log.uninstall(connection)

    # -- the methods of a source

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns; if there are any, check the log and the table."""
        self._columns = columns
        if not len(columns):
            return
        try:
            with self._link.transaction("could not be looked at") as connection:
                self._checked_log(connection)
        except BaseException:
            self._link.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def schema(self) -> pa.Schema:
        """The columns of the table; a wanted column has the wanted type, if its kind allows it.

        A column that was added after the log was made is nullable, for the rows from before.
        """
        with self._link.transaction("could not be looked at") as connection:
            table = followed_of(connection, self._link)
            note = self._log.finder.note(connection)
        types = self._types(table)
        if not types:
            types = {c.name: suited(c.kind, c.dimensions) for c in table.columns}
        required = {c.name for c in table.columns if c.required}
        for shape in () if note is None else note.shapes:
            required &= _columns_in(shape, table).keys()
        return pa.schema(
            [
                pa.field(
                    c.name, arrow_of(c.kind, types.get(c.name)), nullable=c.name not in required
                )
                for c in table.columns
                if not c.virtual
            ]
        )

    def behind(self, after: Position | None) -> int | None:
        """The number of unread rows of the log, also rows that wait for a transaction."""
        with self._link.transaction("could not be looked at") as connection:
            transaction, number, _, first = self._after(connection, self._noted(connection), after)
            return self._count(connection, _AFTER, str(transaction), number, first)

    def look(self, after: Position | None, portion: Portion) -> None:
        """Raise the errors of `read` about the log and the table."""
        with self._link.transaction("could not be looked at") as connection:
            note, _ = self._checked_log(connection)
            transaction, number, _, first = self._after(connection, note, after)
            bounds = str(transaction), number, first
            self._say_if_held(connection, horizon_of(connection), *bounds)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The changes of the next transactions, or of a part of one."""
        with self._link.transaction("could not be read") as connection:
            note, table = self._checked_log(connection)
            place = self._after(connection, note, after)
            transaction, number, log, first = place
            bounds = str(transaction), number, first
            horizon = str(horizon_of(connection))
            last = self._last(connection, table, (*bounds, horizon), portion)
            if last is None:  # all that is new waits
                self._say_if_held(connection, 0, *bounds)
                moved = after is not None and tuple(numbers_of(after)) != place
                return Batch(place, (), 0) if moved else None
            until, rows, versions = last
            text = (
                f"SELECT _id, _shape, _count_, _row::text FROM {{log}} WHERE {_AFTER} "
                "AND _xid <= $4::text::xid8 ORDER BY _xid, _id"
            ) + ("" if rows is None else f" LIMIT {rows}")
            entries = run(connection, text, *bounds, str(until), log=self._name).fetchall()
            place = self._place(connection, note, (until, entries[-1][0], log, first))
        tables, misfits = self._rows(entries, note, table)
        return Batch(place, tables, versions, misfits=misfits)

    def confirm(self, position: Position) -> None:
        """With `trim`, remove the committed rows from the log."""
        if self._trim:
            transaction, number, *_ = numbers_of(position)
            self._forget(transaction, number)

    def _last(
        self,
        connection: Connection,
        table: Followed,
        bounds: tuple[str, int, int, str],
        portion: Portion,
    ) -> tuple[int, int | None, int] | None:
        """(last transaction to read, number of rows if only a part, number of whole transactions).

        None if there is nothing new that can be read. More than the portion is read if it would
        tear transactions apart.
        """
        text = (
            "SELECT _xid::text::bigint, count(*), "
            "coalesce(sum(octet_length(_row::text)), 0)::bigint, max(_id) "
            f"FROM {{log}} WHERE {_NEW} GROUP BY _xid ORDER BY _xid"
        )
        limit = "" if portion.versions is None else f" LIMIT {portion.versions}"
        transactions = run(connection, text + limit, *bounds, log=self._name).fetchall()
        if not transactions:
            return None
        total = nbytes = versions = 0
        until, first, of_first, _ = map(int, transactions[0])
        for transaction, rows, length, _ in transactions:
            total, nbytes = total + rows, nbytes + length
            if not portion.holds(total, nbytes):
                break
            until, versions = int(transaction), versions + 1
        whole = self._untorn(connection, table, bounds, until, transactions)
        if whole is None:
            return None
        if whole != until:
            return whole, None, max(sum(int(t) <= whole for t, *_ in transactions), 1)
        if versions == 0:
            return until, -(-first // portion.pieces(first, of_first)), 0
        return until, None, versions

    def _untorn(
        self,
        connection: Connection,
        table: Followed,
        bounds: tuple[str, int, int, str],
        until: int,
        transactions: Sequence[tuple[Any, ...]],
    ) -> int | None:
        """The last transaction of a step that tears none apart: `until`, or a later one.

        If one from the oldest running transaction on belongs to it, an earlier one, which may be
        none: the rest waits. `transactions` has the unread ones up to `until`.
        """
        *after, horizon = bounds
        end, grows = until + 1, True
        while ids := [int(greatest) for t, *_, greatest in transactions if t < end]:
            known = max(ids) if end <= until + 1 else None
            torn = self._torn(connection, table, after, end, known)
            if torn is None:
                return end - 1
            first, last = torn
            grows = grows and last < int(horizon)
            end = last + 1 if grows else first
        return None

    def _torn(
        self,
        connection: Connection,
        table: Followed,
        after: Sequence[Any],
        end: int,
        greatest: int | None,
    ) -> tuple[int, int] | None:
        """The transactions that a step up to `end` would tear apart; None if there are none.

        They are the first one before `end` that has changed a row after one from `end` on, and the
        last such one from `end` on. Changes of a row have increasing ids: Postgres locks the row.
        `greatest` is the greatest id of an unread line before `end`, if it is known.
        """
        text = "SELECT min(_id) FROM {log} WHERE _xid >= $1::text::xid8"
        least = run(connection, text, str(end), log=self._name).fetchall()[0][0]
        if least is None or (greatest is not None and greatest < least):
            return None
        members = [m.oid for m in table.members]
        same: list[sql.Composable] = [sql.SQL("(0, _row::text)")]
        for i, (names,) in enumerate(run(connection, _UNIQUE, members).fetchall(), 1):
            values = sql.SQL(", ").join(
                sql.SQL("_row ->> {}").format(sql.Literal(n)) for n in names
            )
            text = "({}, CASE WHEN num_nulls({}) = 0 THEN jsonb_build_array({})::text END)"
            same.append(sql.SQL(text).format(i, values, values))
        names_in_text = {"log": self._name, "same": sql.SQL(", ").join(same)}
        (torn,) = run(connection, _TORN, *after, str(end), least, **names_in_text).fetchall()
        return None if torn[0] is None else torn

    def _count(self, connection: Connection, which: str, *bounds: Any) -> int:
        text = f"SELECT count(*) FROM {{log}} WHERE {which}"
        return int(run(connection, text, *bounds, log=self._name).fetchall()[0][0])

    def _say_if_held(self, connection: Connection, end: int, *bounds: Any) -> None:
        """Log, once for each open transaction, the rows from `end` on, which wait for it."""
        horizon = horizon_of(connection)
        if horizon == self._held:
            return
        waiting = f"({_AFTER} AND _xid >= $4::text::xid8)"
        rows = self._count(connection, waiting, *bounds, str(end))
        if rows:
            self._held = horizon
            holder = holder_of(connection, horizon)
            log.warning("%s: rows of its log that wait for %s: %s", self._link, holder, rows)

    # -- lines as rows

    def _rows(
        self, entries: Sequence[tuple[Any, ...]], note: Note, table: Followed
    ) -> tuple[tuple[pa.Table, ...], pa.Table]:
        """The rows of lines, in one table for each shape, and the misfits."""
        by_shape: dict[int, list[tuple[int, int, str]]] = {}
        for number, shape, count, text in entries:
            by_shape.setdefault(shape, []).append((number, count, text))
        tables, misfits = [], [MISFITS.empty_table()]
        for shape, lines in by_shape.items():
            columns = self._shape(note, shape, table)
            try:
                rows, unfit = LinesOfShape(columns, table.key, note.mended).rows_of(lines)
            except OtherNameError as e:
                raise self._log.checks.renamed_for_a_while(str(e)) from None
            for field in (f for f in self._columns if f.name not in columns):
                rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
            tables.append(rows.select([*self._columns.names, COUNT]))
            misfits.append(unfit)
        return tuple(tables), pa.concat_tables(misfits)

    def _shape(
        self, note: Note, shape: int, table: Followed
    ) -> dict[str, tuple[str, PostgresKind, pa.DataType]]:
        """For each field: the name and kind of its column in a shape, and its Arrow type.

        Fields whose column was added later are left out: it is NULL in rows from before.
        """
        then = _columns_in(note.shapes[shape - 1], table)
        return {
            field: (*then[column], arrow_of(then[column][1], self._columns.field(field).type))
            for field, column in self._matched(table).items()
            if column in then
        }

    def _matched(self, table: Followed) -> dict[str, str]:
        return matched(self._columns, [c.name for c in table.columns], self._link.failure)

    def _types(self, table: Followed) -> dict[str, pa.DataType]:
        """The wanted types, by column."""
        return {
            column: self._columns.field(field).type
            for field, column in self._matched(table).items()
        }

    # -- checks

    def _checked_log(self, connection: Connection) -> tuple[Note, Followed]:
        """The log's note and the table; raises an error if the log may be incomplete."""
        table = followed_of(connection, self._link)
        note = self._log.finder.note(connection)
        if note is None:
            self._log.finder.check_names(connection, table)  # perhaps under another name
            raise self._not_installed()
        self._log.checks.check_renamed(note, table, [column_of(f) for f in self._columns])
        self._log.checks.check(connection, note, table, list(self._matched(table).values()))
        return note, table

    def _noted(self, connection: Connection) -> Note:
        note = self._log.finder.note(connection)
        if note is None:
            raise self._not_installed()
        return note

    def _after(self, connection: Connection, note: Note, after: Position | None) -> LogPlace:
        """The checked position: the log is the same, and has all lines after it."""
        numbers = (0, 0, note.oid, note.first) if after is None else numbers_of(after)
        if len(numbers) not in (3, 4):
            raise self._link.failure(OTHER_KIND)
        transaction, number, oid, *rest = numbers
        if oid != note.oid or not rest:
            raise self._link.failure(
                "its log of changes is another one than the one that was read: it was created "
                f"again; {ANEW}"
            )
        text = "SELECT _xid::text::bigint, _id FROM {log} WHERE _row IS NULL"
        for trimmed in run(connection, text, log=self._name).fetchall():
            if trimmed > (transaction, number):
                raise self._link.failure(
                    "its log of changes was trimmed (trim=True), and the changes that this "
                    "pipeline has not read are lost: uninstall the log and install it again, and "
                    f"{ANEW}"
                )
        return self._place(connection, note, (transaction, number, note.oid, rest[0]))

    def _place(self, connection: Connection, note: Note, place: LogPlace) -> LogPlace:
        """The position; it begins with the last installation if that leaves out no line after it.

        So a pipeline that has read an installation has the position of one that begins with it.
        """
        transaction, number, oid, first = place
        earlier = "(_xid, _id) > ($1::text::xid8, $2) AND _id > $3 AND _id <= $4"
        bounds = str(transaction), number, first, note.first
        if first == note.first or self._count(connection, earlier, *bounds):
            return place
        return transaction, number, oid, note.first

    def _not_installed(self) -> SteppingError:
        return self._link.failure(
            "it has no log of changes; install it once, by a user who may create triggers: "
            f"stepping-spark source install {self._link.arguments}, or st.Postgres(…).install()"
        )

    def _forget(self, transaction: int, number: int) -> None:
        """Remove the committed lines from the log; lines without a row mark the position."""
        with self._link.changing("could not be trimmed") as connection:
            text = """
                WITH gone AS (
                    DELETE FROM {log} WHERE (_xid, _id) <= ($1::text::xid8, $2)
                    RETURNING _part, _count_ * (_id > $3 OR _row IS NULL)::int AS rows
                )
                INSERT INTO {log} (_xid, _id, _shape, _part, _count_) OVERRIDING SYSTEM VALUE
                SELECT $1::text::xid8, $2, 0, _part, sum(rows) FROM gone GROUP BY _part
            """
            since = self._noted(connection).mended
            run(connection, f"SET LOCAL {TRIMS} = 'on'")
            run(connection, text, str(transaction), number, since, log=self._name)
