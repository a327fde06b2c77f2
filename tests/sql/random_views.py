"""Random views in SQL, for hypothesis: SELECTs over all features, of tables with NULLs.

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
DDLS = {
    "a": f"k {INT}, n {INT}, s {TEXT}, d {DATE}",
    "b": f"k {INT}, x {DECIMAL}, s {TEXT}, yes {BOOL}",
    "c": f"n {INT} NOT NULL, d {DATE}, s {TEXT}",
}
VALUES: dict[str, list[Any]] = {
    INT: [0, 1, 2, 3, -1],
    TEXT: ["", "a", "b", "ab", "B"],
    DATE: [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1)],
    BOOL: [True, False],
    DECIMAL: [Decimal("0.00"), Decimal("1.25"), Decimal("-2.50")],
}
LITERALS = {
    INT: ["0", "1", "2", "-1"],
    TEXT: ["'a'", "'b'", "''"],
    DATE: ["DATE'2024-02-29'"],
    BOOL: ["TRUE", "FALSE"],
    DECIMAL: ["1.25", "CAST(0 AS DECIMAL(8,2))"],
}

_FRAMES = (
    "1 PRECEDING AND CURRENT ROW",
    "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "CURRENT ROW AND 2 FOLLOWING",
)

Draw: TypeAlias = Callable[[hs.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Column:
    """A column of a relation: how it is written, and its type."""

    text: str
    kind: str


def columns_of(table: str) -> list[Column]:
    """The columns of a table."""
    parts = [c.split(" ") for c in DDLS[table].split(", ")]
    return [Column(name, kind) for name, kind, *_ in parts]


class Drawing:
    """Draws the parts of a query; names are never used twice."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
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
        plain = [*fitting, *LITERALS[kind]] if fitting else LITERALS[kind]
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
        table, name = self.one_of(*DDLS), self.name("q")
        own = [Column(f"{name}.{c.text}", c.kind) for c in columns_of(table)]
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
            table = self.one_of(*DDLS)
            return f"SELECT * FROM {table}", columns_of(table)
        made: Callable[[int], tuple[str, list[Column]]] = self.one_of(
            self.selected,
            self.joined,
            self.grouped,
            self.windowed,
            self.united,
            self.limited,
            self.sets_of_groups,
            self.recursive,
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
        where = self.one_of(
            "", f" WHERE {self.condition(columns)}", f" WHERE {self.with_sub_query(columns)}"
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
            if c.kind == INT:
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

    def recursive(self, depth: int) -> tuple[str, list[Column]]:
        """WITH RECURSIVE with UNION ALL, whose recursive part is taken twice."""
        source, columns = self.source(depth)
        kinds = [c.kind for c in self.some(columns, 1, 2)]
        name, level = self.name("r"), self.name("l")
        names = [self.name("x") for _ in kinds]
        first = [f"CAST({self.value(columns, kind, 1)} AS {kind})" for kind in kinds]
        own = [Column(f"{name}.{n}", kind) for n, kind in zip(names, kinds, strict=True)]
        table, other = self.one_of(*DDLS), self.name("q")
        others = [Column(f"{other}.{c.text}", c.kind) for c in columns_of(table)]
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


@hs.composite
def views(draw: Draw, depth: int = 3) -> str:
    """The text of a view."""
    return Drawing(draw).relation(draw(hs.integers(1, depth)))[0]


def rows(table: str) -> hs.SearchStrategy[tuple[Any, ...]]:
    """Rows of a table."""
    values = []
    for part in DDLS[table].split(", "):
        _, kind, *rest = part.split(" ")
        found = VALUES[kind] if rest else [None, *VALUES[kind]]
        values.append(hs.sampled_from(found))
    return hs.tuples(*values)


def changes(steps: int) -> hs.SearchStrategy[list[dict[str, list[tuple[bool, tuple[Any, ...]]]]]]:
    """For each step and table rows that come, and rows that go if they are there."""
    of_table = {
        name: hs.lists(hs.tuples(hs.sampled_from([True, True, False]), rows(name)), max_size=6)
        for name in DDLS
    }
    return hs.lists(hs.fixed_dictionaries(of_table), min_size=steps, max_size=steps)
