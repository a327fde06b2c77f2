"""Indexes: the key of a row, by which state is arranged, joined, grouped and ordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.expr import Build, Expr, Field, PythonCall, tupled, whole
from stepping_spark.expressions.functions import row_expr
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.types import Optional, Struct, row_type, tuple_of

T = TypeVar("T")
K = TypeVar("K")
U = TypeVar("U")  # for the functions that create an index: T and K belong to the class
V = TypeVar("V")

Order = tuple[tuple[Expr, bool], ...]  # the expressions to order by, and whether each is ascending


@dataclass(frozen=True)
class Key:
    """A key of rows of one type: an expression, and the direction of each of its parts."""

    expr: Expr
    ascending: tuple[bool, ...] = (True,)

    @property
    def type(self) -> RowType:
        """The type of the key."""
        return self.expr.type

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions that form the key: one, or the parts of a tuple."""
        t = self.expr.type
        if isinstance(self.expr, Build) and isinstance(t, Struct) and t.python is tuple:
            return self.expr.fields
        return (self.expr,)

    def __str__(self) -> str:
        arrows = zip(self.parts, self.ascending, strict=True)
        shown = [f"{p}{'' if up else ' desc'}" for p, up in arrows]
        return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


@dataclass(frozen=True)
class Index(Generic[T, K]):
    """The key of a row, and its order: for joins, groups, state and iteration.

    Create it with `pick`, `atom`, `composite` or `identity`. `T` is the type of the rows, and `K`
    the type of the keys: a field, a computed value, or a tuple of them, each with its direction. A
    function of the row may be used instead of an `Index`; its order is ascending. Keys are equal
    and ordered as in Spark. Raises `CompileError` for an index of other rows, and for a `st.python`
    function.

    >>> class A(st.Data):
    ...     x: int
    ...     name: str
    >>> by = st.Index.pick(A, lambda a: (a.x, a.name), ascending=(False, True))
    >>> zset = st.ZSetPython({A(x=1, name="a"): 1, A(x=2, name="c"): 1, A(x=2, name="b"): 1})
    >>> [key for key, row, n in zset.iter_by_index(by)]
    [(2, 'b'), (2, 'c'), (1, 'a')]
    """

    f: Callable[[T], K]
    of: Any = None
    to: Any = None
    ascending: bool | tuple[bool, ...] = True
    names: tuple[str, ...] = field(default=())

    @staticmethod
    def pick(
        of: type[U], f: Callable[[U], V], ascending: bool | tuple[bool, ...] = True
    ) -> Index[U, V]:
        """A field, or a tuple of fields, of rows of type `of`."""
        return Index(f, of=of, ascending=ascending)

    @staticmethod
    def atom(
        name: str, of: type[U], to: type[V], f: Callable[[U], V], ascending: bool = True
    ) -> Index[U, V]:
        """A computed key of type `to`, with the name `name`."""
        return Index(f, of=of, to=to, ascending=ascending, names=(name,))

    @staticmethod
    def composite(
        names: tuple[str, ...],
        of: type[U],
        to: type[V],
        f: Callable[[U], V],
        ascending: bool | tuple[bool, ...] = True,
    ) -> Index[U, V]:
        """A key of several named parts; `to` is the type of their tuple."""
        return Index(f, of=of, to=to, ascending=ascending, names=names)

    @staticmethod
    def identity(of: type[V], ascending: bool | tuple[bool, ...] = True) -> Index[V, V]:
        """The whole row as its own key."""
        return Index(_row_itself, of=of, ascending=ascending)


def _row_itself(row: V) -> V:
    return row


def key_of(
    index: Index[Any, Any] | Callable[[Any], Any] | Key,
    row: RowType,
    what: str,
    *,
    in_order: bool = False,
) -> Key:
    """The key for an index or a bare function, over rows of the type. A `Key` stays unchanged.

    `in_order`: its parts may be `Directed`.
    """
    if isinstance(index, Key):
        return index
    if not isinstance(index, Index):
        index = Index(index)
    where = f"{user_line()}: {what}"
    if index.of is not None and _type(index.of, where) != row:
        raise CompileError(
            f"{where}: the index is of {_type(index.of, where)}, the stream is of {row}; make "
            f"the index of {row}"
        )
    if index.f is _row_itself:
        expr: Expr = whole(row)
        # Each part of the tuple has its own direction
        if isinstance(row, Struct) and row.python is tuple:
            expr = Build(row, tuple(Field(t, (n,)) for n, t in row.fields))
    else:
        expr = row_expr(index.f, row, to=index.to, in_order=in_order)
    if isinstance(expr, PythonCall):
        raise CompileError(
            f"{where}: the key is a st.python function; map the rows first, with the key as a "
            "field, and index by that field"
        )
    parts = Key(expr).parts
    ascending = index.ascending
    directions = (ascending,) * len(parts) if isinstance(ascending, bool) else tuple(ascending)
    if len(directions) != len(parts):
        raise CompileError(
            f"{where}: the key has {len(parts)} parts and `ascending` {len(directions)}; give "
            "one for all, or one for each"
        )
    if index.names and len(index.names) != len(parts):
        raise CompileError(
            f"{where}: the key has {len(parts)} parts and {len(index.names)} names "
            f"{index.names}; name each"
        )
    return Key(expr, directions)


def keys_where_null_is_equal(left: Key, right: Key) -> tuple[Key, Key]:
    """Two keys in which NULL equals NULL.

    NULL equals nothing, but a row of one field is not NULL, and two such rows are equal if their
    fields are both NULL. So each part that may be NULL on both sides is wrapped into such a row.
    """
    if len(left.parts) != len(right.parts):
        return left, right  # the join raises the error
    pairs = [_in_rows(a, b) for a, b in zip(left.parts, right.parts, strict=True)]
    if all(a is part for (a, _), part in zip(pairs, left.parts, strict=True)):
        return left, right
    keys = []
    for parts, key in zip(zip(*pairs, strict=True), (left, right), strict=True):
        keys.append(Key(tupled(*parts), key.ascending))
    return keys[0], keys[1]


def _in_rows(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if not (isinstance(a.type, Optional) and isinstance(b.type, Optional) and a.type == b.type):
        return a, b
    row = tuple_of((a.type,))
    return Build(row, (a,)), Build(row, (b,))


def _type(annotation: Any, where: str) -> RowType:
    try:
        return row_type(annotation)
    except TypeError as e:
        raise CompileError(f"{where}: {e}") from None
