"""Caches: names for streams whose state can be read from the store at any time."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from stepping_spark.errors import CompileError, StoreMismatch
from stepping_spark.origin import user_line
from stepping_spark.schema import ZSetType
from stepping_spark.store import Store
from stepping_spark.trace import tracer, vertex_of
from stepping_spark.types import row_type
from stepping_spark.zset import ZSet, ZSetSpark

X = TypeVar("X")
S = TypeVar("S")


def register_name(cache: str) -> str:
    """The name of the register that a cache reads."""
    return f"cache.{cache}"


class Cache(Generic[X]):
    """A Z-set of the circuit that can be read from the store, from any process.

    >>> cache = st.Cache[X](name="receipts")                                # doctest: +SKIP
    >>> def query(a):
    ...     _ = cache[a](lambda a: st.integrate_indexed(a, indexes=(by_date,)))
    >>> cache.zset(store)                                                   # doctest: +SKIP
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """The name: the given one, or that of the row type."""
        return self._name or str(self._row)

    @property
    def _row(self) -> Any:
        made_as = getattr(self, "__orig_class__", None)
        if made_as is None:
            raise CompileError(f"{user_line()}: say what the cache holds: st.Cache[X](name=…)")
        (row,) = typing.get_args(made_as)
        return row_type(row)

    def __getitem__(self, a: ZSet[S]) -> Callable[[Callable[[ZSet[S]], ZSet[X]]], ZSet[X]]:
        """`cache[a](f)`: keep the value of `f(a)`, usually `st.integrate_indexed(a, …)`."""

        def keep(f: Callable[[ZSet[S]], ZSet[X]]) -> ZSet[X]:
            current, line = tracer(), user_line()
            kept = f(a)
            vertex = vertex_of(kept, "a cache")
            if vertex.type != ZSetType(self._row):
                raise CompileError(
                    f"{line}: cache {self.name!r} holds {self._row}, found a stream of "
                    f"{vertex.type}; declare st.Cache of the rows of the stream"
                )
            if self.name in current.caches:
                raise CompileError(
                    f"{line}: two caches are named {self.name!r}, the other at "
                    f"{current.caches[self.name][1]}; give each its own name="
                )
            current.caches[self.name] = (vertex, line)
            current.names.setdefault(vertex, self.name)
            current.no_output.append(vertex)
            return kept

        return keep

    def zset(self, store: Store) -> ZSetSpark[X]:
        """The value at the last committed step.

        The columns are those of `X`, then `_count_`. Costs nothing until it is looked at; reading
        it whole costs the whole of it. A `StoreMismatch` if the store has no such cache.
        """
        try:
            parts = store.read(register_name(self.name))
        except StoreMismatch:
            raise StoreMismatch(
                f"the store has no cache {self.name!r}; open it from the graph of a query that "
                "uses this cache"
            ) from None
        return ZSetSpark.from_parts(parts, ZSetType(self._row))
