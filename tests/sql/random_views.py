"""Random views in SQL, for hypothesis: SELECTs over all features, of random tables with NULLs.

What a draw gives is determined by its rows: an order is by all columns, and limits come with one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any, TypeAlias

from hypothesis import strategies as hs

INT, TEXT, DATE, BOOL, DECIMAL = "INT", "STRING", "DATE", "BOOLEAN", "DECIMAL(8,2)"
BIGINT, TIME = "BIGINT", "TIMESTAMP_NTZ"
KINDS = (INT, TEXT, DATE, DECIMAL, BOOL, BIGINT, TIME)
VALUES: dict[str, list[Any]] = {
    INT: [0, 1, 2, 3, -1],
    BIGINT: [0, 1, 2, 5_000_000_000],
    TEXT: ["", "a", "b", "ab", "B"],
    DATE: [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1)],
    TIME: [dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 10, 30), dt.datetime(2024, 3, 1, 23)],
    BOOL: [True, False],
    DECIMAL: [Decimal("0.00"), Decimal("1.25"), Decimal("-2.50")],
}
LITERALS = {
    INT: ["0", "1", "2", "-1"],
    BIGINT: ["0L", "1L", "5000000000"],
    TEXT: ["'a'", "'b'", "''"],
    DATE: ["DATE'2024-02-29'"],
    TIME: ["TIMESTAMP_NTZ'2024-02-29 10:30:00'"],
    BOOL: ["TRUE", "FALSE"],
    DECIMAL: ["1.25", "CAST(0 AS DECIMAL(8,2))"],
}
WIDER = {
    INT: (BIGINT, DECIMAL),
    BIGINT: (INT,),
    DECIMAL: (INT,),
    DATE: (TIME,),
    TIME: (DATE,),
}
"""Kinds with which Spark unites values of a kind."""

_FRAMES = (
    "1 PRECEDING AND CURRENT ROW",
    "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "CURRENT ROW AND 2 FOLLOWING",
)
_RANGES = {
    INT: ("1", "2"),
    BIGINT: ("1L", "2L"),
    DECIMAL: ("1.25", "2.50"),
    DATE: ("INTERVAL '1' DAY", "INTERVAL '2' DAY"),
    TIME: ("INTERVAL '1' HOUR", "INTERVAL '1' DAY"),
}
"""Distances of frames by RANGE."""

Draw: TypeAlias = Callable[[hs.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Column:
    """A column of a relation: how it is written, and its type."""

    text: str
    kind: str


@dataclass(frozen=True)
class Field(Column):
    """A column of a table, and whether it may be NULL."""

    nullable: bool

    @property
    def ddl(self) -> str:
        """The column in DDL."""
        return f"{self.text} {self.kind}{'' if self.nullable else ' NOT NULL'}"


Tables = dict[str, list[Field]]


@hs.composite
def tables(draw: Draw) -> Tables:
    """Three tables of two to four columns."""
    fields = hs.tuples(hs.sampled_from(KINDS), hs.sampled_from([True, True, False]))
    return {
        name: [Field(f"{name}{i}", kind, nullable) for i, (kind, nullable) in enumerate(found)]
        for name in "abc"
        for found in [draw(hs.lists(fields, min_size=2, max_size=4))]
    }


class Drawing:
    """Draws the parts of a query; names are never used twice."""

    def __init__(self, draw: Draw, tables: Tables) -> None:
        self._draw = draw
        self._tables = tables
        self._numbers = count()

    def one_of(self, *found: Any) -> Any:
        """One of some values; hypothesis shrinks to the first."""
        return self._draw(hs.sampled_from(found))

    def some(self, found: list[Any], least: int, most: int) -> list[Any]:
        """Some of these, each once."""
        number = self._draw(hs.integers(min(least, len(found)), min(most, len(found))))
        return list(self._draw(hs.permutations(found)))[:number]

    def name(self, prefix: str) -> str:
        """A new name."""
        return f"{prefix}{next(self._numbers)}"

    # -- expressions

    def value(self, columns: list[Column], kind: str, depth: int = 2) -> str:
        """An expression of a type."""
        fitting = [c.text for c in columns if c.kind == kind]
        plain = [*fitting, *LITERALS[kind], f"CAST(NULL AS {kind})"]
        if not depth or self.one_of(True, True, False):
            return str(self.one_of(*plain))

        def of(other: str) -> str:
            return self.value(columns, other, depth - 1)

        forms = {
            INT: [
                lambda: f"({of(INT)} + {of(INT)})",
                lambda: f"({of(INT)} * 2)",
                lambda: f"abs({of(INT)})",
                lambda: f"length({of(TEXT)})",
                lambda: f"datediff({of(DATE)}, DATE'2024-02-28')",
                lambda: f"nullif({of(INT)}, 1)",
            ],
            BIGINT: [
                lambda: f"CAST({of(INT)} AS BIGINT)",
                lambda: f"({of(INT)} + 1L)",
                lambda: f"greatest({of(BIGINT)}, {of(INT)})",
            ],
            TIME: [
                lambda: f"CAST({of(DATE)} AS TIMESTAMP_NTZ)",
                lambda: f"({of(TIME)} + INTERVAL '1' HOUR)",
            ],
            TEXT: [
                lambda: f"upper({of(TEXT)})",
                lambda: f"concat({of(TEXT)}, 'x')",
                lambda: f"substr({of(TEXT)}, 1, 1)",
                lambda: f"CAST({of(INT)} AS STRING)",
            ],
            DATE: [lambda: f"date_add({of(DATE)}, 1)", lambda: f"last_day({of(DATE)})"],
            BOOL: [lambda: self.condition(columns, depth - 1)],
            DECIMAL: [
                lambda: f"CAST({of(DECIMAL)} + {of(INT)} AS DECIMAL(8,2))",
                lambda: f"CAST(round({of(DECIMAL)}, 1) AS DECIMAL(8,2))",
            ],
        }[kind]
        common = [
            lambda: f"coalesce({of(kind)}, {self.one_of(*LITERALS[kind])})",
            lambda: f"CASE WHEN {self.condition(columns, depth - 1)} THEN {of(kind)} END",
            lambda: f"if({self.condition(columns, depth - 1)}, {of(kind)}, {of(kind)})",
            lambda: f"if({self.condition(columns, depth - 1)}, {of(kind)}, NULL)",
        ]
        return str(self.one_of(*forms, *common)())

    def condition(self, columns: list[Column], depth: int = 2) -> str:
        """A condition."""
        kind = self.one_of(*dict.fromkeys(c.kind for c in columns))

        def of() -> str:
            return self.value(columns, kind, max(depth - 1, 0))

        forms: list[Callable[[], str]] = [
            lambda: f"{of()} {self.one_of('=', '<', '>=', '<>', '<=>')} {of()}",
            lambda: f"{of()} IS NULL",
            lambda: f"{of()} IS NOT NULL",
            lambda: f"{of()} IN ({', '.join(LITERALS[kind])})",
            lambda: f"{of()} BETWEEN {of()} AND {of()}",
            lambda: f"{of()} <=> NULL",
            lambda: f"{of()} IN ({LITERALS[kind][0]}, NULL)",
        ]
        if depth:
            forms += [
                lambda: f"({self.condition(columns, depth - 1)} AND {self.condition(columns, 0)})",
                lambda: f"({self.condition(columns, depth - 1)} OR {self.condition(columns, 0)})",
                lambda: f"NOT ({self.condition(columns, depth - 1)})",
            ]
        return str(self.one_of(*forms)())

    def with_sub_query(self, columns: list[Column]) -> str:
        """A condition with a sub-query, which may read the outer row."""
        table, name = self.one_of(*self._tables), self.name("q")
        own = [Column(f"{name}.{c.text}", c.kind) for c in self._tables[table]]
        outer = self.one_of(*columns)
        same = [c for c in own if c.kind == outer.kind]
        where = f" WHERE {self.condition(own, 1)}" if self.one_of(True, False) else ""
        if not same:
            return f"EXISTS (SELECT 1 FROM {table} {name}{where})"
        inner = self.one_of(*same)
        joint = f"{where} {'AND' if where else 'WHERE'} {inner.text} = {outer.text}"
        return str(
            self.one_of(
                f"EXISTS (SELECT 1 FROM {table} {name}{joint})",
                f"NOT EXISTS (SELECT 1 FROM {table} {name}{joint})",
                f"{outer.text} IN (SELECT {inner.text} FROM {table} {name}{where})",
                f"{outer.text} NOT IN (SELECT {inner.text} FROM {table} {name}{where})",
                f"(SELECT count(*) FROM {table} {name}{joint}) >= 1",
                f"{outer.text} = (SELECT max({inner.text}) FROM {table} {name}{where})",
            )
        )

    # -- relations

    def relation(self, depth: int) -> tuple[str, list[Column]]:
        """A query, and its columns."""
        if not depth:
            table = self.one_of(*self._tables)
            return f"SELECT * FROM {table}", list(self._tables[table])
        made: Callable[[int], tuple[str, list[Column]]] = self.one_of(
            self.selected,
            self.joined,
            self.grouped,
            self.windowed,
            self.united,
            self.limited,
            self.sets_of_groups,
            self.recursive,
            self.joined_by_names,
            self.lateral,
            self.exploded,
            self.pivoted,
            self.unpivoted,
            self.by_range,
            self.united_of_kinds,
        )
        return made(depth - 1)

    def source(self, depth: int) -> tuple[str, list[Column]]:
        """A relation in FROM under a new name."""
        text, columns = self.relation(depth)
        name = self.name("t")
        return f"({text}) {name}", [Column(f"{name}.{c.text}", c.kind) for c in columns]

    def shown(self, exprs: list[tuple[str, str]]) -> tuple[str, list[Column]]:
        """A select list with new names."""
        named = [(text, Column(self.name("c"), kind)) for text, kind in exprs]
        return ", ".join(f"{text} AS {c.text}" for text, c in named), [c for _, c in named]

    def selected(self, depth: int) -> tuple[str, list[Column]]:
        """SELECT with expressions, conditions and DISTINCT."""
        source, columns = self.source(depth)
        kinds = [c.kind for c in self.some(columns, 1, 3)]
        listed, made = self.shown([(self.value(columns, kind), kind) for kind in kinds])
        if self.one_of(False, False, True):
            listed += f", {self.with_sub_query(columns)} AS {self.name('s')}"
            named = listed.rsplit(" ", 1)[1]
            made.append(Column(f"coalesce({named}, FALSE)", BOOL))
        where = self.one_of(
            "",
            f" WHERE {self.condition(columns)}",
            f" WHERE {self.with_sub_query(columns)}",
            f" WHERE {self.with_sub_query(columns)} OR {self.condition(columns, 1)}",
        )
        distinct = self.one_of("", "", "DISTINCT ")
        return f"SELECT {distinct}{listed} FROM {source}{where}", made

    def joined(self, depth: int) -> tuple[str, list[Column]]:
        """A join of any kind; its condition has an equality, or none."""
        (left, own), (right, others) = self.source(depth), self.source(max(depth - 1, 0))
        how = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN",
                          "LEFT ANTI JOIN")  # fmt: skip
        pairs = [(a, b) for a in own for b in others if a.kind == b.kind]
        on = []
        if pairs:
            a, b = self.one_of(*pairs)
            on.append(f"{a.text} {self.one_of('=', '=', '<=>', '<')} {b.text}")
        if not on or self.one_of(False, False, True):
            on.append(self.condition([*own, *others], 1))
        if self.one_of(False, False, False, True):
            on.append(self.with_sub_query(self.one_of(own, others)))
        visible = own if "SEMI" in how or "ANTI" in how else [*own, *others]
        listed, made = self.shown([(c.text, c.kind) for c in self.some(visible, 1, 4)])
        return f"SELECT {listed} FROM {left} {how} {right} ON {' AND '.join(on)}", made

    def aggregates(self, columns: list[Column]) -> list[tuple[str, str]]:
        """Aggregates of columns."""
        found = [("count(*)", "BIGINT")]
        for c in self.some(columns, 0, 2):
            forms = [f"count({c.text})", f"count(DISTINCT {c.text})"]
            found.append((self.one_of(*forms), "BIGINT"))
            found.append((f"{self.one_of('min', 'max')}({c.text})", c.kind))
            if c.kind == BOOL:
                found.append((self.one_of(f"bool_or({c.text})", f"bool_and({c.text})"), BOOL))
            if c.kind == DECIMAL:
                found.append((f"CAST(avg({c.text}) AS DECIMAL(8,2))", DECIMAL))
            if c.kind == INT:
                found.append((f"CAST(sum(DISTINCT {c.text}) AS INT)", INT))
                found.append((f"CAST(sum({c.text}) AS INT)", INT))
                where = f" FILTER (WHERE {self.condition(columns, 1)})"
                found.append((f"CAST(sum({c.text}){where} AS INT)", INT))
        return [(text, INT if kind == "BIGINT" else kind) for text, kind in
                ((f"CAST({t} AS INT)" if k == "BIGINT" else t, k) for t, k in found)]  # fmt: skip

    def grouped(self, depth: int) -> tuple[str, list[Column]]:
        """GROUP BY with HAVING, or an aggregate of all rows."""
        source, columns = self.source(depth)
        keys = [(self.value(columns, c.kind, 1), c.kind) for c in self.some(columns, 0, 2)]
        keys = [k for k in keys if any(c.text in k[0] for c in columns)]
        found = self.aggregates(columns)
        listed, made = self.shown([*keys, *found])
        group = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
        having = self.one_of("", "", f" HAVING {found[-1][0]} IS NOT NULL", " HAVING count(*) > 1")
        return f"SELECT {listed} FROM {source}{group}{having}", made

    def sets_of_groups(self, depth: int) -> tuple[str, list[Column]]:
        """ROLLUP, CUBE and GROUPING SETS."""
        source, columns = self.source(depth)
        keys = self.some(columns, 1, 2)
        listed, made = self.shown([*((c.text, c.kind) for c in keys), *self.aggregates(columns)])
        texts = ", ".join(c.text for c in keys)
        number, of = self.shown([(f"CAST(grouping({keys[0].text}) AS INT)", INT)])
        listed, made = f"{listed}, {number}", [*made, *of]
        form = self.one_of(f"ROLLUP ({texts})", f"CUBE ({texts})", f"GROUPING SETS (({texts}), ())")
        return f"SELECT {listed} FROM {source} GROUP BY {form}", made

    def windowed(self, depth: int) -> tuple[str, list[Column]]:
        """Window functions, in an order that leaves no ties but equal rows."""
        source, columns = self.source(depth)
        by = self.one_of(*columns)
        order = ", ".join(
            f"{c.text} {self.one_of('', 'DESC', 'NULLS LAST')}" for c in self.some(columns, 9, 9)
        )
        arg = self.one_of(*columns)
        some = self.one_of(*columns)
        frame = self.one_of("", *(f" ROWS BETWEEN {rows}" for rows in _FRAMES))
        over = f"OVER (PARTITION BY {by.text} ORDER BY {order}{frame})"
        plain = f"OVER (PARTITION BY {by.text} ORDER BY {order})"
        loose = f"OVER (PARTITION BY {by.text} ORDER BY {some.text})"
        function = self.one_of(
            (f"CAST(row_number() {plain} AS INT)", INT),
            (f"CAST(rank() {loose} AS INT)", INT),
            (f"CAST(dense_rank() {loose} AS INT)", INT),
            (f"lag({arg.text}) {plain}", arg.kind),
            (f"lead({arg.text}, 2) {plain}", arg.kind),
            (f"CAST(count({arg.text}) {over} AS INT)", INT),
            (f"max({arg.text}) {over}", arg.kind),
            (f"first_value({arg.text}) {over}", arg.kind),
            (f"CAST(count(*) OVER (PARTITION BY {by.text}) AS INT)", INT),
        )
        listed, made = self.shown([*((c.text, c.kind) for c in columns), function])
        qualify = self.one_of("", "", f" QUALIFY row_number() {plain} <= 2")
        return f"SELECT {listed} FROM {source}{qualify}", made

    def united(self, depth: int) -> tuple[str, list[Column]]:
        """UNION, INTERSECT and EXCEPT, with and without ALL."""
        (left, own), (right, others) = self.source(depth), self.source(max(depth - 1, 0))
        kinds = [c.kind for c in self.some(own, 1, 2)]
        listed, made = self.shown([(self.value(own, kind, 1), kind) for kind in kinds])
        other, _ = self.shown([(self.value(others, kind, 1), kind) for kind in kinds])
        op = self.one_of("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        return f"SELECT {listed} FROM {left} {op} SELECT {other} FROM {right}", made

    def united_of_kinds(self, depth: int) -> tuple[str, list[Column]]:
        """A set operation of columns of several kinds, one of which Spark makes of them."""
        (left, own), (right, others) = self.source(depth), self.source(max(depth - 1, 0))
        kinds = [c.kind for c in self.some(own, 1, 2)]
        listed, made = self.shown([(self.value(own, kind, 1), kind) for kind in kinds])
        other = [self.one_of(kind, *WIDER.get(kind, ()), "NULL") for kind in kinds]
        texts = ["NULL" if kind == "NULL" else self.value(others, kind, 1) for kind in other]
        op = self.one_of("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        again, columns = self.shown([(f"CAST({c.text} AS {c.kind})", c.kind) for c in made])
        united = f"SELECT {listed} FROM {left} {op} SELECT {', '.join(texts)} FROM {right}"
        return f"SELECT {again} FROM ({united}) {self.name('t')}", columns

    def joined_by_names(self, depth: int) -> tuple[str, list[Column]]:
        """A join with USING, or NATURAL."""
        (left, own), (right, others) = self.source(depth), self.source(max(depth - 1, 0))
        pairs = [(a, b) for a in own for b in others if a.kind == b.kind]
        if not pairs:
            return self.joined(depth)
        shared = [(self.name("u"), pair) for pair in self.some(pairs, 1, 2)]
        sides = []
        for side, source, columns in ((0, left, own), (1, right, others)):
            rest, made = self.shown([(c.text, c.kind) for c in self.some(columns, 1, 2)])
            names = ", ".join(f"{pair[side].text} AS {name}" for name, pair in shared)
            sides.append((f"(SELECT {names}, {rest} FROM {source}) {self.name('t')}", made))
        how = self.one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN")
        visible = [Column(n, a.kind) for n, (a, _) in shared] + sides[0][1]
        visible += [] if "SEMI" in how else sides[1][1]
        listed, made = self.shown([(c.text, c.kind) for c in visible])
        names = ", ".join(n for n, _ in shared)
        if self.one_of(True, False):
            text = f"{sides[0][0]} {how} {sides[1][0]} USING ({names})"
        else:
            text = f"{sides[0][0]} NATURAL {how} {sides[1][0]}"
        if self.one_of(False, True):
            return f"SELECT * FROM {text}", visible
        return f"SELECT {listed} FROM {text}", made

    def lateral(self, depth: int) -> tuple[str, list[Column]]:
        """A sub-query for each row: an aggregate, or the first rows in an order by all columns."""
        source, columns = self.source(depth)
        table, name, alias = self.one_of(*self._tables), self.name("q"), self.name("l")
        own = [Column(f"{name}.{c.text}", c.kind) for c in self._tables[table]]
        pairs = [(a, b) for a in own for b in columns if a.kind == b.kind]
        where = f" WHERE {self.condition([*own, *columns], 1)}"
        if pairs and self.one_of(True, True, False):
            a, b = self.one_of(*pairs)
            where = f" WHERE {a.text} {self.one_of('=', '<', '<=>')} {b.text}"
        if self.one_of(True, False):
            listed, made = self.shown(self.aggregates(own))
            query = f"SELECT {listed} FROM {table} {name}{where}"
        else:
            listed, made = self.shown([(c.text, c.kind) for c in own])
            order = ", ".join(c.text for c in made)
            query = f"SELECT {listed} FROM {table} {name}{where} ORDER BY {order} LIMIT 2"
        inner = [Column(f"{alias}.{c.text}", c.kind) for c in made]
        how = self.one_of(f", LATERAL ({query}) {alias}", f" JOIN LATERAL ({query}) {alias}",
                          f" LEFT JOIN LATERAL ({query}) {alias} ON TRUE")  # fmt: skip
        shown, made = self.shown([(c.text, c.kind) for c in self.some([*columns, *inner], 1, 4)])
        return f"SELECT {shown} FROM {source}{how}", made

    def exploded(self, depth: int) -> tuple[str, list[Column]]:
        """LATERAL VIEW with a list of values of one kind."""
        source, columns = self.source(depth)
        kind = self.one_of(*columns).kind
        items = ", ".join(self.value(columns, kind, 1) for _ in range(self.one_of(1, 2)))
        name, item = self.name("v"), self.name("i")
        outer = self.one_of("", "OUTER ")
        listed = self.one_of(f"array({items})", f"if({self.condition(columns, 1)}, array({items}), "
                             "array())")  # fmt: skip
        visible = [*columns, Column(f"{name}.{item}", kind)]
        shown, made = self.shown([(c.text, c.kind) for c in visible])
        return (
            f"SELECT {shown} FROM {source} LATERAL VIEW {outer}explode({listed}) {name} AS {item}",
            made,
        )

    def pivoted(self, depth: int) -> tuple[str, list[Column]]:
        """PIVOT with one aggregate."""
        source, columns = self.source(depth)
        by, value, on = (self.one_of(*columns) for _ in range(3))
        listed, (key, of, given) = self.shown([(c.text, c.kind) for c in (by, value, on)])
        call, kind = self.one_of((f"max({of.text})", value.kind), (f"min({of.text})", value.kind),
                                 (f"count({of.text})", BIGINT))  # fmt: skip
        made = [Column(self.name("c"), kind) for _ in LITERALS[on.kind]]
        pairs = zip(LITERALS[on.kind], made, strict=True)
        values = ", ".join(f"{literal} AS {c.text}" for literal, c in pairs)
        text = f"(SELECT {listed} FROM {source}) PIVOT ({call} FOR {given.text} IN ({values}))"
        return f"SELECT * FROM {text}", [key, *made]

    def unpivoted(self, depth: int) -> tuple[str, list[Column]]:
        """UNPIVOT of columns of one kind."""
        source, columns = self.source(depth)
        kind = self.one_of(*columns).kind
        values = [(self.value(columns, kind, 1), kind) for _ in range(2)]
        one = self.one_of(*columns)
        listed, (key, *given) = self.shown([(one.text, one.kind), *values])
        value, name = self.name("c"), self.name("c")
        nulls = self.one_of("", "INCLUDE NULLS ")
        names = ", ".join(c.text for c in given)
        text = f"(SELECT {listed} FROM {source}) UNPIVOT {nulls}({value} FOR {name} IN ({names}))"
        return f"SELECT * FROM {text}", [key, Column(name, TEXT), Column(value, kind)]

    def by_range(self, depth: int) -> tuple[str, list[Column]]:
        """Window functions with a frame by RANGE."""
        source, columns = self.source(depth)
        ranged = [c for c in columns if c.kind in _RANGES]
        if not ranged:
            return self.windowed(depth)
        order, arg, by = self.one_of(*ranged), self.one_of(*columns), self.one_of(*columns)
        near, far = _RANGES[order.kind]
        frame = self.one_of(
            f"{near} PRECEDING AND CURRENT ROW",
            f"{far} PRECEDING AND {near} FOLLOWING",
            f"CURRENT ROW AND {far} FOLLOWING",
            f"UNBOUNDED PRECEDING AND {near} FOLLOWING",
        )
        direction = self.one_of("", " DESC", " NULLS LAST")
        over = (
            f"OVER (PARTITION BY {by.text} ORDER BY {order.text}{direction} RANGE BETWEEN {frame})"
        )
        function = self.one_of(
            (f"CAST(count({arg.text}) {over} AS INT)", INT),
            (f"max({arg.text}) {over}", arg.kind),
            (f"min({arg.text}) {over}", arg.kind),
        )
        listed, made = self.shown([*((c.text, c.kind) for c in columns), function])
        return f"SELECT {listed} FROM {source}", made

    def recursive(self, depth: int) -> tuple[str, list[Column]]:
        """WITH RECURSIVE with UNION ALL, whose recursive part is taken twice."""
        source, columns = self.source(depth)
        kinds = [c.kind for c in self.some(columns, 1, 2)]
        name, level = self.name("r"), self.name("l")
        names = [self.name("x") for _ in kinds]
        first = [f"CAST({self.value(columns, kind, 1)} AS {kind})" for kind in kinds]
        own = [Column(f"{name}.{n}", kind) for n, kind in zip(names, kinds, strict=True)]
        table, other = self.one_of(*self._tables), self.name("q")
        others = [Column(f"{other}.{c.text}", c.kind) for c in self._tables[table]]
        pairs = [(a, b) for a in own for b in others if a.kind == b.kind]
        how = self.one_of("", "JOIN", "LEFT JOIN", "WHERE EXISTS") if pairs else ""
        joined, where, visible = "", f"{name}.{level} < 2", own
        if how:
            a, b = self.one_of(*pairs)
            on = f"{a.text} = {b.text}"
            if how == "WHERE EXISTS":
                where += f" AND EXISTS (SELECT 1 FROM {table} {other} WHERE {on})"
            else:
                joined, visible = f" {how} (SELECT * FROM {table}) {other} ON {on}", [*own, *others]
        if self.one_of(True, False):
            where += f" AND {self.condition(visible, 1)}"
        again = [f"{name}.{level} + 1"]
        again += [f"CAST({self.value(visible, kind, 1)} AS {kind})" for kind in kinds]
        listed, made = self.shown([(f"{name}.{level}", INT), *((c.text, c.kind) for c in own)])
        return (
            f"WITH RECURSIVE {name}({', '.join([level, *names])}) AS (SELECT "
            f"{', '.join(['0', *first])} FROM {source} UNION ALL SELECT {', '.join(again)} "
            f"FROM {name}{joined} WHERE {where}) SELECT {listed} FROM {name}"
        ), made

    def limited(self, depth: int) -> tuple[str, list[Column]]:
        """The first rows in an order by all columns."""
        source, columns = self.source(depth)
        listed, made = self.shown([(c.text, c.kind) for c in columns])
        order = ", ".join(f"{c.text} {self.one_of('', 'DESC')}" for c in made)
        offset = self.one_of("", "", " OFFSET 1")
        number = self.one_of(1, 3, 7)
        return f"SELECT {listed} FROM {source} ORDER BY {order} LIMIT {number}{offset}", made


Row = tuple[Any, ...]
Step = dict[str, tuple[list[Row], list[int]]]
"""For each table the rows that come, and numbers of rows that go, of those that are there."""


@dataclass(frozen=True)
class Case:
    """A view over tables, and what happens to these in each step."""

    tables: Tables
    text: str
    steps: list[Step]

    @property
    def ddls(self) -> dict[str, str]:
        """The tables that the view reads, in Spark's DDL."""
        return {
            name: ", ".join(f.ddl for f in fields)
            for name, fields in self.tables.items()
            if f"FROM {name}" in self.text
        }


@hs.composite
def cases(draw: Draw, depth: int, steps: int) -> Case:
    """A random view, with random tables and steps."""
    made = draw(tables())
    text = Drawing(draw, made).relation(draw(hs.integers(1, depth)))[0]
    gone = hs.lists(hs.integers(0, 20), max_size=3)
    of_table = {
        name: hs.tuples(hs.lists(_rows(fields), max_size=5), gone) for name, fields in made.items()
    }
    found = hs.lists(hs.fixed_dictionaries(of_table), min_size=steps, max_size=steps)
    return Case(made, text, draw(found))


def _rows(fields: list[Field]) -> hs.SearchStrategy[Row]:
    """Rows of a table."""
    values = [[*VALUES[f.kind], *([None] if f.nullable else [])] for f in fields]
    return hs.tuples(*map(hs.sampled_from, values))
