"""A thousand small steps in each store: memory and files do not grow, and the view is right."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cases import ROOT


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["memory", "parquet", "postgres"])
def test_a_thousand_steps_do_not_grow_memory_or_files(kind: str) -> None:
    soaked = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.soak", "--stores", kind, "--steps", "1000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert soaked.returncode == 0, soaked.stdout + soaked.stderr
