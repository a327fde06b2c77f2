"""`stepping-spark state`: inspects the state in a store, without Spark, and evolves it."""

from __future__ import annotations

import functools
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, NoReturn, ParamSpec

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.filesize import decimal
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

import stepping_spark as st
from stepping_spark.cli.loading import circuit_in, naming_target
from stepping_spark.cli.output import (
    INTERRUPTED,
    NOT_DONE,
    Commands,
    OnePlace,
    Quiet,
    StandardOutput,
    examples,
    say,
    with_renames,
)
from stepping_spark.pipeline.protocols import read_of
from stores.inspection import InspectedState, KeptRegister, Summary
from stores.location import place_of

FOUND = 1
"""The exit code for a damaged state."""

MOST_CHARACTERS = 150  # of the description of a register

P = ParamSpec("P")


def _end(message: str, code: int) -> NoReturn:
    """End the command with a message and an exit code."""
    say(message)
    raise click.exceptions.Exit(code)


@contextmanager
def _short_errors() -> Iterator[None]:
    """Show errors as one message, and end the command."""
    try:
        yield
    except st.SteppingError as e:
        code = FOUND if isinstance(e, st.StoreCorrupt) else NOT_DONE
        _end(str(e), code)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except MemoryError:
        _end("there was not enough memory; try again where there is more", NOT_DONE)
    except Exception as e:
        # Python's default exit code, 1, would mean a damaged state.
        traceback.print_exc()
        _end(
            f"an error of stepping-spark itself: {type(e).__name__}; please report it with the "
            "lines above",
            NOT_DONE,
        )
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end("interrupted: the state is that of the last committed step", INTERRUPTED)


def _of_a_place(
    command: Callable[Concatenate[Console, InspectedState, P], None],
) -> Callable[..., None]:
    """A command that takes the place of a state as its argument."""

    @click.argument("place", metavar="PATH|URL")
    @click.option(
        "--schema", help="The schema in Postgres; or put it into the URL: …/database?schema=NAME."
    )
    @functools.wraps(command)
    def wrapped(place: str, schema: str | None, *args: P.args, **kwargs: P.kwargs) -> None:
        console = StandardOutput()
        try:
            location = place_of(place, schema)
        except ValueError as e:
            raise click.UsageError(str(e)) from None
        with _short_errors():
            command(console, location.state(), *args, **kwargs)

    return wrapped


@click.group(
    cls=Commands,
    epilog=examples(
        "stepping-spark state show state", "stepping-spark state verify s3://bucket/state"
    ),
    short_help="Show, check, compact, rewind or evolve a state.",
)
def state() -> None:
    """Show, check, compact, rewind or evolve the state in a store.

    PATH is a directory, or a URI of an object store (s3://bucket/state). URL is
    postgresql://user@host/database?schema=NAME.

    Other users of the machine can see the command line (ps), so it should hold no password. For
    Postgres, use a password file (~/.pgpass, or the file that PGPASSFILE names) or a service of
    pg_service.conf (postgresql://?service=NAME, or PGSERVICE and the URL postgresql://). Object
    stores read their own files and variables, such as AWS_PROFILE.

    Exit codes: 0, all is well; 1, the state is damaged; 2, the state could not be read (it does not
    exist, another process is writing it, a wrong option), or the output could not be written.
    """


@state.command(
    cls=OnePlace,
    epilog=examples("stepping-spark state show state"),
    short_help="Show registers, rows, sizes and the last step.",
)
@_of_a_place
def show(console: Console, kept: InspectedState) -> None:
    """Show the registers of a state, with columns, rows and sizes, and the last step.

    The command takes no lock: another process may be writing.
    """
    summary = kept.summary()
    step = f"Step {summary.step:,}" + (f", now {summary.last_now}" if summary.last_now else "")
    console.print(f"{summary.kept_as} in {summary.place}")
    console.print(f"{step} · format {summary.format} · fingerprint {summary.fingerprint}")
    if summary.offsets:
        read = ", ".join(
            f"{source} up to {at:,}" for source, at in read_of(summary.offsets).items()
        )
        console.print(f"Sources read: {read}")
    console.print(
        f"Being written by {summary.holder}" if summary.holder else "Nobody is writing it"
    )
    console.print()
    console.print(_registers(summary))


@state.command(
    cls=OnePlace,
    epilog=examples("stepping-spark state verify 'postgresql://user@host/db?schema=views'"),
    short_help="Check all data of a state.",
)
@_of_a_place
def verify(console: Console, kept: InspectedState) -> None:
    """Check all data of a state against its manifest or catalogue.

    Parquet files: each exists, with its size, rows and columns, correct checksums, and rows in the
    order of its register's key, also for older steps that can still be opened. Postgres tables:
    columns, indexes and views, and the hashes of each row. Both: no weight is zero, and no row
    occurs twice. The command reads everything, and takes no lock.

    It does not find a weight that somebody has changed in a table of Postgres, or in a file
    together with its checksums.
    """
    verification = kept.verify()
    if not verification.problems:
        console.print(f"{verification.looked_at}: {verification.verdict}")
        return
    for problem in verification.problems:
        console.print(f"- {problem}")
    n = len(verification.problems)
    _end(
        f"{verification.looked_at}: {n} problem{'s' if n > 1 else ''}; {verification.remedy}",
        FOUND,
    )


@state.command(
    cls=OnePlace,
    epilog=examples("stepping-spark state compact state"),
    short_help="Merge small batches.",
)
@_of_a_place
def compact(console: Console, kept: InspectedState) -> None:
    """Merge small batches, and print how much space that saved.

    The command takes the lock: no other process may be writing.
    """
    before = kept.summary()
    note = kept.compact()
    after = kept.summary()
    console.print(f"{after.kept_as} in {after.place}")
    console.print()
    console.print(_saved(before, after))
    console.print()
    sizes = [sum(k.nbytes for k in s.registers) for s in (before, after)]
    if sizes[1] < sizes[0]:
        console.print(f"{decimal(sizes[0] - sizes[1])} saved, of {decimal(sizes[0])}. {note}")
    else:
        console.print("Nothing saved: there was nothing to merge or to reclaim.")


@state.command(
    cls=OnePlace,
    epilog=examples("stepping-spark state rewind state --to 41"),
    short_help="Go back to an earlier step.",
)
@_of_a_place
@click.option("--to", type=click.IntRange(min=0), required=True, help="The step to go back to.")
def rewind(console: Console, kept: InspectedState, to: int) -> None:
    """Go back to an earlier step, and drop the steps after it.

    For a step that a sink refuses: when the rows are corrected in the source, the next run reads
    them again, as another step. If another sink has written a dropped step already, do not go back:
    that sink does not fit the state any more. A state in Parquet files keeps the last few steps, a
    state in Postgres none. The command takes the lock: no other process may be writing.
    """
    before = kept.summary().step
    if to == before:
        console.print(f"The state is at step {to:,} already.")
        return
    kept.rewind(to)
    dropped = f"steps {to + 1:,} to {before:,} are" if before > to + 1 else f"step {before:,} is"
    console.print(f"The state is at step {to:,}; {dropped} dropped.")


@state.command(
    cls=Quiet,
    epilog=examples(
        "stepping-spark state evolve state queries.py:totals",
        "stepping-spark state evolve state queries.py:totals --apply",
    ),
    short_help="Show how another query would take over, and have it do so.",
)
@click.argument("place", metavar="PATH|URL")
@click.argument("query", metavar="FILE:QUERY")
@click.option("--schema", help="The schema in Postgres; or put it into the URL.")
@with_renames
@click.option("--apply", is_flag=True, help="Evolve the state; without it, nothing changes.")
def evolve(
    place: str, query: str, schema: str | None, renamed: dict[str, str], apply: bool
) -> None:
    """Show what another query would make of a state, and with --apply, have it take the state over.

    Prints the registers that stay, are filled, and are dropped, with rows and sizes, the inputs
    that must be read again, and the views that change. FILE:QUERY is a query function, or a
    circuit, in a Python file or a module.

    The evolution is one step, and the state keeps its output. If an input must be read again, the
    command names it and changes nothing: Stepper.evolve takes its rows. The state of a pipeline
    evolves with its tables: use stepping-spark run --evolve.
    """
    console = StandardOutput()
    try:
        location = place_of(place, schema)
    except ValueError as e:
        raise click.UsageError(str(e)) from None
    with _short_errors():
        location.state().summary()  # raises an error if the state does not exist
        graph = circuit_in(query)
        store = location.store(graph, evolve=True)
        try:
            evolution = naming_target(query, lambda: st.evolution(graph, store, renamed=renamed))
            console.print(str(evolution), markup=False, highlight=False, soft_wrap=True)
            if apply:
                _apply(graph, store, evolution, renamed)
                console.print(f"The state is at step {store.last_step():,}.")
            elif evolution.is_needed:
                console.print("Nothing has changed; --apply does it.")
        finally:
            store.close()


def _apply(
    graph: st.Graph[Any, Any], store: st.Store, evolution: st.Evolution, renamed: dict[str, str]
) -> None:
    """Evolve a state; ends the command for a pipeline's state, or if inputs must be read again."""
    if store.last_offsets():
        _end(
            "this is the state of a pipeline, whose tables change with it; run the pipeline with "
            "--evolve",
            NOT_DONE,
        )
    if evolution.read_again:
        inputs = ", ".join(f"{name}=…" for name in evolution.read_again)
        more = f", renamed={renamed}" if renamed else ""
        _end(
            "inputs must be read again: in Python, open the store with evolve=True, and write "
            f"st.Stepper(graph, store, evolve=True{more}).evolve({inputs})",
            NOT_DONE,
        )
    st.Stepper(graph, store, evolve=True, renamed=renamed).evolve()


# -- tables


def _table(*numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("register", overflow="fold", ratio=1)
    if "rows" in numbers:
        table.add_column("key", overflow="fold", max_width=20)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _registers(summary: Summary) -> Table:
    table = _table("rows", "batches", "size")
    for k in summary.registers:
        key = _Broken(", ".join(k.register.key))
        numbers = f"{k.rows:,}", f"{k.batches:,}", decimal(k.nbytes)
        table.add_row(Group(_named(k), _columns(k)), key, *numbers)
    table.add_section()
    rows = sum(k.rows for k in summary.registers)
    batches = sum(k.batches for k in summary.registers)
    nbytes = sum(k.nbytes for k in summary.registers)
    table.add_row("all", "", f"{rows:,}", f"{batches:,}", decimal(nbytes))
    return table


def _named(k: KeptRegister) -> Group:
    """The register's name, and the stream that it sums."""
    more = [_Broken(f"sum of {_shortened(k.words)}", "dim")] if k.words else []
    return Group(_Broken(k.register.name), *more)


def _columns(k: KeptRegister) -> _Broken:
    """The columns of a register, the last of which are weights or sums, with their types."""
    columns = ", ".join(f"{name} {t}" for name, t in k.register.schema.all)
    return _Broken(_shortened(f"columns {columns}"), "dim")


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


@dataclass(frozen=True)
class _Broken:
    """A text that wraps after a space, a `.` or a `_` if possible.

    The names of registers are long, and have few spaces.
    """

    text: str
    style: str = ""

    @property
    def pieces(self) -> list[str]:
        return re.findall(r"_*[^ ._]+_*\.? *|.", self.text)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        least = max((cell_len(piece.rstrip()) for piece in self.pieces), default=0)
        return Measurement(least, cell_len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line = ""
        for piece in self.pieces:
            if line and cell_len((line + piece).rstrip()) > options.max_width:
                yield Text(line.rstrip(), self.style, overflow="fold")
                line = ""
            line += piece
        yield Text(line.rstrip(), self.style, overflow="fold")


def _saved(before: Summary, after: Summary) -> Table:
    table = _table("batches", "size")
    old = {k.register.name: k for k in before.registers}
    for k in after.registers:
        was = old.get(k.register.name, k)
        table.add_row(
            _Broken(k.register.name),
            _from_to(f"{was.batches:,}", f"{k.batches:,}"),
            _from_to(decimal(was.nbytes), decimal(k.nbytes)),
        )
    return table


def _from_to(old: str, new: str) -> str:
    return new if old == new else f"{old} → {new}"
