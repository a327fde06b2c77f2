"""The options of commands that take a dbt project in place of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--dbt",
        type=click.Path(exists=True, path_type=Path),
        metavar="DIR",
        help="Instead of FILE: a dbt project, after `dbt compile --full-refresh`.",
    ),
    click.option("--select", multiple=True, metavar="MODEL", help="With --dbt: only these models."),
    click.option(
        "--exclude", multiple=True, metavar="NAME", help="With --dbt: without this model or test."
    ),
    click.option("--no-checks", is_flag=True, help="With --dbt: without the tests of the project."),
)


def of_project(command: F) -> F:
    """Add --dbt, --select, --exclude and --no-checks to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def said_of_project(
    select: Sequence[str], exclude: Sequence[str], no_checks: bool
) -> dict[str, Any]:
    """What the options say, as a TOML file says it."""
    found: dict[str, Any] = {"select": list(select), "exclude": list(exclude)}
    return {k: v for k, v in found.items() if v} | ({"checks": False} if no_checks else {})
