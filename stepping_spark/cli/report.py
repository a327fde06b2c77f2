"""`stepping-spark report`: writes the report of a pipeline, or of a stepper, that a file makes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stepping_spark.cli.browser import open_page
from stepping_spark.cli.made import made_by
from stepping_spark.cli.output import NOT_DONE, Output, say
from stepping_spark.cli.quiet import examples
from stepping_spark.errors import SteppingError
from stepping_spark.pipeline import Pipeline
from stepping_spark.stepper import Stepper


@click.command(
    epilog=examples(
        "stepping-spark report pipeline.py",
        "stepping-spark report script.py --out new.html --beside old.html",
    ),
    short_help="Write a page on what steps cost and what is kept.",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    show_default=True,
    help="Where to write the page.",
)
@click.option(
    "--beside",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A report of another run, to compare with.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open the page in a browser.")
def report(file: Path, out: Path, beside: Path | None, opens: bool) -> None:
    """Write the report of the pipeline, or of the stepper, that FILE makes.

    FILE is run as Python, and the variable `pipeline` or `stepper` is reported on, or the only one
    that there is. Of a stepper the page has the steps that FILE took. A pipeline takes no step and
    no lock: the page has its circuit, and its state as it is. For the steps of a pipeline see
    `stepping-spark run --report`.

    The page is opened only at a terminal with a display.

    Exit codes: 0, the page is written; 2, an error, which is said.
    """
    try:
        made = made_by(file, ("pipeline", "stepper"), (Pipeline, Stepper))
        made.report().write(out, beside=beside)
    except SteppingError as e:
        say(str(e))
        sys.exit(NOT_DONE)
    Output().print(f"The report is in {out}", soft_wrap=True)
    if opens:
        open_page(out)
