"""The state of each store as tasks read it and add to it, without Spark."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import stepping_spark as st
from stepping_spark.base.fields import PickledByFields
from stepping_spark.relations.store import TaskState
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    WORDS,
    add,
    as_it_is,
    content,
    keys_relation,
    relation_of,
    row,
    summed,
)
from tests.cases import cached
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import Stores

BOTH = [BY_WORD, WHOLE]


@pytest.fixture(params=["memory", "parquet", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "postgres":
        stores = Stores(request.getfixturevalue("postgres").url)
        yield stores.create(BOTH)
        stores.close()
        return
    in_files = request.param == "parquet"
    made = st.StoreParquet(tmp_path, BOTH, create=True) if in_files else st.StoreMemory(BOTH)
    yield made
    made.close()


def sent(store: Any) -> TaskState:
    """The state before a step, as a worker gets it."""
    made: TaskState = pickle.loads(pickle.dumps(store.for_tasks()))
    return made


def read(state: Any, *keys: str) -> dict[Any, tuple[int, ...]]:
    parts = state.read(BY_WORD.name, keys_relation(BY_WORD, [(k,) for k in keys]) if keys else None)
    return summed(parts, WORDS)


def taken(store: Any, step: int, *rows: tuple[str, int, int]) -> None:
    """Commit a step of which tasks added these rows; other attempts of theirs had failed."""
    state = sent(store)
    for _ in ("failed", "succeeded"):
        with state.attempt() as attempt:
            attempt.add(BY_WORD.name, relation_of(WORDS, rows))
    store.add_written(BY_WORD.name, attempt.added)
    store.commit(step, step)


def test_what_successful_attempts_add_is_there_once(store: Any) -> None:
    taken(store, 1, ("a", 1, 2), ("b", 1, 1))
    taken(store, 2, ("a", 1, -1), ("c", 3, 1))
    assert content(store, BY_WORD) == {row("a", 1): (1,), row("b", 1): (1,), row("c", 3): (1,)}
    assert content(store, WHOLE) == {}
    assert store.last_step() == 2


def test_tasks_read_the_state_before_the_step(store: Any) -> None:
    add(store, BY_WORD, as_it_is, [("a", 1, 1), ("b", 2, 1)])
    store.commit(1, 7)
    state = sent(store)
    with state.attempt() as attempt:
        attempt.add(BY_WORD.name, relation_of(WORDS, [("a", 1, 5)]))
        assert read(attempt) == {row("a", 1): (1,), row("b", 2): (1,)}
        assert read(attempt, "b", "x") == {row("b", 2): (1,)}
        assert read(attempt, "x") == {}
        assert (attempt.last_step(), attempt.last_now()) == (1, 7)
    store.abort()
    assert content(store, BY_WORD) == {row("a", 1): (1,), row("b", 2): (1,)}


def test_a_step_that_tasks_give_up_is_taken_by_others(store: Any) -> None:
    state = sent(store)
    with state.attempt() as attempt:
        attempt.add(BY_WORD.name, relation_of(WORDS, [("a", 1, 5)]))
    add(store, BY_WORD, as_it_is, [("b", 1, 1)])
    store.commit(1, 1)
    taken(store, 2, ("a", 1, 1))
    assert content(store, BY_WORD) == {row("a", 1): (1,), row("b", 1): (1,)}


class Seen(pickle.Pickler):
    """Notes the classes of the objects that it pickles."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.classes = set[type]()

    def reducer_override(self, obj: object) -> Any:
        self.classes.add(type(obj))
        return NotImplemented


def test_no_cache_is_pickled_that_another_thread_may_fill(store: Any) -> None:
    taken(store, 1, ("a", 1, 2))
    seen = Seen()
    seen.dump(store.for_tasks())
    caching = {c for c in seen.classes if cached(c)}
    assert caching
    assert all(issubclass(c, PickledByFields) for c in caching)


def left(server: PostgresServer, schema: str) -> list[str]:
    """The staging tables in a schema."""
    query = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename ~ '^_staging_'"
    with psycopg.connect(server.url) as connection:
        return [name for (name,) in connection.execute(query, [schema])]


def test_no_staging_table_is_left_in_postgres(postgres: PostgresServer) -> None:
    stores = Stores(postgres.url)
    store = stores.create(BOTH)
    schema = stores.schema(store)
    taken(store, 1, ("a", 1, 1))
    assert left(postgres, schema) == []
    sent(store)
    sent(store)  # the job is run again
    assert len(left(postgres, schema)) == len(BOTH)
    store.abort()
    assert left(postgres, schema) == []
    sent(store)
    add(store, BY_WORD, as_it_is, [("b", 1, 1)])
    store.commit(2, 2)
    assert left(postgres, schema) == []
    stores.close()
