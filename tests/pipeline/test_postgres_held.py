"""Rows of a log of Postgres that wait for an open transaction: they are counted, and said.

And what is read of transactions that change rows of each other.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from random import Random

import pyarrow as pa
import pytest

import stepping_spark as st
from tests.pipeline.following import Database, Follower
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import role


class Row(st.Data):
    id: int


def ids(t: st.ZSet[Row]) -> st.ZSet[int]:
    return st.map(t, f=lambda r: r.id)


@pytest.fixture
def db(db: Database) -> Database:
    db.run("CREATE TABLE t (id bigint); CREATE TABLE other (id bigint)")
    db.table("t").install()
    return db


def test_rows_that_wait_for_a_transaction_are_counted_and_said_once(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="stepping_spark.pipeline")
    pipeline = st.Pipeline(ids, store="memory", t=db.table("t"), into={})
    with pipeline, db.session() as other:
        other.execute("BEGIN; INSERT INTO other VALUES (1)")
        ((held,),) = other.execute("SELECT pg_current_xact_id()").fetchall()
        db.run("INSERT INTO t VALUES (1), (2)")
        assert pipeline.run() == 0
        assert pipeline.lag() == {"t": 2}
        assert f"rows of its log that wait for transaction {held} (process" in caplog.text
        assert re.search(r"\), open since 2[-\d]+ [:\d]+ UTC: 2$", caplog.messages[-1])
        db.run("INSERT INTO t VALUES (3)")
        assert pipeline.run() == 0
        assert caplog.text.count("wait for") == 1
        assert "3 log rows to read" in str(pipeline.dry_run())
        other.execute("COMMIT")
        assert pipeline.run() == 1
        assert pipeline.lag() == {"t": 0}
        assert pipeline.run() == 0
    assert caplog.text.count("wait for") == 1


def test_a_dry_run_says_what_rows_wait_for(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = st.Pipeline(ids, store="memory", t=db.table("t"), into={})
    with db.session() as other:
        other.execute("BEGIN; INSERT INTO other VALUES (1)")
        db.run("INSERT INTO t VALUES (1)")
        assert "1 log row to read" in str(pipeline.dry_run())
        assert "that wait for transaction" in caplog.text
        other.execute("ROLLBACK")


def test_who_may_not_see_the_transaction_of_others_still_hears_of_its_process(
    db: Database, server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    rights = (
        f"GRANT USAGE ON SCHEMA {db.schema} TO {{0}}; "
        f"GRANT SELECT ON {db.schema}.t, {db.schema}.t_changes TO {{0}}"
    )
    reader = role(server, "held_reader", rights)
    pipeline = st.Pipeline(ids, store="memory", t=db.table("t", url=reader), into={})
    with pipeline, db.session() as other:
        other.execute("BEGIN; INSERT INTO other VALUES (1)")
        db.run("INSERT INTO t VALUES (1)")
        assert pipeline.run() == 0
        assert pipeline.lag() == {"t": 1}
        assert f"(process {other.info.backend_pid} of " in caplog.text
        other.execute("ROLLBACK")


# -- transactions that change rows of later ones


def random_transactions(db: Database, random: Random, check: Callable[[], None]) -> None:
    """Several sessions change rows of each other, as soon as these are committed."""
    names = ["a", "b", "c", "d", "e"]
    with ExitStack() as stack:
        sessions = {n: stack.enter_context(db.session()) for n in names}
        locked: dict[str, set[int]] = {}
        for _ in range(400):
            name = random.choice(names)
            if name not in locked:
                sessions[name].execute("BEGIN; INSERT INTO other VALUES (1)")
                locked[name] = set()
            elif random.random() < 0.4:
                sessions[name].execute(random.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
                del locked[name]
                check()
            else:
                others = set().union(*(rows for n, rows in locked.items() if n != name))
                free = [i for i in range(4) if i not in others]
                if free:
                    i = random.choice(free)
                    locked[name].add(i)
                    sessions[name].execute(random.choice(CHANGES).format(i=i))
        for name in locked:
            sessions[name].execute("COMMIT")


CHANGES = (
    "INSERT INTO u VALUES ({i}, {i}, 0) ON CONFLICT DO NOTHING",
    "UPDATE u SET n = n + 1 WHERE id = {i}",
    "UPDATE u SET n = n + 1 WHERE id = {i}",
    "DELETE FROM u WHERE id = {i}",
    "DELETE FROM u WHERE id = {i}; INSERT INTO u VALUES ({i}, {i}, 100)",
)


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "UNIQUE (id, code)", "CHECK (id < 9)"])
@pytest.mark.parametrize("seed", [3, *(pytest.param(n, marks=pytest.mark.long) for n in range(3))])
def test_what_was_read_is_a_table_at_every_time(db: Database, key: str, seed: int) -> None:
    """No row is removed before it comes, and with a key no row comes before the old one leaves."""
    random = Random(seed)
    db.run(f"CREATE TABLE u (id bigint, code bigint, n bigint, {key})")
    db.table("u").install()
    followed = Follower(db.table("u"), id=pa.int64(), n=pa.int64())

    def check() -> None:
        for _ in range(random.choice([1, 1, 3])):
            followed.read(st.Portion(rows=random.choice([1, 5, None])), most=1)
            assert min(followed.left.values(), default=1) > 0
            if "CHECK" not in key:
                ids = [i for i, _ in followed.left]
                assert len(ids) == len(set(ids))

    random_transactions(db, random, check)
    followed.read()
    assert followed.left == Counter(db.run("SELECT id, n FROM u"))
