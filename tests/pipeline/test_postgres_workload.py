"""A table of Postgres under statements at random: the source equals a plain query, or says why not.

Each statement is run on a twin of the table too, which nobody follows: what fails on one must fail
on the other, since following a table makes no statement of the application fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stepping_spark as stepping
from stepping_spark.base.errors import SourceError
from tests.pipeline.following import Database, Follower
from tests.postgres_server import PostgresServer

SETTINGS = (
    "",
    "SET extra_float_digits = 0; SET IntervalStyle = sql_standard; SET DateStyle = 'SQL, DMY'",
    "SET session_replication_role = replica; SET TimeZone = 'Asia/Tokyo'; SET search_path = ''",
)
WANTED: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "name": pa.string(),
    "f": pa.float64(),
    "s": pa.duration("us"),
}
COLUMNS = 'id int, name text COLLATE "C", f float8 DEFAULT 0.1::float8 + 0.2, s interval, j json'
CREATED = {
    "plain": f"CREATE TABLE @t ({COLUMNS})",
    "with a key": f"CREATE TABLE @t ({COLUMNS}, PRIMARY KEY (id) DEFERRABLE)",
    "partitioned": f"CREATE TABLE @t ({COLUMNS}) PARTITION BY RANGE (id);"
    "CREATE TABLE @p1 PARTITION OF @t FOR VALUES FROM (0) TO (5);"
    f"CREATE TABLE @p2 (gone int, s interval, {COLUMNS.replace('s interval, ', '')});"
    "ALTER TABLE @p2 DROP gone; ALTER TABLE @t ATTACH PARTITION @p2 DEFAULT",
    "inherited": f"CREATE TABLE @t ({COLUMNS}); CREATE TABLE @p1 (more int) INHERITS (@t);"
    "CREATE TABLE @p2 () INHERITS (@t)",
}

ROW = "{i}, '{n}', DEFAULT, '-1 day -02:00:00', '{{\"a\": \"\\u0000\"}}'"
DML = (
    f"INSERT INTO @t VALUES ({ROW})",
    f"INSERT INTO @p1 (id, name, f, s, j) VALUES ({ROW})",
    "INSERT INTO @t (id, name) SELECT i, '{n}' FROM pg_catalog.generate_series({i}, 9) i",
    "INSERT INTO @t (id, name) VALUES ({i}, '{n}') ON CONFLICT DO NOTHING",
    "UPDATE @t SET name = '{n}' WHERE id < {i}",
    "UPDATE @t SET name = name, j = '{{}}'",
    "UPDATE @t SET id = 9 - id",
    "UPDATE @t SET f = f * 1.1, s = s - interval '1 hour' WHERE id <> {i}",
    "DELETE FROM @t WHERE id = {i}",
    "DELETE FROM ONLY @p2",
    "TRUNCATE @t",
    "TRUNCATE @p1",
    "TRUNCATE @t, @p2 RESTART IDENTITY CASCADE",
    "MERGE INTO @t t USING (VALUES ({i}, '{n}'), (3, 'm')) v (id, name) ON t.id = v.id "
    "WHEN MATCHED AND t.id > 4 THEN DELETE WHEN MATCHED THEN UPDATE SET name = v.name "
    "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (v.id, v.name)",
    "WITH gone AS (DELETE FROM @t WHERE id < {i} RETURNING *) "
    "INSERT INTO @t (id, name) SELECT id + 1, name FROM gone",
    "COPY @t (id, name) FROM STDIN",
)  # fmt: skip
DDL = (
    "ALTER TABLE @t ADD {n}x int DEFAULT {i}",
    "ALTER TABLE @t ADD {n}x float8 DEFAULT pg_catalog.random()",
    "ALTER TABLE @t DROP {n}x",
    "ALTER TABLE @t RENAME {n}x TO renamed",
    "ALTER TABLE @t RENAME renamed TO {n}x",
    "ALTER TABLE @t DROP j",
    "ALTER TABLE @t ALTER name TYPE text USING name || '{n}'",
    "ALTER TABLE @t ALTER f TYPE float8 USING f + {i}",
    "ALTER TABLE @t ALTER id TYPE bigint",
    "ALTER TABLE @t ALTER id TYPE int",
    "ALTER TABLE @t ALTER name SET NOT NULL",
    "ALTER TABLE @t ALTER name SET DEFAULT '{n}'",
    "ALTER TABLE @t RENAME name TO other",
    "ALTER TABLE @t RENAME other TO name",
    "ALTER TABLE @t DROP name; ALTER TABLE @t ADD name text DEFAULT '{n}'",
    "ALTER TABLE @t DISABLE TRIGGER ALL",
    "ALTER TABLE @p1 DISABLE TRIGGER USER",
    "ALTER TABLE @t ENABLE TRIGGER ALL",
    "VACUUM FULL @t",
    "CREATE TABLE @p3 PARTITION OF @t FOR VALUES FROM (5) TO (7)",
    "CREATE TABLE @p3 PARTITION OF @t FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE @p3 () INHERITS (@t)",
    "ALTER TABLE @t DETACH PARTITION @p1",
    "ALTER TABLE @t DETACH PARTITION @p2",
    "ALTER TABLE @t ATTACH PARTITION @p1 FOR VALUES FROM (0) TO (5)",
    "ALTER TABLE @t ATTACH PARTITION @p2 DEFAULT",
    "ALTER TABLE @p1 NO INHERIT @t",
    "ALTER TABLE @p1 INHERIT @t",
    "INSERT INTO @p1 (id, name) VALUES (1, '{n}')",
    "DROP TABLE @p1",
    "DROP TABLE @p3",
    "DROP TABLE @t CASCADE; @create",
    "ALTER TABLE @t RENAME TO old; CREATE TABLE @t (LIKE @old); "
    "INSERT INTO @t SELECT * FROM @old WHERE id > {i}",
    "ALTER TABLE @t RENAME TO tmp; ALTER TABLE @old RENAME TO t; ALTER TABLE @tmp RENAME TO old",
)  # fmt: skip
CONTROL = ("BEGIN", "SAVEPOINT a", "ROLLBACK TO a", "COMMIT", "ROLLBACK")

statements = st.tuples(
    st.one_of(*map(st.sampled_from, (DML, DML, DML, DDL, DDL, CONTROL))),
    st.integers(0, 9),
    st.sampled_from("abc"),
    st.integers(0, len(SETTINGS) - 1),
    st.booleans(),
)


class Twin:
    """A schema, and the sessions of an application in it."""

    def __init__(self, url: str, created: str) -> None:
        self.db = Database(url)
        self._created = created
        self.sessions = [psycopg.connect(url, autocommit=True) for _ in SETTINGS]
        for session, said in zip(self.sessions, SETTINGS, strict=True):
            session.execute(f"SET lock_timeout = '200ms'; {said}")
        self.run(0, created)

    def run(self, session: int, text: str) -> str | None:
        """Run a statement; its SQLSTATE, if it fails."""
        connection = self.sessions[session]
        text = text.replace("@create", self._created).replace("@", f"{self.db.schema}.")
        try:
            for part in text.split("; ") if "VACUUM" not in text else [text]:
                if part.startswith("COPY"):
                    with connection.cursor().copy(part) as copy:
                        copy.write("1\tx\n2\t\\N\n")
                else:
                    connection.execute(part)
        except psycopg.Error as e:
            return e.sqlstate
        return None

    def end(self) -> None:
        """End the transactions that are open."""
        for session in self.sessions:
            session.commit()

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.db.run(f"DROP SCHEMA {self.db.schema} CASCADE")
        self.db.connection.close()


@pytest.mark.slow
@pytest.mark.turn(3)
@pytest.mark.parametrize("kind", CREATED)
@given(work=st.lists(statements, min_size=6, max_size=24))
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_source_equals_a_plain_query_or_says_why_it_does_not(
    server: PostgresServer, kind: str, work: list[tuple[str, int, str, int, bool]]
) -> None:
    followed, twin = (Twin(server.url, CREATED[kind]) for _ in range(2))
    try:
        followed.db.table("t").install()
        url = f"{server.url}?options=-clock_timeout%3D300"
        follower = Follower(followed.db.table("t", url=url), **WANTED)
        for place, (statement, i, n, session, small) in enumerate(work, 1):
            text = statement.format(i=i, n=n) if "{" in statement else statement
            failed = followed.run(session, text)
            assert failed == twin.run(session, text), (text, failed)
            if place % 4 == 0 or place == len(work):
                followed.end()
                twin.end()
            follower = compared(followed.db, follower, 2 if small else None)
    finally:
        followed.close()
        twin.close()


def compared(db: Database, follower: Follower, rows: int | None) -> Follower:
    """A follower that has read all, and has what a plain query has."""
    said = refused(follower.read, stepping.Portion(rows=rows))
    if "Install it again" in said:
        if refused(lambda: follower.table.install(again=True)):
            return follower  # a session has locked the table
        said = refused(follower.read, stepping.Portion(rows=rows))
        if "start with a new store" in said:
            follower = Follower(follower.table, **WANTED)
            said = refused(follower.read)
        assert not said or "lock timeout" in said, said
    if not said and is_quiet(db):
        assert follower.left == Counter(db.run("SELECT id, name, f, s FROM t"))
        assert not follower.unfit
    return follower


def refused(work: Callable[..., object], *given: object) -> str:
    """What the SourceError says that the work raises; nothing if it raises none."""
    try:
        work(*given)
    except SourceError as e:
        return str(e)
    return ""


def is_quiet(db: Database) -> bool:
    """Whether no transaction is open, which holds back what can be read, or locks the table."""
    found = db.run(
        "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND (state LIKE 'idle in%' OR backend_xid IS NOT NULL)"
    )
    return found == [(0,)]
