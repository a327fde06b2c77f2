"""Runs the checks of style, so that the one test command covers them.

Those of types are in tests/typing.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cases import ROOT


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["ruff", "check", "."], id="ruff check"),
        pytest.param(["ruff", "format", "--check", "--diff", "."], id="ruff format"),
    ],
)
def test_the_tool_finds_nothing_to_say(arguments: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if run.returncode != 0:
        pytest.fail(f"{run.stdout}\n{run.stderr}", pytrace=False)
