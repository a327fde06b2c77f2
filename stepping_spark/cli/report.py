"""`stepping-spark report`: writes the report of a file's pipeline or stepper."""

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
        made = made_by(file, ("pipeline", "stepper"), (Pipeline, Stepper))
        made.report().write(out, beside=beside)
    except SteppingError as e:
        say(str(e))
        sys.exit(NOT_DONE)
    Output().print(f"The report is in {out}", soft_wrap=True)
    if opens:
        open_page(out)
