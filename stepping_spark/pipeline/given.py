"""What a pipeline is made of, as a user gives it: sources, sinks, a store and numbers, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError
from stepping_spark.graph.graph import AnyGraph
from stepping_spark.limits import Limits
from stepping_spark.pipeline.feeds import Feed, told
from stepping_spark.pipeline.iterators import Items
from stepping_spark.pipeline.outlets import Outlet
from stepping_spark.pipeline.protocols import ReadTable, Sink, Source, WrittenTable
from stepping_spark.pipeline.rejects import TYPE, view_of
from stepping_spark.pipeline.views import input_names
from stepping_spark.rows.atoms import short
from stepping_spark.store import Store
from stores.address import PARQUET, Place, place_of

Given: TypeAlias = "Source | ReadTable | Items | Iterable[tuple[int, object]]"
To: TypeAlias = "Sink | WrittenTable | Callable[[int, Any], object]"
Into: TypeAlias = "To | Sequence[To]"


def feeds_of(
    graph: AnyGraph, views: Sequence[str], given: Mapping[str, Given], limits: Limits
) -> list[Feed]:
    """A source for each input."""
    names = input_names(graph)
    if set(names) != set(given):
        several = f"; or, where a view is meant, name one of {', '.join(views)}"
        raise InputError(
            f"{user_line()}: {graph.name} has the inputs {', '.join(names)}, and sources are given "
            f"for {', '.join(given) or 'none'}; give each input its source by name, as "
            f"{names[0]}=st.DeltaTable(path)" + (several if len(views) > 1 else "")
        )
    types = [v.type for v in graph.inputs]
    return [Feed(name, t, given[name], limits) for name, t in zip(names, types, strict=True)]


def outlets_of(
    graph: AnyGraph, views: Sequence[str], into: Mapping[str, Into], rejects: Mapping[str, Any]
) -> list[Outlet]:
    """The sinks of each view that has some, then those of rows that do not fit an input."""
    outlets = []
    for view, given in into.items():
        if view not in views:
            raise InputError(
                f"{user_line()}: into= names {view!r}, and the views are {', '.join(views)}; name "
                "one of them"
            )
        number = views.index(view)
        t = graph.outputs[number].type
        sinks = given if isinstance(given, list | tuple) else [given]
        outlets += [Outlet(view, i, number, t, sink) for i, sink in enumerate(sinks)]
    for number, (name, given) in enumerate(rejects.items(), len(views)):
        sinks = given if isinstance(given, list | tuple) else [given]
        outlets += [
            Outlet(view_of(name), i, number, TYPE, sink, rejects_of=name)
            for i, sink in enumerate(sinks)
        ]
    return outlets


def into_by_view(
    views: Sequence[str], into: Mapping[str, Into] | Into | None
) -> Mapping[str, Into]:
    """The sinks of views by name; of a single view they may be given without its name."""
    if into is None:
        return {}
    if isinstance(into, Mapping):
        return into
    if len(views) == 1:
        return {views[0]: into}
    raise InputError(
        f"{user_line()}: into= has sinks without the names of their views, found {short(into)}; "
        f"the views are {', '.join(views)}: write into={{{views[0]!r}: …}}"
    )


def check_apart(given: Mapping[str, Given], into: Mapping[str, Into]) -> None:
    """Refuse a table that a view goes into where an input, or another view, has the same one."""
    taken: list[tuple[str, object]] = [
        (f"the source of input {name!r}", source) for name, source in given.items()
    ]
    for view, sinks in into.items():
        for sink in sinks if isinstance(sinks, list | tuple) else [sinks]:
            known = getattr(sink, "identity", None)
            for what, other in taken:
                if known is not None and getattr(other, "identity", None) == known:
                    raise InputError(
                        f"{user_line()}: into[{view!r}] is {told(sink)}, which is {what} too; "
                        "only one view may write a table, and nothing else: give it another one"
                    )
            taken.append((f"a sink of view {view!r}", sink))


def place_given(store: str | Store | Place) -> Store | Place:
    """A store, or the place that a text names."""
    if not isinstance(store, str):
        return store
    try:
        return place_of(store)
    except ValueError as e:
        raise InputError(f"{user_line()}: store=: {e}") from None


def path_of(place: Store | Place) -> str | None:
    """The path of a state in files, which can go back by a step; None: it cannot."""
    return str(place) if isinstance(place, Place) and place.kind == PARQUET else None


def at_least_1(name: str, given: int | None) -> int | None:
    """A number from 1 on, or None for no bound."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given > 0):
        return given
    raise InputError(f"{user_line()}: {name}={given!r}: expected a whole number from 1 on, or None")
