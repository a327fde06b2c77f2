"""The log of changes of a table: its installation, and the triggers that write it.

The log is a table, a function and triggers. A comment on the first two marks them as ours. The
comment of the table is a note, in JSON: the followed table, and its columns, partitions and
triggers at the installation. A comparison with the note shows later changes that no trigger sees.
"""

from __future__ import annotations

import json
from typing import Any

from psycopg import sql

from stepping_spark.pipeline.postgres.followed import (
    EMPTIED,
    LOG,
    MARK,
    TRIMS,
    Followed,
    LogChecks,
    LogFinder,
    Note,
    followed_of,
    triggers_of,
)
from stepping_spark.pipeline.postgres.link import Link, run
from stores.postgres.connection import LONGEST_NAME, Connection

# A line has the JSON of a row, its count, and its relation. A line without a row has the number of
# trimmed rows; a line with the count 0 has the error of a change that could not be logged.
_TABLE = """
CREATE TABLE {log} (
    _id bigint GENERATED ALWAYS AS IDENTITY,
    _xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    _shape integer NOT NULL,
    _part oid NOT NULL,
    _count_ bigint NOT NULL,
    _row json
);
CREATE INDEX ON {log} (_xid, _id);
CREATE INDEX ON {log} (_id) WHERE _row IS NULL OR _count_ = 0
"""

# The settings make the JSON of a row equal in all sessions. `*=` compares stored images, so it
# needs no equality of types, and detects differences that equality ignores. The function must not
# fail, since the application's statement would fail, too: so names are looked up, and TRUNCATE,
# which needs rights to read, logs its failure. Only the trigger on the log, which has an argument,
# fails.
_FUNCTION = """
CREATE OR REPLACE FUNCTION {log}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = '' SET extra_float_digits = 1 SET IntervalStyle = 'postgres'
SET DateStyle = 'ISO, MDY' SET TimeZone = 'UTC' SET bytea_output = 'hex' SET lc_monetary = 'C'
SET quote_all_identifiers = off SET row_security = off AS
$stepping$
BEGIN
    IF TG_NARGS > 0 THEN
        IF coalesce(pg_catalog.current_setting({trims}, true), '') <> 'on' THEN
            RAISE EXCEPTION 'rows of %, a log of changes, are not removed or changed by hand, '
                'since pipelines read them', TG_RELID::pg_catalog.regclass
                USING HINT = 'st.Postgres(…, trim=True) removes what its pipeline has read. '
                'stepping-spark source uninstall removes the log.';
        END IF;
        RETURN NULL;
    END IF;
    IF pg_catalog.to_regclass({name}) IS NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        BEGIN
            EXECUTE pg_catalog.format(
                'INSERT INTO %1$s (_shape, _part, _count_, _row) '
                'SELECT {shape}, %2$s, -1, pg_catalog.row_to_json(t) FROM ONLY %3$s t',
                {name}, TG_RELID, TG_RELID::pg_catalog.regclass
            );
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO {log} (_shape, _part, _count_, _row)
            VALUES ({shape}, TG_RELID, 0, pg_catalog.to_json('TRUNCATE: ' || SQLERRM));
        END;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD OPERATOR(pg_catalog.*=) NEW THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO {log} (_shape, _part, _count_, _row)
        VALUES ({shape}, TG_RELID, -1, pg_catalog.row_to_json(OLD));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {log} (_shape, _part, _count_, _row)
        VALUES ({shape}, TG_RELID, 1, pg_catalog.row_to_json(NEW));
    END IF;
    RETURN NULL;
END
$stepping$
"""
_ROWS = """
CREATE OR REPLACE TRIGGER {rows} AFTER INSERT OR UPDATE OR DELETE ON {on}
    FOR EACH ROW EXECUTE FUNCTION {log}();
ALTER TABLE {on} ENABLE ALWAYS TRIGGER {rows}
"""
_WHOLE = """
CREATE OR REPLACE TRIGGER {whole} BEFORE TRUNCATE ON {on}
    FOR EACH STATEMENT EXECUTE FUNCTION {log}();
ALTER TABLE ONLY {on} ENABLE ALWAYS TRIGGER {whole}
"""
_KEEP = """
CREATE OR REPLACE TRIGGER {rows} BEFORE UPDATE OR DELETE OR TRUNCATE ON {log}
    FOR EACH STATEMENT EXECUTE FUNCTION {log}('kept');
ALTER TABLE {log} ENABLE ALWAYS TRIGGER {rows}
"""
_EXISTING = """
INSERT INTO {log} (_shape, _part, _count_, _row)
SELECT $1, $2, 1, pg_catalog.row_to_json(t) FROM ONLY {on} t
"""
# The negative sums of the lines of the log.
_DELETE_ALL = """
INSERT INTO {log} (_shape, _part, _count_, _row)
SELECT _shape, 0, -sum(_count_), _row::text::json FROM {log}
WHERE _row IS NOT NULL GROUP BY _shape, _row::text HAVING sum(_count_) <> 0
"""
_DIFFERENCE = """
INSERT INTO {log} (_shape, _part, _count_, _row)
SELECT $1, 0, sum(n), shown::json FROM (
    SELECT -_count_, _row::text FROM {log} WHERE _row IS NOT NULL AND _shape = $1
    UNION ALL {rows}
) d (n, shown) GROUP BY shown HAVING sum(n) <> 0
"""
_SETTINGS = "SET LOCAL lc_monetary = 'C'; SET LOCAL quote_all_identifiers = off"


class ChangeLog:
    """The log of one table."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.finder = LogFinder(link)
        self.checks = LogChecks(link, self.finder)
        self._names = self.finder.names

    # -- install

    def install(self, connection: Connection, *, again: bool) -> bool:
        """Create the log and the triggers; False if they exist already, and are in order."""
        if len(f"{self._link.table}{LOG}".encode()) > LONGEST_NAME:
            most = LONGEST_NAME - len(LOG)
            raise self._link.failure(
                f"its log of changes would have the name {self._link.table + LOG}, and Postgres "
                f"allows names of {LONGEST_NAME} bytes: rename the table to one of up to {most} "
                "bytes"
            )
        followed_of(connection, self._link)
        # The lock waits for all writers of the table. This transaction has no number yet, so its
        # number will be larger than theirs.
        run(connection, "LOCK TABLE {on} IN SHARE ROW EXCLUSIVE MODE", on=self._link.name)
        table = followed_of(connection, self._link)
        note = self.finder.note(connection)
        self.finder.check_names(connection, table)
        if note is not None:
            self.checks.check_kept(connection, note)
        if note is not None and not again:
            self.checks.check(connection, note, table, ())
            return False
        connection.execute(_SETTINGS)
        if note is not None and self._is_trimmed(connection):
            run(connection, "DROP TABLE {log}", **self._names)
            note = None
        self._restate(connection, table, note)
        return True

    def _is_trimmed(self, connection: Connection) -> bool:
        text = "SELECT EXISTS (SELECT FROM {log} WHERE _row IS NULL)"
        return bool(run(connection, text, **self._names).fetchall()[0][0])

    def _restate(self, connection: Connection, table: Followed, note: Note | None) -> None:
        """Write the missing rows to the log: all rows, or for equal columns the difference."""
        shape = (table.oid, [(c.number, c.name, c.kind) for c in table.columns])
        shapes = [] if note is None else note.shapes
        first = 0 if note is None else note.first
        same = bool(shapes) and json.dumps(shapes[-1]) == json.dumps(shape)
        if note is None:
            run(connection, _TABLE, **self._names)
        elif not same:
            run(connection, _DELETE_ALL, **self._names)
            first = self._last(connection)
        number = len(shapes) if same else len(shapes) + 1
        if same:
            self._write_difference(connection, table, number)
        else:
            shapes = [*shapes, shape]
            for member in table.with_rows:
                run(connection, _EXISTING, number, member.oid, on=member.name, **self._names)
        self._watch(connection, table, number)
        followed = followed_of(connection, self._link)
        function = self.finder.function(connection)
        assert function is not None
        self._comment(
            connection,
            {
                "name": [self._link.schema, self._link.table],
                "shapes": shapes,
                "first": first,
                "mended": self._last(connection),
                "state": followed.state(function),
            },
        )

    def _last(self, connection: Connection) -> int:
        text = "SELECT coalesce(max(_id), 0) FROM {log}"
        return int(run(connection, text, **self._names).fetchall()[0][0])

    def _write_difference(self, connection: Connection, table: Followed, shape: int) -> None:
        text = "SELECT 1, pg_catalog.row_to_json(t)::text FROM ONLY {} t"
        parts = [sql.SQL(text).format(m.name) for m in table.with_rows]
        rows = sql.SQL(" UNION ALL ").join(parts)
        run(connection, _DIFFERENCE, shape, rows=rows, log=self._names["log"])

    def _watch(self, connection: Connection, table: Followed, shape: int) -> None:
        """Create the function and the triggers, and remove misplaced triggers of ours."""
        run(
            connection,
            _FUNCTION,
            shape=sql.Literal(shape),
            trims=sql.Literal(TRIMS),
            **self._names,
        )
        text = "REVOKE ALL ON FUNCTION {log}() FROM PUBLIC; COMMENT ON FUNCTION {log}() IS {mark}"
        run(connection, text, mark=sql.Literal(MARK), **self._names)
        run(connection, _KEEP, **self._names)
        ours = (self._link.table + LOG, self._link.table + EMPTIED)
        members = {m.oid for m in table.members}
        for trigger in triggers_of(connection, (), self.finder.function(connection) or 0):
            here = trigger.relation in members or trigger.place == (self._link.schema, ours[0])
            if not trigger.cloned and not (here and trigger.name in ours):
                text = "DROP TRIGGER {trigger} ON {on}"
                on = sql.Identifier(*trigger.place)
                run(connection, text, trigger=sql.Identifier(trigger.name), on=on)
        for member in table.members:
            if not member.cloned:
                run(connection, _ROWS, on=member.name, **self._names)
        for member in table.with_rows:
            run(connection, _WHOLE, on=member.name, **self._names)

    def _comment(self, connection: Connection, content: dict[str, Any]) -> None:
        text = "COMMENT ON TABLE {log} IS {said}"
        run(
            connection,
            text,
            said=sql.Literal(f"{MARK} {json.dumps(content)}"),
            log=self._names["log"],
        )

    def uninstall(self, connection: Connection) -> bool:
        """Remove the function with its triggers, and the log; False if none of them exists."""
        note = self.finder.note(connection)
        function = self.finder.function(connection)
        if note is None and function is None:
            followed_of(connection, self._link)
            return False
        if function is not None:
            run(connection, "DROP FUNCTION {log}() CASCADE", **self._names)
        if note is not None:
            run(connection, "DROP TABLE {log}", **self._names)
        return True
