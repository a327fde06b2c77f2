"""Commands whose errors do not quote the arguments: one may be a URL with a password."""

from __future__ import annotations

import sys
from typing import Any

import click

from stepping_spark.cli.output import NOT_DONE, not_printed


def examples(*lines: str) -> str:
    """The examples at the end of a command's help; click does not rewrap their lines."""
    return "\n".join(["\b", "Examples:" if lines[1:] else "Example:", *(f"  {x}" for x in lines)])


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
        known = ", ".join(name for option in options for name in option.opts)
        ctx.fail(
            "a word that begins with - is not an option of this command, and is not shown here "
            f"because it may hold a password; the options are {known}; put -- before a PATH that "
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
            known = ", ".join(self.list_commands(ctx))
            ctx.fail(f"{ctx.command_path} has no such command; its commands are {known}")
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
