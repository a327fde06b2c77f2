"""The part of a stepper that turns the state of another query into its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, StepError, StoreMismatch
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.execution.io import held_input
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.plan.plan import Plan
from stepping_spark.relations.relation import DriverRelation, Relation
from stepping_spark.relations.store import EvolvingStore, Now, Store
from stepping_spark.rows.atoms import TIMES, is_time
from stepping_spark.stepper.evolve.circuit import Unreadable, circuit_of, reordered
from stepping_spark.stepper.evolve.evolution import Evolution, evolution_of
from stepping_spark.stepper.evolve.old_streams import KeptCircuit

BeforeCommit: TypeAlias = Callable[[int, tuple[Any, ...]], Mapping[str, int]]


def time_of_evolution(plan: Plan, last: Now, given: Now) -> Now:
    """The `now` of an evolution: the last one, so that registers of times stay unchanged.

    It is `given` if the last one has another type than the times of the query. Registers of times
    are new then.
    """
    for t, (path, line) in plan.times.items():
        if not is_time(last, t):
            if is_time(given, t):
                return given
            raise InputError(
                f"now={given!r}: {path} ({line}) compares it with times of type {t}, and the last "
                f"step was at {last!r}; write evolve(now=…), {TIMES[t]}"
            )
    return last


class Evolving:
    """The base class of `Stepper` for the evolution of its state."""

    graph: AnyGraph
    store: Store
    limits: Limits
    metrics: deque[StepMetrics]
    _plan: Plan
    _lock: threading.Lock
    _circuit: str | None = None  # stored with the next step
    _evolution: Evolution | None = None
    _renamed: Mapping[str, str]

    def evolve(
        self,
        *,
        whole: Iterable[str] = (),
        now: Now = None,
        before_commit: BeforeCommit | None = None,
        **inputs: Any,
    ) -> Any:
        """Turn the state of another query into the state of this query, as one step.

        Returns the change of each output: its new rows minus its old ones. Registers that both
        queries have stay unchanged, and cost nothing; the others are filled from them.
        `st.evolution(graph, store)` shows in advance which registers are kept, and which are read.
        If the state does not determine a register, all rows of an input are needed again, as of the
        last step. Pass them by its name: `evolve(orders=z)`.

        The step has the next number, and the `now` and the offsets of the last one. Pass `now=` if
        the query compares with times of another type than that `now`, or if the other query did not
        compare with times. The step is atomic, like any other. A second call does nothing, and
        returns empty changes.

        `whole` names outputs whose change is all their rows, for readers that have none of them: a
        new table, or one that was emptied because the old rows are unknown, for example if the
        other query had a function that this one lacks. `before_commit` is as for `step`, and
        returns all offsets.

        Raises `InputError` if an input is missing, and `StoreMismatch` if rows depend on the order
        of the steps, or the old rows of an output are unknown.

        >>> def large(a: st.ZSet[int]) -> st.ZSet[int]:
        ...     return st.filter(st.distinct(a), f=lambda n: n > 1)
        >>> def larger(a: st.ZSet[int]) -> st.ZSet[int]:
        ...     return st.filter(st.distinct(a), f=lambda n: n > 2)
        >>> store = st.StoreMemory.from_graph(st.compile(large))
        >>> _ = st.iteration(store, st.compile(large), (st.ZSetPython({1: 1, 2: 1, 3: 1}),))
        >>> stepper = st.Stepper(st.compile(larger), store, evolve=True)
        >>> (change,) = stepper.evolve()
        >>> change == st.ZSetPython({2: -1})
        True
        """
        with self._lock:
            evolution = self._evolution_of(whole)
            if evolution is None:
                empty = (DriverRelation.empty(v.type.schema) for v in self._plan.outputs)
                return self._answers(list(empty))
            return self._evolve(evolution, inputs, now, before_commit)

    @property
    def evolution(self) -> Evolution | None:
        """The evolution of the state that must precede the next step; None if none is needed."""
        return self._evolution

    def needed_again(self, whole: Iterable[str] = ()) -> tuple[str, ...]:
        """The names of the inputs that `evolve` needs again, with the same `whole`."""
        evolution = self._evolution_of(whole)
        return () if evolution is None else evolution.read_again

    def _evolution_of(self, whole: Iterable[str]) -> Evolution | None:
        if not whole:
            return self._evolution
        return evolution_of(self.graph, self.store, whole, renamed=self._renamed, counted=False)

    def _evolve(
        self,
        evolution: Evolution,
        inputs: Mapping[str, Any],
        now: Now,
        before_commit: BeforeCommit | None,
    ) -> tuple[Any, ...]:
        evolution.check_known()
        again = self._again(evolution, inputs)
        number = evolution.step + 1
        now = time_of_evolution(self._plan, self.store.last_now(), now)
        offsets: Mapping[str, int] | None = None
        metrics = StepMetrics(number)
        begun = time.perf_counter()
        with self._all_or_nothing(number, list(inputs.values())):
            assert isinstance(self.store, EvolvingStore)
            assert evolution.filling is not None
            self.store.evolve(self._plan.registers, evolution.names)
            self._circuit = circuit_of(self._plan)
            outputs, settings = evolution.filling.run(self.store, again, metrics, now, self.limits)
            answers = self._answers(outputs)
            if before_commit is not None:
                offsets = before_commit(number, answers)
            committed = now if self._plan.times else number
            self._commit(number, committed, outputs, offsets, settings)
        self._evolution = None
        metrics.ms = (time.perf_counter() - begun) * 1e3
        self.metrics.append(metrics)
        return answers

    def _again(self, evolution: Evolution, inputs: Mapping[str, Any]) -> dict[str, Relation]:
        """The rows of the inputs that are read again, by name."""
        missing = [name for name in evolution.read_again if name not in inputs]
        if missing or inputs.keys() - set(evolution.read_again):
            wanted = ", ".join(f"{name}=…" for name in evolution.read_again)
            raise InputError(
                f"{user_line()}: evolve needs all rows of "
                f"{', '.join(evolution.read_again) or 'no input'} again, and is given "
                f"{', '.join(inputs) or 'none'}; write evolve({wanted})"
            )
        types = {where: v.type for v, where in self.graph.named_inputs}
        return {
            name: held_input(value, types[f"input {name!r}"], f"input {name!r}", self.limits)
            for name, value in inputs.items()
        }

    def _not_evolved(self) -> StepError:
        """The error for a step before the state has evolved."""
        return StepError(
            f"the state belongs to another query than {self.graph.name} is now; call evolve() "
            f"first. What it does:\n{self._evolution}"
        )

    def _begin_with(self, store: EvolvingStore) -> None:
        """Find the evolution that a state needs, and the text of the circuit to store."""
        circuit, before = circuit_of(self._plan), store.last_circuit()
        if before == circuit:
            return
        self._circuit = circuit
        if store.evolves:
            difference = evolution_of(self.graph, self.store, renamed=self._renamed)
            self._evolution = difference if difference.is_needed else None
        elif before is not None:
            self._check_order(before)

    def _check_order(self, before: str) -> None:
        """Refuse a query with its inputs in another order: their rows would be exchanged."""
        try:
            old = KeptCircuit(before).inputs
        except Unreadable:
            return
        now = reordered(self.graph, old)
        if now:
            then = sorted(old, key=old.__getitem__)
            raise StoreMismatch(
                f"the state is of a query with the inputs {', '.join(then)}, in this order, and "
                f"{self.graph.name} has {', '.join(now)}. Keep the order; or evolve, which finds "
                "inputs by their names (evolve=True, and for a stepper a call of evolve())"
            )

    def _all_or_nothing(
        self, number: int, inputs: Sequence[object]
    ) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _answers(self, outputs: Sequence[Relation]) -> tuple[Any, ...]:
        raise NotImplementedError

    def _commit(
        self,
        number: int,
        now: Now,
        outputs: Sequence[Relation],
        offsets: Mapping[str, int] | None,
        settings: Mapping[str, str] | None,
    ) -> None:
        raise NotImplementedError
