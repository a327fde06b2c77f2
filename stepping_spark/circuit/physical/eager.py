"""Eager aggregation: splits a join, and the row-by-row operators after it, by side.

A join is bilinear, and maps, filters and sums are linear. So their result depends on the rows of a
side only through some columns: the parts of expressions that read this side alone. Rows that are
equal in these columns and in their join key may be added up before the join:

    f(a ⋈ b) = g(π a ⋈ π b)

Here π keeps the key and these columns, adding up the weights, and g is f over them. A sum of values
of one side can be computed before the join too: Σ w·v·x over the pairs of rows is Σ v·(Σ w·x),
where x and w are a row's value and weight, and v is the weight of a row of the other side.

This pays if one row matches many. A changed row of a dimension, which leaves one group and enters
another, makes two pairs for each of its facts, and all of them cancel except for a few sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepping_spark.circuit.physical.nodes import (
    Argument,
    Cell,
    Contributions,
    EquiJoin,
    Negate,
    Physical,
    Project,
    Where,
)
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    NotComposed,
    Singleton,
    Transformed,
    field_of,
    fields_of,
    replaced,
    with_parts,
)
from stepping_spark.rows.schema import GroupedType, ScalarType, Schema
from stepping_spark.rows.types import Struct, ZSetOf, unwrap

SIDES = ("left", "right")


@dataclass(frozen=True)
class EagerSide:
    """The expressions over the rows of one side, computed before the join."""

    key: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    columns: tuple[Expr, ...]

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """All expressions over the rows of the side."""
        return (*self.key, *self.conditions, *self.columns)

    def reads(self, *more: Expr) -> tuple[str, ...] | None:
        """The columns that these and more expressions read; None for all."""
        paths = [f.path for e in (*self.exprs, *more) for f in fields_of(e)]
        return tuple(dict.fromkeys(p[0] for p in paths)) if all(paths) else None


@dataclass(frozen=True)
class EagerSums:
    """The sums over pairs; with a `side`, they are computed of its rows before the join.

    Then `pick` is over the rows of that side, otherwise over the columns of both. The `key` is
    always over the columns of both.
    """

    type: GroupedType | ScalarType
    pick: Expr
    key: Expr | None
    side: int | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions of the sums."""
        return (self.pick,) if self.key is None else (self.pick, self.key)


@dataclass(frozen=True)
class EagerJoin:
    """A join and the operators after it, split into expressions over each side, and over both.

    The latter are over the `columns` of both sides. The result is the `cells` of each pair, or the
    `sums`.
    """

    sides: tuple[EagerSide, EagerSide]
    columns: Schema
    conditions: tuple[Expr, ...]
    cells: tuple[Cell, ...]
    sums: EagerSums | None
    schema: Schema
    negated: bool


def eager_join(join: Physical, chain: Sequence[Physical], side: int | None) -> EagerJoin | None:
    """A join and the trees after it, split by side; a sum of values of `side` precedes the join.

    None unless the trees are maps, filters, negations and a last sum, and the driver can compute
    all functions.
    """
    if not isinstance(join, EquiJoin):
        return None
    if [i.number for i in join.inputs if isinstance(i, Argument)] != [0, 1]:
        return None
    try:
        return _Composed(join, chain).split(side)
    except NotComposed:
        return None


@dataclass
class _Composed:
    """The result of a chain of trees after a join, as expressions over the rows of its two sides.

    The path of a field begins with the name of its side.
    """

    join: EquiJoin
    chain: Sequence[Physical]
    conditions: list[Expr] = field(default_factory=list)
    negated: bool = False

    def __post_init__(self) -> None:
        named = zip(self.join.columns, self.join.cells, strict=True)
        self.row = {name: _of_side(e, side) for (name, _), (side, e) in named}
        self.schema = self.join.schema
        self.sum: Contributions | None = None
        for tree in self.chain:
            self._after(tree)

    def _after(self, tree: Physical) -> None:
        of = tree.inputs[0] if len(tree.inputs) == 1 else None
        if self.sum is not None or not isinstance(of, Argument):
            raise NotComposed
        if isinstance(tree, Where):
            self.conditions += _all_of(self._over_sides(tree.condition))
        elif isinstance(tree, Project):
            self.row = {n: e for cell in tree.cells for n, e in self._cell(cell)}
            self.schema = tree.schema
        elif isinstance(tree, Contributions):
            self.sum = tree
        elif isinstance(tree, Negate):
            self.negated = not self.negated
        else:
            raise NotComposed

    def _cell(self, cell: Cell) -> list[tuple[str, Expr]]:
        composed = self._over_sides(cell.expr)
        if not cell.spread:
            ((name, _),) = cell.columns
            return [(name, composed)]
        return [(n, field_of(composed, (n,), t)) for n, t in cell.columns]

    def _over_sides(self, e: Expr) -> Expr:
        return replaced(e, lambda f: _read(self.row, f))

    def split(self, side: int | None) -> EagerJoin:
        """The parts that are computed of each side alone, and of both."""
        alone: tuple[list[Expr], list[Expr]] = ([], [])
        both = []
        for e in self.conditions:
            of = _sides_of(e)
            if len(of) == 1:
                (i,) = of
                alone[i].append(_over_side(e, i))
            else:
                both.append(e)
        split = _Split()
        conditions = tuple(map(split, both))
        cells: tuple[Cell, ...] = ()
        sums, schema = None, self.schema
        if self.sum is None:
            cells = tuple(Cell(split(self.row[n]), ((n, t),)) for n, t in schema.columns)
        else:
            schema, n = self.sum.schema, self.sum
            key = None if n.key is None else split(self._over_sides(n.key.expr))
            pick = self._over_sides(n.pick)
            if side is not None and _sides_of(pick) == {side} and _is_of_numbers(pick):
                sums = EagerSums(n.type, _over_side(pick, side), key, side)
            else:
                sums = EagerSums(n.type, split(pick), key)
        keys = (self.join.left_key, self.join.right_key)
        left, right = (
            EagerSide(key, tuple(own), tuple(columns))
            for key, own, columns in zip(keys, alone, split.columns, strict=True)
        )
        over_pairs = (*conditions, *(c.expr for c in cells), *(sums.exprs if sums else ()))
        if not all(map(is_known, (*left.exprs, *right.exprs, *over_pairs))):
            raise NotComposed
        columns = Schema(
            tuple(
                (name, e.type)
                for i, own in enumerate(split.columns)
                for name, e in zip(column_names(i, own), own, strict=True)
            )
        )
        return EagerJoin((left, right), columns, conditions, cells, sums, schema, self.negated)


def _all_of(e: Expr) -> list[Expr]:
    """The conditions whose conjunction this condition is."""
    if isinstance(e, Call) and e.op == "&":
        return [c for a in e.args for c in _all_of(a)]
    return [e]


def _is_of_numbers(pick: Expr) -> bool:
    """Whether the summed values are numbers, each with an expression of its own."""
    if isinstance(pick.type, Struct):
        return isinstance(pick, Build | Field)
    return not isinstance(pick.type, ZSetOf)


class _Split:
    """Replaces the parts of expressions that read one side alone by columns of that side."""

    def __init__(self) -> None:
        self.columns: tuple[list[Expr], list[Expr]] = ([], [])

    def __call__(self, e: Expr) -> Expr:
        of = _sides_of(e)
        if not of:
            return e
        if len(of) > 1 and isinstance(e, Transformed):
            raise NotComposed  # its parts read variables
        if len(of) > 1 or isinstance(e, Build | Singleton):
            return with_parts(e, self)
        (side,) = of
        own, columns = _over_side(e, side), self.columns[side]
        if own not in columns:
            columns.append(own)
        return Field(e.type, (column_names(side, columns)[columns.index(own)],))


def column_names(side: int, columns: Sequence[Expr]) -> list[str]:
    """The names of a side's columns among the columns of both."""
    return [f"{SIDES[side]}_{i}" for i in range(len(columns))]


def _of_side(e: Expr, side: int) -> Expr:
    return replaced(e, lambda f: Field(f.type, (SIDES[side], *f.path)))


def _over_side(e: Expr, side: int) -> Expr:
    """An expression that reads one side alone, over the rows of that side."""
    return replaced(e, lambda f: Field(f.type, f.path[1:]))


def _sides_of(e: Expr) -> set[int]:
    return {SIDES.index(f.path[0]) for f in fields_of(e)}


def _read(row: Mapping[str, Expr], f: Field) -> Expr:
    """The expression of a field of rows whose columns have these expressions."""
    if f.path:
        name, *rest = f.path
        if name not in row:
            raise NotComposed
        return field_of(row[name], tuple(rest), f.type)
    t = unwrap(f.type)
    if not isinstance(t, Struct) or any(n not in row for n, _ in t.fields):
        raise NotComposed
    return Build(f.type, tuple(row[n] for n, _ in t.fields))
