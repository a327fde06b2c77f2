"""Caches: named streams whose value can be read from the store at any time."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from stepping_spark.base.callsite import Line, user_line
from stepping_spark.base.errors import CompileError, InputError, StoreMismatch, short
from stepping_spark.circuit.operators import Input
from stepping_spark.language.trace import tracer, vertex_of
from stepping_spark.relations.store import Store, register_name
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from stepping_spark.zsets.spark import ZSet, ZSetSpark

X = TypeVar("X")
S = TypeVar("S")

RESERVED = ("_staging_", "_output_")
"""Prefixes that stores use for their own tables; names of caches must not begin with them."""


class Cache(Generic[X]):
    """A Z-set of the circuit that can be read from the store between steps.

    In a query, `cache[a](f)` stores the value of the stream `f(a)` under `name` (by default the
    name of the row type). `cache.zset(store)` reads it. Usually `f` is an integral, so that the
    stored value is the sum of all changes: the view itself. If `f` returns a stream of changes,
    only the last change is stored; `explain` points this out.

    State: that of its stream. An integral is one register, shared with everything that reads it,
    with the keys of `integrate_indexed`. A stream of changes is stored by a delay. Two caches of
    one value are two registers. A step costs the rows of the change.

    Raises `CompileError` for a stream with another row type, for two caches with one name, for a
    name that begins with `_staging_` or `_output_` (stores use these for their own tables), and for
    `cache[a]` without a call after it.

    >>> names = st.Cache[str](name="names")
    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     _ = names[a](lambda a: st.integrate(a))
    ...     return a
    >>> graph = st.compile(query)
    >>> store = st.StoreMemory.from_graph(graph)
    >>> people, = st.actions(store, graph)
    >>> _ = people.insert("Ann", "Bob")
    >>> _ = people.remove("Ann")
    >>> names.zset(store)
    <ZSetSpark>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         1 │ Bob       │
    ╰───────────┴───────────╯
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """The given name, or else the name of the row type."""
        return self._name or str(self._row)

    @property
    def _row(self) -> Any:
        made_as = getattr(self, "__orig_class__", None)
        if made_as is None:
            raise CompileError(f"{user_line()}: say what the cache holds: st.Cache[X](name=…)")
        (row,) = typing.get_args(made_as)
        return row_type(row)

    def __getitem__(self, a: ZSet[S]) -> Callable[[Callable[[ZSet[S]], ZSet[X]]], ZSet[X]]:
        """`cache[a](f)`: store the value of `f(a)`, usually `st.integrate_indexed(a, …)`."""

        mark = object()
        tracer().uncalled[mark] = (self.name, user_line())

        def keep(f: Callable[[ZSet[S]], ZSet[X]]) -> ZSet[X]:
            current, line = tracer(), user_line()
            current.uncalled.pop(mark, None)
            if not callable(f):
                raise CompileError(
                    f"{line}: cache {self.name!r} takes a function of the stream, found "
                    f"{short(f)}; write cache[a](lambda a: st.integrate(a))"
                )
            self._check_name(line)
            value = f(a)
            vertex = vertex_of(value, "a cache")
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
            if not isinstance(vertex.operator, Input):  # an input has its parameter's name
                current.names.setdefault(vertex, self.name)
            current.no_output.append(vertex)
            return value

        return keep

    def _check_name(self, line: Line) -> None:
        for prefix in RESERVED:
            if self.name.startswith(prefix):
                raise CompileError(
                    f"{line}: a cache is named {self.name!r}, and names that begin with {prefix!r} "
                    "are for tables of the store itself; give it another name="
                )

    def __call__(self, *args: object) -> NoReturn:
        raise CompileError(
            f"{user_line()}: cache {self.name!r} is not a function; in a query write "
            "_ = cache[a](lambda a: st.integrate(a)), outside of it cache.zset(store)"
        )

    def zset(self, store: Store) -> ZSetSpark[X]:
        """The value at the last committed step.

        The columns are those of `X`, then `_count_`. The value is read lazily; reading all of it
        costs its size. Raises `StoreMismatch` if the store has no such cache.
        """
        if not hasattr(store, "read"):
            raise InputError(
                f"{user_line()}: the value of a cache is in a store, found {type(store).__name__}; "
                "write cache.zset(store)"
            )
        try:
            parts = store.read(register_name(self.name))
        except StoreMismatch:
            raise StoreMismatch(
                f"the store has no cache {self.name!r}; open it from the graph of a query that "
                "uses this cache"
            ) from None
        # If a register has a computed key, it has columns for it; these are not part of the rows.
        of = ZSetType(self._row)
        return ZSetSpark.from_parts(parts, of)
