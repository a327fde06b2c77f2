"""`stepping-spark source`: creates the log of changes from which pipelines read a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stepping_spark.callsite import user_line
from stepping_spark.cli.output import NOT_DONE, Output, say
from stepping_spark.cli.quiet import Commands, Quiet, examples
from stepping_spark.errors import SteppingError
from stepping_spark.pipeline.iceberg import IcebergTable
from stepping_spark.pipeline.postgres import Postgres
from stepping_spark.pipeline.row_class import row_class
from stepping_spark.rows.row_class import code_of, field_name


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
    found = _told(lambda: Postgres(url, table=table, schema=schema).uninstall())
    said = "has no log of changes any more" if found else "had no log of changes"
    Output().print(f"{schema}.{table} {said}")


@source.command(
    "class",
    cls=Quiet,
    epilog=examples(
        "stepping-spark source class lake/orders --name Order",
        "stepping-spark source class postgresql://user@host/shop orders",
    ),
    short_help="Print a row class for a table.",
)
@click.argument("path")
@click.argument("table", required=False)
@click.option("--name", help="The name of the class; by default that of the table.")
@click.option("--schema", default="public", show_default=True, help="The schema, in Postgres.")
@click.option("--catalog", help="The catalog of an Iceberg table, as pyiceberg is configured.")
@click.option("--required", multiple=True, metavar="COLUMN", help="A column that is never NULL.")
def row_class_of(
    path: str,
    table: str | None,
    name: str | None,
    schema: str,
    catalog: str | None,
    required: tuple[str, ...],
) -> None:
    """Print the row class of a table as Python code, for a query on it.

    PATH is a Delta table, a directory of Parquet files, the URL of a database with TABLE, or with
    --catalog the name of an Iceberg table.
    """

    def made() -> str:
        of: Any = path
        if table is not None:
            of = Postgres(path, table=table, schema=schema)
        elif catalog is not None:
            of = IcebergTable(path, catalog=catalog)
        last = table or path.rstrip("/").rpartition("." if catalog else "/")[2]
        chosen = name or "".join(part.capitalize() for part in field_name(last).split("_"))
        return code_of(row_class(of, name=chosen, required=required))

    Output().print(_told(made), soft_wrap=True)


def _told(work: Callable[[], object]) -> object:
    """The result of the work; its errors are shown as one message."""
    try:
        return work()
    except SteppingError as e:
        # If no line of the user led here, the message begins with a line of click.
        say(str(e).removeprefix(f"{user_line()}: "))
        raise click.exceptions.Exit(NOT_DONE) from None
