"""Upper bounds of the rows and bytes of a stream, if they are known before it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stepping_spark.execution.step import Step
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.physical import (
    Argument,
    Contributions,
    Negate,
    Physical,
    Project,
    Union,
    Where,
    walk,
)
from stepping_spark.plan.terms import Member, nodes
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf


@dataclass(frozen=True)
class Bound:
    """A stream has no more rows and bytes than these.

    Each row has the bytes of its `width`; `loose` are those of all texts and lists.
    """

    rows: int
    width: int
    loose: int

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return self.rows * self.width + self.loose

    def beside(self, other: Bound) -> Bound:
        """The rows of both in one table, in which each row has the columns of both."""
        return Bound(self.rows + other.rows, self.width + other.width, self.loose + other.loose)


def bound(step: Step, m: Member) -> Bound | None:
    """The upper bound of a stream, from the sizes of its inputs; None if it is unknown.

    It is known for streams that make at most one row of each row they read, and copy its texts and
    lists or leave them out. Other values have a width that their types tell.
    """
    if not _is_row_by_row(m):
        return None
    rows = loose = 0
    for leaf, times in m.times_read.items():
        for p in step.parts(leaf):
            if p.rows is None or p.nbytes is None:
                return None
            rows += times * p.rows
            fixed = sum(_least(t) for _, t in p.schema.all)
            loose += times * max(p.nbytes - p.rows * fixed, 0)
    types = [t for _, t in m.vertex.type.schema.all]
    return Bound(rows, sum(map(_most, types)), sum(map(_copies, types)) * loose)


def together(bounds: Mapping[Member, Bound], most_bytes: int) -> list[list[Member]]:
    """The streams, in as few tables as have room for them, in their order."""
    groups: list[list[Member]] = []
    whole: Bound | None = None
    for m, own in bounds.items():
        both = own if whole is None else whole.beside(own)
        if whole is None or both.nbytes > most_bytes:
            groups.append([])
            both = own
        groups[-1].append(m)
        whole = both
    return groups


def _is_row_by_row(m: Member) -> bool:
    return all(_is_simple(n) for node in nodes(m.term) for tree in node.trees for n in walk(tree))


def _is_simple(n: Physical) -> bool:
    if isinstance(n, Contributions):
        return not n.type.sum.item and _are_copies(n.exprs)
    if isinstance(n, Project):
        return _are_copies(n.exprs)
    return isinstance(n, Argument | Negate | Union | Where)


def _are_copies(exprs: Iterable[Expr]) -> bool:
    """Whether expressions give nothing of unknown width but what they read."""
    return all(map(_is_copy, exprs))


def _is_copy(e: Expr) -> bool:
    if isinstance(e, Build):
        return _are_copies(e.fields)
    return isinstance(e, Field) or not _copies(e.type)


def _copies(t: RowType) -> int:
    """How many parts of a value may have any width."""
    return sum(map(_is_loose, _parts(t)))


def _most(t: RowType) -> int:
    """The most bytes of a value, besides those of texts and lists."""
    return sum(4 if _is_loose(p) else max(p.arrow.bit_width // 8, 1) for p in _parts(t))


def _least(t: RowType) -> int:
    """The bytes that a value has in any case; Arrow has eight truth values in one."""
    return sum(0 if _is_loose(p) else p.arrow.bit_width // 8 for p in _parts(t))


def _is_loose(t: RowType) -> bool:
    """Whether a value is a text or a list, of any width."""
    return isinstance(t, ListOf | ZSetOf) or t.ddl in ("STRING", "BINARY")


def _parts(t: RowType) -> Iterator[RowType]:
    """The types of the values that a value consists of."""
    if isinstance(t, Optional):
        yield from _parts(t.inner)
    elif isinstance(t, Struct):
        for _, f in t.fields:
            yield from _parts(f)
    else:
        yield t
