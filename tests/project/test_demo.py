"""The main example on stores that outlive it: stopped, it goes on where it stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from stepping_spark.base.errors import StoreUnavailable
from stores.location import place_of
from tests.cases import ROOT
from tests.postgres_server import PostgresServer

DAYS = 10
STEPS = DAYS + 1
PROOF = "It equals, exactly, what one plain Spark SQL query gives on the final tables."


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo, as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepping_spark.cli", "demo", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def press_ctrl_c(process: subprocess.Popen[str]) -> None:
    """What a terminal does: it tells the processes that this one has started, too."""
    os.killpg(process.pid, signal.SIGINT)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=400)
    return process.returncode, out, err


def last_step(place: str) -> int:
    """The last step of a state, looked at from outside; 0 where there is none yet."""
    try:
        return place_of(place).state().summary().step
    except StoreUnavailable:
        return 0


def table_of(out: str) -> str:
    """The table that the demo ends with."""
    found = re.search(r"^ *Longest mean.*?\n\n", out, re.DOTALL | re.MULTILINE)
    assert found is not None, out
    return found[0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of a run that nobody has stopped."""
    code, out, err = ended(demo(tmp_path_factory.mktemp("memory"), "--days", str(DAYS)))
    assert (code, err) == (0, "")
    assert PROOF in out
    return table_of(out)


@pytest.fixture(params=["parquet", pytest.param("postgres", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for the state."""
    if request.param == "parquet":
        return f"parquet:{tmp_path / 'state'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return f"postgres:{server.url}?schema=s{uuid4().hex}"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(6, number=2)
def test_a_demo_that_is_stopped_goes_on_where_it_stopped_and_ends_the_same(
    tmp_path: Path, store: str, postgres: PostgresServer, undisturbed: str
) -> None:
    arguments = ("--days", str(DAYS), "--store", store)
    process = demo(tmp_path, *arguments)
    while last_step(store) < 3:
        assert process.poll() is None, ended(process)
        time.sleep(0.02)
    press_ctrl_c(process)
    code, out, err = ended(process)
    stopped = last_step(store)
    assert code == 130
    assert 3 <= stopped < STEPS
    assert err.count("\n") == 1
    assert f"Stopped after step {stopped}, 2013-01-{stopped:02}." in err
    assert postgres.password not in out + err

    code, out, err = ended(demo(tmp_path, *arguments))
    assert (code, err) == (0, "")
    assert f"Going on after step {stopped}, 2013-01-{stopped:02}" in out
    assert f"This run's {STEPS - stopped} steps" in out
    assert (table_of(out), PROOF in out) == (undisturbed, True)
    assert postgres.password not in out
    assert last_step(store) == STEPS


@pytest.mark.spark
@pytest.mark.long
def test_a_demo_that_is_at_its_end_has_nothing_to_do_and_takes_no_other_days(
    tmp_path: Path,
) -> None:
    tables = []
    for said in ("4 steps took in", "There is nothing to do: all 4 steps are in the state."):
        code, out, err = ended(demo(tmp_path, "--days", "3", "--store", "parquet:state"))
        assert (code, err) == (0, "")
        assert said in out
        assert PROOF in out
        tables.append(table_of(out))
    assert tables[0] == tables[1]
    code, out, err = ended(demo(tmp_path, "--days", "5", "--store", "parquet:state"))
    assert code == 2
    assert "is at step 4 of flights of 3 days;" in " ".join(err.split())
    assert last_step(str(tmp_path / "state")) == 4


def has_a_child(process: subprocess.Popen[str]) -> bool:
    """Whether Spark's JVM is being started."""
    tasks = Path(f"/proc/{process.pid}/task")
    return any((task / "children").read_text() for task in tasks.iterdir())


@pytest.mark.turn(2)
@pytest.mark.spark
@pytest.mark.parametrize("when", ["Java starts", "the circuit is drawn"])
def test_ctrl_c_at_the_start_is_one_line_too(tmp_path: Path, when: str) -> None:
    process = demo(tmp_path, "--days", "1")
    while not (has_a_child(process) if when == "Java starts" else list(tmp_path.glob("*.png"))):
        assert process.poll() is None, ended(process)
        time.sleep(0.02)
    press_ctrl_c(process)
    code, _, err = ended(process)
    assert (code, err.count("\n")) == (130, 1)
    assert "Stopped" in err
    assert "--store parquet:PATH" in err


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--store", "postgres:here"], "postgres:postgresql://", id="no URL"),
        pytest.param(["--store", "parquet:"], "parquet:PATH", id="no path"),
        pytest.param(["--schema", "s"], "only a store in Postgres", id="a schema of nothing"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    code, _, err = ended(demo(tmp_path, *arguments))
    assert (code, said in err) == (2, True)
    assert not list(tmp_path.iterdir())
