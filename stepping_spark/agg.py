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

    `f` gives a value of any row type, by `to` or an annotation where it cannot be seen; equal ones
    are counted. The state holds every value once; a step costs the groups that it touches, whole.

    >>> def query(words: st.ZSet[tuple[int, str]]) -> st.ZSet[st.Pair[st.ZSetPython[str], int]]:
    ...     return st.group_reduce_flatten(
    ...         words, by=lambda w: w[0], zero=st.ZSetPython,
    ...         pick_value=st.agg.collect(lambda w: w[1]))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({(1, "a"): 1, (1, "b"): 2}),))
    >>> [(p.right, p.left == st.ZSetPython({"a": 1, "b": 2})) for p, _ in out.iter()]
    [(1, True)]
    """
    return cast("Callable[[T], ZSetPython[V]]", Collect(f, to))
