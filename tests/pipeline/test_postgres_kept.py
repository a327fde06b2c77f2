"""What belongs to a pipeline in Postgres and somebody else removes: it is noticed, and mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import stepping_spark as st
from stepping_spark.base.errors import SinkError, SourceError
from tests.cases import Z
from tests.pipeline.following import Database, Follower
from tests.pipeline.shop import Note, numbered

INT, TEXT = pa.int64(), pa.string()


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
            pytest.raises(psycopg.errors.RaiseException, match=r"are not removed .* by hand") as e,
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


# -- rows of a sink's table


def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
    return notes


STEPS = [{Note(id=1, text="a"): 1, Note(id=2, text="b"): 1}, {Note(id=3, text="c"): 1}]
FORMS: dict[str, Any] = {"by key": {"key": "id"}, "counted": {}, "a feed": {"changes": True}}
LOST = {
    "dropped": "DROP TABLE out",
    "renamed": "ALTER TABLE out RENAME TO old",
    "truncated": "TRUNCATE out",
    "emptied": "DELETE FROM out",
    "made anew": "CREATE TABLE o (LIKE out INCLUDING ALL); DROP TABLE out; "
    "ALTER TABLE o RENAME TO out",
}


def written(sink: st.Postgres, store: str, steps: int, **more: Any) -> st.Pipeline:
    items = numbered(map(Z, STEPS[:steps]))
    return st.Pipeline(notes, store=store, notes=items, into=sink, **more)


def ids(db: Database) -> list[int]:
    return sorted(i for (i,) in db.run("SELECT id FROM out"))


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_table_that_lost_its_rows_is_refused_until_it_is_mended(
    db: Database, tmp_path: Path, form: Any, lost: str
) -> None:
    sink, store = db.table("out", **form), f"parquet:{tmp_path / 'state'}"
    with written(sink, store, 1) as running:
        running.run()
    db.run(lost)
    with pytest.raises(SinkError, match="somebody"):
        written(sink, store, 2).dry_run()
    for _ in range(2):
        with (
            pytest.raises(SinkError, match=r"somebody .*--evolve") as e,
            written(sink, store, 2) as running,
        ):
            running.run()
    if "remove the table" in str(e.value):
        db.run("DROP TABLE out")
    refresh = ["notes"] if "--refresh" in str(e.value) else []
    with written(sink, store, 2, evolve=True, refresh=refresh) as running:
        running.run()
    assert ids(db) == [1, 2, 3]


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_table_that_loses_its_rows_while_a_pipeline_runs_is_refused(
    db: Database, form: Any, lost: str
) -> None:
    def items() -> Iterator[Any]:
        for n, item in enumerate(numbered(map(Z, STEPS))):
            if n:
                db.run(lost)
            yield item

    with (
        pytest.raises(SinkError, match="somebody"),
        st.Pipeline(notes, store="memory", notes=items(), into=db.table("out", **form)) as running,
    ):
        running.run()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_row_less_is_seen_when_it_is_opened_unless_a_feed_was_read(
    db: Database, tmp_path: Path, form: Any
) -> None:
    sink, store = db.table("out", **form), f"parquet:{tmp_path / 'state'}"
    with written(sink, store, 1) as running:
        running.run()
    row = db.run("DELETE FROM out WHERE id = 1 RETURNING *")[0]
    if "changes" not in form:
        with (
            pytest.raises(SinkError, match="of 2 rows that it got up to step 1, 1 are there"),
            written(sink, store, 2) as running,
        ):
            running.run()
        db.run(f"INSERT INTO out VALUES ({', '.join(['%s'] * len(row))})", *row)
    with written(sink, store, 2) as running:
        running.run()
    assert ids(db) == ([2, 3] if "changes" in form else [1, 2, 3])


def test_rows_that_the_view_loses_are_not_missed(db: Database) -> None:
    a, b = Note(id=1, text="a"), Note(id=2, text=None)
    steps = [{a: 2}, {a: -1, b: 1}, {a: -1}, {b: -1}, {b: 3}, {b: -3, a: 1}]
    for form in ({}, {"changes": True}):
        name = f"out{len(form)}"
        items = numbered(map(Z, steps))
        with st.Pipeline(notes, store="memory", notes=items, into=db.table(name, **form)) as p:
            p.run()
        known = db.run("SELECT rows FROM stepping_spark_steps WHERE name = %s", name)
        assert known == db.run(f"SELECT count(*) FROM {name}")


def test_a_table_of_an_earlier_version_is_counted_once(db: Database, tmp_path: Path) -> None:
    sink, store = db.table("out", key="id"), f"parquet:{tmp_path / 'state'}"
    with written(sink, store, 1) as running:
        running.run()
    db.run("ALTER TABLE stepping_spark_steps DROP COLUMN rows")
    written(sink, store, 2).dry_run()
    with written(sink, store, 2) as running:
        running.run()
    assert db.run("SELECT rows FROM stepping_spark_steps") == [(3,)]
