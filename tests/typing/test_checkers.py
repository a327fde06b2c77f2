"""What an editor says about queries: mypy and pyright, both strict."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import stepping_spark as st
from tests.typing import checkers
from tests.typing.programs import mistakes, not_found, views, with_functions_of_spark

CHECKERS = [checkers.mypy, checkers.pyright]


def queries_of(module: ModuleType) -> list[Any]:
    """The queries of a program, as parameters of a test."""
    return [
        pytest.param(f, id=f"{module.__name__.rpartition('.')[2]}.{name}")
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if f.__module__ == module.__name__ and "return" in typing.get_type_hints(f)
        if name not in ("steps", "right")
    ]


@pytest.mark.last
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_finds_the_mistakes_and_nothing_else(
    checker: Callable[[], checkers.Found],
) -> None:
    found, expected = checker(), checkers.expected()
    wrong = [f"{file}:{line}: {said}" for (file, line), said in found.items()]
    false = [text for text, place in zip(wrong, found, strict=True) if place not in expected]
    missed = [f"{file}:{line}: found nothing" for file, line in expected - set(found)]
    if false or missed:
        pytest.fail("\n".join(sorted([*false, *missed])), pytrace=False)


@pytest.mark.spark
@pytest.mark.parametrize("query", [*queries_of(views), *queries_of(with_functions_of_spark)])
def test_what_is_right_compiles(query: Any) -> None:
    st.compile(query)


def test_the_steps_of_the_views_are_as_their_types_say() -> None:
    views.steps()


@pytest.mark.spark
@pytest.mark.parametrize("query", [*queries_of(mistakes), *queries_of(not_found)])
def test_what_is_a_mistake_does_not_compile(query: Any) -> None:
    with pytest.raises(st.CompileError):
        st.compile(query)
