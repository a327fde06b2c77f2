"""After a restart: sinks that lack the last step get its output, which the store has kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepping_spark.errors import SinkError, StoreError, StoreMismatch
from stepping_spark.execution.repeats import check_made_by
from stepping_spark.graph.graph import AnyGraph
from stepping_spark.pipeline.outlets import Outlet
from stepping_spark.pipeline.rejects import told_of_rejected
from stepping_spark.pipeline.reporting import log
from stepping_spark.stepper import Stepper
from stepping_spark.store import Store


def deliver(
    step: int,
    outputs: Sequence[Any],
    outlets: Sequence[Outlet],
    state: str | None,
    *,
    is_written: bool = False,
) -> list[int | None]:
    """Write a committed step into sinks; gives the rows of each.

    `state` is the path of a state that can go back by a step, and `is_written` says that another
    sink has this step. The error of a sink that refuses it says what would do.
    """
    rows: list[int | None] = []
    for outlet in outlets:
        try:
            rows.append(outlet.write(step, outputs[outlet.number]))
        except SinkError as e:
            raise SinkError(f"{e}. {_ways_on(step, state, is_written=is_written)}") from e
        except Exception as e:  # of the user's own function or sink
            e.add_note(
                f"in the sink {outlet.shown} of view {outlet.view!r}: step {step} is committed, "
                "and the next run gives it to the sink again"
            )
            raise
        is_written = is_written or bool(outlet.kept)
    return rows


def _ways_on(step: int, state: str | None, *, is_written: bool) -> str:
    told = f"Step {step} is committed, and waits for this sink: the next run writes it"
    if is_written:
        return f"{told}. It cannot be taken back, because another sink has it"
    if state is None:
        return told
    return (
        f"{told}. If the sink can never take it, take the step back, and correct the rows in the "
        f"source: stepping-spark state rewind {state} --to {step - 1}"
    )


def catch_up(stepper: Stepper[Any, Any], outlets: Sequence[Outlet], state: str | None) -> None:
    """Give the last step again to the sinks that may not have it."""
    step = stepper.store.last_step()
    offsets = stepper.store.last_offsets()
    lacking = [outlet for outlet in outlets if outlet.lacks(step, offsets)]
    check_query(stepper.store, stepper.graph, outlets)
    if not lacking:
        return
    try:
        outputs = stepper.step((None,) * len(stepper.graph.inputs), step=step)
    except StoreError as e:
        if any(outlet.kept for outlet in lacking):
            raise SinkError(
                f"view {lacking[0].view!r}: the sink does not have step {step}, and it cannot be "
                f"delivered again: {e}"
            ) from e
        log.warning("step %d cannot be delivered again to functions: %s", step, e)
        return
    others = any(outlet.kept and outlet not in lacking for outlet in outlets)
    deliver(step, outputs, lacking, state, is_written=others)


def check_query(store: Store, graph: AnyGraph, outlets: Sequence[Outlet]) -> None:
    """Refuse to go on with tables that have rows of another query."""
    step = store.last_step()
    if not step or not any(outlet.kept for outlet in outlets):
        return
    try:
        check_made_by(store.last_made_by(), graph, step, beside=told_of_rejected(graph))
    except StoreError as e:
        raise StoreMismatch(
            f"the tables that views go into have rows of another query than {graph.name} is now; "
            "run the query that it was, or evolve to this one; or start with a new store and empty "
            "tables. "
            f"In full: {e}"
        ) from e
