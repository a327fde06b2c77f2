"""What can be picked from rows to be added up, beside numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from stepping_spark.zset import ZSetPython

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class Collect(Generic[T, V]):
    """The Z-set of what `f` gives for the rows."""

    f: Callable[[T], V]
    to: Any = None

    def __call__(self, row: T) -> ZSetPython[V]:
        return ZSetPython({self.f(row): 1})


def collect(f: Callable[[T], V], *, to: type[V] | None = None) -> Callable[[T], ZSetPython[V]]:
    """A `pick_value` that collects `f(row)` of a group's rows into one `ZSetPython`.

    >>> by_length = st.group_reduce_flatten(                          # doctest: +SKIP
    ...     words, by=lambda w: w.length, zero=st.ZSetPython, pick_value=st.agg.collect(
    ...         lambda w: w.value))
    """
    return cast("Callable[[T], ZSetPython[V]]", Collect(f, to))
