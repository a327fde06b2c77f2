"""Common parts of the commands: output, errors that quote nothing, Ctrl-C, and the browser."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import click
from rich.console import Console

NOT_DONE = 2
"""The exit code of a command that could not do its work, or could not print the result."""


class StandardOutput(Console):
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


def somebody_looks() -> bool:
    """Whether a person sees this program's output, on a machine with a display. CI has neither."""
    if os.environ.get("CI") or not sys.stdout.isatty():
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(path: str | os.PathLike[str]) -> bool:
    """Open a file in a browser, if a person would see it. Returns whether it was opened."""
    return somebody_looks() and webbrowser.open(Path(path).resolve().as_uri())


def examples(*lines: str) -> str:
    """The examples at the end of a command's help; click does not rewrap their lines."""
    return "\n".join(["\b", "Examples:" if lines[1:] else "Example:", *(f"  {x}" for x in lines)])


def _renames(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The old and new names of inputs in the values of --renamed."""
    renamed = {}
    for text in texts:
        old, _equals, new = text.partition("=")
        if not old or not new or old in renamed:
            raise click.BadParameter(f"{text}: write each old name once, and its new one: a=b")
        renamed[old] = new
    return renamed


with_renames = click.option(
    "--renamed",
    multiple=True,
    metavar="OLD=NEW",
    callback=_renames,
    help="An input has another name, and is the same table.",
)


class Quiet(click.Command):
    """A command whose errors do not quote an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            pass
        except OSError as e:  # when --help is printed
            not_printed(e)
        options = (p for p in self.get_params(ctx) if isinstance(p, click.Option))
        names = ", ".join(name for option in options for name in option.opts)
        ctx.fail(
            "a word that begins with - is not an option of this command, and is not shown here "
            f"because it may hold a password; the options are {names}; put -- before a PATH that "
            "begins with -"
        )


class Commands(Quiet, click.Group):
    """A group of commands; the error for an unknown command lists the known ones."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except BrokenPipeError:  # when click prints its own errors
            sys.exit(NOT_DONE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = ", ".join(self.list_commands(ctx))
            ctx.fail(f"{ctx.command_path} has no such command; its commands are {names}")
        return super().resolve_command(ctx, args)


class OnePlace(Quiet):
    """A command with one place as its argument."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        super().parse_args(ctx, args)
        if ctx.args:
            ctx.fail(
                "one PATH or URL is expected, and more words were given; put quotes around one "
                "that has spaces"
            )
        return ctx.args


INTERRUPTED = 130
"""The exit code after Ctrl-C."""

T = TypeVar("T")


class Stop:
    """Makes Ctrl-C end a run after the current step; a second one ends the process at once.

    Neither damages a state. By default Python raises an exception in the middle of the step. That
    would also interrupt a call to Spark, which then logs a page of errors.
    """

    def __init__(self) -> None:
        self.pressed = False

    def listen(self) -> None:
        """Handle Ctrl-C from now on.

        A Spark session that starts in the main thread replaces the handler: see `during`.
        """
        signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: object) -> None:
        """The signal handler."""
        if self.pressed:
            os._exit(INTERRUPTED)
        self.pressed = True

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    def during(self, work: Callable[[], T]) -> T:
        """Run work for which Ctrl-C should not wait, such as the start of Spark; return its result.

        The work runs in another thread. If a session starts in the main thread, PySpark turns
        Ctrl-C into an exception from then on, at any point of the program.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as e:
                done.set_exception(e)

        threading.Thread(target=run, daemon=True).start()
        while not done.done():
            self.check()
            wait([done], timeout=0.05)
        return done.result()

    def between(self, steps: Sequence[T]) -> UntilStopped[T]:
        """The same steps, for `Stepper.run`, until Ctrl-C is pressed."""
        return UntilStopped(steps, self)


@dataclass(frozen=True)
class UntilStopped(Generic[T]):
    """Steps, with a check for Ctrl-C before each and at the end."""

    steps: Sequence[T]
    stop: Stop

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[T]:
        for step in self.steps:
            self.stop.check()
            yield step
        self.stop.check()
