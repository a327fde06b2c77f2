"""What belongs to a pipeline in Postgres and somebody else removes: it is noticed, and mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from stepping_spark.errors import SourceError
from tests.pipeline.following import Database, Follower
from tests.postgres_server import PostgresServer

INT, TEXT = pa.int64(), pa.string()


@pytest.fixture
def db(server: PostgresServer) -> Iterator[Database]:
    made = Database(server.url)
    yield made
    made.connection.close()


def followed(db: Database, name: str = "t") -> Follower:
    """A table with two rows, which is followed."""
    db.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text)")
    db.run(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    db.table(name).install()
    return Follower(db.table(name), id=INT, name=TEXT)


# -- rows of the log


REMOVED = (
    "DELETE FROM t_changes",
    "DELETE FROM t_changes WHERE _id = 1",
    "TRUNCATE t_changes",
    "UPDATE t_changes SET _count_ = 2",
)


@pytest.mark.parametrize("text", REMOVED)
def test_rows_of_a_log_are_not_removed_by_hand(db: Database, text: str) -> None:
    follower = followed(db)
    follower.read()
    for settings in ("", "SET session_replication_role = replica"):
        with (
            db.session(settings) as session,
            pytest.raises(psycopg.errors.RaiseException, match="are not removed .* by hand") as e,
        ):
            session.execute(text.encode())
        assert "trim=True" in str(e.value)
    db.table("t").install(again=True)
    db.run("INSERT INTO t VALUES (3, 'c')")
    for reader in (follower, Follower(db.table("t"), id=INT, name=TEXT)):
        reader.read()
        assert reader.left == Counter([(1, "a"), (2, "b"), (3, "c")])


def test_a_log_that_does_not_keep_its_rows_is_refused_until_all_begin_anew(db: Database) -> None:
    follower = followed(db)
    follower.read()
    db.run("ALTER TABLE t_changes DISABLE TRIGGER ALL; DELETE FROM t_changes WHERE _id = 1")
    for then in (
        "ALTER TABLE t_changes ENABLE TRIGGER ALL",
        "ALTER TABLE t_changes DISABLE TRIGGER ALL",
        "DROP FUNCTION t_changes() CASCADE",
    ):
        db.run(then)
        for refused in (
            follower.read,
            Follower(db.table("t"), id=INT, name=TEXT).read,
            db.table("t").install,
            lambda: db.table("t").install(again=True),
        ):
            with pytest.raises(SourceError, match="uninstall the log and install it again, and"):
                refused()
    db.table("t").uninstall()
    db.table("t").install()
    new = Follower(db.table("t"), id=INT, name=TEXT)
    new.read()
    assert new.left == Counter([(1, "a"), (2, "b")])


def test_a_log_of_a_renamed_table_keeps_its_rows_too(db: Database) -> None:
    follower = followed(db)
    follower.read()
    db.run("ALTER TABLE t RENAME TO u; ALTER TABLE t_changes RENAME TO u_changes")
    db.run("ALTER FUNCTION t_changes() RENAME TO u_changes")
    for _ in range(2):
        with pytest.raises(psycopg.errors.RaiseException, match="by hand"):
            db.run("TRUNCATE u_changes")
        db.table("u").install(again=True)
    assert db.run("SELECT tgname FROM pg_trigger WHERE tgrelid = 'u_changes'::regclass") == [
        ("u_changes",)
    ]


def test_a_pipeline_that_trims_removes_what_it_has_read(db: Database) -> None:
    follower = followed(db)
    trimming = Follower(db.table("t", trim=True), id=INT, name=TEXT)
    for reader in (follower, trimming):
        reader.read()
    assert trimming.position is not None
    trimming.source.confirm(trimming.position)
    trimming.source.close()
    assert db.run("SELECT count(*) FROM t_changes WHERE _row IS NOT NULL") == [(0,)]
    with pytest.raises(psycopg.errors.RaiseException, match="by hand"):
        db.run("DELETE FROM t_changes")
    db.run("INSERT INTO t VALUES (3, 'c')")
    follower.read()
    assert follower.left == Counter([(1, "a"), (2, "b"), (3, "c")])
