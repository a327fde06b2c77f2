"""Reads what mypy and pyright find, and what a program says they should."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.beside import PROGRAMS, result_of
from tests.cases import ROOT

Found = dict[tuple[str, int], str]  # what a checker says, by file and line


def output_of(name: str) -> str:
    """What a checker writes, for whom a finding is no failure."""
    done = result_of(name)
    if done.code not in (0, 1):  # 1: it has found something
        raise AssertionError(f"{name} failed: {done.out}\n{done.err}")
    return done.out


def mypy() -> Found:
    """What `mypy --strict` finds in the whole project, and in the programs."""
    found: Found = {}
    for line in output_of("mypy").splitlines():
        match = re.match(r"(.+?):(\d+)(?::\d+)?: error: (.*)", line)
        if match:
            found[_place(match[1]), int(match[2])] = match[3]
    return found


def pyright() -> Found:
    """What pyright, strict, finds in the examples and in the programs."""
    told = json.loads(output_of("pyright"))
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
