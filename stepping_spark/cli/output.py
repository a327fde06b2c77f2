"""Where the commands print, and what they do if that fails: a closed pipe, a full device."""

from __future__ import annotations

import os
import sys
import textwrap
from contextlib import suppress
from typing import Any, NoReturn

import click
from rich.console import Console

NOT_DONE = 2
"""The exit code of a command that could not do or say what it was asked for."""


class Output(Console):
    """The standard output, as plain text."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print, or end the command with an exit code that says nothing of the state."""
        try:
            super().print(*objects, **how)
        except OSError as e:
            not_printed(e)
        except SystemExit:  # what Rich makes of a closed pipe, with Python's exit code, 1
            not_printed(BrokenPipeError())

    def print_lines(self, text: str) -> None:
        """Print a text; what a line has beyond the width goes on below, further to the right."""
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
    """End a command whose output nobody takes."""
    # Python tries once more at its end to write what is left, and shows that error too.
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    if not isinstance(e, BrokenPipeError):  # as `head` leaves it: nobody wants to read more
        say(f"the output could not be written: {e.strerror}")
    raise click.exceptions.Exit(NOT_DONE) from None


def say(message: str) -> None:
    """Print an error, if there is still somewhere to print it."""
    with suppress(OSError):
        click.echo(f"Error: {message}", err=True)
