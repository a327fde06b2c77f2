"""A dry run says what a run would refuse before its first step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import connect

import stepping_spark as st
from stepping_spark.base.errors import SteppingError, StoreLocked, StoreMismatch
from tests.cases import User, Z
from tests.pipeline.shop import View, names
from tests.pipeline.test_delta import make
from tests.pipeline.test_files import add, user
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import as_another_process, role


def longer(users: st.ZSet[User]) -> st.ZSet[str]:
    """Another query, with the same state."""
    return st.filter(st.distinct(st.map(users, f=lambda u: u.name)), f=lambda n: n != "a")


def ids(users: st.ZSet[User]) -> st.ZSet[int]:
    """A query with another state."""
    return st.distinct(st.map(users, f=lambda u: u.id))


class Aged(st.Data):
    id: int
    age: int


class Numbered(st.Data):
    id: int
    name: int


def ages(users: st.ZSet[Aged]) -> st.ZSet[int]:
    return st.distinct(st.map(users, f=lambda u: u.age))


def numbers(users: st.ZSet[Numbered]) -> st.ZSet[int]:
    return st.distinct(st.map(users, f=lambda u: u.name))


USERS = [(1, Z({User(id=1, name="a"): 1}))]


def pipeline(place: Path, query: Any = names, **given: Any) -> st.Pipeline:
    chosen = {"store": f"parquet:{place / 'state'}", "users": USERS, **given}
    return st.Pipeline({"names": query}, **chosen)


def taken(place: Path, **given: Any) -> None:
    """A step was taken."""
    with pipeline(place, **given) as running:
        assert running.run() == 1


# Each makes a pipeline that a run refuses, in a folder.


def rows_of_another_query(place: Path) -> st.Pipeline:
    into = {"names": st.Files(place / "names")}
    taken(place, into=into)
    return pipeline(place, longer, into=into)


def a_sink_of_ones_own_with_rows_of_another_query(place: Path) -> st.Pipeline:
    into = {"names": View()}
    taken(place, into=into)
    return pipeline(place, longer, into=into)


def a_state_of_another_circuit(place: Path) -> st.Pipeline:
    taken(place)
    return pipeline(place, ids)


def a_store_of_another_circuit(place: Path) -> st.Pipeline:
    graph = st.compile(ids)
    return pipeline(place, store=st.StoreMemory.from_graph(graph))


def a_directory_of_other_files(place: Path) -> st.Pipeline:
    (place / "state").mkdir()
    (place / "state" / "letter.txt").write_text("dear")
    return pipeline(place)


def a_file_in_place_of_the_directory(place: Path) -> st.Pipeline:
    (place / "state").write_text("dear")
    return pipeline(place, store=f"parquet:{place / 'state' / 'here'}")


def a_state_that_is_damaged(place: Path) -> st.Pipeline:
    taken(place)
    for manifest in (place / "state" / "manifests").iterdir():
        manifest.write_text("{")
    return pipeline(place)


def a_state_that_was_stepped_by_hand(place: Path) -> st.Pipeline:
    graph = st.compile(names)
    with st.StoreParquet.from_graph(graph, place / "state", create=True) as store:
        st.iteration(store, graph, (USERS[0][1],))
    return pipeline(place)


def no_table(place: Path) -> st.Pipeline:
    return pipeline(place, users=st.DeltaTable(place / "users"))


def a_table_that_was_made_anew(place: Path) -> st.Pipeline:
    users = make(place / "users", User, [User(id=1, name="a")])
    taken(place, users=st.DeltaTable(users))
    shutil.rmtree(users)
    make(place / "users", User, [User(id=1, name="a")])
    return pipeline(place, users=st.DeltaTable(users))


def a_table_without_a_change_feed(place: Path) -> st.Pipeline:
    users = make(place / "users", User, [User(id=1, name="a")], feed=False)
    return pipeline(place, users=st.DeltaTable(users))


def a_column_that_there_is_not(place: Path) -> st.Pipeline:
    users = make(place / "users", User, [User(id=1, name="a")])
    return pipeline(place, ages, users=st.DeltaTable(users))


def a_column_of_another_type(place: Path) -> st.Pipeline:
    users = make(place / "users", User, [User(id=1, name="a")])
    return pipeline(place, numbers, users=st.DeltaTable(users))


def files_that_are_gone(place: Path) -> st.Pipeline:
    add(place / "users", "1", [user(1)])
    taken(place, users=st.Files(place / "users"))
    (place / "users" / "1").unlink()
    return pipeline(place, users=st.Files(place / "users"))


REFUSED: list[Callable[[Path], st.Pipeline]] = [
    rows_of_another_query,
    a_sink_of_ones_own_with_rows_of_another_query,
    a_state_of_another_circuit,
    a_store_of_another_circuit,
    a_directory_of_other_files,
    a_file_in_place_of_the_directory,
    a_state_that_is_damaged,
    a_state_that_was_stepped_by_hand,
    no_table,
    a_table_that_was_made_anew,
    a_table_without_a_change_feed,
    a_column_that_there_is_not,
    a_column_of_another_type,
    files_that_are_gone,
]


def files_in(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def refusal(call: Callable[[], object]) -> tuple[type[SteppingError], str]:
    with pytest.raises(SteppingError) as told:
        call()
    return told.type, str(told.value)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda f: f.__name__)
def test_a_dry_run_says_what_a_run_refuses_in_the_same_words(
    tmp_path: Path, refused: Callable[[Path], st.Pipeline]
) -> None:
    with refused(tmp_path) as running:
        before = files_in(tmp_path)
        looked = refusal(running.dry_run)
        assert files_in(tmp_path) == before
        assert looked == refusal(running.run)


def test_a_dry_run_of_what_a_run_takes_makes_nothing(tmp_path: Path) -> None:
    into = {"names": st.Files(tmp_path / "names")}
    with pipeline(tmp_path, into=into) as running:
        assert running.dry_run().step == 0
        assert files_in(tmp_path) == []
    taken(tmp_path, into=into)
    before = files_in(tmp_path)
    with pipeline(tmp_path, into=into) as running:
        found = running.dry_run()
        assert (found.step, found.writer) == (1, None)
    assert files_in(tmp_path) == before


def test_a_state_that_nobody_finished_making_is_not_refused(tmp_path: Path) -> None:
    taken(tmp_path)
    for name in ("claims", "data", "manifests"):
        shutil.rmtree(tmp_path / "state" / name)
    with pytest.raises(StoreMismatch), pipeline(tmp_path, ids) as running:
        running.dry_run()
    with pipeline(tmp_path) as running:
        assert running.dry_run().step == 0
        assert running.run() == 1


@pytest.mark.parametrize("store", ["parquet", "postgres"])
def test_a_pipeline_of_the_same_process_is_no_other_writer(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = f"parquet:{tmp_path / 'state'}"
    if store == "postgres":
        place = f"{request.getfixturevalue('postgres').url}?schema=dry_twice"
    with pipeline(tmp_path, store=place) as running, pipeline(tmp_path, store=place) as other:
        running.run()
        assert other.dry_run().writer is None
        other.run()
        with pytest.raises(StoreLocked, match="has opened this state again"):
            running.run()


def test_a_dry_run_beside_a_pipeline_that_runs_says_who_writes(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.run()
        assert running.dry_run().writer is None  # nobody else
        with as_another_process(), pipeline(tmp_path) as other:
            found = other.dry_run()
            assert found.writer is not None
            assert found.writer.startswith(f"process {os.getpid()} on ")
            assert f"\na run is refused now: {found.writer} writes the state\n" in str(found)
            with pytest.raises(StoreLocked, match="is being written by process"):
                other.run()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pipeline(tmp_path) as running:
            assert refusal(running.dry_run)[0] is refusal(running.run)[0]
    finally:
        tmp_path.chmod(0o700)


def test_a_dry_run_looks_at_a_state_in_postgres(postgres: PostgresServer, tmp_path: Path) -> None:
    def on(url: str, query: Any = names, schema: str = "dry") -> st.Pipeline:
        return pipeline(tmp_path, query, store=f"{url}?schema={schema}")

    def refused_alike(running: st.Pipeline, said: str) -> None:
        with running:
            looked = refusal(running.dry_run)
            assert looked == refusal(running.run)
            assert said in looked[1]

    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'dry'"
    with connect(postgres.url, autocommit=True) as connection:
        with on(postgres.url) as running:
            assert running.dry_run().step == 0
            assert connection.execute(schemas).fetchone() == (0,)
            running.run()
        with on(postgres.url) as running:
            found = running.dry_run()
            assert (found.step, found.writer) == (1, None)
            assert "1 row as stored" in str(found)
        refused_alike(on(postgres.url.replace("@", "SECRET@")), "refused")
        refused_alike(on(postgres.url, ids), "pipeline has changed")
        reader = role(postgres, "reader")
        refused_alike(on(reader), "USAGE on the schema")
        with on(reader, schema="nowhere") as running:
            kind, said = refusal(running.dry_run)
            assert "may not make one; have its owner make it: CREATE SCHEMA" in said
            assert refusal(running.run)[0] is kind
        connection.execute("DROP SCHEMA dry CASCADE")
