"""Circuits on Spark Connect, and on a cluster of two workers, as on a session of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import ROOT
from tests.elsewhere import PIPELINE, WORKERS

# With `-m long` it is all of them.
SOME = ("group ints by user", "recursion")
kinds = pytest.mark.parametrize("kind", ["connect", "cluster"])


def run(directory: Path, module: str, *arguments: str) -> str:
    """What a program prints that runs elsewhere, as it must, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "STEPPING_SPARK_MASTER": WORKERS},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(6, number=0)  # tests/compat/test_selection.py starts the other session of Connect
@pytest.mark.parametrize("kind", ["connect", pytest.param("cluster", marks=pytest.mark.long)])
def test_some_circuits_give_what_plain_python_gives(kind: str, tmp_path: Path) -> None:
    said = run(tmp_path, "tests.elsewhere", kind, *SOME, PIPELINE)
    assert said.count("as plain Python says") == len(SOME)
    assert "pipeline: as it should be" in said


@pytest.mark.spark
@pytest.mark.long
@kinds
def test_every_circuit_gives_what_plain_python_gives(kind: str, tmp_path: Path) -> None:
    assert "recursion: as plain Python says" in run(tmp_path, "tests.elsewhere", kind)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(6, number=3)
def test_a_large_change_uses_both_workers_and_survives_the_death_of_one(tmp_path: Path) -> None:
    said = run(tmp_path, "tests.two_workers", "workers")
    assert "both workers computed it" in said
    assert "a worker died, and nothing is lost" in said


@pytest.mark.spark
@pytest.mark.long
def test_a_join_with_a_hot_key_holds_on_workers_of_a_gigabyte(tmp_path: Path) -> None:
    assert "a hot key is joined" in run(tmp_path, "tests.two_workers", "hot")
