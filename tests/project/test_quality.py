"""Runs the checks of style, so that the one test command covers them.

Those of types are in tests/typing.
"""

from __future__ import annotations

import pytest

from tests.beside import result_of


@pytest.mark.last
@pytest.mark.parametrize("name", ["ruff check", "ruff format"])
def test_the_tool_finds_nothing_to_say(name: str) -> None:
    result = result_of(name)
    if result.code != 0:
        pytest.fail(f"{result.out}\n{result.err}", pytrace=False)
