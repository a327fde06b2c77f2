"""`stepping-spark source`: makes the log of changes by which a table of Postgres is read."""

from __future__ import annotations

from collections.abc import Callable

import click

from stepping_spark.cli.output import NOT_DONE, Output, say
from stepping_spark.cli.quiet import Commands, Quiet, examples
from stepping_spark.errors import SteppingError
from stepping_spark.pipeline.postgres import Postgres


@click.group(
    cls=Commands,
    epilog=examples("stepping-spark source install postgresql://user@host/shop orders"),
    short_help="Make tables of Postgres ready to be read.",
)
def source() -> None:
    """Make tables of Postgres ready to be read by pipelines.

    URL is postgresql://user@host/database. Everybody on the machine can read a command line while
    it runs (ps): keep passwords out of it, in a password file (~/.pgpass).
    """


@source.command(
    cls=Quiet,
    epilog=examples("stepping-spark source install postgresql://user@host/shop orders"),
    short_help="Give a table a log of its changes.",
)
@click.argument("url")
@click.argument("table")
@click.option("--schema", default="public", show_default=True, help="The schema of the table.")
def install(url: str, table: str, schema: str) -> None:
    """Give TABLE a log of its changes, TABLE_changes, written by triggers.

    Waits for those who write the table, and copies its rows into the log. The user must own the
    table, or be able to create triggers on it and tables beside it.
    """
    found = _told(lambda: Postgres(url, table=table, schema=schema).install())
    said = "has a log of changes now" if found else "has a log of changes already"
    Output().print(f"{schema}.{table} {said}: {schema}.{table}_changes")


@source.command(
    cls=Quiet,
    epilog=examples("stepping-spark source uninstall postgresql://user@host/shop orders"),
    short_help="Remove that log.",
)
@click.argument("url")
@click.argument("table")
@click.option("--schema", default="public", show_default=True, help="The schema of the table.")
def uninstall(url: str, table: str, schema: str) -> None:
    """Remove the log of changes of TABLE; pipelines that read it cannot go on."""
    _told(lambda: Postgres(url, table=table, schema=schema).uninstall())
    Output().print(f"{schema}.{table} has no log of changes")


def _told(work: Callable[[], object]) -> object:
    """What the work gives; its errors as one message."""
    try:
        return work()
    except SteppingError as e:
        say(str(e))
        raise click.exceptions.Exit(NOT_DONE) from None
