"""What checks the text of the project beside its tests: ruff, pyright and mypy.

A run of all tests begins with `Beside`: a process that takes what the tests leave of the processor.
The tests that ask for a result come last. In a run of some tests they start the program themselves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests import java_classes
from tests.cases import ROOT

PROGRAMS = ROOT / "tests" / "typing" / "programs"
TYPED = ("stepping_spark", "circuits", "stores", "examples", "tests")
PLACE = "STEPPING_SPARK_BESIDE"  # the variable that has the directory of the results
MOST_SECONDS = 600


class Result(NamedTuple):
    """What a program has written, and its exit code."""

    code: int
    out: str
    err: str


def checks() -> dict[str, tuple[str, ...]]:
    """The programs, the fastest first."""
    programs = map(str, sorted(PROGRAMS.glob("*.py")))
    return {
        "ruff check": ("ruff", "check", "."),
        "ruff format": ("ruff", "format", "--check", "--diff", "."),
        "pyright": ("pyright", "--outputjson", "--pythonpath", sys.executable),
        "mypy": ("mypy", "--no-error-summary", *TYPED, *programs),
    }


def result_of(name: str) -> Result:
    """The result of a program: of the one that runs beside the tests, or of one started now."""
    place = os.environ.get(PLACE)
    if place is None:
        return _run(name)
    path = _file(Path(place), name)
    end = time.monotonic() + MOST_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{name} has no result after {MOST_SECONDS} seconds")
        time.sleep(0.1)
    return Result(*json.loads(path.read_text(encoding="utf-8")))


def _run(name: str) -> Result:
    try:
        done = subprocess.run(
            [sys.executable, "-m", *checks()[name]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as e:  # the others are still to run
        return Result(1, "", str(e))
    return Result(done.returncode, done.stdout, done.stderr)


def _file(place: Path, name: str) -> Path:
    return place / f"{name.replace(' ', '-')}.json"


class Beside:
    """All programs, one after the other, in a process of lower priority."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="stepping-beside-")
        os.environ[PLACE] = self._place.name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.beside", self._place.name],
            cwd=ROOT,
            start_new_session=True,
        )

    def end(self) -> None:
        """End what still runs, and remove the results."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        del os.environ[PLACE]
        self._place.cleanup()


def main(place: Path) -> None:
    os.nice(10)
    java_classes.make()
    for name in checks():
        written = place / "result"
        written.write_text(json.dumps(_run(name)), encoding="utf-8")
        written.rename(_file(place, name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
