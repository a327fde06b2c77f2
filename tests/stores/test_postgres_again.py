"""The Postgres store when its state is opened again in the same process, and after a fork."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from stepping_spark.base.errors import (
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMismatch,
    StoreUnavailable,
)
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is, content, row
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import Stores, as_another_process, role


@pytest.fixture
def stores(postgres: PostgresServer) -> Iterator[Stores]:
    made = Stores(postgres.url)
    yield made
    made.close()


def step(store: StorePostgres, number: int) -> None:
    """Add a word, and commit."""
    add(store, BY_WORD, as_it_is, [(f"w{number}", number, 1)])
    store.commit(number, number)


def words(last: int) -> dict[object, tuple[int]]:
    """What the steps to the last one have added."""
    return {row(f"w{n}", n): (1,) for n in range(1, last + 1)}


# -- again


def test_a_cell_that_is_run_again_takes_over_and_the_old_store_says_so(stores: Stores) -> None:
    old = stores.create([BY_WORD])
    step(old, 1)
    add(old, BY_WORD, as_it_is, [("lost", 2, 1)])
    new = stores.again(old, [BY_WORD])
    said = r"schema 's .*opened this state again, at postgres_stores.py.*use it"
    for use in (
        old.last_step,
        old.last_outputs,
        old.compact,
        lambda: old.read(BY_WORD.name),
        lambda: old.commit(2, None),
        lambda: add(old, BY_WORD, as_it_is, [("lost", 2, 1)]),
        lambda: old.open([BY_WORD]),
    ):
        with pytest.raises(StoreLocked, match=said):
            use()
    step(new, 2)
    old.close()
    step(new, 3)
    assert content(new, BY_WORD) == words(3)


def test_the_state_is_the_same_by_a_socket_and_by_another_role(
    stores: Stores, postgres: PostgresServer
) -> None:
    old = stores.create([BY_WORD])
    step(old, 1)
    socket = stores.open(stores.schema(old), [BY_WORD], url=postgres.socket_url)
    superuser = role(postgres, "also", "ALTER ROLE {} SUPERUSER")
    third = stores.open(stores.schema(old), [BY_WORD], url=superuser)
    for store in (old, socket):
        with pytest.raises(StoreLocked, match="has taken over"):
            store.last_step()
    step(third, 2)
    assert content(third, BY_WORD) == words(2)


def test_a_store_gives_way_while_a_thread_of_it_waits_for_the_server(
    stores: Stores, postgres: PostgresServer
) -> None:
    old = stores.create([BY_WORD])
    step(old, 1)
    told: list[BaseException] = []

    def waits() -> None:
        try:
            step(old, 2)
        except StoreError as e:
            told.append(e)

    with psycopg.connect(postgres.url) as connection:
        connection.execute(f'LOCK TABLE "{stores.schema(old)}"."{BY_WORD.name}" IN SHARE MODE')
        thread = threading.Thread(target=waits)
        thread.start()
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with psycopg.connect(postgres.url, autocommit=True) as other:
            while other.execute(query).fetchone() is None:
                time.sleep(0.01)
        new = stores.again(old, [BY_WORD])
        thread.join()
    assert [type(e) for e in told] == [StoreLocked]
    step(new, 2)
    assert content(new, BY_WORD) == words(2)


def test_a_store_of_another_circuit_or_of_another_process_changes_nothing(stores: Stores) -> None:
    store = stores.create([BY_WORD])
    with pytest.raises(StoreMismatch):
        stores.again(store, [WHOLE])
    with as_another_process(), pytest.raises(StoreLocked, match=f"process {os.getpid()} on"):
        stores.again(store, [BY_WORD])
    reader = stores.open(stores.schema(store), [BY_WORD], read_only=True)
    step(store, 1)
    assert content(reader, BY_WORD) == words(1)


def test_an_old_store_that_has_lost_its_connection_does_not_take_the_state_back(
    stores: Stores, postgres: PostgresServer
) -> None:
    old = stores.create([BY_WORD])
    new = stores.again(old, [BY_WORD])
    step(new, 1)
    new.close()
    with pytest.raises(StoreLocked, match="has taken over"):
        old.last_step()
    assert stores.again(old, [BY_WORD]).last_step() == 1


def test_a_store_that_cannot_be_opened_again_leaves_the_old_one_alone(
    stores: Stores, postgres: PostgresServer
) -> None:
    old = stores.create([BY_WORD])
    step(old, 1)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND tablename = %s "
            "AND indexdef NOT LIKE '%%UNIQUE%%'",
            [stores.schema(old), BY_WORD.name],
        ).fetchall()
        for (name,) in found:
            connection.execute(f'DROP INDEX "{stores.schema(old)}"."{name}"')
    with pytest.raises(StoreCorrupt, match=r"index .* is missing"):
        stores.again(old, [BY_WORD])
    step(old, 2)
    assert content(old, BY_WORD) == words(2)


def test_a_copy_of_a_server_has_states_of_its_own_and_one_that_started_again_has_the_same() -> None:
    with PostgresServer() as first:
        one, other = Stores(first.url), Stores(first.url)
        old = one.open("s", [BY_WORD], create=True)
        step(old, 1)
        first.stop()
        with PostgresServer(of=first) as copy:
            first.start()
            with pytest.raises(StoreUnavailable):
                step(old, 2)
            step(old, 2)
            there = Stores(copy.socket_url).open("s", [BY_WORD])
            step(there, 2)
            step(old, 3)
            step(there, 3)
            there.close()
        first.restart()
        new = other.open("s", [BY_WORD])
        with pytest.raises(StoreUnavailable):
            step(old, 4)
        with pytest.raises(StoreLocked, match="has taken over"):
            step(old, 4)
        step(new, 4)
        for made in (one, other):
            made.close()


# -- forks


def in_fork(work: Callable[[], object]) -> str:
    """What a fork of this process says of doing something: its error, or nothing."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        said = ""
        try:
            work()
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(theirs, said.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        said = answer.read()
    assert os.waitpid(pid, 0)[1] == 0, "the fork was killed: it hung"
    return said


def test_a_fork_cannot_use_the_store_and_does_not_disturb_it(stores: Stores) -> None:
    store = stores.create([BY_WORD])
    step(store, 1)
    add(store, BY_WORD, as_it_is, [("w2", 2, 1)])

    uses: list[Callable[[], object]] = [
        store.last_step,
        lambda: store.read(BY_WORD.name),
        lambda: add(store, BY_WORD, as_it_is, [("w9", 9, 1)]),
        lambda: store.commit(2, None),
        store.compact,
    ]
    for use in uses:
        said = in_fork(use)
        assert said.startswith("StoreError: postgresql://")
        assert f"process {os.getpid()} has opened this store" in said
    for quiet in (store.close, store.abort, lambda: store.__exit__(None, None, None)):
        assert in_fork(quiet) == ""
    store.commit(2, 2)
    assert content(store, BY_WORD) == words(2)


def test_a_fork_may_open_the_state_itself_to_read_and_when_its_parent_has_closed_it(
    stores: Stores,
) -> None:
    store = stores.create([BY_WORD])
    schema = stores.schema(store)
    step(store, 1)

    def reads() -> None:
        with stores.open(schema, [BY_WORD], read_only=True) as reader:
            assert content(reader, BY_WORD) == words(1)

    def writes() -> None:
        with stores.open(schema, [BY_WORD]) as writer:
            step(writer, 2)

    assert in_fork(reads) == ""
    assert in_fork(writes).startswith("StoreLocked")
    store.close()
    assert in_fork(writes) == ""
    assert stores.again(store, [BY_WORD]).last_step() == 2


def test_a_fork_that_goes_on_does_not_keep_the_lock_of_a_process_that_was_killed(
    stores: Stores,
) -> None:
    store = stores.create([BY_WORD])
    schema = stores.schema(store)
    store.close()
    ours, theirs = os.pipe()
    parent = os.fork()
    if not parent:
        held = stores.open(schema, [BY_WORD])
        child = os.fork()
        if child:
            os.write(theirs, f"{child}\n".encode())
        time.sleep(60)
        held.close()
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        child = int(answer.readline())
        time.sleep(0.2)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        try:
            assert stores.again(store, [BY_WORD]).last_step() == 0
        finally:
            os.kill(child, signal.SIGKILL)
