"""The output of the commands, also if printing fails: a closed pipe, a full device."""

from __future__ import annotations

import os
import sys
import textwrap
from contextlib import suppress
from typing import Any, NoReturn

import click
from rich.console import Console

NOT_DONE = 2
"""The exit code of a command that could not do its work, or could not print the result."""


class Output(Console):
    """The standard output, as plain text."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print. If that fails, end the command with `NOT_DONE`, not Python's exit code 1."""
        try:
            super().print(*objects, **how)
        except OSError as e:
            not_printed(e)
        except SystemExit:  # Rich, for a closed pipe, with exit code 1
            not_printed(BrokenPipeError())

    def print_lines(self, text: str) -> None:
        """Print a text. Long lines are wrapped, with a deeper indent."""
        for line in text.splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            wrapped = textwrap.wrap(
                line.strip(),
                self.width,
                initial_indent=indent,
                subsequent_indent=f"{indent}    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            self.print("\n".join(wrapped), soft_wrap=True)


def not_printed(e: OSError) -> NoReturn:
    """End a command whose output cannot be written."""
    # At its exit, Python tries to write the rest again, and would show that error too.
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    if not isinstance(e, BrokenPipeError):  # e.g. by `head`, which reads no more
        say(f"the output could not be written: {e.strerror}")
    raise click.exceptions.Exit(NOT_DONE) from None


def say(message: str) -> None:
    """Print an error, if standard error is still open."""
    with suppress(OSError):
        click.echo(f"Error: {message}", err=True)
