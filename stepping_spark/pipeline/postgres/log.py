"""The log of changes of a table: what makes it, what writes it, and whether it can be trusted.

The log is a table, a function and triggers. A comment on the first two is the mark that they are
ours. The comment of the table is a note, in JSON: which table is followed, the columns that it had,
and its partitions and triggers. What has changed since, and no trigger could see, shows there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from stepping_spark.pipeline.postgres.followed import Followed, Member, followed_of, triggers_of
from stepping_spark.pipeline.postgres.kinds import Kind, goes_on
from stepping_spark.pipeline.postgres.link import Link, run
from stores.postgres.connection import LONGEST, Connection

LOG = "_changes"
_EMPTIED = "_emptied"  # as long as the other suffix
MARK = "stepping_spark: a log of changes"
_COLUMNS = ["_id", "_xid", "_shape", "_part", "_count_", "_row"]

# A line has the JSON of a row, how often it came, and from which relation. A line without a row
# says how many rows were trimmed; one with the count 0 says what could not be logged.
_TABLE = """
CREATE TABLE {log} (
    _id bigint GENERATED ALWAYS AS IDENTITY,
    _xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    _shape integer NOT NULL,
    _part oid NOT NULL,
    _count_ bigint NOT NULL,
    _row json
);
CREATE INDEX ON {log} (_xid, _id)
"""

# The settings make a row the same JSON in each session. `*=` compares the stored images, so it
# needs no equality of types, and sees what equality does not. Nothing here may fail, since the
# application's statement would fail with it: so names are looked up, and TRUNCATE, which needs
# rights to read, notes its failure.
_FUNCTION = """
CREATE OR REPLACE FUNCTION {log}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = '' SET extra_float_digits = 1 SET IntervalStyle = 'postgres'
SET DateStyle = 'ISO, MDY' SET TimeZone = 'UTC' SET bytea_output = 'hex' SET lc_monetary = 'C'
SET quote_all_identifiers = off SET row_security = off AS
$stepping$
BEGIN
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
_EXISTING = """
INSERT INTO {log} (_shape, _part, _count_, _row)
SELECT $1, $2, 1, pg_catalog.row_to_json(t) FROM ONLY {on} t
"""
# What the lines of the log add up to, taken away.
_AWAY = """
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

_FOUND = """
SELECT c.oid::bigint, c.relkind::text, pg_catalog.obj_description(c.oid, 'pg_class'), array(
    SELECT attname::text FROM pg_catalog.pg_attribute
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2
"""
_FUNCTION_FOUND = """
SELECT p.oid::bigint, pg_catalog.obj_description(p.oid, 'pg_proc')
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = $2 AND p.pronargs = 0
"""
_TAKEN = """
SELECT 'type' FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = $1 AND t.typname = $2 AND t.typrelid = 0 AND t.typcategory <> 'A'
"""


@dataclass(frozen=True)
class Note:
    """What the comment on a log says.

    `shapes` are the columns of the table at each installation: its oid, and number, name and kind
    of each column. Lines up to `first` belong to installations before the last shape; `mended` is
    the last line of the last installation.
    """

    oid: int = field(compare=False)
    name: list[str]
    shapes: list[tuple[int, list[tuple[int, str, Kind]]]]
    first: int
    mended: int
    state: dict[str, Any]


def log_of(schema: str, table: str) -> sql.Identifier:
    """The name of a table's log, and of its function."""
    return sql.Identifier(schema, table + LOG)


def _names_of(schema: str, table: str) -> dict[str, sql.Composable]:
    """The names of the log, its function and its triggers."""
    log = log_of(schema, table)
    return {
        "log": log,
        "name": sql.Literal(log.as_string()),
        "rows": sql.Identifier(table + LOG),
        "whole": sql.Identifier(table + _EMPTIED),
    }


class Log:
    """The log of one table."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._names = _names_of(link.schema, link.table)

    # -- what is there

    def note(self, connection: Connection) -> Note | None:
        """The log's note; None if there is no log. What is not ours is an error."""
        found = run(connection, _FOUND, self._link.schema, self._link.table + LOG).fetchone()
        if found is None:
            return None
        oid, kind, comment, columns = found
        if kind != "r" or not str(comment).startswith(MARK) or columns != _COLUMNS:
            raise self._taken("table" if kind in "rp" else "view" if kind in "vm" else "relation")
        said = json.loads(comment.removeprefix(MARK))
        return Note(oid=oid, **said)

    def _taken(self, what: str) -> Exception:
        return self._link.failure(
            f"its log of changes has the name {self._link.table + LOG}, and there is a {what} of "
            "that name that is no such log; nothing was changed. Rename it; or, if it is the log "
            "of an older version of stepping_spark, drop it with its function and triggers: "
            f"DROP FUNCTION {self._shown}() CASCADE; DROP TABLE {self._shown}"
        )

    @property
    def _shown(self) -> str:
        return self._names["log"].as_string()

    def _function(self, connection: Connection) -> int | None:
        """The oid of our function; an error if a function of that name is not ours."""
        name = self._link.table + LOG
        found = run(connection, _FUNCTION_FOUND, self._link.schema, name).fetchone()
        if found is not None and not str(found[1]).startswith(MARK):
            raise self._taken("function")
        return None if found is None else int(found[0])

    def _check_names(self, connection: Connection, table: Followed) -> None:
        """Refuse names that the application has; and a table that another log of ours follows."""
        function = self._function(connection)
        taken = run(connection, _TAKEN, self._link.schema, self._link.table + LOG).fetchone()
        if taken is not None:
            raise self._taken(str(taken[0]))
        ours = (self._link.table + LOG, self._link.table + _EMPTIED)
        for trigger in table.triggers:
            if trigger.name in ours and trigger.function != function:
                raise self._taken(f"trigger of {'.'.join(trigger.place)}")
            if trigger.mark.startswith(MARK) and trigger.function != function:
                old = sql.Identifier(*trigger.called).as_string()
                new = self._names["rows"].as_string()
                raise self._link.failure(
                    f"its changes are written to {old}, as the table was renamed or moved, or is "
                    f"part of another one that is followed. Go on with that log: ALTER TABLE {old} "
                    f"RENAME TO {new}; ALTER FUNCTION {old}() RENAME TO {new}; (and SET SCHEMA, "
                    "where the schema is another), then install again: "
                    f"{self.again}. Or remove it: DROP FUNCTION {old}() CASCADE; DROP TABLE {old}"
                )

    @property
    def again(self) -> str:
        """How a user installs again."""
        return (
            f"stepping-spark source install --again URL {self._link.table} --schema "
            f"{self._link.schema}, or st.Postgres(…).install(again=True)"
        )

    # -- install

    def install(self, connection: Connection, *, again: bool) -> bool:
        """Make the log and the triggers; False: they are there already, and as they should be."""
        if len(f"{self._link.table}{LOG}".encode()) > LONGEST:
            raise self._link.failure("its name is too long for that of its log")
        followed_of(connection, self._link)
        # It waits for all who write the table. Without a number of this transaction so far, its
        # number is larger than those of all that have.
        run(connection, "LOCK TABLE {on} IN SHARE ROW EXCLUSIVE MODE", on=self._link.name)
        table = followed_of(connection, self._link)
        note = self.note(connection)
        self._check_names(connection, table)
        if note is not None and not again:
            self.check(connection, note, table, ())
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
        """Write what the log lacks: all rows, or the difference if it has the same columns."""
        shape = (table.oid, [(c.number, c.name, c.kind) for c in table.columns])
        shapes = [] if note is None else note.shapes
        first = 0 if note is None else note.first
        same = bool(shapes) and json.dumps(shapes[-1]) == json.dumps(shape)
        if note is None:
            run(connection, _TABLE, **self._names)
        elif not same:
            run(connection, _AWAY, **self._names)
            first = self._last(connection)
        number = len(shapes) if same else len(shapes) + 1
        if same:
            self._write_difference(connection, table, number)
        else:
            shapes = [*shapes, shape]
            for member in table.with_rows:
                run(connection, _EXISTING, number, member.oid, on=member.name, **self._names)
        self._watch(connection, table, number)
        made = followed_of(connection, self._link)
        function = self._function(connection)
        assert function is not None
        self._comment(
            connection,
            {
                "name": [self._link.schema, self._link.table],
                "shapes": shapes,
                "first": first,
                "mended": self._last(connection),
                "state": made.state(function),
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
        """Make the function and the triggers, and remove ours from where they do not belong."""
        run(connection, _FUNCTION, shape=sql.Literal(shape), **self._names)
        text = "REVOKE ALL ON FUNCTION {log}() FROM PUBLIC; COMMENT ON FUNCTION {log}() IS {mark}"
        run(connection, text, mark=sql.Literal(MARK), **self._names)
        ours = (self._link.table + LOG, self._link.table + _EMPTIED)
        members = {m.oid for m in table.members}
        for trigger in triggers_of(connection, (), self._function(connection) or 0):
            if trigger.cloned:
                continue
            if trigger.relation not in members or trigger.name not in ours:
                text = "DROP TRIGGER {trigger} ON {on}"
                on = sql.Identifier(*trigger.place)
                run(connection, text, trigger=sql.Identifier(trigger.name), on=on)
        for member in table.members:
            if not member.cloned:
                run(connection, _ROWS, on=member.name, **self._names)
        for member in table.with_rows:
            run(connection, _WHOLE, on=member.name, **self._names)

    def _comment(self, connection: Connection, said: dict[str, Any]) -> None:
        text = "COMMENT ON TABLE {log} IS {said}"
        run(
            connection, text, said=sql.Literal(f"{MARK} {json.dumps(said)}"), log=self._names["log"]
        )

    def uninstall(self, connection: Connection) -> None:
        """Remove what is ours: the function with its triggers, and the log."""
        note = self.note(connection)
        if self._function(connection) is not None:
            run(connection, "DROP FUNCTION {log}() CASCADE", **self._names)
        if note is not None:
            run(connection, "DROP TABLE {log}", **self._names)

    # -- whether it can be trusted

    def check(
        self, connection: Connection, note: Note, table: Followed, wanted: Sequence[str]
    ) -> None:
        """Raise an error if rows may have changed that the log does not have.

        `wanted` are the columns that are read; others may come, go and be renamed.
        """
        self._check_table(note, table)
        self._check_columns(note, table, wanted)
        self._check_members(connection, note, table)
        self._check_triggers(connection, note, table)
        text = (
            "SELECT _row #>> '{{}}' FROM {log} "
            "WHERE _count_ = 0 AND _row IS NOT NULL AND _id > $1 LIMIT 1"
        )
        lost = run(connection, text, note.mended, **self._names).fetchone()
        if lost is not None:
            raise self._broken(f"what happened to it could not be written to its log: {lost[0]}")

    def _broken(self, said: str) -> Exception:
        return self._link.failure(
            f"{said}. So its log of changes may lack rows. Install it again: {self.again}. That "
            "writes to the log what it lacks, and pipelines go on"
        )

    def _check_table(self, note: Note, table: Followed) -> None:
        if table.oid != note.shapes[-1][0]:
            raise self._broken(
                "it is another table than the one whose changes are logged: it was dropped and "
                "made again, restored, or swapped by renames"
            )
        if note.name != [self._link.schema, self._link.table]:
            raise self._broken(f"it was renamed or moved; it was {'.'.join(note.name)}")

    def _check_columns(self, note: Note, table: Followed, wanted: Sequence[str]) -> None:
        before = {number: (name, kind) for number, name, kind in note.shapes[-1][1]}
        files, versions = note.state["files"], note.state["versions"]
        rewritten = any(m.file != files.get(str(m.oid), m.file) for m in table.members)
        for column in (c for c in table.columns if c.name in wanted):
            at = f"its column {column.name}"
            if column.virtual:
                raise self._link.failure(
                    f"{at} is generated and virtual, so that no trigger sees its values; compute "
                    "it in the query, or make it STORED"
                )
            if column.number not in before:
                raise self._broken(f"{at} was added after the log was made")
            name, kind = before[column.number]
            if name != column.name:
                raise self._broken(f"{at} was renamed; it was {name}")
            if not goes_on(kind, column.kind):
                raise self._broken(f"{at} has another type than before")
            if rewritten and column.version != versions.get(str(column.number)):
                raise self._broken(
                    f"{at} was altered and the table was written anew, perhaps by ALTER COLUMN … "
                    "TYPE … USING"
                )

    def _check_members(self, connection: Connection, note: Note, table: Followed) -> None:
        known = note.state["files"]
        gone = len(set(known) - {str(m.oid) for m in table.members})
        if gone:
            raise self._broken(f"{gone} of its parts were detached or dropped")
        for member in table.with_rows:
            if str(member.oid) not in known and self._lacks(connection, note, member):
                raise self._broken(f"its part {'.'.join(member.place)} was attached with rows")

    def _lacks(self, connection: Connection, note: Note, member: Member) -> bool:
        """Whether a part that came after the installation has other rows than the log says."""
        shown = ".".join(member.place)
        if not member.readable:
            raise self._link.failure(
                f"its part {shown} came after the log was made, and this user may not read it, "
                f"to compare it with the log: GRANT SELECT ON {shown}; or install again: "
                f"{self.again}"
            )
        text = (
            "SELECT (SELECT count(*) FROM ONLY {on}) "
            "<> (SELECT coalesce(sum(_count_), 0) FROM {log} "
            "WHERE _part = $1 AND (_id > $2 OR _row IS NULL))"
        )
        found = run(connection, text, member.oid, note.mended, on=member.name, **self._names)
        return bool(found.fetchall()[0][0])

    def _check_triggers(self, connection: Connection, note: Note, table: Followed) -> None:
        function = self._function(connection)
        ours = [t for t in table.triggers if t.function == function]
        known, versions = note.state["files"], {str(t.oid): t.version for t in ours}
        at = {(t.relation, t.each_row) for t in ours if t.enabled == "A"}
        whole = all(
            (m.oid, True) in at
            and ((m.oid, False) in at or m.kind == "p" or str(m.oid) not in known)
            for m in table.members
        )
        noted = note.state["triggers"].items()
        if not whole or any(versions.get(oid) != version for oid, version in noted):
            raise self._broken(
                "the triggers that write its log were dropped, disabled or changed, as "
                "ALTER TABLE … DISABLE TRIGGER, pg_restore and an upgrade of the server do"
            )
