"""The values by which the rows of a stream are spread over the parts of the keys.

A stream that was sent by a key is spread by it: the hash of these values determines the part of a
row. A stream that is computed from it is spread by the same values, if its rows contain them. So it
need not be sent again to a reader whose key determines these values: rows with equal keys are in
one part already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from stepping_spark.circuit.operators import (
    ALL,
    Accumulate,
    Add,
    BucketedTop,
    ByWatermark,
    Collated,
    Haitch,
    Join,
    Linearity,
    LookUp,
    Map,
    Operator,
)
from stepping_spark.expressions.expr import (
    Expr,
    Field,
    NotComposed,
    bare,
    field_of,
    places_in,
)
from stepping_spark.plan.step_ir import Apply, Leaf, Term
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import VALUE, StreamType
from stepping_spark.rows.types import Struct, unwrap

Values: TypeAlias = tuple[Expr, ...]
Spread: TypeAlias = frozenset[Values]
"""Alternative tuples of values by which rows are spread, all with one hash. Empty: unknown."""

NOT_SPREAD: Spread = frozenset()

Picks: TypeAlias = tuple[tuple[int, tuple[str, ...], RowType], ...]
"""The derivation of values from a key: for each a part's number, the path in it, and the type."""


def spread_by(values: Values) -> Spread:
    """The spread of a stream that was sent by these values."""
    return frozenset({tuple(map(bare, values))})


def picks_of(values: Values, key: Values) -> Picks | None:
    """The derivation of values from a key over the same rows; None if the key lacks one."""
    picks = [next(_parts_with(value, key), None) for value in values]
    picked = tuple(p for p in picks if p is not None)
    return picked if len(picked) == len(picks) else None


def _parts_with(value: Expr, key: Values) -> Iterator[tuple[int, tuple[str, ...], RowType]]:
    for n, part in enumerate(map(bare, key)):
        if value == part:
            yield n, (), value.type
        elif isinstance(value, Field):
            path = () if part == ALL else part.path if isinstance(part, Field) else None
            if path is not None and value.path[: len(path)] == path:
                yield n, value.path[len(path) :], value.type


def picked(key: Values, picks: Picks | None) -> Values | None:
    """The values that picks select from a key (without picks, all); None if the key lacks one."""
    if picks is None:
        return key
    try:
        return tuple(_within(key[n], path, t) for n, path, t in picks)
    except NotComposed:
        return None


def _within(part: Expr, path: tuple[str, ...], t: RowType) -> Expr:
    """The value at a path in a part of a key. Raises `NotComposed` without one of this type."""
    if part == ALL and path:
        return Field(t, path)
    inner = unwrap(part.type)
    for name in path:
        fields = dict(inner.fields) if isinstance(inner, Struct) else {}
        if name not in fields:
            raise NotComposed
        inner = unwrap(fields[name])
    if path and inner != t:
        raise NotComposed
    return field_of(part, path, t)


def spread_of(t: Term, of: Callable[[Leaf], Spread]) -> Spread:
    """The spread of the rows of a term, from the spreads of its leaves."""
    if not isinstance(t, Apply):
        return of(t)
    first, *rest = t.parts
    spread = _of_first(first, t.types, [spread_of(arg, of) for arg in t.args])
    return functools.reduce(lambda s, op: _of_row_by_row(op, s), rest, spread)


def _of_first(op: Operator, types: Sequence[StreamType], spreads: Sequence[Spread]) -> Spread:
    if isinstance(op, Add):
        return frozenset.intersection(*spreads)
    if isinstance(op, Join):
        sides = zip(("left", "right"), spreads, strict=True)
        return frozenset().union(*(_under(spread, side) for side, spread in sides))
    if isinstance(op, LookUp):
        return _moved(spreads[0], functools.partial(_in_tuple, op))
    if isinstance(op, Haitch):
        if isinstance(op.of, Collated):
            return _of_collated(op.of, types[1::2], spreads[1::2])
        return _per_key(op.of, types[1], spreads[1])
    if isinstance(op, BucketedTop):
        return _per_key(op.top, types[1], spreads[1])
    if op.linearity is Linearity.PER_KEY:
        return _per_key(op, types[0], spreads[0])
    return _of_row_by_row(op, spreads[0])


def _of_row_by_row(op: Operator, spread: Spread) -> Spread:
    if isinstance(op, Map):
        return _moved(spread, functools.partial(_mapped, op))
    if isinstance(op, Accumulate):
        key = None if op.key is None else op.key.expr
        return frozenset() if key is None else _moved(spread, lambda e: _place(e, key, "_key_"))
    keeps = op.by_row and (op.keeps_rows or isinstance(op, ByWatermark))
    return spread if keeps else frozenset()


def _mapped(op: Map, value: Expr) -> Expr | None:
    if isinstance(value, Field) and value.path and value.path[0] in dict(op.carried):
        return value
    place = next(places_in(op.f, value), None)
    if isinstance(place, Field) and not place.path:
        return None if isinstance(place.type, Struct) else place.under(VALUE)
    return place


def _place(value: Expr, f: Expr, *path: str) -> Expr | None:
    place = next(places_in(f, value), None)
    return None if place is None else _under_path(place, path)


def _under_path(value: Expr, path: Sequence[str]) -> Expr | None:
    """A value over rows, as a value over other rows that contain these at a path."""
    if path and (value == ALL or not value.in_sql):
        return None
    for side in reversed(path):
        value = value.under(side)
    return value


def _in_tuple(op: LookUp, value: Expr) -> Expr | None:
    """A value over the input tuples of a lookup, as a value over its result tuples."""
    if op.bare:
        return _under_path(value, (f"_{1 if op.place else 2}",))
    if not isinstance(value, Field) or not value.path:
        return None
    number = int(value.path[0].removeprefix("_"))
    return Field(value.type, (f"_{number + (number > op.place)}", *value.path[1:]))


def _per_key(of: Operator, t: StreamType, spread: Spread) -> Spread:
    """The spread of the result of an operator per key, from the spread of its changed rows."""
    key = of.keyed_by(t)
    known = {values: picks_of(values, key) for values in spread}
    moved: set[Values] = set()
    for values, picks in known.items():
        if picks is None:  # old rows of a key may have other values
            continue
        if of.row_at is not None:
            moved |= _moved(frozenset({values}), functools.partial(_under_path, path=of.row_at))
        if of.key_at is not None:
            at = tuple(of.key_at)
            moved.add(tuple(Field(t, (*at, *path)) for _, path, t in picks))
    return frozenset(moved)


def _of_collated(op: Collated, types: Sequence[StreamType], spreads: Sequence[Spread]) -> Spread:
    """The spread of H of several operators: the common spread of their pieces."""
    pieces: list[Spread] = []
    for (fold, *maps), t, spread in zip(op.parts, types, spreads, strict=True):
        piece, t = _per_key(fold, t, spread), fold.type_of(t)
        for f in maps:
            piece, t = _of_row_by_row(f, piece), f.type_of(t)
        pieces.append(piece)
    return _per_key(op.collate, t, frozenset.intersection(*pieces))


def _under(spread: Spread, side: str) -> Spread:
    return _moved(spread, functools.partial(_under_path, path=(side,)))


def _moved(spread: Spread, f: Callable[[Expr], Expr | None]) -> Spread:
    """A spread with its values moved by `f`; a tuple is left out if `f` has no value for a part."""
    moved = (tuple(map(f, values)) for values in spread)
    return frozenset(tuple(e for e in v if e is not None) for v in moved if None not in v)
