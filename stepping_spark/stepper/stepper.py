"""Stepping a circuit: the `Stepper`."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, Never, TypeVar, overload

from typing_extensions import TypeVarTuple

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, StepError, SteppingError, StoreError, short
from stepping_spark.base.limits import Limits, limits_of
from stepping_spark.base.packages import SparkSession
from stepping_spark.circuit.graph import AnyGraph, Graph, In, Out, Vertex
from stepping_spark.circuit.operators import Input
from stepping_spark.execution.io import answer, check_grows, check_made_by, held_input
from stepping_spark.execution.scheduler import Scheduler
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.relation import Relation
from stepping_spark.relations.store import EvolvingStore, Now, Store, now_to_text
from stepping_spark.report import Report, report_of, sizes_of, state_of_store
from stepping_spark.report.progress import Bar, NoBar, bar_of
from stepping_spark.rows.atoms import TIMES, RowType, is_time
from stepping_spark.rows.schema import ZSetType
from stepping_spark.spark.session import first_line
from stepping_spark.stepper.evolve.evolution import cannot_evolve
from stepping_spark.stepper.evolve.stepping import BeforeCommit, Evolving
from stepping_spark.zsets.spark import ZSetSpark

KEPT_METRICS = 1_000  # the number of last steps
_LOST_BLOCK = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_LOST = "(a worker was lost, with rows of the change: take the step again)"

Outs = TypeVarTuple("Outs")
One = TypeVar("One")


class Stepper(Evolving, Generic[In, Out]):
    """A circuit and its store, ready for steps. It holds the compiled plan.

    - `progress`: whether `run` shows a progress bar.
    - `local_rows`: the most rows that a stream may read to be computed on the driver; Spark then
      only evaluates functions of rows. Up to that, it is computed where that is estimated to take
      less time. 0 sends everything to Spark, except for picking fields of rows that the driver
      holds, and calls of `st.python`. It is short for `limits=st.Limits(local_rows=…)`, which has
      the other limits too.
    - `strict`: True, or names of inputs, checks that the graph was compiled so: see `st.compile`.
    - `evolve`: whether the state may belong to another query. If it does, call `evolve()`, which
      turns it into the state of this query, before any step. Open a store in files or in Postgres
      with `evolve=True`, too. `renamed` has inputs with new names: `renamed={"old": "new"}`.
    - `profile`: whether the store reports the size of each register after each step. This costs
      little in memory and in Parquet files; Postgres counts the rows of its tables.

    `metrics` describes each of the last 1,000 steps, and `write_report` shows it in a browser.
    Raises `StoreMismatch` if the store was made for another circuit.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> graph = st.compile(query)
    >>> stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    >>> outs = stepper.run([(st.ZSetPython({"a": 2}),), (st.ZSetPython({"a": -2}),)])
    >>> [out == st.ZSetPython({"a": n}) for (out,), n in zip(outs, (1, -1))]
    [True, True]
    """

    def __init__(
        self,
        graph: Graph[In, Out],
        store: Store,
        *,
        progress: bool = False,
        local_rows: int | None = None,
        limits: Limits | None = None,
        strict: bool | Iterable[str] = False,
        profile: bool = False,
        evolve: bool = False,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self.limits = limits_of(limits, local_rows)
        if isinstance(store, type) or not hasattr(store, "commit"):
            raise InputError(
                f"{user_line()}: expected a store, found {short(store)}; make one with "
                "st.StoreMemory.from_graph(graph), or from_graph of another class"
            )
        self._plan = plan_of(graph)
        _check_is_strict(graph, strict)
        self.graph = graph
        self._made_by = tuple(map(str, graph.made_by))
        self.store = store
        self.progress = progress
        self.profile = profile
        self.metrics: deque[StepMetrics] = deque(maxlen=KEPT_METRICS)
        self._scheduler = Scheduler(self._plan, store, limits=self.limits)
        self._lock = threading.Lock()
        self._renamed = renamed or {}
        if evolve:
            if not isinstance(store, EvolvingStore):
                raise cannot_evolve(store)
            store.evolves = True
        store.open(self._plan.registers, self._plan.output_schemas)
        if isinstance(store, EvolvingStore):
            self._begin_with(store)

    @overload  # type checkers choose this for a query that returns Any
    def step(
        self: Stepper[In, Never],
        inputs: In,
        *,
        step: int | None = None,
        now: Now = None,
        offsets: Mapping[str, int] | None = None,
        before_commit: BeforeCommit | None = None,
    ) -> tuple[Any, ...]: ...
    @overload
    def step(  # type: ignore[overload-overlap]
        self: Stepper[In, tuple[*Outs]],
        inputs: In,
        *,
        step: int | None = None,
        now: Now = None,
        offsets: Mapping[str, int] | None = None,
        before_commit: BeforeCommit | None = None,
    ) -> tuple[*Outs]: ...
    @overload
    def step(
        self: Stepper[In, One],
        inputs: In,
        *,
        step: int | None = None,
        now: Now = None,
        offsets: Mapping[str, int] | None = None,
        before_commit: BeforeCommit | None = None,
    ) -> tuple[One]: ...
    def step(
        self,
        inputs: Any,
        *,
        step: int | None = None,
        now: Now = None,
        offsets: Mapping[str, int] | None = None,
        before_commit: BeforeCommit | None = None,
    ) -> Any:
        """Take one step: a change for each input. Returns the change, or value, of each output.

        An input is a `ZSetPython`, a `ZSetSpark`, a number, or None for no change. A step is
        atomic: after any error the store is as before, and the same call may be made again.

        - `step=n` makes the call idempotent: repeating the last committed step changes nothing and
          returns its output again, whatever the inputs are. It raises `StoreError` if another query
          took that step.
        - `now` (a number, date or datetime) defaults to the step's number and never goes back.
        - `offsets` is the position up to which each source is read after this step. It is committed
          with the step, and replaces the previous `store.last_offsets()`; None keeps these.
        - `before_commit` is called with the step's number and its outputs when they are computed.
          An error from it ends the step like any other error: nothing is committed. The offsets
          that it returns are committed in addition to `offsets`.

        Raises `InputError` for a value that does not fit, `StepError` for a vertex that fails, and
        `StoreError` for errors of the store.
        """
        with self._lock:
            return self._step(inputs, step, now, offsets, before_commit)

    def step_from(self, source: str, position: int, inputs: In) -> bool:
        """Take a step with changes from a source that numbers them, exactly once.

        `position` is the number of these changes in their source (a batch id, an offset). A
        position at or before the last committed one is skipped: the result is then False.
        """
        with self._lock:
            if position <= self.store.last_offsets().get(source, position - 1):
                return False
            self._step(inputs, None, None, self._offsets(source, position))
            return True

    def _offsets(self, source: str, position: int) -> dict[str, int]:
        """The positions of all sources after a step with changes from one of them."""
        return {**self.store.last_offsets(), source: position}

    def _step(
        self,
        inputs: Any,
        step: int | None,
        now: Now,
        offsets: Mapping[str, int] | None,
        before_commit: BeforeCommit | None = None,
    ) -> tuple[Any, ...]:
        if self._evolution is not None:
            raise self._not_evolved()
        last = self.store.last_step()
        if step is not None:
            _check_number(step, last)
            if step <= last:
                return self._answer_again(step, last)
        number = last + 1
        since = self.store.last_now()
        now = self._check_now(number, now, since)
        metrics = StepMetrics(number)
        begun = time.perf_counter()
        with self._all_or_nothing(number, inputs), self._scheduler.counting(metrics):
            relations = self._relations(inputs, first=not last)
            outputs = self._scheduler.run(metrics, relations, now, since=since, first=not last)
            answers = self._answers(outputs)
            if before_commit is not None:
                offsets = {**(offsets or {}), **before_commit(number, answers)}
            self._commit(number, now, outputs, offsets, self._scheduler.settings)
            self._scheduler.committed()
        metrics.ms = (time.perf_counter() - begun) * 1e3
        if self.profile:
            metrics.sizes = sizes_of(self.store, self._plan.registers)
        self.metrics.append(metrics)
        return answers

    def _commit(
        self,
        number: int,
        now: Now,
        outputs: Sequence[Relation],
        offsets: Mapping[str, int] | None,
        settings: Mapping[str, str] | None,
    ) -> None:
        arguments = (number, now, outputs, offsets, settings, self._made_by)
        if self._circuit is None:
            self.store.commit(*arguments)
        else:
            self.store.commit(*arguments, circuit=self._circuit)  # type: ignore[call-arg]
            self._circuit = None

    def _relations(self, inputs: Sequence[object], *, first: bool) -> dict[Vertex, Relation]:
        named = self.graph.named_inputs
        if not isinstance(inputs, tuple | list) or len(inputs) != len(named):
            raise self.graph.not_given(inputs)
        relations = {}
        times_given = Counter(map(id, inputs))
        for (v, where), value in zip(named, inputs, strict=True):
            limits = self.limits
            if isinstance(value, ZSetSpark) and value.in_spark:
                limits = self._scheduler.limits_of_frames()
            # A first change is expected to be large if it is a DataFrame.
            key = self._scheduler.key_kept_by(v) if first else None
            once = v in self._plan.read_once and times_given[id(value)] == 1
            relations[v] = held_input(value, v.type, where, limits, key, once=once)
            if isinstance(v.operator, Input) and v.operator.append_only:
                assert isinstance(v.type, ZSetType)
                check_grows(relations[v], v.type, where)
        return relations

    @contextmanager
    def _all_or_nothing(self, number: int, inputs: Sequence[object]) -> Iterator[None]:
        """Restore the store if an error ends the step, so that the step can be repeated."""
        try:
            yield
        except Exception as e:
            self.store.abort()
            for change in inputs if isinstance(inputs, tuple | list) else ():
                if isinstance(change, ZSetSpark):
                    change.forget()
            if isinstance(e, SteppingError):
                raise
            again = f" {_LOST}" if _LOST_BLOCK in str(e) else ""
            raise StepError(
                f"step {number} failed: {type(e).__name__}: {first_line(e)}; the store is as it "
                f"was before{again}"
            ) from e
        except BaseException:
            self.store.abort()
            raise

    def _answers(self, outputs: Sequence[Relation]) -> tuple[Any, ...]:
        pairs = zip(outputs, self._plan.outputs, strict=True)
        return tuple([answer(relation, v.type) for relation, v in pairs])

    @overload
    def run(
        self: Stepper[In, Never], steps: Iterable[In], *, source: str | None = None
    ) -> list[tuple[Any, ...]]: ...
    @overload
    def run(  # type: ignore[overload-overlap]
        self: Stepper[In, tuple[*Outs]], steps: Iterable[In], *, source: str | None = None
    ) -> list[tuple[*Outs]]: ...
    @overload
    def run(
        self: Stepper[In, One], steps: Iterable[In], *, source: str | None = None
    ) -> list[tuple[One]]: ...
    def run(self, steps: Iterable[Any], *, source: str | None = None) -> Any:
        """Take a step for each tuple of inputs. With `progress`, show a progress bar.

        `source` names the origin of the steps, if it supplies the same ones each time. Then each
        step is taken only once: the same call, after an interrupt or in the next process, continues
        after the last committed step. Returns the outputs of the steps that it took.
        """
        done = 0 if source is None else self.store.last_offsets().get(source, 0)
        total = len(steps) if isinstance(steps, Sized) else None
        answers = []
        with self._bar(total, done) as bar:
            for position, inputs in enumerate(steps, 1):
                if position <= done:
                    continue
                with self._lock:
                    offsets = None if source is None else self._offsets(source, position)
                    answers.append(self._step(inputs, None, None, offsets))
                m = self.metrics[-1]
                bar.show(f"step {m.step:,}: {m.ms:.0f} ms, {m.jobs} jobs", 1)
        return answers

    def _bar(self, total: int | None, done: int) -> AbstractContextManager[Bar]:
        """A progress bar, if `progress` is on."""
        if not self.progress:
            return nullcontext(NoBar())
        return bar_of("stepping", total=total, done=done, count=True)

    def report(self) -> Report:
        """A page about the steps in `metrics`: see `write_report`.

        A notebook shows it. `report().numbers` has its numbers, as JSON.
        """
        state = state_of_store(self.store, self._plan.registers)
        return report_of(self._plan, self.graph, self.metrics, state, self.profile)

    def write_report(
        self, path: str | os.PathLike[str], *, beside: Report | str | os.PathLike[str] | None = None
    ) -> None:
        """Write a page for a browser: the cost of each vertex, the state, the duration of steps.

        It is one HTML file that needs no network. `beside` is a report to compare with: that of
        another stepper, `other.report()`, or a file that was written before. Raises `SteppingError`
        for a path that cannot be written, or that is not a report.

        >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(a)
        >>> graph = st.compile(query)
        >>> stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), profile=True)
        >>> _ = stepper.step((st.ZSetPython({"a": 2}),))
        >>> stepper.write_report("report.html")
        """
        self.report().write(path, beside=beside)

    def _answer_again(self, step: int, last: int) -> tuple[Any, ...]:
        if step == last:
            check_made_by(self.store.last_made_by(), self.graph, step)
            outputs = self.store.last_outputs()
            if outputs is not None:
                return self._answers(outputs)
        raise StoreError(
            f"step {step} is committed (the last one is {last}), and its outputs were not kept; "
            f"go on with step {last + 1}, and read what you need from a cache"
        )

    def session_of_tasks(self) -> SparkSession | None:
        """The running Spark session, if its tasks can take large steps of the query; starts none.

        An `st.Pipeline` reads large tables with such tasks.
        """
        return self._scheduler.session_of_tasks()

    @property
    def times(self) -> frozenset[RowType]:
        """The types of the times that the query compares with the `now` of steps."""
        return frozenset(self._plan.times)

    def _check_now(self, number: int, now: Now, before: Now) -> Now:
        if now is None:
            now = number
        else:
            try:
                now_to_text(now)
            except TypeError as e:
                raise InputError(f"now={now!r} is a {e}; give one of these") from None
        for t, (path, line) in self._plan.times.items():
            if not is_time(now, t):
                raise InputError(
                    f"now={now!r}: {path} ({line}) compares it with times of type {t}; give "
                    f"now=…, {TIMES[t]}, at each step"
                )
        if before is None:
            return now
        try:
            back = now < before  # type: ignore[operator]
        except TypeError:
            raise InputError(
                f"now={now!r} cannot be compared with {before!r} of the step before; give the "
                "same type at each step"
            ) from None
        if back:
            raise InputError(
                f"now={now!r} is before {before!r} of the last step; it never goes back"
            )
        return now


def _check_number(step: int, last: int) -> None:
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        raise InputError(
            f"step={step!r} is not the number of a step: steps are counted 1, 2, 3 …, and the last "
            f"committed one is {last}"
        )
    if step > last + 1:
        raise StoreError(
            f"step {step} was asked for, and the last committed one is {last}; the next is "
            f"{last + 1}"
        )


def _check_is_strict(graph: AnyGraph, asked: bool | Iterable[str]) -> None:
    """Raise `InputError` if a strict input is requested, but the graph was not made with it."""
    strict = {i.label: i.append_only or i.label in graph.strict for i in _zset_inputs(graph)}
    if isinstance(asked, bool):
        wanted = list(strict) if asked else []
    else:
        wanted = [asked] if isinstance(asked, str) else list(asked)
    unknown = [label for label in wanted if label not in strict]
    if unknown:
        raise InputError(
            f"strict={short(asked)}: {graph.name} has no input {unknown[0]!r} that is a Z-set; "
            f"those are: {', '.join(strict) or 'none'}"
        )
    missing = [label for label in wanted if not strict[label]]
    if missing:
        raise InputError(
            f"strict={asked!r}: the graph does not keep which rows of input {missing[0]!r} are "
            f"there; compile it with st.compile(query, strict={asked!r}), and make a new store "
            "from that graph: the state of a graph that is not strict does not have them"
        )


def _zset_inputs(graph: AnyGraph) -> list[Input]:
    ops = [v.operator for v in graph.inputs if isinstance(v.type, ZSetType)]
    return [op for op in ops if isinstance(op, Input)]
