"""Sums as relations, in SQL: the contributions of rows, and their totals.

A sum is stored as diffs, which stores add up. Ints are added as DECIMAL(38, 0) and returned as
BIGINT. Decimals of 38 digits are added in two halves, floats as the limbs of `floats`, and Z-sets
as their rows. Limbs and rows have an `_item_` that identifies them; it is NULL for the numbers.

A long expression is written only once in a text, for any number of sums. Spark generates code for
each occurrence, and the JVM accepts at most 64 KB of it in one method.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from stepping_spark.relations.sums.floats import TOO_LARGE, rest_sql, split_sql, total_sql
from stepping_spark.relations.sums.overflow import (
    fitting,
    halves_sql,
    high_type,
    joined_sql,
    low_type,
    product,
    shifted,
    total,
    zero,
)
from stepping_spark.rows.atoms import INT, MOST_DIGITS, REST, Atom, RowType
from stepping_spark.rows.schema import (
    BIG_INT,
    COUNT,
    SUM_OF_INTS,
    VALUE,
    Accumulated,
    GroupedType,
    ScalarType,
    Schema,
    high_diff,
)
from stepping_spark.rows.sql_text import Sql, closed, let
from stepping_spark.rows.types import Optional, Struct, ZSetOf, quote

FIELD = 4096  # an item of the n-th float is n · FIELD + its bin, counted from -FIRST
FIRST = 8
SMALLER = (
    "add up floats, or Decimals with fewer digits after the point: CAST(x AS DOUBLE) in SQL, "
    'F.col(row.x).cast("double") in Python'
)
DECIMALS = (
    'add up Decimals: CAST(x AS DECIMAL(38, 0)) in SQL, F.col(row.x).cast("decimal(38, 0)") in '
    "Python; or for a count st.reduce(a, zero=Decimal, pick_value=lambda row: "
    'F.lit(1).cast("decimal(38, 0)")), a ZSet[Annotated[Decimal, st.Precision(38, 0)]]'
)


@dataclass(frozen=True)
class _Leaf:
    """A number that a row adds to a diff."""

    name: str
    diff: str
    type: Atom
    text: Sql


def contributions(query: str, key: Sql | None, pick: Sql, t: RowType, schema: Schema) -> str:
    """The relation of the sum, by key, of the contributions of a query's rows."""
    total = Accumulated(t)
    leaves = _leaves(total)
    picked = _picked(query, key, pick)
    base = _zeros(schema)
    if key is not None:
        base["_rows_"] = f"t.{COUNT}"
    for leaf in leaves:
        if leaf.type.name == "int":
            base[leaf.diff] = _product(leaf)
        elif leaf.type.name == "Decimal":
            base[leaf.diff] = _decimal(leaf)
    keys = [f"t.{quote(n)}" for n, _ in schema.columns if n == "_key_"]
    if not total.item:
        shown = [f"CAST({base[n]} AS {d.ddl}) AS {quote(n)}" for n, d in schema.diffs]
        return f"SELECT {', '.join([*keys, *shown])} FROM ({picked}) t"
    arrays = [f"array({_struct(base, None, schema)})"]
    floats = [leaf.text for leaf in leaves if leaf.type.name == "float"]
    if floats:
        arrays.append(_limbs(floats, schema))
    if isinstance(t, ZSetOf) or (isinstance(t, Optional) and isinstance(t.inner, ZSetOf)):
        arrays.append(_items(schema))
    parts = f"explode(concat({', '.join(arrays)})) AS part"
    columns = [f"part.{quote(n)}" for n, _ in schema.all if n != "_key_"]
    inner = f"SELECT {', '.join([*keys, parts])} FROM ({picked}) t"
    return f"SELECT {', '.join([*keys, *columns])} FROM ({inner}) t"


def _picked(query: str, key: Sql | None, pick: Sql) -> str:
    """The key and the value of each row, and its weight."""
    shown = [f"{key} AS `_key_`"] if key is not None else []
    return f"SELECT {', '.join([*shown, f'{pick} AS `_pick_`', f't.{COUNT}'])} FROM ({query}) t"


def _product(leaf: _Leaf) -> Sql:
    """An int times the weight, as a decimal."""
    return closed(f"CAST({leaf.text} AS DECIMAL(38, 0)) * t.{COUNT}")


def _leaves(total: Accumulated) -> list[_Leaf]:
    """The numbers of `_pick_`, none of them NULL."""
    leaves = []
    for name, t, _ in total.leaves():
        text = "t.`_pick_`" if name == VALUE else f"t.`_pick_`.{quote(name)}"
        parts = {_diff(name): (t, closed(text))}
        if t.is_halved:
            low, high = halves_sql(closed(text), t)
            parts = {
                _diff(name): (low_type(t), low),
                high_diff(_diff(name)): (high_type(t), high),
            }
        for diff, (of, x) in parts.items():
            leaves.append(_Leaf(name, diff, of, closed(f"coalesce({x}, {zero(of)})")))
    return leaves


def _diff(name: str) -> str:
    return name if name == VALUE else f"_sum_{name}_"


def _zeros(schema: Schema) -> dict[str, str]:
    return {n: "0" for n, _ in schema.diffs}


def _decimal(leaf: _Leaf) -> Sql:
    """The value times the weight, exactly, or an error.

    A product of a DECIMAL(p, s) and a weight of k digits has p + k + 1 digits. Beyond 38, Spark
    drops some digits after the point. In that case the digits are multiplied as a number without a
    point: then Spark's product is exact, or fails.
    """
    t, x, n = leaf.type, leaf.text, closed(f"t.{COUNT}")
    widest = Atom("Decimal", Decimal, MOST_DIGITS, t.scale)
    digits = min(MOST_DIGITS - 1 - t.precision, 19)
    short = closed(f"{x} * CAST({n} AS DECIMAL({digits}, 0))")
    if digits == 19:
        return closed(f"CAST({short} AS {widest.ddl})")
    message = f"a sum is beyond {widest.ddl}; use a Decimal of a smaller scale, or smaller weights"
    units = shifted(f"CAST({x} AS STRING)", t.scale)
    many = f"try_multiply({units}, CAST({n} AS DECIMAL(19, 0)))"
    long = f"TRY_CAST(concat(CAST({many} AS STRING), 'E-{t.scale}') AS {widest.ddl})"
    cases = f"WHEN {n} = 1 THEN CAST({x} AS {widest.ddl})"
    if digits > 0:
        most = f"{10**digits - 1}L"
        cases += f" WHEN {n} BETWEEN -{most} AND {most} THEN CAST({short} AS {widest.ddl})"
    return closed(f"CASE {cases} ELSE {fitting(long, widest, message)} END")


def _struct(diffs: dict[str, str], item: str | None, schema: Schema) -> str:
    parts = []
    for n, t in schema.columns:
        if n == "_item_":
            parts.append(f"'_item_', CAST({item or 'NULL'} AS {t.ddl})")
    parts += [f"'{n}', CAST({diffs[n]} AS {t.ddl})" for n, t in schema.diffs]
    return f"named_struct({', '.join(parts)})"


def _limbs(floats: list[Sql], schema: Schema) -> str:
    """The limbs of a row's floats, each as an item."""
    limb = fitting(f"try_multiply(part.limb, t.{COUNT})", BIG_INT, TOO_LARGE)
    item = closed(f"i * {FIELD} + {FIRST} + part.bin")
    row = _struct({**_zeros(schema), "_limb_": limb}, item, schema)
    return f"transform(array({', '.join(floats)}), (x, i) -> {let('part', split_sql('x'), row)})"


def _items(schema: Schema) -> str:
    """The rows of a row's Z-set, each as an item."""
    zeros = {**_zeros(schema), COUNT: product(closed("x._count_"), closed(f"t.{COUNT}"))}
    row = _struct(zeros, "named_struct('value', x._value_)", schema)
    return f"transform(coalesce(t.`_pick_`, array()), x -> {row})"


def totals(query: str, t: GroupedType | ScalarType) -> str:
    """The `_total_`, and the `_key_` if there is one, of the groups of a consolidated query."""
    columns = ["`_key_`"] if isinstance(t, GroupedType) else []
    numbers = [(quote(n), d) for n, d in t.sum.diffs() if n not in ("_limb_", COUNT)]
    added = [f"coalesce(sum({n}), {zero(d)}) AS {n}" for n, d in numbers]
    if isinstance(t.sum.value, ZSetOf):
        row = f"named_struct('_value_', `_item_`.value, '_count_', {COUNT})"
        condition = f"WHERE `_item_` IS NOT NULL AND {COUNT} <> 0"
        added.append(f"array_sort(collect_list({row}) FILTER ({condition})) AS `_items_`")
    if t.sum.floats:
        limb = "named_struct('item', `_item_`, 'limb', `_limb_`)"
        condition = "WHERE `_item_` IS NOT NULL AND `_limb_` <> 0"
        added.append(f"collect_list({limb}) FILTER ({condition}) AS `_limbs_`")
    query = f"SELECT {', '.join([*columns, *added])} FROM ({query})"
    if isinstance(t, GroupedType):
        rows = total("`_rows_`", INT, "the number of rows of a group is beyond BIGINT")
        alive = closed(f"{rows} <> 0")
        query = f"{query} GROUP BY `_key_` HAVING {alive}"
    if t.sum.floats:
        query = _with_floats(query, t.sum)
    return f"SELECT {', '.join([*columns, f'{value_of(t.sum)} AS `_total_`'])} FROM ({query})"


def _with_floats(query: str, sum_: Accumulated) -> str:
    """The groups with an array of their floats, and an array of rounding errors if needed.

    Each array is a column of its own subquery, so that it is computed once.
    """
    n = len(sum_.floats)
    limb = f"named_struct('bin', l.item - f * {FIELD} - {FIRST}, 'limb', l.limb)"
    of_float = f"filter(`_limbs_`, l -> l.item DIV {FIELD} = f)"
    lists = f"transform(sequence(0, {n - 1}), f -> transform({of_float}, l -> {limb}))"
    query = f"SELECT *, {lists} AS `_lists_` FROM ({query})"
    query = f"SELECT *, transform(`_lists_`, l -> {total_sql('l')}) AS `_floats_` FROM ({query})"
    rests = [str(i) for i, r in enumerate(_is_rest(sum_)) if r]
    if rests:
        rest = rest_sql("element_at(`_lists_`, r + 1)", "element_at(`_floats_`, r + 1)")
        array = f"transform(array({', '.join(rests)}), r -> {rest})"
        query = f"SELECT *, {array} AS `_rests_` FROM ({query})"
    return query


def _is_rest(sum_: Accumulated) -> list[bool]:
    return [t == REST for _, t, _ in sum_.leaves() if t.name == "float"]


def value_of(sum_: Accumulated) -> str:
    """The value of a sum, from the columns of its group; without items these are its diffs."""
    if isinstance(sum_.value, ZSetOf):
        return f"CAST(`_items_` AS {sum_.value.ddl})"
    is_rest = _is_rest(sum_)
    shown = []
    for name, t, _ in sum_.leaves():
        if t.name == "float":
            i = sum_.floats.index(name)
            rest = sum(is_rest[:i])
            text = f"`_rests_`[{rest}]" if is_rest[i] else f"`_floats_`[{i}]"
        elif t.is_halved:
            halves = closed(quote(_diff(name))), closed(quote(high_diff(_diff(name))))
            text = fitting(joined_sql(*halves, t), t, f"a sum is beyond {t}; {SMALLER}")
        else:
            text = _output_sql(quote(_diff(name)), t)
        shown.append((name, text))
    if not isinstance(sum_.value, Struct):
        return shown[0][1]
    return f"named_struct({', '.join(f'{n!r}, {x}' for n, x in shown)})"


def _output_sql(x: str, t: Atom) -> str:
    """A sum in its output type. With ANSI off, Spark's cast would wrap around."""
    if t == SUM_OF_INTS:
        return x
    return fitting(f"TRY_CAST({x} AS {t.ddl})", t, f"a sum is beyond {t}; {wider(t)}")


def wider(t: Atom) -> str:
    """The remedy for a sum beyond its type, where a Decimal of more digits has it."""
    return DECIMALS if t.name == "int" else "cast what is added up to a Decimal of more digits"
