"""The command line: `stepping-spark demo`, `run`, `sql`, `report`, `source` and `state`.

Long-running programs can use `Stop`, which lets Ctrl-C end them between two steps, and the exit
code `INTERRUPTED`. Programs that take the URL of a store can use `Quiet`, whose errors do not quote
the arguments. `open_page` opens a report in the browser of an interactive user.

`commands` has `report`, `source` and `sql`; `run` and `state` have the commands of these names.
`loading` runs a user's file. `tables` makes pipelines without Python, from SQL or a TOML file.
`output` has the parts that all commands share.

A command does nothing that a user's program cannot do: it uses the facade for all that is public.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click

from stepping_spark.cli.commands import report, source, sql
from stepping_spark.cli.output import INTERRUPTED, Commands, Quiet, Stop, examples, open_page
from stepping_spark.cli.run import run
from stepping_spark.cli.state import state

__all__ = ["INTERRUPTED", "Quiet", "Stop", "examples", "main", "open_page"]


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=examples(
        "stepping-spark demo --days 30",
        "stepping-spark run pipeline.py --every 10s",
        "stepping-spark report pipeline.py",
        "stepping-spark state show state",
    ),
)
@click.version_option(package_name="stepping-spark")
@click.pass_context
def main(context: click.Context) -> None:
    """Views on Spark that are maintained, not recomputed.

    Run a command with --help to see its options.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_command(run)
main.add_command(sql)
main.add_command(report)
main.add_command(source)
main.add_command(state)


@main.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Step through a year of flights.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> None:
    """Run examples/flights.py of the checkout; see its options with `demo --help`."""
    script = Path(__file__).resolve().parent.parent.parent / "examples" / "flights.py"
    if not script.exists():
        raise click.ClickException(
            "the demo is examples/flights.py of the project's checkout, and this is an installed "
            "copy without it: clone the project, and pip install -e '.[demo]' there"
        )
    try:
        command: click.Command = runpy.run_path(str(script))["main"]
    except KeyboardInterrupt:
        click.echo("Stopped before the first step.", err=True)
        sys.exit(INTERRUPTED)
    command.context_settings["help_option_names"] = ["-h", "--help"]
    command.main(list(arguments), prog_name="stepping-spark demo")
