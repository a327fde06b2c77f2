"""An iterable of (position, change) as a source, and a function of (step, change) as a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from stepping_spark.base.errors import SourceError, short
from stepping_spark.pipeline.protocols import Batch, Change, Portion, Position
from stepping_spark.zsets.spark import ZSetSpark


class Items:
    """An iterable of `(position, change)` as a source, with options.

    Without options a plain iterable will do. `on_invalid` decides about rows that do not fit the
    row class: `"fail"` raises an error, `"drop"` leaves them out and counts them, and a sink gets
    them as `st.Rejected`.

    >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(people)
    >>> people = st.Items([(1, pa.table({"name": ["ann", None]}))], on_invalid="drop")
    >>> seen = {}
    >>> st.Pipeline(names, store="memory", people=people, into={"names": seen.setdefault}).run()
    1
    >>> seen[1] == st.ZSetPython({"ann": 1})
    True
    """

    def __init__(self, items: Iterable[tuple[int, Change]], *, on_invalid: object = "fail") -> None:
        self.items = items
        self.on_invalid = on_invalid

    def __repr__(self) -> str:
        n = f"{len(self.items)} items" if isinstance(self.items, list | tuple) else "…"
        return f"Items({n})"


class ItemSource:
    """The items of an iterable: `(position, change)` with increasing positions, one for each step.

    A position that does not increase is a `SourceError`, because it would look like one that was
    read. Items up to the read position are skipped, so the iterable may start again in each
    process; it must have the same change at the same position. A list is read to its end, and items
    appended later are read later; an iterator that has ended has no more items.
    """

    lengths = (1,)

    def __init__(self, name: str, items: Iterable[tuple[int, Change]]) -> None:
        self._name = name
        self._given = items
        self._items: Iterator[tuple[int, Change]] = iter(())
        self._next = 0  # in a list: the index where the search begins
        self._ahead: tuple[int, Change] | None = None  # read, and perhaps not committed
        self._last: int | None = None  # of an iterator: the last position

    def open(self, columns: pa.Schema) -> None:
        """Begin with the first item of an iterable; continue an iterator."""
        items = iter(self._given)
        if items is not self._given:
            self._last = None
        self._items = items

    def close(self) -> None:
        """Nothing to do."""

    def behind(self, after: Position | None) -> int | None:
        """The number of items after the position in a list; None for other iterables."""
        if isinstance(self._given, list | tuple):
            return sum(1 for at, _ in map(self._checked, self._given) if _is_after(at, after))
        return None

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next item."""
        if isinstance(self._given, list | tuple):
            item = self._of_list(self._given, after)
        else:
            item = self._ahead = self._of_iterator(after)
        if item is None:
            return None
        at, change = item
        return Batch(at, () if change is None else (change,))

    def _of_list(
        self, items: Sequence[tuple[int, Change]], after: Position | None
    ) -> tuple[int, Change] | None:
        i = min(self._next, len(items))
        while i > 0 and _is_after(self._checked(items[i - 1])[0], after):
            i -= 1
        while i < len(items):
            at, change = self._checked(items[i])
            self._check_rises(at, self._checked(items[i - 1])[0] if i else None)
            if _is_after(at, after):
                self._next = i
                return at, change
            i += 1
        self._next = i
        return None

    def _of_iterator(self, after: Position | None) -> tuple[int, Change] | None:
        if self._ahead is not None and _is_after(self._ahead[0], after):
            return self._ahead
        for item in self._items:
            at, change = self._checked(item)
            self._check_rises(at, self._last)
            self._last = at
            if _is_after(at, after):
                return at, change
        return None

    def _check_rises(self, at: int, before: int | None) -> None:
        if before is not None and at <= before:
            raise SourceError(
                f"input {self._name!r}: position {at} comes after position {before}; each position "
                "is greater than the one before, else its change is taken for one that was read: "
                "number the changes, enumerate(changes, 1)"
            )

    def _checked(self, item: Any) -> tuple[int, Change]:
        match item:
            case (int(at), change) if not isinstance(at, bool):
                return at, change
        raise SourceError(
            f"input {self._name!r}: expected (position, change), with a whole number as position, "
            f"found {short(item)}; number the changes: enumerate(changes, 1)"
        )


class FunctionSink:
    """A function of `(step, change)` as a sink.

    A function does not report the steps that it has seen. So the pipeline calls it again with the
    last step at a start; the function should ignore a step that it knows.
    """

    def __init__(self, f: Callable[[int, ZSetSpark[Any]], object]) -> None:
        self._f = f

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Nothing to do."""

    def last_step(self) -> int | None:
        """None: the last step of a function is unknown."""
        return None

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Call the function."""
        self._f(step, change)

    def close(self) -> None:
        """Nothing to do."""


def _is_after(at: int, position: Position | None) -> bool:
    return position is None or (at,) > (position if isinstance(position, tuple) else (position,))
