"""Writers of one state in Postgres: connections are cut, and processes killed, at any exchange.

A lock in Postgres lasts as long as its connection, so that it is lost by cutting that. Then the
first use of the store is an error; the next one connects again, and takes the lock if it is free.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test
from hypothesis.strategies import integers
from psycopg import sql

from stepping_spark.base.errors import StoreError, StoreLocked
from stepping_spark.relations.store import Store
from stores import step_lock
from stores.postgres import connection, session
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer
from tests.stores.lives import told
from tests.stores.two_writers import (
    REGISTERS,
    Attempt,
    Killed,
    Moment,
    Process,
    Tally,
    TwoWriters,
    at,
    current,
    moments,
)

HOLDERS = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND (classid::bigint << 32) | objid::bigint = %s
"""


class InPostgres:
    """A schema of a server."""

    def __init__(self, server: PostgresServer) -> None:
        self._url = server.url
        self._schema = f"two {uuid4().hex}"
        self._links: dict[Process, list[psycopg.Connection[Any]]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        real = step_lock.this_process()

        def this_process() -> str:
            process = current()
            return real if process is None else f"0-{process.name} of {id(process)}"

        with ExitStack() as all_of:
            self._admin = all_of.enter_context(psycopg.connect(self._url, autocommit=True))
            wait = told(psycopg.Connection.wait, "exchange", at)
            for owner, name, value in (
                (step_lock, "this_process", this_process),
                (session, "this_process", this_process),
                (connection, "LOCK_TRIES", 1),
                (psycopg, "connect", self._connecting(psycopg.connect)),
                (psycopg.Connection, "wait", wait),
            ):
                all_of.enter_context(mock.patch.object(owner, name, value))
            yield
            drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self._schema))
            self._admin.execute(drop)

    def open_writer(self) -> Store:
        return StorePostgres(self._url, REGISTERS, schema=self._schema, create=True)

    def open_reader(self) -> Store:
        return StorePostgres(self._url, REGISTERS, schema=self._schema, read_only=True)

    def break_lock(self) -> None:
        number = connection._lock_number(self._schema)
        pids = [pid for (pid,) in self._admin.execute(HOLDERS, [number])]
        for pid in pids:
            self._admin.execute("SELECT pg_terminate_backend(%s)", [pid])
        self._wait_for_end(pids)

    def replace_lock(self) -> bool:
        """It has no name that somebody could give to another."""
        return False

    def renewal(self, process: Process) -> None:
        """The server keeps the lock."""

    def kill(self, process: Process) -> None:
        """Close the sockets of a process, as the system does: nothing more is sent."""
        pids = []
        for link in self._links.pop(process, ()):
            if not link.closed:
                pids.append(link.info.backend_pid)
                with suppress(OSError), session._socket_of(link) as its:
                    its.shutdown(socket.SHUT_RDWR)
                link.close()
        self._wait_for_end(pids)

    def _wait_for_end(self, pids: list[int]) -> None:
        query = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s) LIMIT 1"
        while self._admin.execute(query, [pids]).fetchone() is not None:
            time.sleep(0.002)

    def _connecting(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        def connected(*args: Any, **kwargs: Any) -> Any:
            at("before connecting")
            link = connect(*args, **kwargs)
            process = current()
            if process is not None:
                self._links.setdefault(process, []).append(link)
            at("after connecting")
            return link

        return connected


class WritersOfPostgres(TwoWriters):
    """A writer whose connection was cut is told once; then it may go on, if nobody else writes."""

    server: PostgresServer

    def __init__(self) -> None:
        self.cut: set[Process] = set()
        self.away: set[Process] = set()  # they know that they have no connection
        super().__init__()

    def place(self) -> InPostgres:
        return InPostgres(self.server)

    @rule(number=TwoWriters.numbers, moment=moments, seldom=integers(0, 7))
    def opens(self, number: int, moment: Moment, seldom: int = 7) -> None:
        """A process opens the state: seldom while another writes, as it is only refused then."""
        if seldom == 7 or not any(p.store is not None for p in self.processes):
            super().opens(number, moment)

    @rule()
    def lock_breaks(self) -> None:
        """The connection that holds the lock is cut."""
        self.cut |= {p for p in self.processes if p.store is not None or p in self.doing}
        super().lock_breaks()

    def begins(
        self, process: Process, attempt: Attempt, work: Callable[[], object], moment: Moment
    ) -> None:
        if process in self.away:  # it connects again, and sees what is committed by then
            self.away.discard(process)
            self.opened[process] = self.opened[process][0], self.time
        super().begins(process, attempt, work, moment)

    def ends(self, process: Process) -> None:
        if process.stopped or process not in self.cut:
            return super().ends(process)
        try:
            process.outcome()
        except (Killed, StoreLocked):
            return super().ends(process)
        except StoreError:
            self.is_told(process, self.doing.pop(process))
            return None
        return super().ends(process)

    def is_told(self, process: Process, attempt: Attempt) -> None:
        self.tally.note(f"{attempt.what}, cut off")
        self.cut.discard(process)
        if process.store is not None:
            self.away.add(process)

    def is_refused(self, process: Process, attempt: Attempt) -> None:
        self.tally.note(f"{attempt.what}, refused")
        others = [p for p in self.processes if p is not process]
        assert any(p.store is not None or p in self.doing for p in others), f"{process} is alone"
        if process.store is not None:
            self.away.add(process)


def run(server: PostgresServer, examples: int, steps: int) -> Tally:
    """Run the machine on a server; how often what has happened."""

    class Machine(WritersOfPostgres):
        tally = Tally()

    Machine.server = server
    some: Any = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=some)
    return Machine.tally


def test_of_several_writers_each_step_that_was_reported_is_in_postgres(
    postgres: PostgresServer,
) -> None:
    found = run(postgres, 7, 30)
    assert found.counts["rule steps"] > 150
    assert found.counts["step, done"] > 10


def test_the_machine_finds_a_lock_that_keeps_nobody_out(postgres: PostgresServer) -> None:
    class Machine(WritersOfPostgres):
        tally = Tally()
        server = postgres

    machine = Machine()
    with mock.patch.object(session, "take_lock"):
        machine.there_are_processes()
        machine.opens(number=1, moment=None)
        with pytest.raises(AssertionError, match="overtaken, and not told"):
            machine.steps(number=0, moment=None, steps=1)
    machine.teardown()


@pytest.mark.long
def test_of_several_writers_each_step_that_was_reported_is_in_postgres_for_long(
    postgres: PostgresServer,
) -> None:
    found = run(postgres, 150, 50)
    print(dict(sorted(found.counts.items())))
    assert found.counts["rule steps"] > 5_000
    assert found.counts["open, refused"] > 0
    assert found.counts["step, cut off"] > 5
