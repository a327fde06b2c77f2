"""A round of a pipeline: what is new of each source, as one step, written into each sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepping_spark.pipeline.catching_up import deliver
from stepping_spark.pipeline.feeds import Feed, Taken, shown
from stepping_spark.pipeline.outlets import Outlet
from stepping_spark.pipeline.positions import STATE, offsets_of, without
from stepping_spark.pipeline.protocols import Batch, Portion
from stepping_spark.pipeline.reporting import Reporting, StepReport, rows_of
from stepping_spark.stepper import Stepper
from stepping_spark.store import Now, Store
from stepping_spark.zsets.spark import ZSetSpark


@dataclass(frozen=True)
class Rounds:
    """What a pipeline takes its rounds with. `rejecting` are the inputs with a view of misfits.

    `state_path` is where a state is that can go back by a step.
    """

    feeds: Sequence[Feed]
    outlets: Sequence[Outlet]
    rejecting: Sequence[str]
    portion: Portion
    now: Callable[[], Now] | None
    reporting: Reporting
    state_path: str | None

    def take(self, stepper: Stepper[Any, Any], state: int) -> tuple[bool, bool]:
        """Take what is new as a step; gives whether anything was read, and whether it is a step.

        `state` is the number of the state.
        """
        begun = time.perf_counter()
        taken = [feed.take(self.portion) for feed in self.feeds]
        batches = [t.batch for t in taken]
        read = any(batch is not None for batch in batches)
        misfits = {f.name: t.misfits for f, t in zip(self.feeds, taken, strict=True) if t.misfits}
        # The position is committed, so that nobody reads and counts the same misfits again.
        final = bool(misfits) or any(batch is not None and batch.final for batch in batches)
        nothing = all(t.change is None and t.rejected is None for t in taken)
        if self.now is None and not final and nothing:
            self._advance(batches)
            return read, False
        outputs = stepper.step(
            self._changes(taken),
            now=None if self.now is None else self.now(),
            offsets=self._offsets(stepper.store, batches, state),
            before_commit=self._prepare,
        )
        before = [shown(feed.position) for feed in self.feeds]
        self._advance(batches)
        step = stepper.store.last_step()
        rows = deliver(step, outputs, self.outlets, self.state_path)
        for feed in self.feeds:
            feed.confirm()
        self.reporting.tell(
            StepReport(
                step,
                tuple(
                    (feed.name, old, shown(feed.position))
                    for feed, old, batch in zip(self.feeds, before, batches, strict=True)
                    if batch is not None
                ),
                tuple(0 if t.change is None else rows_of(t.change) for t in taken),
                tuple(rows) if rows else None,
                (time.perf_counter() - begun) * 1e3,
                misfits,
            )
        )
        return read, True

    def go_back(self, store: Store) -> None:
        """Read on from what is committed, whatever became of the last step that was tried."""
        offsets = store.last_offsets()
        for feed in self.feeds:
            feed.position = feed.position_in(offsets)

    def _changes(self, taken: Sequence[Taken]) -> list[ZSetSpark[Any] | None]:
        """The changes of the circuit's inputs: of the query's, then rows that do not fit."""
        rejected = {feed.name: t.rejected for feed, t in zip(self.feeds, taken, strict=True)}
        return [t.change for t in taken] + [rejected[name] for name in self.rejecting]

    def _prepare(self, step: int, outputs: tuple[Any, ...]) -> dict[str, int]:
        """Let the sinks refuse a step before it is committed; gives what is committed of them."""
        told = {}
        for outlet in self.outlets:
            told.update(outlet.prepare(step, outputs[outlet.number]))
        return told

    def _advance(self, batches: Sequence[Batch | None]) -> None:
        for feed, batch in zip(self.feeds, batches, strict=True):
            if batch is not None:
                feed.position = batch.position

    def _offsets(self, store: Store, batches: Sequence[Batch | None], state: int) -> dict[str, int]:
        """What is committed with a step: positions of sources, and which step each sink has."""
        offsets = without(store.last_offsets(), [feed.name for feed in self.feeds])
        offsets[STATE] = state
        for feed, batch in zip(self.feeds, batches, strict=True):
            position = feed.position if batch is None else batch.position
            if position is not None:
                offsets.update(offsets_of(feed.name, position))
        for outlet in self.outlets:
            offsets.update(outlet.kept)
        return offsets
