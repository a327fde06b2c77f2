"""What each operator means in Spark SQL: a table from operators to text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column

from stepping_spark.atoms import RowType
from stepping_spark.expr import Expr, Field
from stepping_spark.index import Key
from stepping_spark.lower_reducers import collated, listed, top
from stepping_spark.operators import (
    Accumulate,
    Add,
    Arrange,
    Distinct,
    Filter,
    Flatten,
    Haitch,
    IdentityPrint,
    Join,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
)
from stepping_spark.reducers import Collate, Listed, Top
from stepping_spark.schema import COUNT, VALUE, Columns, Schema, StreamType, ZSetType, columns_of
from stepping_spark.sums import contributions, total_value
from stepping_spark.symbolic import to_column
from stepping_spark.terms import Node, Read, Ref, Term
from stepping_spark.types import Struct, quote

# Few rows are joined and grouped in one task: no shuffle, and no job of its own for a broadcast.
ONE = "/*+ COALESCE(1) */"
HASH = "/*+ SHUFFLE_HASH(r) */"


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
    leaves: dict[Ref | Read, str] = field(default_factory=dict)
    derived: list[Derived] = field(default_factory=list)

    def term(self, t: Term) -> str:
        """The text of a query with the columns of the term's schema, in order."""
        if isinstance(t, Node):
            args = [self.term(a) for a in t.args]
            types = [type_of(a) for a in t.args]
            return LOWER[type(t.operator)](self, t.operator, args, types)
        name = self.leaves.setdefault(t, f"{self.prefix}_{len(self.leaves)}")
        return f"SELECT {names(type_of(t).schema.all)} FROM {name}"

    def computed(self, query: str, exprs: Sequence[Expr], row: str) -> tuple[str, list[str]]:
        """The query, and the text of each expression over its rows, called `row`."""
        opaque = [e for e in dict.fromkeys(exprs) if not e.in_sql]
        if not opaque:
            return query, [e.sql(row) for e in exprs]
        name = f"{self.prefix}_c{len(self.derived)}"
        columns = {e: f"_c{i}_" for i, e in enumerate(opaque)}
        self.derived.append(
            Derived(name, query, tuple((c, to_column(e)) for e, c in columns.items()))
        )
        texts = [e.sql(row) if e.in_sql else f"{quote(row)}.{quote(columns[e])}" for e in exprs]
        return f"SELECT * FROM {name}", texts


def for_many_rows(query: str) -> str:
    """The query without the hints that suit few rows only."""
    return query.replace(ONE, "").replace(HASH, "")


def type_of(t: Term) -> StreamType:
    """The type of a term's value."""
    if isinstance(t, Read):
        return t.change.type
    if isinstance(t, Node) and isinstance(t.operator, Add | Neg):
        return type_of(t.args[0])  # those of a plan have no vertex of their own
    return t.vertex.type


def names(columns: Columns, row: str = "") -> str:
    """A list of columns."""
    prefix = f"{quote(row)}." if row else ""
    return ", ".join(prefix + quote(n) for n, _ in columns)


def consolidated(query: str, schema: Schema) -> str:
    """The query with equal rows made one, their diffs added, and rows without weight left out."""
    sums = ", ".join(f"sum({quote(n)}) AS {quote(n)}" for n, _ in schema.diffs)
    alive = " OR ".join(f"sum({quote(n)}) <> 0" for n, _ in schema.diffs)
    if not schema.columns:
        return f"SELECT {ONE} {sums} FROM ({query}) HAVING {alive}"
    by = names(schema.columns)
    grouped = f"SELECT {ONE} {names(schema.all)} FROM ({query})"
    return f"SELECT {by}, {sums} FROM ({grouped}) GROUP BY {by} HAVING {alive}"


def spread(expr: str, t: RowType) -> list[str]:
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
    return f"SELECT {', '.join(columns)}, t.{COUNT} FROM ({query}) t"


def _filter(low: Lowering, op: Filter, args: list[str], types: list[StreamType]) -> str:
    query, (text,) = low.computed(args[0], [op.f], "t")
    return f"SELECT {names(types[0].schema.all, 't')} FROM ({query}) t WHERE {text}"


def _map_many(low: Lowering, op: MapMany, args: list[str], types: list[StreamType]) -> str:
    query, (text,) = low.computed(args[0], [op.f], "t")
    row = op.type_of(types[0]).row  # type: ignore[attr-defined]
    exploded = f"SELECT explode({text}) AS item, t.{COUNT} FROM ({query}) t"
    return f"SELECT {', '.join(spread('t.item', row))}, t.{COUNT} FROM ({exploded}) t"


def _add(low: Lowering, op: Add, args: list[str], types: list[StreamType]) -> str:
    return " UNION ALL ".join(f"({a})" for a in args)


def _neg(low: Lowering, op: Neg, args: list[str], types: list[StreamType]) -> str:
    schema = types[0].schema
    negated = [f"{_negated(f't.{quote(n)}', d)} AS {quote(n)}" for n, d in schema.diffs]
    columns = [f"t.{quote(n)}" for n, _ in schema.columns]
    return f"SELECT {', '.join(columns + negated)} FROM ({args[0]}) t"


def _negated(x: str, t: RowType) -> str:
    """The opposite of a diff, exactly: Spark's minus rounds decimals to 34 digits."""
    if not t.ddl.startswith("DECIMAL"):
        return f"-{x}"
    text = f"CAST({x} AS STRING)"
    opposite = f"if({x} < 0, substring({text}, 2), concat('-', {text}))"
    return f"CAST({opposite} AS {t.ddl})"


def _same(low: Lowering, op: Operator, args: list[str], types: list[StreamType]) -> str:
    return args[0]


def _join(low: Lowering, op: Join, args: list[str], types: list[StreamType]) -> str:
    left, left_keys = low.computed(args[0], op.left.parts, "l")
    right, right_keys = low.computed(args[1], op.right.parts, "r")
    on = " AND ".join(f"{a} = {b}" for a, b in zip(left_keys, right_keys, strict=True))
    rows = [
        f"{_whole(types[i], row)} AS {quote(side)}"
        for i, (row, side) in enumerate((("l", "left"), ("r", "right")))
    ]
    return (
        f"SELECT {HASH} {', '.join(rows)}, l.{COUNT} * r.{COUNT} AS {COUNT} "
        f"FROM (SELECT {ONE} * FROM ({left})) l JOIN (SELECT {ONE} * FROM ({right})) r ON {on}"
    )


def _whole(t: StreamType, row: str) -> str:
    r: RowType = t.row  # type: ignore[attr-defined]
    return Field(r, () if isinstance(r, Struct) else (VALUE,)).sql(row)


def _distinct(low: Lowering, op: Distinct, args: list[str], types: list[StreamType]) -> str:
    schema = types[0].schema
    by = names(schema.columns)
    return (
        f"SELECT {by}, 1L AS {COUNT} FROM (SELECT {ONE} {names(schema.all)} FROM ({args[0]})) "
        f"GROUP BY {by} HAVING sum({COUNT}) > 0"
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


def _rebuilt_key(key: Key | None, texts: list[str]) -> str:
    assert key is not None
    if key.parts == (key.expr,):
        return texts[0]
    assert isinstance(key.type, Struct)
    named = zip(key.type.fields, texts, strict=True)
    return f"named_struct({', '.join(f'{n!r}, {x}' for (n, _), x in named)})"


def _flatten(low: Lowering, op: Flatten, args: list[str], types: list[StreamType]) -> str:
    (t,) = types
    summed = consolidated(args[0], t.schema)
    value = total_value(t.sum)  # type: ignore[attr-defined]
    return (
        f"SELECT {value} AS `left`, `_key_` AS `right`, 1L AS {COUNT} "
        f"FROM (SELECT {ONE} * FROM ({summed})) GROUP BY `_key_` HAVING sum(`_rows_`) <> 0"
    )


def _make_set(low: Lowering, op: MakeSet, args: list[str], types: list[StreamType]) -> str:
    (t,) = types
    total = t.sum  # type: ignore[attr-defined]
    summed = consolidated(args[0], t.schema)
    value = f"SELECT {total_value(total)} AS v FROM (SELECT {ONE} * FROM ({summed}))"
    return f"SELECT {', '.join(spread('v', total.value))}, 1L AS {COUNT} FROM ({value})"


def _of_rows(text: Callable[[Any, str, ZSetType], str]) -> Lower:
    """What an operator says of the consolidated rows of its input."""

    def lower(low: Lowering, op: Operator, args: list[str], types: list[StreamType]) -> str:
        (t,) = types
        assert isinstance(t, ZSetType)
        return text(op, consolidated(args[0], t.schema), t)

    return lower


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
    Collate: _of_rows(collated),
    Distinct: _distinct,
    Filter: _filter,
    Flatten: _flatten,
    Haitch: _haitch,
    IdentityPrint: _same,
    Join: _join,
    Listed: _of_rows(listed),
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    Neg: _neg,
    Top: _of_rows(top),
}
