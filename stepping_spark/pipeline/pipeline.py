"""The pipeline: sources, a circuit with its store, and sinks, stepped exactly once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, SteppingError, short
from stepping_spark.base.limits import Limits, checked_limits
from stepping_spark.pipeline.changed_query import (
    check_inputs,
    has_no_step,
    is_there,
    store_at,
    telling_the_plan,
)
from stepping_spark.pipeline.changed_query import evolve as evolve_state
from stepping_spark.pipeline.dry_run import Prospect, prospect_of, unstepped
from stepping_spark.pipeline.inputs import Feed
from stepping_spark.pipeline.outputs import Outlet, catch_up, refresh_tables
from stepping_spark.pipeline.protocols import Portion, state_of
from stepping_spark.pipeline.rejects import view_of, with_rejected
from stepping_spark.pipeline.reporting import PipelineCollector, Reporting, observe, text_of
from stepping_spark.pipeline.rounds import (
    RETRIES,
    Rounds,
    Stopping,
    is_transient,
    of_each,
    pause_after,
    seconds_of,
)
from stepping_spark.pipeline.views import (
    Into,
    QueriesArgument,
    SourceArgument,
    at_least_1,
    by_name,
    check_apart,
    comments_of,
    copied_place,
    feeds_of,
    graph_of,
    input_names,
    outlets_of,
    path_of,
    place_given,
    sinks_of,
    sources_of,
)
from stepping_spark.relations.placement import bytes_of_a_step
from stepping_spark.relations.store import Now, Store
from stepping_spark.report import Report
from stepping_spark.stepper.evolve.evolution import check_renames
from stepping_spark.stepper.stepper import Stepper
from stores.location import MEMORY, Place
from stores.step_lock import Closing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

VERSIONS = 1_000


class Pipeline(Closing):
    """Tables in, tables out: follows sources, maintains views, and writes these to sinks.

    `query` is a query function, or several: by the names of their views, or a list of `st.view`s.
    They share their inputs by name, and a parameter with the name of another view is that view.
    Sources and sinks of an `st.view` need not be repeated here. `store` is the place of the state
    (`"parquet:state"`, `"postgresql://user@host/db?schema=s"`, `"memory"`), or is a store. Each
    input of the query has a source, as an argument of its name or in `sources={…}`: a table such as
    `st.DeltaTable(path)`, an iterable of `(position, change)`, one for each step, whose positions
    are increasing whole numbers, or an `st.Source` of your own. `into` has the sinks of views by
    name: a table, a function of `(step, change)`, an `st.Sink` of your own, or a list of these. A
    single view has the name of the query, which may be left out. If a query returns several views,
    they have the names of the returned variables.

    Exactly once: a step's commit in the store contains the position of each source. A sink writes
    the step's number in the transaction that writes the step's rows. The next step begins only when
    all sinks have the last one, whose output the store keeps. So whenever a process ends, the next
    one writes this output to the sinks that lack it. A function does not report its last step, so
    after a restart it gets the last step again. Rows that a sink would refuse, such as two rows
    with one key, are an error before the step is committed: correct the source, and run again.

    Rows of a source that do not fit the row class are an error, unless its `on_invalid` is
    `"drop"`, or a sink, which gets them as `st.Rejected`.

    A step reads from each source at most `max_versions` versions, with about `max_bytes` bytes
    together, by default a twentieth of the memory of the machine or container, at most 1 GB, and at
    most `max_rows` rows if set. A single version with more, such as the first load of a large
    table, is several steps, between which readers of a sink see a part of it. If a Spark session
    runs, its tasks read such a version of Delta or Iceberg, or as many bytes of new Parquet files,
    as one step instead, unless `max_bytes` or `max_rows` is set, or tasks cannot compute the query.
    `append_only`, `strict`, `lateness` and `whole_rows` are as for `st.compile`, `limits` and
    `profile` as for `st.Stepper`; the store has these limits too. Rows are late by step, the pieces
    of a version, too.

    A query that compares with the time of the step, by `st.temporal_filter` or by `current_date` in
    SQL, is stepped whenever the time has changed, with or without changes of the sources. The
    function `now`, without arguments, returns this time; by default it is the time of this machine,
    in UTC.

    With `evolve`, a run begins with a step that turns the state of another query into the state of
    this one. It writes the changes of views to their sinks, and all rows to new sinks: see
    `Stepper.evolve`. Inputs are read again if needed, up to the committed position. An input with
    another name is another input, unless `renamed` maps the old name to the new one: `{"orders":
    "sales"}`. With `copy_of`, the place of another pipeline's state, a new state begins as a copy
    of that one, whose pipeline may continue: to fill new tables beside the old ones. The copy needs
    sinks of its own. For the views in `refresh`, all rows of the view replace the rows of the
    table, in one transaction.

    Each step logs a line to `stepping_spark.pipeline` (INFO). `stepper` has the metrics of steps.

    >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(people)
    >>> changes = [(1, st.ZSetPython({"ann": 1, "bob": 2})), (2, st.ZSetPython({"bob": -2}))]
    >>> seen = {}
    >>> pipeline = st.Pipeline(
    ...     names, store="memory", people=changes, into={"names": seen.setdefault}
    ... )
    >>> pipeline.run()
    2
    >>> seen[2] == st.ZSetPython({"bob": -1})
    True
    """

    def __init__(
        self,
        query: QueriesArgument,
        *,
        store: str | Store | Place,
        into: Mapping[str, Into] | Into | None = None,
        sources: Mapping[str, SourceArgument] | None = None,
        max_versions: int | None = VERSIONS,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        now: Callable[[], Now] | None = None,
        append_only: Iterable[str] = (),
        strict: bool | Iterable[str] = False,
        lateness: Mapping[str, tuple[Callable[[Any], Any], object]] | None = None,
        whole_rows: bool = False,
        limits: Limits | None = None,
        profile: bool = False,
        evolve: bool = False,
        renamed: Mapping[str, str] | None = None,
        copy_of: str | Place | None = None,
        refresh: Iterable[str] = (),
        **inputs: SourceArgument,
    ) -> None:
        self.evolves = False
        self.renamed: dict[str, str] = {}
        if not callable(now) and now is not None:
            raise InputError(
                f"{user_line()}: now=: expected a function that returns a time, found {short(now)}"
            )
        if not isinstance(sources, Mapping | None):
            raise InputError(
                f"{user_line()}: sources=: expected a dict by input, found {short(sources)}"
            )
        chosen = {**(sources or {}), **inputs}
        named = by_name(query, chosen, None if whole_rows else lateness or ())
        self.graph, self.views = graph_of(
            named, append_only, strict, lateness, whole_rows=whole_rows
        )
        self._limits, self._profile = checked_limits(limits), profile
        portion = Portion(
            at_least_1("max_versions", max_versions),
            at_least_1("max_rows", max_rows),
            at_least_1("max_bytes", max_bytes) or bytes_of_a_step(self._limits),
        )
        self._place = place_given(store)
        declared = sources_of(query, set(input_names(self.graph)) - set(chosen))
        all_sources = {**declared, **chosen}
        self._feeds = feeds_of(self.graph, self.views, all_sources, self._limits)
        rejects = {feed.name: feed.rejects_to for feed in self._feeds if feed.rejects_to}
        self.graph = with_rejected(self.graph, list(rejects))
        sinks = sinks_of(query, self.views, into)
        self._outlets = outlets_of(self.graph, self.views, sinks, rejects)
        check_apart(
            all_sources, {**sinks, **{view_of(name): sink for name, sink in rejects.items()}}
        )
        self._comments = comments_of(query)
        self._stepper: Stepper[Any, Any] | None = None
        self._evolves_now = evolve
        self._state = 0
        self._tables_open = False
        self._stopping = Stopping()
        self._reporting = Reporting(self.graph.name, self.lag)
        self._rounds = Rounds(
            self._feeds,
            self._outlets,
            tuple(rejects),
            portion,
            now,
            self._reporting,
            path_of(self._place),
            by_tasks=max_rows is None and max_bytes is None,
        )
        self._copy_of: Place | None = None
        if evolve:
            self.allow_evolution(renamed or {}, copy_of, refresh)
        elif renamed or copy_of is not None or refresh:
            name = "renamed=" if renamed else "refresh=" if refresh else "copy_of="
            raise InputError(
                f"{user_line()}: {name} is for a state that evolves; write evolve=True, too"
            )

    def allow_evolution(
        self,
        renamed: Mapping[str, str],
        copy_of: str | Place | None = None,
        refresh: Iterable[str] = (),
    ) -> None:
        """Let a run begin with an evolution, like `evolve=True` with its arguments."""
        if copy_of is not None:
            self._copy_of = copied_place(copy_of, self._place)
        check_renames(renamed, [feed.name for feed in self._feeds])
        refresh_tables(refresh, self._outlets)
        self.evolves = True
        self.renamed = dict(renamed)
        was = {new: old for old, new in renamed.items()}
        for feed in self._feeds:
            feed.was = was.get(feed.name, feed.name)

    # -- public methods

    def run(
        self,
        *,
        every: str | float | dt.timedelta | None = None,
        max_steps: int | None = None,
        progress: bool = False,
        retries: int = RETRIES,
    ) -> int:
        """Take steps until the sources have nothing new. Returns how many, with evolutions.

        With `every`, such as "10s", it follows the sources: it takes all available steps, waits for
        that time, and repeats. If a connection is lost, a server does not answer, or a table has
        disappeared, it opens the store, the sources and the sinks again after a pause of 1 s, 2 s,
        4 s, up to a minute, and ends with the error when `retries` attempts in a row have failed.
        Ctrl-C, SIGTERM and `stop` end it after the current step, and so does `max_steps`, which
        does not count evolution steps. A source that waits for its next item is not interrupted.
        `progress` shows a line with the last step and the lag.

        Raises `SourceError`, `SinkError`, and the errors of a step. Committed steps stay committed;
        when the cause is corrected, the same call continues.
        """
        pause = None if every is None else seconds_of(every)
        self._stopping = Stopping()
        steps = failures = rounds = 0
        before = self._reporting.steps
        with self._stopping.listening(), self._reporting.progress_line(progress) as show:
            stepper = self._ready()
            while not self._stopping.requested and steps != max_steps:
                try:
                    if not self._tables_open:
                        stepper = self._ready()
                    read, stepped = self._rounds.take(stepper, self._state)
                except SteppingError as e:
                    failures += 1
                    if (
                        pause is None
                        or failures > retries
                        or not is_transient(e, was_there=rounds > 0)
                    ):
                        raise
                    self._try_again(e, failures)
                    continue
                failures, rounds = 0, rounds + 1
                steps += stepped
                self._stopping.listen()
                show()
                if read:
                    continue  # the sources may have more
                if pause is None:
                    break
                if not self._stopping.requested and steps != max_steps:
                    self._stopping.wait(pause)
        return self._reporting.steps - before

    def stop(self) -> None:
        """End `run` in another thread after its current step."""
        self._stopping.ask()

    @property
    def stopped_by(self) -> int | None:
        """The number of the signal that ended the last `run`, or None."""
        return self._stopping.signal

    def lag(self) -> dict[str, int | None]:
        """How far each source is ahead of the views, in versions, files or rows; None if unknown.

        It asks the sources, so call it from the thread that runs the pipeline.

        >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(people)
        >>> changes = [(1, st.ZSetPython({"ann": 1})), (2, st.ZSetPython({"bob": 1}))]
        >>> pipeline = st.Pipeline(names, store="memory", people=changes)
        >>> pipeline.run(max_steps=1), pipeline.lag()
        (1, {'people': 1})
        """
        self._opened()
        return {feed.name: feed.behind() for feed in self._feeds}

    def metrics(self) -> str:
        """Steps, rows, seconds and lag of this process, in the text format of Prometheus.

        Needs `pip install 'stepping-spark[metrics]'`. `collector()` is the same for a registry of
        `prometheus_client`, which serves it; Prometheus, or OpenTelemetry's collector, scrapes it.

        >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(people)
        >>> pipeline = st.Pipeline(names, store="memory", people=[(1, st.ZSetPython({"ann": 1}))])
        >>> _ = pipeline.run()
        >>> 'stepping_spark_rows_in_total{pipeline="names"} 1.0' in pipeline.metrics()
        True
        """
        return text_of(self.collector())

    def collector(self) -> PipelineCollector:
        """The metrics of this process, for `prometheus_client.REGISTRY.register(…)`.

        The lag is the lag after the last round.
        """
        return self._reporting.collector()

    def to_opentelemetry(self, meter_provider: MeterProvider | None = None) -> None:
        """Report the metrics of this process to OpenTelemetry, from now on.

        Needs `pip install 'stepping-spark[metrics]'`. `meter_provider` is by default the global
        one, as `opentelemetry.metrics.set_meter_provider` or the program `opentelemetry-instrument`
        set it. Its readers get the counters `stepping_spark.steps`, `.rows_in`, `.rows_out`,
        `.rows_rejected`, `.retries` and `.step_seconds`, and the gauges `.last_step`,
        `.last_step_time_seconds` and `.lag`, each with the attribute `pipeline`, the lag also with
        `source`.

        >>> from opentelemetry.sdk.metrics import MeterProvider
        >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        >>> reader = InMemoryMetricReader()
        >>> provider = MeterProvider([reader])
        >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(people)
        >>> pipeline = st.Pipeline(names, store="memory", people=[(1, st.ZSetPython({"ann": 1}))])
        >>> pipeline.to_opentelemetry(provider)
        >>> _ = pipeline.run()
        >>> scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
        >>> scope.metrics[0].data.data_points[0].value
        1
        """
        observe(self._reporting, meter_provider)

    def dry_run(self, *, count: bool = False) -> Prospect:
        """A preview of a run: its reads, its state and keys, and the cost of a step.

        It changes nothing, makes no table and takes no lock. It inspects the state, the sources and
        the sinks, and raises the errors of a run before its first step that can be detected without
        reading rows. The exception is a state that another process writes now: the result then
        names the writer. A source or sink of your own is inspected if it has the method `look`.
        With `count`, and if the query has changed, it computes the numbers of rows that leave and
        enter each view, and for this reads the same rows as the evolution. The result is an
        `st.Prospect`. Its `in_full` lists the vertices that are recomputed in full at each step; it
        should be empty.

        >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(people)
        >>> print(st.Pipeline(names, store="memory", people=[(1, None)]).dry_run().waiting)
        {'people': 1}
        """
        if count and not self.evolves:
            raise InputError(
                f"{user_line()}: count= counts the rows that an evolution changes; write "
                "evolve=True in the pipeline, too"
            )
        opened = None if self._stepper is None else self._stepper.store
        copies = self._copy_of is not None and not is_there(self._place)
        with self._telling_the_plan():
            return prospect_of(
                self.graph,
                self.views,
                self._place,
                opened,
                self._rounds,
                self._comments,
                self.evolves,
                self.renamed,
                self._limits if count else None,
                self._copy_of if copies else None,
            )

    def report(self) -> Report:
        """The costs of this process' steps, and the sizes of its state: see `Stepper.write_report`.

        Before `run` the report has no steps; it takes no lock and creates nothing.

        >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(people)
        >>> pipeline = st.Pipeline(names, store="memory", people=[(1, st.ZSetPython({"ann": 1}))])
        >>> _ = pipeline.run()
        >>> pipeline.report().numbers["steps"]["rows_in"]
        [1]
        """
        if self._stepper is not None:
            return self._reporting.told_in(self._stepper.report())
        return unstepped(self.graph, self._place)

    @property
    def stepper(self) -> Stepper[Any, Any]:
        """The stepper: its `metrics` describe each step, its `store` has the caches."""
        return self._opened()

    def close(self) -> None:
        """Release the store, the sources and the sinks. The pipeline may be run again."""
        stepper, self._stepper = self._stepper, None
        self._close_tables()
        if stepper is not None and isinstance(self._place, Place):
            stepper.store.close()

    # -- opening

    def _ready(self) -> Stepper[Any, Any]:
        """The stepper, after each sink has the last step and sources are at its positions."""
        stepper = self._opened()
        self._rounds.reset_positions(stepper.store)
        if self._evolves_now:
            evolve_state(stepper, self._rounds, self._state)
        with self._telling_the_plan():
            check_inputs(self._feeds, stepper.store.last_offsets())
            catch_up(stepper, self._outlets, self._rounds.state_path)
        return stepper

    def _telling_the_plan(self, closed: Sequence[Feed] = ()) -> AbstractContextManager[None]:
        """A context that adds the remedy to the error for a changed query."""
        if self.evolves:
            return nullcontext()
        return telling_the_plan(self.graph, self._place, self._outlets, closed)

    def _try_again(self, error: SteppingError, failures: int) -> None:
        """Close the store, unless in memory, and all tables, and wait; `run` opens them again."""
        pause = pause_after(failures)
        self._reporting.retry(error, pause)
        with suppress(Exception):
            if isinstance(self._place, Place) and self._place.kind != MEMORY:
                self.close()
            else:
                self._close_tables()
        self._stopping.wait(pause)

    def _opened(self) -> Stepper[Any, Any]:
        """The stepper, with opened sources and sinks."""
        if self._stepper is not None and self._tables_open:
            return self._stepper
        place = self._place
        open_store = self._stepper and self._stepper.store
        self._evolves_now = self.evolves or has_no_step(place)
        with self._telling_the_plan(self._feeds):
            store = open_store or store_at(
                place, self.graph, self._limits, evolve=self._evolves_now, copy_of=self._copy_of
            )
        try:
            if self._stepper is None:
                with self._telling_the_plan():
                    self._stepper = Stepper(
                        self.graph,
                        store,
                        limits=self._limits,
                        profile=self._profile,
                        evolve=self._evolves_now,
                        renamed=self.renamed,
                    )
            self._open_tables(store)
        except BaseException:
            with suppress(Exception):
                self._close_tables()
            if isinstance(place, Place) and place.kind != MEMORY:
                self._stepper = None
                store.close()
            raise
        return self._stepper

    def _open_tables(self, store: Store) -> None:
        step, offsets = store.last_step(), store.last_offsets()
        self._state = state_of(step, offsets)

        def look(outlet: Outlet) -> None:
            if self._evolves_now:
                outlet.would_need_filling(self._state, step, offsets, changed=True)
            else:
                outlet.look(self._state, step, offsets)

        for feed in self._feeds:
            feed.open(feed.position_in(offsets))
        if not self._evolves_now or not step:  # what is refused makes no table
            of_each([outlet for outlet in self._outlets if outlet.is_new(offsets)], look)
        of_each(self._outlets, lambda outlet: outlet.open(self._state, step, offsets), look)
        self._tables_open = True

    def _close_tables(self) -> None:
        self._tables_open = False
        for feed in self._feeds:
            feed.close()
        for outlet in self._outlets:
            outlet.close()
