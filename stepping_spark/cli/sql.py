"""`stepping-spark sql`: draws and explains the circuit of views in SQL, and runs nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stepping_spark.callsite import user_line
from stepping_spark.cli.browser import open_page
from stepping_spark.cli.output import NOT_DONE, Output, say
from stepping_spark.cli.project import of_project, said_of_project
from stepping_spark.cli.quiet import examples
from stepping_spark.cli.run import IN_FULL
from stepping_spark.cli.tables import COLUMNS, TABLE, graph_of
from stepping_spark.drawing.render import write_png, write_svg
from stepping_spark.errors import SteppingError
from stepping_spark.pipeline.prospect import explained
from stepping_spark.pipeline.views import view_names
from stepping_spark.plan.explain import explain


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
    help="The table of an input, which says its columns: orders=delta:lake/orders.",
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

    FILE is views in SQL (.sql), or a TOML file for `stepping-spark run`. The command prints what is
    kept, and what a step of each view reads. It reads no rows and keeps no state. What cannot be
    kept up to date is an error, with its line.

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
        if verbose:  # where no line of the user led, each vertex has a line of click
            text = str(explain(graph)).replace(f"  ({user_line()})", "")
        Output().print_lines(text)
        if out is not None:
            (write_png if out.suffix == ".png" else write_svg)(graph, out, level)
            Output().print(f"The circuit is in {out}", soft_wrap=True)
    except SteppingError as e:
        say(str(e))
        sys.exit(NOT_DONE)
    if out is not None and opens:
        open_page(out)
    sys.exit(IN_FULL if in_full else 0)
