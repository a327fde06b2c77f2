"""What each operator means in Spark SQL: a table from operators to text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column

from stepping_spark.engines.spark.groups import collated, key_names, listed, top
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.index import Key
from stepping_spark.expressions.symbolic import to_column
from stepping_spark.graph.operators import (
    Accumulate,
    Add,
    Arrange,
    AsOf,
    Collate,
    Distinct,
    Explode,
    Filter,
    Flatten,
    Fused,
    Haitch,
    Hold,
    IdentityPrint,
    Join,
    Listed,
    LookUp,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
    Present,
    Temporal,
    Top,
)
from stepping_spark.plan.terms import Leaf, Node, Term, type_of
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.literals import text as quoted
from stepping_spark.rows.schema import (
    COUNT,
    VALUE,
    Columns,
    GroupedType,
    ScalarType,
    Schema,
    StreamType,
    ZSetType,
    columns_of,
)
from stepping_spark.rows.sql_text import Sql, all_of, any_of, closed
from stepping_spark.rows.types import Struct, quote, unwrap
from stepping_spark.sums.overflow import nonzero, opposite, product, total
from stepping_spark.sums.sql import contributions, totals

# Few rows are joined and grouped in one task: no shuffle, and no job of its own for a broadcast.
ONE = "/*+ COALESCE(1) */"
_SIDES = re.compile(r"/\*\+ SHUFFLE_HASH\(r\) \*//\* l:(?P<l>[^;]*);r:(?P<r>[^*]*)\*/")
_MANY = re.compile(r"/\*MANY (.*?)\*/")
NOW = "/*+ NOW */"  # stands for the time of the step, which is put in its place


Lower = Callable[["Lowering", Any, list[str], list[StreamType]], str]


@dataclass(frozen=True)
class Derived:
    """A relation that has Columns which SQL text cannot say, beside those of a query."""

    name: str
    query: str
    columns: tuple[tuple[str, Column], ...]


@dataclass
class Lowering:
    """Collects what a query's text refers to."""

    prefix: str
    leaves: dict[Leaf, str] = field(default_factory=dict)
    derived: list[Derived] = field(default_factory=list)

    def term(self, t: Term) -> str:
        """The text of a query with the columns of the term's schema, in order."""
        if isinstance(t, Node):
            args = [self.term(a) for a in t.args]
            types = [type_of(a) for a in t.args]
            return LOWER[type(t.operator)](self, t.operator, args, types)
        name = self.leaves.setdefault(t, f"{self.prefix}_{len(self.leaves)}")
        return f"SELECT {names(type_of(t).schema.all)} FROM {name}"

    def computed(self, query: str, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        """The query, and the text of each expression over its rows, called `row`."""
        opaque = [e for e in dict.fromkeys(exprs) if not e.in_sql]
        if not opaque:
            return query, [e.sql(row) for e in exprs]
        name = f"{self.prefix}_c{len(self.derived)}"
        columns = {e: f"_c{i}_" for i, e in enumerate(opaque)}
        self.derived.append(
            Derived(name, query, tuple((c, to_column(e)) for e, c in columns.items()))
        )
        texts = [
            e.sql(row) if e.in_sql else closed(f"{quote(row)}.{quote(columns[e])}") for e in exprs
        ]
        return f"SELECT * FROM {name}", texts


def for_many_rows(query: str, small: AbstractSet[str] = frozenset()) -> str:
    """The query without the hints that suit few rows only.

    The sides of joins that are made of `small` relations only are sent to all workers.
    """
    query = _MANY.sub(r"\1", query.replace(ONE, ""))
    return _SIDES.sub(lambda m: _broadcast(m, small), query)


def _broadcast(sides: re.Match[str], small: AbstractSet[str]) -> str:
    for side in ("r", "l"):
        names = sides[side].split()
        if names and all(n in small for n in names):
            return f"/*+ BROADCAST({side}) */"
    return ""


def names(columns: Columns, row: str = "") -> str:
    """A list of columns."""
    prefix = f"{quote(row)}." if row else ""
    return ", ".join(prefix + quote(n) for n, _ in columns)


def consolidated(query: str, schema: Schema, keys: Sequence[Expr] = ()) -> str:
    """The query with equal rows made one, their diffs added, and rows without weight left out.

    Of keys there are columns beside the rows: see `key_names`. Many rows are partitioned by them.
    """
    grouped_by = bool(schema.columns)
    added = ((_added(n, t, grouped=grouped_by), n) for n, t in schema.diffs)
    sums = ", ".join(f"{x} AS {quote(n)}" for x, n in added)
    alive = nonzero(schema)
    if not schema.columns:
        return f"SELECT * FROM (SELECT {ONE} {sums} FROM ({query})) WHERE {alive}"
    by = names(schema.columns)
    grouped = f"SELECT {ONE} {names(schema.all)} FROM ({query})"
    if keys:
        by = f"{by}, {key_names(keys)}"
        computed = ", ".join(f"{k.sql('t')} AS _k{i}_" for i, k in enumerate(keys))
        grouped = (
            f"SELECT {ONE} {names(schema.all, 't')}, {computed} FROM ({query}) t "
            f"/*MANY DISTRIBUTE BY {key_names(keys)} */"
        )
    return f"SELECT * FROM (SELECT {by}, {sums} FROM ({grouped}) GROUP BY {by}) WHERE {alive}"


def _added(diff: str, t: RowType, *, grouped: bool = True) -> Sql:
    """The sum of a diff over equal rows."""
    said = f"the sum of {diff} of a row is beyond {t.ddl}"
    return total(quote(diff), t, said, grouped=grouped)


_WEIGHT = _added(COUNT, INT)


def spread(expr: Sql, t: RowType) -> list[str]:
    """The columns of a row that an expression gives."""
    if isinstance(t, Struct):
        return [f"{expr}.{quote(n)} AS {quote(n)}" for n, _ in t.fields]
    return [f"{expr} AS {quote(VALUE)}"]


def _map(low: Lowering, op: Map, args: list[str], types: list[StreamType]) -> str:
    parts = op.f.parts() if isinstance(op.f.type, Struct) and op.f.parts() else (op.f,)
    query, texts = low.computed(args[0], parts, "t")
    fields = columns_of(op.f.type)
    if len(texts) == 1 and parts == (op.f,) and isinstance(op.f.type, Struct):
        columns = spread(texts[0], op.f.type)
        if isinstance(op.f, Field) and not op.f.path:
            columns = [names(fields, "t")]
    else:
        columns = [f"{x} AS {quote(n)}" for x, (n, _) in zip(texts, fields, strict=True)]
    columns += [f"t.{quote(n)}" for n, _ in op.carried]
    return f"SELECT {', '.join(columns)}, t.{COUNT} FROM ({query}) t"


def _filter(low: Lowering, op: Filter, args: list[str], types: list[StreamType]) -> str:
    query, (text,) = low.computed(args[0], [op.f], "t")
    return f"SELECT {names(types[0].schema.all, 't')} FROM ({query}) t WHERE {text}"


def _map_many(low: Lowering, op: MapMany, args: list[str], types: list[StreamType]) -> str:
    query, (text,) = low.computed(args[0], [op.f], "t")
    item: RowType = unwrap(op.f.type).inner  # type: ignore[attr-defined]
    columns = spread(closed("t.item"), item) + [f"t.{quote(n)}" for n, _ in op.carried]
    return f"SELECT {', '.join(columns)}, t.{COUNT} FROM ({_exploded(op, query, text)}) t"


def _exploded(op: MapMany | Explode, query: str, lists: str) -> str:
    columns = "".join(f", t.{quote(n)}" for n, _ in op.carried)
    return f"SELECT explode({lists}) AS item{columns}, t.{COUNT} FROM ({query}) t"


def _explode(low: Lowering, op: Explode, args: list[str], types: list[StreamType]) -> str:
    query, (text,) = low.computed(args[0], [op.f], "t")
    *parts, weight = (closed(f"t.item.{quote(n)}") for n, _ in op.item.fields)
    columns = spread(parts[0], op.item.fields[0][1])
    if len(parts) == 2:
        columns = [f"{x} AS {quote(n)}" for x, n in zip(parts, ("value", "time"), strict=True)]
    columns += [f"t.{quote(n)}" for n, _ in op.carried]
    columns.append(f"{product(weight, closed(f't.{COUNT}'))} AS {COUNT}")
    return f"SELECT {', '.join(columns)} FROM ({_exploded(op, query, text)}) t"


def _add(low: Lowering, op: Add, args: list[str], types: list[StreamType]) -> str:
    return " UNION ALL ".join(f"({a})" for a in args)


def _neg(low: Lowering, op: Neg, args: list[str], types: list[StreamType]) -> str:
    schema = types[0].schema
    negated = [f"{opposite(closed(f't.{quote(n)}'), d)} AS {quote(n)}" for n, d in schema.diffs]
    columns = [f"t.{quote(n)}" for n, _ in schema.columns]
    return f"SELECT {', '.join(columns + negated)} FROM ({args[0]}) t"


def _same(low: Lowering, op: Operator, args: list[str], types: list[StreamType]) -> str:
    return args[0]


def _join(low: Lowering, op: Join, args: list[str], types: list[StreamType]) -> str:
    left, left_keys = low.computed(args[0], op.left.parts, "l")
    right, right_keys = low.computed(args[1], op.right.parts, "r")
    on = _equal(left_keys, right_keys)
    rows = [
        f"{_whole(types[i], row)} AS {quote(side)}"
        for i, (row, side) in enumerate((("l", "left"), ("r", "right")))
    ]
    many = product(closed(f"l.{COUNT}"), closed(f"r.{COUNT}"))
    return (
        f"SELECT {_hint(low, left, right)} {', '.join(rows)}, {many} AS {COUNT} "
        f"FROM (SELECT {ONE} * FROM ({left})) l JOIN (SELECT {ONE} * FROM ({right})) r ON {on}"
    )


def _equal(left: Sequence[Sql], right: Sequence[Sql]) -> Sql:
    """The condition that the parts of two keys are equal."""
    return all_of(f"{a} = {b}" for a, b in zip(left, right, strict=True))


def _hint(low: Lowering, left: str, right: str) -> str:
    """How few rows are joined, and, for `for_many_rows`, of which relations the sides are made."""
    found = re.compile(rf"\b{low.prefix}_c?\d+\b")
    sides = (" ".join(dict.fromkeys(found.findall(text))) for text in (left, right))
    return "/*+ SHUFFLE_HASH(r) *//* l:{};r:{}*/".format(*sides)


def _look_up(low: Lowering, op: LookUp, args: list[str], types: list[StreamType]) -> str:
    known, on = low.computed(args[0], op.on, "l")
    table, keys = low.computed(args[1], op.key, "r")
    row: RowType = types[0].row  # type: ignore[attr-defined]
    members = [f"l.{quote(n)}" for n, _ in columns_of(row)]
    if op.bare:
        members = [_whole(types[0], "l")]
    made = columns_of(op.type_of(*types).row)  # type: ignore[attr-defined]

    def row_with(found: str) -> str:
        cells = [*members[: op.place], found, *members[op.place :]]
        return ", ".join(f"{c} AS {quote(n)}" for c, (n, _) in zip(cells, made, strict=True))

    from_known = f"FROM (SELECT {ONE} * FROM ({known})) l"
    matches = _equal(on, keys)
    many = product(closed(f"l.{COUNT}"), closed(f"r.{COUNT}"))
    found = (
        f"SELECT {_hint(low, known, table)} {row_with(_whole(types[1], 'r'))}, {many} AS {COUNT} "
        f"{from_known} JOIN (SELECT {ONE} * FROM ({table})) r ON {matches}"
    )
    if not op.left:
        return found
    nothing = f"{row_with(f'CAST(NULL AS {made[op.place][1].ddl})')}, l.{COUNT} {from_known}"
    there = _present(low, Present(op.key), args[1:], types[1:])
    same = _equal(on, [closed(f"r.`_{i}`") for i, _ in enumerate(on, 1)])
    null = any_of(f"{a} IS NULL" for a in on)
    # Rows without a key are no part of a join, which would send them all to one worker.
    hint = _hint(low, "", table)  # only the right side of an anti join can be sent to all
    absent = f"SELECT {hint} {nothing} LEFT ANTI JOIN ({there}) r ON {same} WHERE NOT {null}"
    return f"({found}) UNION ALL ({absent}) UNION ALL (SELECT {nothing} WHERE {null})"


def _present(low: Lowering, op: Present, args: list[str], types: list[StreamType]) -> str:
    query, texts = low.computed(args[0], op.key, "t")
    keys = ", ".join(f"{x} AS `_{i}`" for i, x in enumerate(texts, 1))
    by = ", ".join(f"`_{i}`" for i, _ in enumerate(texts, 1))
    known = all_of(f"{x} IS NOT NULL" for x in texts)
    return (
        f"SELECT {by}, 1L AS {COUNT} FROM (SELECT {ONE} {keys}, t.{COUNT} FROM ({query}) t "
        f"WHERE {known}) GROUP BY {by} HAVING {_WEIGHT} > 0"
    )


def _whole(t: StreamType, row: str) -> Sql:
    r: RowType = t.row  # type: ignore[attr-defined]
    return Field(r, () if isinstance(r, Struct) else (VALUE,)).sql(row)


def _distinct(low: Lowering, op: Distinct, args: list[str], types: list[StreamType]) -> str:
    schema = types[0].schema
    by = names(schema.columns)
    return (
        f"SELECT {by}, 1L AS {COUNT} FROM (SELECT {ONE} {names(schema.all)} FROM ({args[0]})) "
        f"GROUP BY {by} HAVING {_WEIGHT} > 0"
    )


def _accumulate(low: Lowering, op: Accumulate, args: list[str], types: list[StreamType]) -> str:
    keys = () if op.key is None else (op.key.expr,)
    split = _split_key(op.key)
    query, texts = low.computed(args[0], (*split, op.pick), "t")
    key_text = _rebuilt_key(op.key, texts[:-1]) if keys else None
    schema = op.type_of(types[0]).schema
    return contributions(query, key_text, texts[-1], op.pick.type, schema)


def _split_key(key: Key | None) -> tuple[Expr, ...]:
    return () if key is None else key.parts


def _rebuilt_key(key: Key | None, texts: list[Sql]) -> Sql:
    assert key is not None
    if key.parts == (key.expr,):
        return texts[0]
    assert isinstance(key.type, Struct)
    named = zip(key.type.fields, texts, strict=True)
    return closed(f"named_struct({', '.join(f'{quoted(n)}, {x}' for (n, _), x in named)})")


def _flatten(low: Lowering, op: Flatten, args: list[str], types: list[StreamType]) -> str:
    (t,) = types
    assert isinstance(t, GroupedType)
    summed = totals(f"SELECT {ONE} * FROM ({consolidated(args[0], t.schema)})", t)
    return f"SELECT `_total_` AS `left`, `_key_` AS `right`, 1L AS {COUNT} FROM ({summed})"


def _make_set(low: Lowering, op: MakeSet, args: list[str], types: list[StreamType]) -> str:
    (t,) = types
    assert isinstance(t, ScalarType)
    summed = totals(f"SELECT {ONE} * FROM ({consolidated(args[0], t.schema)})", t)
    columns = ", ".join(spread(closed("`_total_`"), t.sum.value))
    return f"SELECT {columns}, 1L AS {COUNT} FROM ({summed})"


def _as_of(low: Lowering, op: Temporal, args: list[str], types: list[StreamType]) -> str:
    columns = names(types[0].schema.all, "t")
    return f"SELECT {columns} FROM ({args[0]}) t WHERE t.`time` <= {NOW}"


def _fused(low: Lowering, op: Fused, args: list[str], types: list[StreamType]) -> str:
    for part, made in zip(op.parts, op.types(*types), strict=True):
        args, types = [LOWER[type(part)](low, part, args, types)], [made]
    return args[0]


def _of_rows(text: Callable[[Any, str, ZSetType], str]) -> Lower:
    """What an operator says of the consolidated rows of its input."""

    def lower(low: Lowering, op: Operator, args: list[str], types: list[StreamType]) -> str:
        (t,) = types
        assert isinstance(t, ZSetType)
        return text(op, consolidated(args[0], t.schema), t)

    return lower


def _top(low: Lowering, op: Top, args: list[str], types: list[StreamType]) -> str:
    (t,) = types
    assert isinstance(t, ZSetType)
    return top(op, consolidated(args[0], t.schema, op.keys), t)


def _haitch(low: Lowering, op: Haitch, args: list[str], types: list[StreamType]) -> str:
    state, change = args
    of = LOWER[type(op.of)]
    after = of(low, op.of, [f"({state}) UNION ALL ({change})"], types[:1])
    before = of(low, op.of, [state], types[:1])
    gone = _neg(low, Neg(), [before], [op.of.type_of(types[0])])
    return f"({after}) UNION ALL ({gone})"


LOWER: dict[type[Operator], Lower] = {
    Accumulate: _accumulate,
    Add: _add,
    Arrange: _same,
    AsOf: _as_of,
    Collate: _of_rows(collated),
    Distinct: _distinct,
    Explode: _explode,
    Filter: _filter,
    Flatten: _flatten,
    Fused: _fused,
    Haitch: _haitch,
    Hold: _as_of,
    IdentityPrint: _same,
    Join: _join,
    Listed: _of_rows(listed),
    LookUp: _look_up,
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    Neg: _neg,
    Present: _present,
    Top: _top,
}
