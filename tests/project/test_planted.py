"""Tests find mistakes: each of `tests/planted.py` is found by the tests that it names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.cases import ROOT
from tests.planted import MISTAKES, Mistake, copy_to, run

each = pytest.mark.parametrize("mistake", MISTAKES, ids=str)


@each
def test_a_mistake_can_be_planted(mistake: Mistake) -> None:
    places = mistake.places()
    assert len(places) == 1, f"{mistake.old!r} occurs in {places}; write it as it is now"
    assert mistake.new != mistake.old
    files = [t.partition("::")[0] for t in mistake.tests if t.startswith("tests/")]
    assert [f for f in files if not (ROOT / f).exists()] == []


@pytest.mark.long
@each
def test_a_planted_mistake_is_found_by_the_tests_of_a_normal_run(mistake: Mistake) -> None:
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        root = copy_to(Path(directory))
        mistake.plant(root)
        done = run(root, mistake.tests)
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"  # 1: a test has failed
