"""Stepping a circuit: `iteration`, `actions` and the `Stepper`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typing_extensions import TypeVarTuple

from stepping_spark.errors import InputError, StepError, SteppingError, StoreError
from stepping_spark.graph import Graph
from stepping_spark.metrics import StepMetrics
from stepping_spark.plan import plan_of
from stepping_spark.scheduler import LOCAL_ROWS, Scheduler
from stepping_spark.store import Store
from stepping_spark.values import answer, held_input
from stepping_spark.zset import ZSetPython

KEPT_METRICS = 10_000  # steps

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out")
T = TypeVar("T")


class Stepper(Generic[*Ins, Out]):
    """A circuit and its store, ready to be stepped.

    `progress`: whether `run` shows a progress bar. A stream that reads at most `local_rows` rows
    is computed on the driver, Spark evaluating its row functions; 0 sends everything to Spark.
    `metrics` has what each of the last 10,000 steps did.
    """

    def __init__(
        self,
        graph: Graph[*Ins, Out],
        store: Store,
        *,
        progress: bool = False,
        local_rows: int = LOCAL_ROWS,
    ) -> None:
        self.graph = graph
        self.store = store
        self.progress = progress
        self.metrics: deque[StepMetrics] = deque(maxlen=KEPT_METRICS)
        self._plan = plan_of(graph)
        self._scheduler = Scheduler(self._plan, store, local_rows=local_rows)
        self._kept: tuple[int, tuple[Any, ...]] | None = None
        self._lock = threading.Lock()
        store.open(self._plan.registers)

    def step(
        self, inputs: Sequence[object], *, step: int | None = None, now: object = None
    ) -> tuple[Any, ...]:
        """Feed one change to each input; gives the change, or value, of each output.

        An input is a `ZSetPython`, a `ZSetSpark`, a number, or None for no change. All or nothing:
        after any error the store is as before, and the same call may be made again. `step=n` makes
        the call idempotent: a step that is committed already changes nothing. `now` defaults to
        the step's number and never goes back.

        Raises `InputError` for a value that does not fit, `StepError` for a vertex that fails,
        `StoreError` for the store.
        """
        with self._lock:
            last = self.store.last_step()
            if step is not None and step <= last:
                return self._answer_again(step, last)
            if step is not None and step != last + 1:
                raise StoreError(
                    f"step {step} was asked for, and the last committed one is {last}; the next "
                    f"is {last + 1}"
                )
            number = last + 1
            now = self._check_now(number, now)
            held = {
                v: held_input(value, v.type, where) for v, value, where in self.graph.given(inputs)
            }
            begun = time.perf_counter()
            try:
                values, metrics = self._scheduler.run(number, held)
                given = tuple(
                    answer(h, v.type) for h, v in zip(values, self._plan.outputs, strict=True)
                )
                self.store.commit(number, now)
            except SteppingError:
                self.store.abort()
                raise
            except Exception as e:
                self.store.abort()
                raise StepError(
                    f"step {number} failed: {type(e).__name__}: {e}; the store is as it was before"
                ) from e
            except BaseException:
                self.store.abort()
                raise
            metrics.ms = (time.perf_counter() - begun) * 1e3
            self.metrics.append(metrics)
            self._kept = (number, given)
            return given

    def run(self, steps: Iterable[Sequence[object]]) -> list[tuple[Any, ...]]:
        """Take a step for each tuple of inputs; with `progress`, behind a progress bar."""
        if not self.progress:
            return [self.step(inputs) for inputs in steps]
        answers = []
        total = len(steps) if isinstance(steps, Sequence) else None
        columns = (
            TextColumn("stepping"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}"),
        )
        with Progress(*columns) as bar:
            task = bar.add_task("", total=total, last="")
            for inputs in steps:
                answers.append(self.step(inputs))
                m = self.metrics[-1]
                bar.update(task, advance=1, last=f"step {m.step}: {m.ms:.0f} ms, {m.jobs} jobs")
        return answers

    def _answer_again(self, step: int, last: int) -> tuple[Any, ...]:
        if self._kept is not None and self._kept[0] == step:
            return self._kept[1]
        raise StoreError(
            f"step {step} is committed (the last one is {last}), and what it gave was not kept; "
            f"go on with step {last + 1}, and read what you need from a cache"
        )

    def _check_now(self, number: int, now: object) -> object:
        now = number if now is None else now
        before = self.store.last_now()
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


def iteration(
    store: Store,
    graph: Graph[*Ins, Out],
    inputs: Sequence[object],
    *,
    step: int | None = None,
    now: object = None,
) -> tuple[Any, ...]:
    """Take one step: a tuple of changes in, a tuple of changes (or values) out.

    See `Stepper.step`, which this calls; the compiled plan is kept with the graph.
    """
    return stepper_of(graph, store).step(inputs, step=step, now=now)


def stepper_of(graph: Graph[*Ins, Out], store: Store) -> Stepper[*Ins, Out]:
    """The stepper of a graph and a store; the same object each time."""
    plan_of(graph)  # refuses what is no graph
    known = graph.memo.get("stepper")
    if not isinstance(known, Stepper) or known.store is not store:
        known = graph.memo["stepper"] = Stepper(graph, store)
    return known


class Action(Generic[T]):
    """Changes to one input, each a step of its own."""

    def __init__(self, stepper: Stepper[*tuple[Any, ...], Any], number: int) -> None:
        self._stepper = stepper
        self._number = number

    def insert(self, *rows: T) -> Any:
        """Add rows. Gives the output, or a tuple of them where the query gives a tuple."""
        return self._change([(row, 1) for row in rows])

    def remove(self, *rows: T) -> Any:
        """Take rows away."""
        return self._change([(row, -1) for row in rows])

    def replace(self, old: T, new: T) -> Any:
        """Put one row in the place of another."""
        return self._change([(old, -1), (new, 1)])

    def _change(self, rows: list[tuple[T, int]]) -> Any:
        graph = self._stepper.graph
        inputs: list[object] = [None] * len(graph.inputs)
        inputs[self._number] = ZSetPython(rows)
        outputs = self._stepper.step(inputs)
        return outputs[0] if graph.single else outputs


def actions(store: Store, graph: Graph[*Ins, Out]) -> tuple[Action[Any], ...]:
    """For each input, a way to insert, remove and replace rows."""
    stepper = stepper_of(graph, store)
    return tuple(Action(stepper, i) for i in range(len(graph.inputs)))
