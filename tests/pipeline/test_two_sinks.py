"""Two sinks, of which one refuses a step, and a process that is killed at each call."""

from __future__ import annotations

import signal
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableMerger

import stepping_spark as st
from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.delta.sink import DeltaSink
from stepping_spark.pipeline.delta.source import DeltaSource
from stepping_spark.pipeline.files.sink import FilesSink
from stores.parquet.inspection import ParquetState
from tests.cases import User
from tests.stores.lives import Place, killer, last_words, told, watched

CALLS = ("open", "last_step", "read", "prepare", "write", "close")
REFUSED = "refused"


def users(users: st.ZSet[User]) -> st.ZSet[User]:
    return users


def live(folder: str, moment: int, answer: Connection) -> None:
    """Run the pipeline, be killed at the moment of that number, or be refused by a sink."""
    at = killer(moment, answer)
    for kind in (DeltaSource, DeltaSink, FilesSink):
        for call in CALLS:
            if hasattr(kind, call):
                setattr(kind, call, told(getattr(kind, call), f"{kind.__name__}.{call}", at))
    TableMerger.execute = told(TableMerger.execute, "merge", at)  # type: ignore[method-assign]
    store = watched(Place(path=f"{folder}/state").store(), at)
    pipeline = st.Pipeline(
        users,
        store=store,
        users=st.DeltaTable(f"{folder}/users"),
        into=[st.Files(f"{folder}/log", changes=True), st.DeltaTable(f"{folder}/view", key="id")],
    )
    ended = None
    with pipeline:
        try:
            pipeline.run()
        except SinkError:
            ended = REFUSED
        pipeline.stepper.store.close()
    answer.send(ended)


def life(folder: Path, moment: int) -> str | None:
    """Where a process was killed; `REFUSED`, or None: it came to the end."""
    said, code = last_words(live, str(folder), moment)
    killed: str | None = said[0] if said else "an error"
    lives = killed in (None, REFUSED)
    assert code == (0 if lives else -signal.SIGKILL), (code, said)
    return killed


def append(folder: Path, rows: list[tuple[int, str]]) -> None:
    table = pa.table({"id": [i for i, _ in rows], "name": [n for _, n in rows]})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(folder / "users"), table, mode="append", configuration=feed)


def logged(folder: Path) -> Counter[tuple[int, str]]:
    """The sum of the changes that the first sink has."""
    found: Counter[tuple[int, str]] = Counter()
    for path in sorted((folder / "log").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            found[row["id"], row["name"]] += 1 if row["_change_type"] == "insert" else -1
    return Counter({row: n for row, n in found.items() if n})


def viewed(folder: Path) -> Counter[tuple[int, str]]:
    """The rows that the second sink has."""
    table = DeltaTable(str(folder / "view")).to_pyarrow_table()
    return Counter((row["id"], row["name"]) for row in table.to_pylist())


def step(folder: Path) -> int:
    return ParquetState(f"{folder}/state").summary().step


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_refused_step_is_killed_at_each_call_and_goes_on_when_it_is_corrected(
    tmp_path: Path, every: int
) -> None:
    def until(ended: str | None) -> int:
        """Processes, each killed a little later, until one ends so."""
        died, moment = 0, every
        while (killed := life(tmp_path, moment)) != ended:
            assert killed not in (None, REFUSED), killed
            died, moment = died + 1, moment + every
        return died

    first = Counter({(1, "ann"): 1, (2, "bob"): 1})
    append(tmp_path, list(first))
    assert until(None) > 2
    assert logged(tmp_path) == viewed(tmp_path) == first
    append(tmp_path, [(2, "eve"), (3, "joe")])  # a second row with the key 2
    assert until(REFUSED) > 2
    assert (step(tmp_path), logged(tmp_path), viewed(tmp_path)) == (1, first, first)
    DeltaTable(str(tmp_path / "users")).delete("name = 'bob'")
    assert until(None) > 2
    last = Counter({(1, "ann"): 1, (2, "eve"): 1, (3, "joe"): 1})
    assert (step(tmp_path), logged(tmp_path), viewed(tmp_path)) == (2, last, last)
