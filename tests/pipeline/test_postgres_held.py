"""Rows of a log of Postgres that wait for an open transaction: they are counted, and said."""

from __future__ import annotations

import logging
import re

import pytest

import stepping_spark as st
from tests.pipeline.following import Database
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
