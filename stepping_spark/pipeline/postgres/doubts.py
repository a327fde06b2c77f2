"""Whether the log of a table has all its changes, or some happened that no trigger saw."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.pipeline.postgres.followed import Followed, Member
from stepping_spark.pipeline.postgres.kinds import goes_on
from stepping_spark.pipeline.postgres.link import Link, run
from stepping_spark.pipeline.postgres.marks import Marks, Note
from stepping_spark.pipeline.remedies import ANEW
from stores.postgres.connection import Connection

_KEPT = """
SELECT tgenabled::text FROM pg_catalog.pg_trigger
WHERE tgrelid = $1::bigint::oid AND tgfoid = $2::bigint::oid AND tgnargs > 0
ORDER BY tgenabled = 'A' DESC
"""


class Doubts:
    """What would make the log of one table incomplete."""

    def __init__(self, link: Link, marks: Marks) -> None:
        self._link = link
        self._marks = marks

    def check(
        self, connection: Connection, note: Note, table: Followed, wanted: Sequence[str]
    ) -> None:
        """Raise an error if rows may have changed that the log does not have.

        `wanted` are the columns that are read; others may come, go and be renamed.
        """
        self.check_kept(connection, note)
        self._check_table(note, table)
        self._check_columns(note, table, wanted)
        self._check_members(connection, note, table)
        self._check_triggers(connection, note, table)
        text = (
            "SELECT _row #>> '{{}}' FROM {log} "
            "WHERE _count_ = 0 AND _row IS NOT NULL AND _id > $1 LIMIT 1"
        )
        lost = run(connection, text, note.mended, **self._marks.names).fetchone()
        if lost is not None:
            raise self._broken(f"what happened to it could not be written to its log: {lost[0]}")

    def check_kept(self, connection: Connection, note: Note) -> None:
        """Raise an error if rows of the log may have been removed, which nothing can mend."""
        found = run(connection, _KEPT, note.oid, self._marks.function(connection) or 0).fetchone()
        if found is None or found[0] != "A":
            raise self._link.failure(
                "the trigger that keeps the rows of its log of changes was dropped or disabled, as "
                "pg_restore --disable-triggers does, so rows of the log may have been removed or "
                f"changed: uninstall the log and install it again, and {ANEW}"
            )

    def renamed_for_a_while(self, column: str) -> Exception:
        """The error for a line that was written while a wanted column had another name."""
        return self._broken(f"its column {column} had another name when rows of it were logged")

    def _broken(self, said: str) -> Exception:
        return self._link.failure(
            f"{said}. So its log of changes may lack rows. Install it again: {self._marks.again}. "
            "That writes to the log what it lacks, and pipelines go on"
        )

    def _check_table(self, note: Note, table: Followed) -> None:
        if table.oid != note.shapes[-1][0]:
            raise self._broken(
                "it is another table than the one whose changes are logged: it was dropped and "
                "made again, restored, or swapped by renames"
            )
        if note.name != [self._link.schema, self._link.table]:
            raise self._broken(f"it was renamed or moved; it was {'.'.join(note.name)}")

    def check_renamed(self, note: Note, table: Followed, wanted: Sequence[str]) -> None:
        """Raise an error for a wanted column that the table had, and has under another name now."""
        oid, before = note.shapes[-1]
        names = {name.lower() for name in wanted} - {c.name.lower() for c in table.columns}
        now = {c.number: c.name for c in table.columns}
        for number, name, _ in before:
            if oid == table.oid and name.lower() in names and number in now:
                raise self._link.failure(
                    f"there is no column {name}; the columns are {', '.join(now.values())}: it was "
                    f"renamed to {now[number]}. Say so, with st.Column in the row class or "
                    f"columns={{field: {now[number]!r}}}, and install the log again, so that "
                    f"pipelines go on: {self._marks.again}"
                )

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
                raise self._broken(
                    f"its part {'.'.join(member.place)}, which came after the log was made, has "
                    "other rows than its log says: it was attached with rows, or had a TRUNCATE"
                )

    def _lacks(self, connection: Connection, note: Note, member: Member) -> bool:
        """Whether a part that came after the installation has other rows than the log says."""
        shown = ".".join(member.place)
        if not member.readable:
            raise self._link.failure(
                f"its part {shown} came after the log was made, and this user may not read it, "
                f"to compare it with the log: GRANT SELECT ON {shown}; or install again: "
                f"{self._marks.again}"
            )
        text = (
            "SELECT (SELECT count(*) FROM ONLY {on}) "
            "<> (SELECT coalesce(sum(_count_), 0) FROM {log} "
            "WHERE _part = $1 AND (_id > $2 OR _row IS NULL))"
        )
        found = run(connection, text, member.oid, note.mended, on=member.name, **self._marks.names)
        return bool(found.fetchall()[0][0])

    def _check_triggers(self, connection: Connection, note: Note, table: Followed) -> None:
        function = self._marks.function(connection)
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
