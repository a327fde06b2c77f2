"""What a pipeline would do: what there is to read, what it keeps, and what a step costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepping_spark.errors import StoreUnavailable
from stepping_spark.graph.graph import AnyGraph
from stepping_spark.pipeline.feeds import Feed, shown
from stepping_spark.pipeline.outlets import Outlet
from stepping_spark.pipeline.positions import position_of, state_of
from stepping_spark.plan.explain import explain
from stepping_spark.store import Store
from stores.address import MEMORY, Place

FULL = "recomputed in full"


@dataclass(frozen=True)
class Prospect:
    """What a run would do. Printed, it is a page of text.

    `waiting` is what each source has that was not read (None: unknown), `state` the key by which
    each register is kept, with its rows where the state says them, `costs` how each vertex takes a
    step, and `in_full` the vertices whose cost grows with the tables, and not with the change.

    >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(people)
    >>> found = st.Pipeline(names, store="memory", people=[], into={"names": print}).dry_run()
    >>> isinstance(found, st.Prospect), found.step, found.into, found.in_full
    (True, 0, (('names', 'print'),), ())
    """

    name: str
    place: str
    step: int
    sources: tuple[tuple[str, str, str], ...]
    waiting: Mapping[str, int | None]
    into: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    costs: tuple[tuple[str, str, str], ...]
    in_full: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"pipeline {self.name}: state {self.place}, step {self.step:,}", "reads"]
        for name, source, position in self.sources:
            n = self.waiting[name]
            left = "unknown how much there is" if n is None else f"{n:,} to read"
            lines.append(f"  {name}: {source}, read up to {position}; {left}")
        lines.append("writes")
        lines += [f"  {view}: {sink}" for view, sink in self.into] or ["  nothing"]
        lines.append("keeps")
        lines += [f"  {register}: {kept}" for register, kept in self.state] or ["  nothing"]
        lines.append("a step costs")
        lines += [f"  {path}: {how}  ({line})" for path, how, line in self.costs]
        lines += [f"{path} is {FULL} at each step" for path in self.in_full]
        return "\n".join(lines)


def prospect_of(
    graph: AnyGraph, place: Store | Place, feeds: Sequence[Feed], outlets: Sequence[Outlet]
) -> Prospect:
    """Look, and change nothing: no lock is taken, and no table is made."""
    step, offsets, rows = _known(place)
    state = state_of(step, offsets)
    for outlet in outlets:
        outlet.look(state, step, offsets)
    waiting = {}
    for feed in feeds:
        feed.open(position_of(feed.name, offsets))
        try:
            waiting[feed.name] = feed.behind()
        finally:
            feed.close()
    found = explain(graph)
    return Prospect(
        name=graph.name,
        place=str(place) if isinstance(place, Place) else repr(place),
        step=step,
        sources=tuple((f.name, f.shown, shown(position_of(f.name, offsets))) for f in feeds),
        waiting=waiting,
        into=tuple((outlet.view, outlet.shown) for outlet in outlets),
        state=tuple((name, _kept(key, rows.get(name))) for name, key in found.arrangements),
        costs=tuple((v.path, v.how, v.line) for v in found.vertices),
        in_full=tuple(v.path for v in found.vertices if v.how.startswith(FULL)),
    )


def _known(place: Store | Place) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
    """The last step, the offsets, and the rows of each register; none of a state to be made."""
    if not isinstance(place, Place):
        return place.last_step(), place.last_offsets(), {}
    if place.kind == MEMORY:
        return 0, {}, {}
    try:
        found = place.state().summary()
    except StoreUnavailable:
        return 0, {}, {}  # a run makes it, or says what is wrong
    return found.step, found.offsets, {kept.register.name: kept.rows for kept in found.registers}


def _kept(key: tuple[str, ...], rows: int | None) -> str:
    by = f"by {', '.join(key)}" if key else "whole"
    return by if rows is None else f"{by}, {rows:,} rows"
