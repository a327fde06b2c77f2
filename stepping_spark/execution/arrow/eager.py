"""Eager aggregation: adds up the rows of each side of a join before the join.

`circuit.physical.eager` has the equations. They apply to a term that joins, and then maps, filters
or sums, if a side has many rows, and most of these agree in the columns that are read. Only
functions that the driver computes are evaluated early. If one fails, or a sum of parts is beyond
its type, the term is evaluated pair by pair, so that its errors are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import StepError
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.physical.eager import (
    EagerJoin,
    EagerSums,
    column_names,
    eager_join,
)
from stepping_spark.execution.arrow.folds import join_indices, most_given
from stepping_spark.execution.arrow.groups import positions
from stepping_spark.expressions.arrow_evaluator import Ask, relation_of, values_of
from stepping_spark.expressions.arrow_kernels import Arrays, is_known
from stepping_spark.expressions.expr import Build, Expr, Field, Literal
from stepping_spark.expressions.portable import Widened
from stepping_spark.plan.eager import Branch, branches_of, eager_branches
from stepping_spark.plan.step_ir import Leaf, Term
from stepping_spark.relations.arrow import (
    Array,
    distinct_numbers,
    empty,
    negate,
    one_array,
    sample,
)
from stepping_spark.relations.hashing import key_hashes
from stepping_spark.relations.relation import FanOut
from stepping_spark.relations.sums.arrow import (
    consolidated_by_key,
    contributions,
    products,
    sums_by_key,
)
from stepping_spark.rows.atoms import FLOAT, INT
from stepping_spark.rows.schema import COUNT, ITEM, Columns, GroupedType, ScalarType, Schema
from stepping_spark.rows.types import Struct, ZSetOf, unwrap


class _PairByPair(Exception):
    """Signal: evaluate the term pair by pair."""


class _MostlyDifferent(Exception):
    """Signal: few rows agree in the columns that are read, so adding them up does not pay."""


_GIVEN_UP = (_PairByPair, FanOut, StepError, pa.ArrowException, OverflowError)
_LEAST = 2
"""The least ratio of rows before and after adding up for which it is faster than pairs."""


@dataclass(frozen=True)
class AddedUp:
    """The number of rows of a side, and the number that is left after adding them up."""

    rows: int
    left: int

    def __str__(self) -> str:
        if not self.left:
            return f"{self.rows:,} rows meet no change of what is read"
        if self.rows == self.left:
            return f"{self.rows:,} rows are mostly different in what is read of them"
        return f"{self.rows:,} rows were added up to {self.left:,} before the join"


Eager = Callable[[Callable[[Leaf], pa.Table], Ask, Limits], "tuple[pa.Table, AddedUp] | None"]


def eager(t: Term) -> Eager | None:
    """A function that evaluates a term eagerly; None for a term of another form.

    The function returns None if the term must be evaluated pair by pair.
    """
    branches = branches_of(t)
    if not branches:
        return None

    @functools.cache
    def kernels() -> list[list[JoinKernel]]:
        return [[_kernel(b, side) for side in (0, 1, None)] for b in eager_branches(t)]

    def evaluated(
        table: Callable[[Leaf], pa.Table], ask: Ask, limits: Limits
    ) -> tuple[pa.Table, AddedUp] | None:
        sides = [(table(left), table(right)) for left, right in (b.args for b in branches)]
        lengths = [max(map(len, both)) for both in sides if all(map(len, both))]
        most = max(lengths, default=0)
        if not most or most < limits.eager_rows or not kernels():
            return None
        tables, left = [], 0
        early = Ask(_no_spark, ask.zone)
        try:
            for both, (*of_side, of_pairs) in zip(sides, kernels(), strict=True):
                larger = int(len(both[1]) > len(both[0]))
                try:
                    part, among = of_side[larger](both, larger, early, limits)
                except _MostlyDifferent:
                    part, among = of_pairs(both, larger, early, limits)
                tables.append(part)
                left += among
        except _GIVEN_UP:
            return None
        return pa.concat_tables(tables), AddedUp(most, left)

    return evaluated


def _no_spark(*_: object) -> Arrays:
    raise _PairByPair


JoinKernel = Callable[[Sequence[pa.Table], int, Ask, Limits], tuple[pa.Table, int]]


def _kernel(branch: Branch, side: int | None) -> JoinKernel:
    """A function that adds up the rows of two tables, and joins them.

    Its second argument is the number of the larger table. With a `side`, a sum of values of that
    side is computed before the join too.
    """
    e = eager_join(branch.join, branch.chain, side)
    assert e is not None
    sides = [_side(e, i) for i in (0, 1)]
    conditions = [values_of(e.columns, (c,)) for c in e.conditions]
    maker = _sums(e.sums, e.schema, e.columns) if e.sums else _cells(e)
    n_keys = len(e.sides[0].key)

    def kernel(
        tables: Sequence[pa.Table], larger: int, ask: Ask, limits: Limits
    ) -> tuple[pa.Table, int]:
        added: list[Any] = [None, None]
        for i in (1 - larger, larger):  # of few rows none may be left
            added[i] = sides[i](tables[i], ask)
            if not added[i].num_rows:
                return empty(e.schema), 0
        keys = [[one_array(t.column(i)) for i in range(n_keys)] for t in added]
        pairs_at_most = added[0].num_rows * added[1].num_rows
        indices = join_indices(keys[0], keys[1], most_given(limits, pairs_at_most, *added))
        columns: dict[str, Any] = {}
        for table, at in zip(added, indices, strict=True):
            columns |= {n: table.column(n).take(at) for n in table.schema.names[n_keys:]}
        pairs = pa.table(columns)
        for condition in conditions:
            (mask,) = condition(pairs, ask)
            pairs = pairs.filter(mask)
        result = maker(pairs, ask)
        return (negate(result, e.schema) if e.negated else result), added[larger].num_rows

    return kernel


def _side(e: EagerJoin, number: int) -> Callable[[pa.Table, Ask], pa.Table]:
    """A function that adds up the rows of a side by its key and the columns that are read."""
    side = e.sides[number]
    sums = e.sums if e.sums is not None and e.sums.side == number else None
    leaves = () if sums is None else _leaves(sums.pick)
    read, unknown = side.reads(*leaves), Schema(())  # Spark evaluates nothing over these rows
    conditions = [values_of(unknown, (c,)) for c in side.conditions]
    columns = values_of(unknown, (*side.key, *side.columns))
    values = _summands(unknown, leaves)
    keys = tuple((f"key_{number}_{i}", k.type) for i, k in enumerate(side.key))
    keys += tuple(
        zip(column_names(number, side.columns), (c.type for c in side.columns), strict=True)
    )
    names = [n for n, _ in keys]
    summed = None if sums is None else _schema_of_sums(keys, sums)

    def added(table: pa.Table, ask: Ask) -> pa.Table:
        if read is not None:
            table = table.select([*read, COUNT])
        for condition in conditions:
            (mask,) = condition(table, ask)
            table = table.filter(mask)
        arrays, counts = columns(table, ask), one_array(table.column(COUNT))
        if _are_mostly_different(arrays, len(table)):
            if sums is not None:
                raise _MostlyDifferent
            return pa.table([*arrays, counts], [*names, _WEIGHTS[number]])
        if sums is None or summed is None:
            rows = consolidated_by_key(keys, arrays, counts)
            return rows.rename_columns([*names, _WEIGHTS[number]])
        return sums_by_key(keys, arrays, values(table, ask), counts, sums.type.sum, summed)

    return added


_WEIGHTS = ("_weight_0", "_weight_1")


def _schema_of_sums(keys: Columns, sums: EagerSums) -> Schema:
    of = sums.type.schema
    return Schema((*keys, *(c for c in of.columns if c[0] == ITEM)), of.diffs)


Summing = Callable[[pa.Table, Any, Ask], "pa.Table | None"]


def sums_at_once(
    pick: Expr, key: Expr | None, t: GroupedType | ScalarType, of: Schema
) -> Summing | None:
    """A function that computes the contributions of weighted rows to a sum, added up by key.

    It returns None if few rows share a key, or if the sum must be computed row by row. There is no
    function for a sum of other values than numbers, or of values that the driver cannot compute.
    """
    keys, leaves = () if key is None else (key,), _leaves(pick)
    if not leaves or not all(map(is_known, (pick, *keys))):
        return None
    named = tuple(c for c in t.schema.columns if c[0] != ITEM)
    columns, values = values_of(of, keys), _summands(of, leaves)

    def at_once(table: pa.Table, counts: Any, ask: Ask) -> pa.Table | None:
        early = Ask(_no_spark, ask.zone)
        try:
            by = columns(table, early)
            if by and _are_mostly_different(by, table.num_rows):
                return None
            return sums_by_key(named, by, values(table, early), counts, t.sum, t.schema)
        except _GIVEN_UP:
            return None

    return at_once


def _are_mostly_different(columns: Arrays, rows: int) -> bool:
    """Whether so few rows are equal that adding them up takes longer than joining them."""
    at = sample(rows)
    if len(at) == rows:
        return False
    taken = positions(at)
    some = pa.table({str(i): c.take(taken) for i, c in enumerate(columns)})
    hashes = key_hashes(some, some.schema.names)
    equal = len(at) - len(distinct_numbers(hashes))
    # Among s sampled rows with N distinct values about s²/2N are equal to others.
    return bool(_LEAST * len(at) ** 2 > 2 * equal * rows)


def _leaves(pick: Expr) -> tuple[Expr, ...]:
    """The numbers that a sum adds up, one for each field; empty if they cannot be separated.

    Ints that are widened to Decimals are added up as ints.
    """
    t = pick.type
    if isinstance(t, ZSetOf):
        return ()
    if not isinstance(t, Struct):
        return (_as_int(pick),)
    if isinstance(pick, Field):
        return tuple(Field(ft, (*pick.path, n)) for n, ft in t.fields)
    return tuple(map(_as_int, pick.fields)) if isinstance(pick, Build) else ()


_ONE = Literal(INT, 1)


def _summands(of: Schema, leaves: Sequence[Expr]) -> Callable[[pa.Table, Ask], list[Array | None]]:
    """A function that computes the numbers to add up; None for the constant 1: rows are counted."""
    values = values_of(of, [e for e in leaves if e != _ONE])

    def summands(table: pa.Table, ask: Ask) -> list[Array | None]:
        arrays = iter(values(table, ask))
        return [None if e == _ONE else next(arrays) for e in leaves]

    return summands


def _as_int(e: Expr) -> Expr:
    if isinstance(e, Widened) and unwrap(e.type) != FLOAT and unwrap(e.args[0].type) == INT:
        return e.args[0]
    return e


Made = Callable[[pa.Table, Ask], pa.Table]


def _weight(pairs: pa.Table) -> Any:
    return _product(*(pairs.column(n) for n in _WEIGHTS))


def _product(a: Any, b: Any) -> Any:
    return one_array(pc.multiply_checked(a, b))


def _cells(e: EagerJoin) -> Made:
    values, relation = values_of(e.columns, [c.expr for c in e.cells]), relation_of(e.schema)

    def cells(pairs: pa.Table, ask: Ask) -> pa.Table:
        return relation([*values(pairs, ask), _weight(pairs)])

    return cells


def _sums(sums: EagerSums, schema: Schema, columns: Schema) -> Made:
    relation = relation_of(schema)
    key = values_of(columns, () if sums.key is None else (sums.key,))
    if sums.side is None:
        picked, contribute = values_of(columns, (sums.pick,)), contributions(sums.pick.type, schema)

        at_once = sums_at_once(sums.pick, sums.key, sums.type, columns)

        def of_pairs(pairs: pa.Table, ask: Ask) -> pa.Table:
            counts = _weight(pairs)
            result = None if at_once is None else at_once(pairs, counts, ask)
            if result is not None:
                return result
            (values,) = picked(pairs, ask)
            return contribute(key(pairs, ask), values, counts)

        return of_pairs

    items = [n for n, _ in schema.columns if n == ITEM]
    other = _WEIGHTS[1 - sums.side]

    def of_sums(pairs: pa.Table, ask: Ask) -> pa.Table:
        weights = one_array(pairs.column(other))
        summed = ((one_array(pairs.column(n)), t.arrow) for n, t in schema.diffs)
        diffs = [
            _product(s, weights) if pa.types.is_integer(t) else products(s, weights, t)
            for s, t in summed
        ]
        return relation([*key(pairs, ask), *(one_array(pairs.column(n)) for n in items), *diffs])

    return of_sums
