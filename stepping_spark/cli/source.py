"""`stepping-spark source`: creates the log of changes from which pipelines read a table."""

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
    short_help="Prepare tables of Postgres for pipelines.",
)
def source() -> None:
    """Prepare tables of Postgres, so that pipelines can read them.

    URL is postgresql://user@host/database. Other users of the machine can see the command line
    (ps), so put passwords into a password file (~/.pgpass).
    """


@source.command(
    cls=Quiet,
    epilog=examples("stepping-spark source install postgresql://user@host/shop orders"),
    short_help="Add a log of changes to a table.",
)
@click.argument("url")
@click.argument("table")
@click.option("--schema", default="public", show_default=True, help="The schema of the table.")
@click.option("--again", is_flag=True, help="Mend a log that may lack changes of the table.")
def install(url: str, table: str, schema: str, *, again: bool) -> None:
    """Add a log of changes, TABLE_changes, to TABLE. Triggers write it.

    The command waits for transactions that write the table, and copies its rows into the log. The
    user must own the table, or be able to create triggers on it and tables in its schema.

    With --again it writes to a log what the table has and the log does not, so that pipelines go
    on. Use it when a pipeline says so: partitions were attached or detached, triggers disabled, the
    table was replaced, or columns that are read were changed.
    """
    found = _told(lambda: Postgres(url, table=table, schema=schema).install(again=again))
    said = "has a log of all its changes now" if found else "has a log of changes already"
    Output().print(f"{schema}.{table} {said}: {schema}.{table}_changes")


@source.command(
    cls=Quiet,
    epilog=examples("stepping-spark source uninstall postgresql://user@host/shop orders"),
    short_help="Remove the log of changes of a table.",
)
@click.argument("url")
@click.argument("table")
@click.option("--schema", default="public", show_default=True, help="The schema of the table.")
def uninstall(url: str, table: str, schema: str) -> None:
    """Remove the log of changes of TABLE; pipelines that read it cannot go on."""
    _told(lambda: Postgres(url, table=table, schema=schema).uninstall())
    Output().print(f"{schema}.{table} has no log of changes")


def _told(work: Callable[[], object]) -> object:
    """The result of the work; its errors are shown as one message."""
    try:
        return work()
    except SteppingError as e:
        say(str(e))
        raise click.exceptions.Exit(NOT_DONE) from None
