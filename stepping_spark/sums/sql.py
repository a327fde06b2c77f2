"""Sums as relations, in SQL: what each row contributes, and what the contributions amount to.

A sum is kept as diffs, which stores add up. Ints are added as DECIMAL(38, 0) and shown as BIGINT;
floats as the limbs of `floats`; a Z-set as its rows. Limbs and rows have an `_item_` that tells
them apart, NULL for the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepping_spark.rows.atoms import REST, Atom, RowType
from stepping_spark.rows.schema import COUNT, VALUE, Accumulated, Schema
from stepping_spark.rows.sql_text import Sql, closed
from stepping_spark.rows.types import Optional, Struct, ZSetOf, quote
from stepping_spark.sums.floats import rest_sql, split_sql, total_sql

FIELD = 4096  # an item of the n-th float is n · FIELD + its bin, counted from -FIRST
FIRST = 8
DECIMALS = (
    "add up Decimals instead: give a Decimal field, or, for a count, st.reduce(a, zero=Decimal, "
    'pick_value=lambda row: F.lit(1).cast("decimal(38, 0)"))'
)


@dataclass(frozen=True)
class _Leaf:
    name: str
    diff: str
    type: Atom
    text: Sql


def contributions(query: str, key: Sql | None, pick: Sql, t: RowType, schema: Schema) -> str:
    """The relation of the sum, by key, of what the rows of a query contribute."""
    total = Accumulated(t)
    leaves = _leaves(total, pick)
    base = {n: "0" for n, _ in schema.diffs}
    if key is not None:
        base["_rows_"] = f"t.{COUNT}"
    seconds: list[dict[str, str]] = []
    for leaf in leaves:
        if leaf.type.name == "int":
            base[leaf.diff] = closed(f"CAST({leaf.text} AS DECIMAL(38, 0)) * t.{COUNT}")
        elif leaf.type.name == "Decimal":
            base[leaf.diff], second = _decimal(leaf)
            seconds += [{leaf.diff: second}] if second else []
    parts = [_struct(base, None, schema)]
    parts += [_struct({**_zeros(schema), **s}, None, schema) for s in seconds]
    for i, leaf in enumerate(x for x in leaves if x.type.name == "float"):
        bin_, limb = split_sql(leaf.text)
        item = closed(f"{i * FIELD + FIRST} + {bin_}")
        diffs = {**_zeros(schema), "_limb_": closed(f"{limb} * t.{COUNT}")}
        parts.append(_struct(diffs, f"CASE WHEN {leaf.text} IS NOT NULL THEN {item} END", schema))
    array = f"array({', '.join(parts)})"
    if isinstance(t, ZSetOf) or (isinstance(t, Optional) and isinstance(t.inner, ZSetOf)):
        array = _with_rows(array, pick, schema)
    shown = [f"{key} AS `_key_`"] if key is not None else []
    if len(parts) == 1 and not total.item:
        shown += [f"CAST({base[n]} AS {d.ddl}) AS {quote(n)}" for n, d in schema.diffs]
        return f"SELECT {', '.join(shown)} FROM ({query}) t"
    inner = f"SELECT {', '.join([*shown, f'explode({array}) AS part'])} FROM ({query}) t"
    columns = [quote(n) for n, _ in schema.columns if n == "_key_"]
    columns += [f"part.{quote(n)}" for n, _ in schema.all if n != "_key_"]
    return f"SELECT {', '.join(columns)} FROM ({inner})"


def _leaves(total: Accumulated, pick: Sql) -> list[_Leaf]:
    found = []
    for name, t, _ in total.leaves():
        text = pick if name == VALUE else f"{pick}.{quote(name)}"
        diff = name if name == VALUE else f"_sum_{name}_"
        zero = "0" if t.name == "int" else f"CAST(0 AS {t.ddl})"
        found.append(_Leaf(name, diff, t, closed(f"coalesce({text}, {zero})")))
    return found


def _zeros(schema: Schema) -> dict[str, str]:
    return {n: "0" for n, _ in schema.diffs}


def _decimal(leaf: _Leaf) -> tuple[str, str]:
    """The value times the weight, in two parts where Spark's product would lose digits.

    A product of DECIMAL(p, s) and a weight of 20 digits has p + 21 digits; beyond 38 Spark drops
    those after the point. So the part before the point and the rest are multiplied apart.
    """
    t, x, n = leaf.type, leaf.text, f"t.{COUNT}"
    wide = f"DECIMAL(38, {t.scale})"
    if t.precision <= 17 or t.scale == 0:
        return f"CAST({x} * {n} AS {wide})", ""
    whole = f"CASE WHEN {x} < 0 THEN ceil({x}) ELSE floor({x}) END"
    rest = f"CAST({x} % 1BD AS DECIMAL({t.scale + 1}, {t.scale}))"
    many = f"CAST({n} AS DECIMAL({max(36 - t.scale, 1)}, 0))"
    return f"CAST({whole} * {n} AS {wide})", f"CAST({rest} * {many} AS {wide})"


def _struct(diffs: dict[str, str], item: str | None, schema: Schema) -> str:
    parts = []
    for n, t in schema.columns:
        if n == "_item_":
            parts.append(f"'_item_', CAST({item or 'NULL'} AS {t.ddl})")
    parts += [f"'{n}', CAST({diffs[n]} AS {t.ddl})" for n, t in schema.diffs]
    return f"named_struct({', '.join(parts)})"


def _with_rows(array: str, pick: Sql, schema: Schema) -> str:
    zeros = {**_zeros(schema), COUNT: closed(f"x._count_ * t.{COUNT}")}
    row = _struct(zeros, "named_struct('value', x._value_)", schema)
    return f"concat({array}, transform(coalesce({pick}, array()), x -> {row}))"


def total_value(total: Accumulated) -> str:
    """The value of a sum, as an aggregate over the rows of its relation, consolidated."""
    if isinstance(total.value, ZSetOf):
        row = f"named_struct('_value_', `_item_`.value, '_count_', {COUNT})"
        kept = f"WHERE `_item_` IS NOT NULL AND {COUNT} <> 0"
        return f"CAST(array_sort(collect_list({row}) FILTER ({kept})) AS {total.value.ddl})"
    if isinstance(total.value, Struct):
        shown = [f"'{n}', {_leaf_total(total, n, t)}" for n, t, _ in total.leaves()]
        return f"named_struct({', '.join(shown)})"
    ((name, t, _),) = total.leaves()
    return _leaf_total(total, name, t)


def _leaf_total(total: Accumulated, name: str, t: Atom) -> str:
    if t.name != "float":
        diff = quote(name if name == VALUE else f"_sum_{name}_")
        summed = f"coalesce(sum({diff}), 0)"
        if t.name != "int":
            return f"CAST({summed} AS {t.ddl})"
        # Said here, because with ANSI off Spark's cast would wrap around.
        beyond = f"CAST(raise_error('a sum is beyond int; {DECIMALS}') AS {t.ddl})"
        fits = closed(f"{summed} BETWEEN -9223372036854775808BD AND 9223372036854775807BD")
        return f"CASE WHEN {fits} THEN CAST({summed} AS {t.ddl}) ELSE {beyond} END"
    first = total.floats.index(name) * FIELD
    limb = f"named_struct('bin', `_item_` - {first + FIRST}, 'limb', `_limb_`)"
    kept = f"WHERE `_item_` >= {first} AND `_item_` < {first + FIELD} AND `_limb_` <> 0"
    shown = rest_sql if t == REST else total_sql
    return shown(f"collect_list({limb}) FILTER ({kept})")
