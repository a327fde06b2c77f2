"""Runs mypy and pyright, and reads what they find and what a program says they should."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.cases import ROOT

PROGRAMS = ROOT / "tests" / "typing" / "programs"
Found = dict[tuple[str, int], str]  # what a checker says, by file and line


def run(*arguments: str) -> str:
    """What a checker writes, for whom a finding is no failure."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode not in (0, 1):  # 1: it has found something
        raise AssertionError(f"{arguments[0]} failed: {done.stdout}\n{done.stderr}")
    return done.stdout


def mypy() -> Found:
    """What `mypy --strict` finds in the whole project, and in the programs."""
    where = ("stepping_spark", "circuits", "stores", "examples", "tests")
    found: Found = {}
    for line in run("mypy", "--no-error-summary", *where, *map(str, programs())).splitlines():
        match = re.match(r"(.+?):(\d+)(?::\d+)?: error: (.*)", line)
        if match:
            found[_place(match[1]), int(match[2])] = match[3]
    return found


def pyright() -> Found:
    """What pyright, strict, finds in the examples and in the programs."""
    told = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable))
    assert told["summary"]["filesAnalyzed"] > len(programs())
    return {
        (_place(d["file"]), d["range"]["start"]["line"] + 1): d["message"]
        for d in told["generalDiagnostics"]
        if d["severity"] != "information"
    }


def programs() -> list[Path]:
    """The programs whose lines say what is to be found in them."""
    return sorted(PROGRAMS.glob("*.py"))


def expected() -> set[tuple[str, int]]:
    """The lines of the programs at which both find an error: those that end in `# error`."""
    return {
        (_place(str(path)), number)
        for path in programs()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# error")
    }


def _place(file: str) -> str:
    """A file, as it is called in messages."""
    return (ROOT / file).resolve().relative_to(ROOT).as_posix()
