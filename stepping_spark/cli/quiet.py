"""Commands whose errors do not quote what was typed: it may be a URL with a password."""

from __future__ import annotations

import click


class Commands(click.Group):
    """A group of commands; of a word that is none of them it says which there are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = ", ".join(self.list_commands(ctx))
            ctx.fail(f"after {ctx.command_path} comes one of these words: {known}")
        return super().resolve_command(ctx, args)


class OnePlace(click.Command):
    """A command on one place."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        super().parse_args(ctx, args)
        if ctx.args:
            ctx.fail(
                "one PATH or URL is expected, and more words were given; put quotes around one "
                "that has spaces"
            )
        return ctx.args
