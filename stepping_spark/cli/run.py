"""`stepping-spark run`: runs the pipeline or the views of a file."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import stepping_spark as st
from stepping_spark.base.callsite import user_line
from stepping_spark.cli.loading import naming_target, pipeline_in
from stepping_spark.cli.output import (
    INTERRUPTED,
    NOT_DONE,
    StandardOutput,
    examples,
    say,
    with_renames,
)
from stepping_spark.cli.tables import (
    COLUMNS,
    PLACE,
    TABLE,
    of_project,
    pipeline_of,
    said_of_project,
)
from stepping_spark.pipeline.reporting import serve
from stepping_spark.pipeline.rounds import RETRIES, seconds_in

IN_FULL = 1
"""The exit code of a dry run if a part of the query is recomputed in full."""

LINE = "%(asctime)s %(levelname)s %(message)s"


def _seconds(_: click.Context, __: click.Parameter, every: str | None) -> float | None:
    """The value of --every, in seconds."""
    try:
        return None if every is None else seconds_in(every)
    except ValueError as e:
        raise click.BadParameter(str(e)) from None


@click.command(
    epilog=examples(
        "stepping-spark run pipeline.py --dry-run",
        "stepping-spark run pipeline.py --every 10s --report report.html",
        "stepping-spark run views.py:revenue --store parquet:state",
        "stepping-spark run shop.toml --dry-run",
        "stepping-spark run --dbt shop --store parquet:state --into delta:lake",
        "stepping-spark run green.py --evolve --copy-of parquet:state",
    ),
    short_help="Run the pipeline or the views of a file.",
)
@click.argument("file", metavar="FILE[:NAME]", required=False)
@click.option(
    "--store",
    metavar="STORE",
    help="Where views keep their state: parquet:DIRECTORY or postgresql://user@host/database.",
)
@click.option(
    "--every",
    callback=_seconds,
    metavar="TIME",
    help="Keep following the sources, and look for changes this often: 10s, 5min, or 10 (seconds).",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=RETRIES,
    show_default=True,
    help="With --every: attempts in a row that may fail, as when a connection is lost.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar=TABLE,
    help="With FILE.sql or --dbt: the table of an input: orders=delta:lake/orders.",
)
@click.option(
    "--columns",
    multiple=True,
    metavar=COLUMNS,
    help="With FILE.sql or --dbt: the columns of an input, where its files have no types: "
    "'orders=id BIGINT, country STRING'.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar=TABLE,
    help="With FILE.sql or --dbt: the table of a view, with its key: "
    "revenue=delta:lake/revenue:country.",
)
@click.option(
    "--into", metavar=PLACE, help="With --dbt: where the tables of models are: delta:lake."
)
@of_project
@click.option("--max-steps", type=click.IntRange(min=1), help="Stop after this number of steps.")
@click.option("--progress", is_flag=True, help="Show a line with the last step and the lag.")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65_535),
    help="Serve metrics for Prometheus on this machine.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="At the end, write a report of the steps: their cost by vertex, and the state.",
)
@click.option(
    "--evolve",
    is_flag=True,
    help="Evolve the state of an earlier query to this one, and fill new sinks.",
)
@with_renames
@click.option(
    "--copy-of",
    metavar="STORE",
    help="With --evolve: if there is no state yet, begin with a copy of this one.",
)
@click.option(
    "--refresh",
    metavar="VIEW",
    multiple=True,
    help="With --evolve: replace all rows in the tables of this view.",
)
@click.option("--dry-run", is_flag=True, help="Print what a run would do, and change nothing.")
@click.option(
    "--count",
    is_flag=True,
    help="With --evolve --dry-run: compute how many rows leave and enter each view.",
)
@click.option(
    "--verbose", is_flag=True, help="With --dry-run: print how each vertex computes a step."
)
def run(
    file: str | None,
    dbt: Path | None,
    store: str | None,
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    sinks: tuple[str, ...],
    into: str | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    no_checks: bool,
    every: float | None,
    retries: int,
    max_steps: int | None,
    progress: bool,
    metrics_port: int | None,
    report: Path | None,
    evolve: bool,
    renamed: dict[str, str],
    copy_of: str | None,
    refresh: tuple[str, ...],
    dry_run: bool,
    count: bool,
    verbose: bool,
) -> None:
    """Run the pipeline in FILE: its variable `pipeline`, or its only st.Pipeline.

    If FILE has no st.Pipeline, its functions with @st.view are run, with their sources and sinks;
    NAME selects one of them. FILE may also be a module: shop.views:revenue; or views in SQL
    (.sql), with --source and --sink for their tables; or a TOML file with all of this. With --dbt,
    the views are the models of a dbt project: tables and incremental models are written, and its
    tests are checked before a step is committed. Other users of the machine can see the command
    line (ps), so put passwords into a password file (~/.pgpass), not into --store.

    The command processes all new changes, and exits. With --every it keeps following the sources,
    and tries again, with growing pauses, if a connection is lost or a server does not answer.
    If the query has changed, --evolve corrects the state and the tables by a step of their own, and
    fills the tables of sinks that are new; --evolve --dry-run says how, and with --count, how many
    rows leave and enter each view. --copy-of leaves the old state and its tables as they are, and
    fills new tables beside them. --refresh replaces all rows in the tables of a view.

    Each step writes a line to the log, on standard error. Ctrl-C and SIGTERM stop it between two
    steps.

    Exit codes: 0, all new changes were processed, or SIGTERM stopped it; 1, with --dry-run: a part
    of the query would be recomputed in full at each step; 2, an error, with a message; 130, Ctrl-C.
    """
    logging.basicConfig(format=LINE)
    logging.getLogger("stepping_spark").setLevel(logging.INFO)
    of_dbt = said_of_project(select, exclude, no_checks) | ({"into": into} if into else {})
    try:
        with _pipeline(file, dbt, store, sources, columns, sinks, of_dbt) as pipeline:
            target = file or str(dbt)
            if evolve:
                naming_target(
                    target,
                    lambda: pipeline.allow_evolution(
                        {**pipeline.renamed, **renamed}, copy_of, refresh
                    ),
                )
            elif renamed:
                raise click.UsageError("--renamed is for --evolve: add it")
            elif copy_of is not None:
                raise click.UsageError("--copy-of is for --evolve: add it")
            elif refresh:
                raise click.UsageError("--refresh is for --evolve: add it")
            if count and not (evolve and dry_run):
                raise click.UsageError("--count is for --evolve --dry-run: add them")
            if dry_run:
                prospect = naming_target(target, lambda: pipeline.dry_run(count=count))
                text = str(prospect)
                if verbose:  # a vertex without a line of the user has a line of click
                    text = prospect.in_detail().replace(f"  ({user_line()})", "")
                StandardOutput().print_lines(text)
                sys.exit(IN_FULL if prospect.in_full else 0)
            with _served(pipeline, metrics_port), _reported(pipeline, report):
                steps = naming_target(
                    target,
                    lambda: pipeline.run(
                        every=every, max_steps=max_steps, progress=progress, retries=retries
                    ),
                )
            stopped = pipeline.stopped_by
    except st.SteppingError as e:
        say(str(e))
        sys.exit(NOT_DONE)
    except KeyboardInterrupt:
        say("interrupted: the state is that of the last committed step")
        sys.exit(INTERRUPTED)
    StandardOutput().print(f"{steps:,} step{'' if steps == 1 else 's'} taken")
    sys.exit(INTERRUPTED if stopped == signal.SIGINT else 0)


def _pipeline(
    file: str | None,
    dbt: Path | None,
    store: str | None,
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    sinks: tuple[str, ...],
    of_dbt: Mapping[str, Any],
) -> st.Pipeline:
    """The pipeline of a dbt project, or of a file: of SQL, of TOML that names one, or of Python."""
    if (file is None) == (dbt is None):
        raise click.UsageError(
            "give either a file, as `stepping-spark run pipeline.py`, or a dbt project: --dbt DIR"
        )
    if dbt is not None:
        return pipeline_of(dbt, of_dbt, store, sources, columns, sinks)
    assert file is not None
    if of_dbt:
        raise click.UsageError("--into, --select, --exclude and --no-checks are for --dbt")
    if Path(file).suffix in (".sql", ".toml"):
        if not Path(file).is_file():
            raise click.UsageError(f"there is no file {file}; check the path")
        return pipeline_of(Path(file), {}, store, sources, columns, sinks)
    if sources or columns or sinks:
        raise click.UsageError(
            "--source, --columns and --sink are for views in a .sql file, and for --dbt"
        )
    return pipeline_in(file, store)


@contextmanager
def _reported(pipeline: st.Pipeline, path: Path | None) -> Iterator[None]:
    """Write the report of the steps at the end, also after an error."""
    try:
        yield
    finally:
        if path is not None:
            pipeline.report().write(path)


@contextmanager
def _served(pipeline: st.Pipeline, port: int | None) -> Iterator[None]:
    """Serve metrics while the pipeline runs."""
    if port is None:
        yield
        return
    try:
        end = serve(pipeline.collector(), port)
    except OSError as e:
        raise click.UsageError(
            f"--metrics-port {port}: metrics cannot be served there: {e.strerror}; give another "
            "port"
        ) from None
    try:
        yield
    finally:
        end()
