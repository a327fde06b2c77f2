"""The Postgres store where the server, a connection or a process ends at the wrong time."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import StoreError, StoreLocked, StoreUnavailable
from stores.contract.values import BY_WORD, WHOLE, WORDS, add, as_it_is, content, relation_of, row
from stores.postgres import changes
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import Stores

BOTH = [BY_WORD, WHOLE]


@pytest.fixture(scope="module")
def frail() -> Iterator[PostgresServer]:
    """A server that tests stop and kill, and that does not write what it commits unless told to."""
    with PostgresServer(fsync=True, synchronous_commit="off") as server:
        yield server


@pytest.fixture
def stores(frail: PostgresServer) -> Iterator[Stores]:
    made = Stores(frail.url)
    yield made
    made.close()


def step(store: StorePostgres, number: int) -> None:
    """Add a word to two registers, and commit."""
    for register in BOTH:
        add(store, register, as_it_is, [(f"w{number}", number, 1)])
    store.commit(number, number)


def holds(store: StorePostgres, last: int) -> bool:
    """Whether the store has the words of all steps to the last one, and no others."""
    words = {row(f"w{n}", n): (1,) for n in range(1, last + 1)}
    return store.last_step() == last and all(content(store, r) == words for r in BOTH)


@contextmanager
def held_up(url: str, store: StorePostgres, stores: Stores) -> Iterator[Callable[[], None]]:
    """Keep commits from ending; gives a function that waits until one is under way."""
    connection = psycopg.connect(url)
    place = sql.Identifier(stores.schema(store), WHOLE.name)
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(place))

    def wait() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while other.execute(query).fetchone() is None:
                time.sleep(0.01)

    try:
        yield wait
    finally:
        connection.close()


# -- the server


def test_a_server_that_is_killed_here_writes_as_one_in_use_does(frail: PostgresServer) -> None:
    query = "SELECT current_setting('fsync'), current_setting('full_page_writes')"
    with psycopg.connect(frail.url) as connection:
        assert connection.execute(query).fetchone() == ("on", "on")


def test_a_server_killed_in_the_middle_of_a_commit_leaves_nothing_half_done(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    for register in BOTH:
        add(store, register, as_it_is, [("w2", 2, 1)])
    with held_up(frail.url, store, stores) as wait:

        def crash() -> None:
            wait()
            frail.crash()

        killer = threading.Thread(target=crash)
        killer.start()
        with pytest.raises(StoreUnavailable, match="could not commit the step"):
            store.commit(2, 2)
        killer.join()
    with pytest.raises(StoreUnavailable, match="could not be opened"):
        store.last_step()
    frail.start()
    assert holds(store, 1)
    step(store, 2)
    assert holds(store, 2)


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_a_server_that_is_away_between_steps_costs_at_most_one_clear_error(
    frail: PostgresServer, stores: Stores, end: str
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    getattr(frail, end)()
    for register in BOTH:
        add(store, register, as_it_is, [("w2", 2, 1)])
    with pytest.raises(StoreUnavailable, match="could not"):
        store.commit(2, 2)
    with pytest.raises(StoreUnavailable, match="is it running"):
        step(store, 2)
    frail.start()
    step(store, 2)
    assert holds(store, 2)


def test_a_read_after_a_restart_connects_again_and_takes_the_lock_again(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    frail.restart()
    assert holds(store, 1)
    with pytest.raises(StoreLocked):
        stores.rival(store, BOTH)
    step(store, 2)
    assert holds(store, 2)


def test_a_restart_during_a_step_between_a_read_and_the_commit_loses_nothing(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    add(store, BY_WORD, as_it_is, [("w2", 2, 1)])
    frail.restart()
    assert content(store, BY_WORD) == {row("w1", 1): (1,)}
    add(store, WHOLE, as_it_is, [("w2", 2, 1)])
    store.commit(2, 2)
    assert holds(store, 2)


def test_a_large_change_that_a_crash_has_emptied_is_not_committed(
    frail: PostgresServer, spark: SparkSession
) -> None:
    stores = Stores(frail.url, driver_bytes=0)
    store = stores.create([BY_WORD])
    store.add(BY_WORD.name, relation_of(WORDS, [("a", 1, 1)]).in_spark(lambda: spark))
    frail.crash()
    frail.start()
    assert content(store, BY_WORD) == {}
    with pytest.raises(StoreUnavailable, match="connection was lost since"):
        store.commit(1, None)
    store.add(BY_WORD.name, relation_of(WORDS, [("a", 1, 1)]).in_spark(lambda: spark))
    store.commit(1, None)
    assert content(store, BY_WORD) == {row("a", 1): (1,)}
    assert staging(frail, stores.schema(store)) == []
    stores.close()


def staging(server: PostgresServer, schema: str) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename ~ '^_staging_'"
    with psycopg.connect(server.url) as connection:
        return [name for (name,) in connection.execute(query, [schema])]


def test_what_workers_wrote_for_a_step_that_died_is_swept(
    frail: PostgresServer, spark: SparkSession
) -> None:
    stores = Stores(frail.url, driver_bytes=0)
    store = stores.create([BY_WORD])
    change = relation_of(WORDS, [("a", 1, 1)]).in_spark(lambda: spark)
    store.add(BY_WORD.name, change)
    store.abort()
    assert staging(frail, stores.schema(store)) == []
    store.add(BY_WORD.name, change)
    assert len(staging(frail, stores.schema(store))) == 1
    disconnect_all(frail)
    again = wait_for_lock(lambda: stores.rival(store, [BY_WORD]))
    assert staging(frail, stores.schema(store)) == []
    assert content(again, BY_WORD) == {}
    stores.close()


def disconnect_all(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name LIKE 'stepping_spark%'"
        )


def wait_for_lock(opens: Callable[[], StorePostgres]) -> StorePostgres:
    deadline = time.monotonic() + 20
    while True:
        try:
            return opens()
        except StoreLocked:
            assert time.monotonic() < deadline


def test_a_writer_that_lost_its_lock_to_another_cannot_commit_over_it(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    add(store, BY_WORD, as_it_is, [("lost", 1, 1)])
    disconnect_all(frail)
    other = wait_for_lock(lambda: stores.rival(store, BOTH))
    step(other, 2)
    with pytest.raises(StoreUnavailable):
        store.commit(2, 2)
    with pytest.raises(StoreLocked):
        store.last_step()
    other.close()
    assert holds(store, 2)
    step(store, 3)
    assert holds(store, 3)


def test_a_read_that_finds_a_newer_state_after_its_connection_was_lost_is_refused(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    disconnect_all(frail)
    other = wait_for_lock(lambda: stores.rival(store, BOTH))
    step(other, 2)
    other.close()
    with pytest.raises(StoreUnavailable, match="step again"):
        store.read(BY_WORD.name)
    assert holds(store, 2)


# -- the answer to a commit


class Proxy:
    """Passes bytes to a server and back, until an answer to a COMMIT, which it keeps."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.armed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            dropped = threading.Event()
            for a, b, answers in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._pass, args=(a, b, answers, dropped), daemon=True
                ).start()

    def _pass(
        self, source: socket.socket, to: socket.socket, answers: bool, dropped: threading.Event
    ) -> None:
        with source, to:
            while data := _received(source):
                if answers and dropped.is_set():
                    break
                if not answers and self.armed and b"COMMIT" in data:
                    dropped.set()
                to.sendall(data)
            for end in (source, to):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)  # close() would wait for the other thread

    def close(self) -> None:
        self._listening.close()


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 16)
    except OSError:
        return b""


@pytest.fixture
def proxy(frail: PostgresServer) -> Iterator[Proxy]:
    made = Proxy(frail.port)
    yield made
    made.close()


def test_a_commit_whose_answer_is_lost_is_known_by_its_step(
    frail: PostgresServer, stores: Stores, proxy: Proxy
) -> None:
    store = stores.create(BOTH)
    schema = stores.schema(store)
    store.close()
    far = stores.open(schema, BOTH, url=frail.url.replace(str(frail.port), str(proxy.port)))
    step(far, 1)
    proxy.armed = True
    with pytest.raises(StoreUnavailable):
        step(far, 2)
    proxy.armed = False
    assert holds(far, 2)
    for register in BOTH:
        add(far, register, as_it_is, [("w2", 2, 1)])
    with pytest.raises(StoreError, match="last committed step is 2"):
        far.commit(2, 2)
    assert holds(far, 2)


def test_a_numbered_step_whose_answer_was_lost_gives_its_outputs_when_taken_again(
    frail: PostgresServer, proxy: Proxy, spark: SparkSession
) -> None:
    graph = st.compile(_distinct)
    url = frail.url.replace(str(frail.port), str(proxy.port))
    with st.StorePostgres.from_graph(graph, url, schema="numbered", create=True) as store:
        proxy.armed = True
        with pytest.raises(StoreUnavailable):
            st.iteration(store, graph, (st.ZSetPython({1: 2}),), step=1)
        proxy.armed = False
        (given,) = st.iteration(store, graph, (st.ZSetPython({1: 2}),), step=1)
        assert given == st.ZSetPython({1: 1})
        assert store.last_step() == 1
        (given,) = st.iteration(store, graph, (st.ZSetPython({1: -1}),), step=2)
        assert given.empty()


def _distinct(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.distinct(a)


# -- the holder of the lock

HOLDER = """
import sys, time
from stores.contract.values import BY_WORD, WHOLE
from stores.postgres.store import StorePostgres
store = StorePostgres(sys.argv[1], [BY_WORD, WHOLE], schema=sys.argv[2])
print("open", flush=True)
time.sleep(600)
"""


def test_a_holder_of_the_lock_is_named_and_a_killed_one_lets_go(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    store.close()
    schema = stores.schema(store)
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, frail.url, schema],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked) as caught:
            stores.rival(store, BOTH)
        assert re.search(rf"process {holder.pid} on .*127\.0\.0\.1", str(caught.value))
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    again = stores.rival(store, BOTH)
    assert holds(again, 1)


def test_a_database_without_room_is_one_clear_error_and_the_next_attempt_works(
    frail: PostgresServer, stores: Stores
) -> None:
    store = stores.create(BOTH)
    step(store, 1)
    with psycopg.connect(frail.url, autocommit=True) as connection:
        place = sql.Identifier(stores.schema(store), WHOLE.name)
        function = sql.Identifier(stores.schema(store), "full")
        connection.execute(
            sql.SQL(
                "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE disk_full; END $$"
            ).format(function)
        )
        trigger = sql.SQL(
            "CREATE TRIGGER full_disk BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {}()"
        )
        connection.execute(trigger.format(place, function))
        with pytest.raises(StoreUnavailable, match="disk_full"):
            step(store, 2)
        assert holds(store, 1)
        connection.execute(sql.SQL("DROP TRIGGER full_disk ON {}").format(place))
    step(store, 2)
    assert holds(store, 2)


def test_outputs_that_cannot_be_compacted_are_committed_and_one_warning_says_so(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NoReturn:
        raise psycopg.errors.DiskFull("no space left")

    monkeypatch.setattr(changes, "VACUUM_ROWS", 0)
    monkeypatch.setattr(changes, "size_of", fail)
    store = stores.create(BOTH)
    store.open(BOTH, [BY_WORD.schema])
    for number in range(1, 5):
        output = relation_of(BY_WORD.schema, [(f"w{number}", number, 1)])
        store.commit(number, number, [output])
    (warning,) = (r.getMessage() for r in caplog.records)
    assert "could not be compacted" in warning
    assert "no space left" in warning
    outputs = store.last_outputs()
    assert outputs is not None
    assert [part.rows for part in outputs] == [1]
