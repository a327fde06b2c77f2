"""A pipeline whose query changes, and which gets one more sink, killed at each call of that."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableMerger

import stepping_spark as st
from stepping_spark.pipeline.delta.sink import DeltaSink
from stepping_spark.pipeline.delta.source import DeltaSource
from stepping_spark.pipeline.files.sink import FilesSink
from stores.parquet.inspection import ParquetState
from stores.parquet.store import StoreParquet
from stores.postgres import PostgresState
from stores.postgres.store import StorePostgres
from tests.cases import User
from tests.stores.lives import killer, last_words, told

OF_TABLES = ("open", "last_step", "read", "prepare", "write", "close")
OF_STORES = ("open", "described", "read_kept", "evolve", "add", "commit", "last_outputs")
Rows = Counter[tuple[str, int]]


class Named(st.Data):
    name: str
    users: int


def query(lowest: int) -> Any:
    """How many users have each name, of those from an id on."""

    def named(users: st.ZSet[User]) -> st.ZSet[Named]:
        known = st.filter(users, f=lambda u: u.id >= lowest)
        return st.aggregate(known, by=lambda u: u.name, into=Named, users=st.agg.count())

    return named


def pipeline(
    folder: str, url: str, lowest: int, *, more: bool, refresh: bool = False
) -> st.Pipeline:
    into: list[Any] = [
        st.Files(f"{folder}/log", changes=True),
        st.DeltaTable(f"{folder}/view", key="name"),
        st.DeltaTable(f"{folder}/more", key="name"),
    ]
    place = f"{url}?schema=s{Path(folder).name}" if url else f"parquet:{folder}/state"
    return st.Pipeline(
        {"named": query(lowest)},
        store=place,
        users=st.DeltaTable(f"{folder}/users"),
        into={"named": into if more else into[:2]},
        evolve=True,
        refresh=["named"] if refresh else (),
    )


def live(folder: str, url: str, refresh: bool, moment: int, answer: Connection) -> None:
    """Run the changed pipeline, or be killed at the moment of that number."""
    at = killer(moment, answer)
    patched: list[tuple[type, tuple[str, ...]]] = [
        *((kind, OF_TABLES) for kind in (DeltaSource, DeltaSink, FilesSink)),
        *((kind, OF_STORES) for kind in (StoreParquet, StorePostgres)),
    ]
    for kind, calls in patched:
        for call in calls:
            if hasattr(kind, call):
                setattr(kind, call, told(getattr(kind, call), f"{kind.__name__}.{call}", at))
    TableMerger.execute = told(TableMerger.execute, "merge", at)  # type: ignore[method-assign]
    with pipeline(folder, url, 3, more=True, refresh=refresh) as changed:
        changed.run()
    answer.send(None)


def life(folder: Path, url: str, refresh: bool, moment: int) -> str | None:
    """Where a process was killed; None: it came to the end."""
    said, code = last_words(live, str(folder), url, refresh, moment)
    killed: str | None = said[0] if said else "an error"
    assert code == (-signal.SIGKILL if killed else 0), (code, said)
    return killed


def append(folder: Path, users: list[tuple[int, str]]) -> None:
    table = pa.table({"id": [i for i, _ in users], "name": [n for _, n in users]})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(folder / "users"), table, mode="append", configuration=feed)


def view(path: Path) -> Rows:
    """The rows of a table."""
    if not path.exists():
        return Counter()
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return Counter((row["name"], row["users"]) for row in rows)


def logged(folder: Path) -> Rows:
    """The sum of the changes that the first sink has."""
    found: Rows = Counter()
    for path in sorted((folder / "log").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            found[row["name"], row["users"]] += 1 if row["_change_type"] == "insert" else -1
    return Counter({row: n for row, n in found.items() if n})


def steps(folder: Path, url: str) -> int:
    """How many steps are committed."""
    state = PostgresState(url, f"s{folder.name}") if url else ParquetState(folder / "state")
    return state.summary().step


@pytest.fixture(params=["parquet", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of the server that has the state; none: it is in files."""
    if request.param == "parquet":
        yield ""
        return
    yield str(request.getfixturevalue("postgres").url)


def deaths(folder: Path, url: str, every: int, *, refresh: bool = False) -> Iterator[str]:
    append(folder, [(1, "ann"), (2, "bob"), (3, "ann"), (4, "cy")])
    with pipeline(str(folder), url, 0, more=False) as before:
        before.run()
    old: Rows = Counter({("ann", 2): 1, ("bob", 1): 1, ("cy", 1): 1})
    new: Rows = Counter({("ann", 1): 1, ("cy", 1): 1})
    assert (view(folder / "view"), logged(folder)) == (old, old)
    append(folder, [(5, "ann")])  # which comes after the change
    last: Rows = Counter({("ann", 2): 1, ("cy", 1): 1})
    moment, step = 1, steps(folder, url)
    while (killed := life(folder, url, refresh, moment)) is not None:
        yield killed
        # Once a step is committed, what is left to do is disturbed from its first moment on. With
        # refresh, each life does all of it once more.
        committed = steps(folder, url)
        again = committed != step and not refresh
        moment, step = (1 if again else moment + every), committed
        assert view(folder / "view") in (old, new, last)
        assert logged(folder) in (old, new, last)
        assert view(folder / "more") in (Counter(), new, last)
    assert view(folder / "view") == logged(folder) == view(folder / "more") == last


@pytest.mark.turn(2)
@pytest.mark.slow
def test_a_process_killed_while_it_evolves_loses_and_doubles_nothing(
    tmp_path: Path, url: str
) -> None:
    folder = tmp_path / f"w{uuid4().hex}"
    folder.mkdir()
    assert len(set(deaths(folder, url, 11))) > 2


@pytest.mark.long
@pytest.mark.parametrize("refresh", [False, True], ids=["", "refresh"])
def test_a_process_killed_at_each_call_of_an_evolution_loses_and_doubles_nothing(
    tmp_path: Path, url: str, *, refresh: bool
) -> None:
    folder = tmp_path / f"w{uuid4().hex}"
    folder.mkdir()
    died = set(deaths(folder, url, 1, refresh=refresh))
    assert {name.rpartition(".")[2] for name in died} >= {"evolve", "read_kept", "commit", "write"}
