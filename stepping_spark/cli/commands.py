"""The commands `report`, `source` and `sql`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import stepping_spark as st
from stepping_spark.base.callsite import user_line
from stepping_spark.cli.loading import object_in
from stepping_spark.cli.output import (
    NOT_DONE,
    Commands,
    Quiet,
    StandardOutput,
    examples,
    open_page,
    say,
)
from stepping_spark.cli.run import IN_FULL
from stepping_spark.cli.tables import COLUMNS, TABLE, graph_of, of_project, said_of_project
from stepping_spark.pipeline.dry_run import explained
from stepping_spark.pipeline.row_class import code_of_table
from stepping_spark.pipeline.views import view_names


@click.command(
    epilog=examples(
        "stepping-spark report pipeline.py",
        "stepping-spark report script.py --out new.html --beside old.html",
    ),
    short_help="Write a report on steps and state.",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--beside",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The report of another run, to compare with.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open the report in a browser.")
def report(file: Path, out: Path, beside: Path | None, opens: bool) -> None:
    """Write the report of a pipeline or a stepper in FILE.

    The command runs FILE as Python, and reports on its variable `pipeline` or `stepper`, or on its
    only st.Pipeline or st.Stepper. The report of a stepper shows the steps that FILE took. A
    pipeline takes no step and no lock: its report shows the circuit and the present state. To
    report on the steps of a pipeline, use `stepping-spark run --report`.

    The report opens in a browser only if the command runs in a terminal with a display.

    Exit codes: 0, the report was written; 2, an error, with a message.
    """
    try:
        subject = object_in(file, ("pipeline", "stepper"), (st.Pipeline, st.Stepper))
        subject.report().write(out, beside=beside)
    except st.SteppingError as e:
        say(str(e))
        sys.exit(NOT_DONE)
    StandardOutput().print(f"The report is in {out}", soft_wrap=True)
    if opens:
        open_page(out)


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
    user must own the table, and be able to create tables in its schema.

    With --again it adds the changes that the log lacks, so that pipelines go on. Use it when the
    error of a pipeline asks for it: partitions were attached or detached, triggers disabled, the
    table was replaced, or columns that a pipeline reads were changed.
    """
    is_new = _with_short_errors(
        lambda: st.Postgres(url, table=table, schema=schema).install(again=again)
    )
    text = "has a log of all its changes now" if is_new else "has a log of changes already"
    StandardOutput().print(f"{schema}.{table} {text}: {schema}.{table}_changes")


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
    was_there = _with_short_errors(lambda: st.Postgres(url, table=table, schema=schema).uninstall())
    text = "has no log of changes any more" if was_there else "had no log of changes"
    StandardOutput().print(f"{schema}.{table} {text}")


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

    PATH is a Delta table, a directory of Parquet, CSV or JSON files, the URL of a database with
    TABLE, or with --catalog the name of an Iceberg table.
    """

    def code() -> str:
        of: Any = path
        if table is not None:
            of = st.Postgres(path, table=table, schema=schema)
        elif catalog is not None:
            of = st.IcebergTable(path, catalog=catalog)
        last = table or path.rstrip("/").rpartition("." if catalog else "/")[2]
        return code_of_table(of, last, name, required)

    StandardOutput().print(_with_short_errors(code), soft_wrap=True)


def _with_short_errors(work: Callable[[], object]) -> object:
    """The result of the work; its errors are shown as one message."""
    try:
        return work()
    except st.SteppingError as e:
        # If no line of the user led here, the message begins with a line of click.
        say(str(e).removeprefix(f"{user_line()}: "))
        raise click.exceptions.Exit(NOT_DONE) from None


@click.command(
    epilog=examples(
        "stepping-spark sql views.sql --source orders=delta:lake/orders",
        "stepping-spark sql views.sql --columns 'orders=id BIGINT, country STRING'",
        "stepping-spark sql --dbt shop --out shop.svg",
    ),
    short_help="Draw and explain views in SQL.",
)
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@of_project
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar=TABLE,
    help="The table of an input, for its columns: orders=delta:lake/orders.",
)
@click.option(
    "--columns",
    multiple=True,
    metavar=COLUMNS,
    help="The columns of an input, if there is no table yet: 'orders=id BIGINT, country STRING'.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Draw the circuit, as .svg or .png.",
)
@click.option(
    "--level",
    type=click.IntRange(0, 2),
    default=1,
    show_default=True,
    help="With --out: 0 draws the views, 1 and 2 also what they are made of.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open the picture in a browser.")
@click.option("--verbose", is_flag=True, help="Print how each vertex computes a step.")
def sql(
    file: Path | None,
    dbt: Path | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    no_checks: bool,
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    out: Path | None,
    level: int,
    opens: bool,
    verbose: bool,
) -> None:
    """Explain the circuit of the views in FILE, and draw it.

    FILE is views in SQL (.sql), or a TOML file for `stepping-spark run`. The command prints the
    registers of the state, and what a step of each view reads. It reads no rows and keeps no state.
    A query that cannot be maintained is an error, with its line.

    Exit codes: 0, the views can be maintained; 1, a part of them would be recomputed in full at
    each step; 2, an error, with a message.
    """
    if (file is None) == (dbt is None):
        raise click.UsageError(
            "give either a file, as `stepping-spark sql views.sql`, or a dbt project: --dbt DIR"
        )
    of_dbt = said_of_project(select, exclude, no_checks)
    if of_dbt and dbt is None:
        raise click.UsageError("--select, --exclude and --no-checks are for --dbt")
    if file is not None and file.suffix not in (".sql", ".toml"):
        raise click.UsageError(f"{file} is neither .sql nor .toml; its name says what is in it")
    if out is not None and out.suffix not in (".svg", ".png"):
        raise click.UsageError(f"--out {out}: expected a name that ends with .svg or .png")
    try:
        graph = graph_of(file or dbt or Path(), of_dbt, sources, columns)
        text, in_full = explained(graph, view_names(graph))
        if verbose:  # a vertex without a line of the user has a line of click
            text = str(st.explain(graph)).replace(f"  ({user_line()})", "")
        StandardOutput().print_lines(text)
        if out is not None:
            (st.write_png if out.suffix == ".png" else st.write_svg)(graph, out, level)
            StandardOutput().print(f"The circuit is in {out}", soft_wrap=True)
    except st.SteppingError as e:
        say(str(e))
        sys.exit(NOT_DONE)
    if out is not None and opens:
        open_page(out)
    sys.exit(IN_FULL if in_full else 0)
