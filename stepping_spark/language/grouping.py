"""The keys of groups: one key, or several, by grouping sets, `rollup` and `cube`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal
from stepping_spark.expressions.index import Index, Key, key_of
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.types import Optional, tuple_of, unwrap

T = TypeVar("T")
MOST_SETS = 64

GroupingKeys = Index[T, Any] | Callable[[T], Any]


@dataclass(frozen=True)
class GroupingSets(Generic[T]):
    """Several keys for the same rows, made by `rollup`, `cube` and `grouping_sets`."""

    kind: str
    of: tuple[GroupingKeys[T] | None, ...]


def rollup(by: GroupingKeys[T]) -> GroupingSets[T]:
    """GROUP BY ROLLUP (a, b), as `by` of `st.aggregate`: groups by (a, b), by a, and of all rows.

    Each set after the first omits one more part of the key, from the last one on. Omitted parts are
    NULL in the result, so their fields must be `X | None`. `st.agg.grouping_id()` distinguishes an
    omitted part from a NULL in the rows. Without rows there is no result row, as in Spark.

    >>> class Total(st.Data):
    ...     shop: str | None
    ...     total: int
    >>> def query(sales: st.ZSet[tuple[str, int]]) -> st.ZSet[Total]:
    ...     return st.aggregate(sales, by=st.rollup(lambda s: s[0]), into=Total,
    ...                         total=st.agg.sum(lambda s: s[1]))
    >>> change = st.ZSetPython({("A", 1): 1, ("B", 2): 1})
    >>> (out,) = st.reference(st.compile(query)).step((change,))
    >>> sorted((row.total, row.shop) for row, _ in out.iter())
    [(1, 'A'), (2, 'B'), (3, None)]
    """
    return GroupingSets("rollup", (by,))


def cube(by: GroupingKeys[T]) -> GroupingSets[T]:
    """GROUP BY CUBE (a, b), as `by` of `st.aggregate`: groups by each subset of a key's parts.

    Otherwise like `rollup`.

    >>> class Total(st.Data):
    ...     shop: str | None
    ...     day: int | None
    ...     n: int
    >>> def query(sales: st.ZSet[tuple[str, int]]) -> st.ZSet[Total]:
    ...     return st.aggregate(sales, by=st.cube(lambda s: (s[0], s[1])), into=Total,
    ...                         n=st.agg.count())
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("A", 1): 2}),))
    >>> sum(1 for row, _ in out.iter() if row.n == 2)
    4
    """
    return GroupingSets("cube", (by,))


def grouping_sets(*by: GroupingKeys[T] | None) -> GroupingSets[T]:
    """GROUP BY GROUPING SETS ((a, b), c, ()), as `by` of `st.aggregate`: groups by each key.

    The key None is one group of all rows. Of two equal keys each gives its rows, as in SQL.
    Otherwise like `rollup`.

    >>> class Total(st.Data):
    ...     shop: str | None
    ...     day: int | None
    ...     n: int
    >>> def query(sales: st.ZSet[tuple[str, int]]) -> st.ZSet[Total]:
    ...     sets = st.grouping_sets(lambda s: s[0], lambda s: s[1], None)
    ...     return st.aggregate(sales, by=sets, into=Total, n=st.agg.count())
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("A", 1): 2}),))
    >>> sum(1 for row, _ in out.iter() if row.n == 2)
    3
    """
    return GroupingSets("grouping_sets", by)


@dataclass(frozen=True)
class Groups:
    """The keys of groups: the key of a row in each grouping set, all of one type.

    A plain key is one set. For several sets, the key is the number of the set, followed by all
    parts; the parts that a set omits are NULL.
    """

    keys: tuple[Expr, ...]
    parts: tuple[Expr, ...]  # the keys from the user
    shown: str
    repeated: bool = False  # whether two of the sets are equal

    @property
    def type(self) -> RowType:
        """The type of the key."""
        return self.keys[0].type

    @property
    def several(self) -> bool:
        """Whether they are grouping sets."""
        return self.parts != Key(self.keys[0]).parts

    @property
    def grouping_id(self) -> Expr:
        """The grouping id, from rows that begin with the key."""
        number = Field(INT, ("_1", "_1"))
        if not self.repeated:
            return number
        return Call(INT, "%", (number, Literal(INT, 1 << len(self.parts))))

    def under(self, side: str) -> Groups:
        """The same keys, over rows that have the original row in a field."""
        parts = tuple(p.under(side) for p in self.parts)
        keys = tuple(k.under(side) for k in self.keys)
        return Groups(keys, parts, self.shown, self.repeated)

    def fields(self) -> list[tuple[str, Expr]]:
        """The parts of the key: the name of each, and its field in rows that begin with the key."""
        names = [str(p).rsplit(".", 1)[-1] for p in self.parts]
        if Key(self.keys[0]).parts == self.keys[:1]:
            return [(names[0], Field(self.type, ("_1",)))]
        first = 2 if self.several else 1
        types = [e.type for e in Key(self.keys[0]).parts[first - 1 :]]
        return [
            (name, Field(t, ("_1", f"_{i}")))
            for i, (name, t) in enumerate(zip(names, types, strict=True), first)
        ]


def groups_of(by: Any, row: RowType) -> Groups | None:
    """The keys that group rows of a type; None if all rows are one group."""
    what = "`by` of aggregate"
    if by is None:
        return None
    if not isinstance(by, GroupingSets):
        key = key_of(by, row, what)
        return Groups((key.expr,), key.parts, str(key))
    key_parts = [() if f is None else key_of(f, row, what).parts for f in by.of]
    sets = list(_sets(by.kind, key_parts))
    where = f"{user_line()}: st.{by.kind}"
    if not key_parts or len(sets) > MOST_SETS:
        raise CompileError(f"{where}: expected 1 to {MOST_SETS} sets, found {len(sets)}")
    parts = tuple(dict.fromkeys(e for s in sets for e in s))
    types = [e.type if all(e in s for s in sets) else Optional(unwrap(e.type)) for e in parts]
    chosen = [frozenset(s) for s in sets]
    keys = tuple(
        _key(s, parts, types, where, chosen[:i].count(chosen[i])) for i, s in enumerate(sets)
    )
    text = "; ".join(f"({', '.join(map(str, s))})" for s in sets)
    return Groups(keys, parts, f"{by.kind} {text}", len(set(chosen)) < len(chosen))


def _sets(kind: str, key_parts: Sequence[tuple[Expr, ...]]) -> Iterator[tuple[Expr, ...]]:
    if kind == "grouping_sets":
        yield from key_parts
        return
    (parts,) = key_parts
    for n in range(len(parts), -1, -1):
        yield from [parts[:n]] if kind == "rollup" else itertools.combinations(parts, n)


def _key(
    chosen: Sequence[Expr], parts: Sequence[Expr], types: Sequence[RowType], where: str, before: int
) -> Build:
    """The number of the set, and the parts; parts that are not in this set are NULL.

    The number is the grouping id, and above its bits how many equal sets come `before` this one:
    each of them has groups of its own.
    """
    number = before << len(parts)
    number += sum((p not in chosen) << i for i, p in enumerate(reversed(parts)))
    cells: list[Expr] = [Literal(INT, number)]
    for p, t in zip(parts, types, strict=True):
        cells.append(coerce(p, t, where) if p in chosen else Literal(t, None))
    return Build(tuple_of((INT, *types)), tuple(cells))
