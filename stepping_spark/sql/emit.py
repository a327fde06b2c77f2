"""From a relational plan to operators on streams. Equalities of joins become keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sqlglot import exp

import circuits
from circuits.lifting import incremental
from stepping_spark.base.callsite import standing_at
from stepping_spark.circuit.operators import MapMany, Nothing
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.expr import Items, Literal, PythonCall
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.symbolic import symbolic, to_expr
from stepping_spark.language import agg, algebra, win
from stepping_spark.language.primitives import add, map_many
from stepping_spark.language.primitives import filter as filter_
from stepping_spark.language.primitives import map as map_
from stepping_spark.language.recursion import fixpoint
from stepping_spark.language.trace import make, on_streams, row_of
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import ListOf, Optional, Struct, tuple_of, unwrap
from stepping_spark.sql.aggregates import aggregated
from stepping_spark.sql.clock import held_by_clock, reads_clock
from stepping_spark.sql.facts import ColumnType, Facts, SqlColumns
from stepping_spark.sql.inner_joins import equality
from stepping_spark.sql.kinds import common_kind, item_kind, struct_fields
from stepping_spark.sql.operators import converted
from stepping_spark.sql.over import over_windows
from stepping_spark.sql.places import failure, line_of
from stepping_spark.sql.plan import (
    GroupBy,
    InlineValues,
    LateralView,
    Limit,
    PlanColumn,
    RecursiveQuery,
    RecursiveRows,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    SessionsOf,
    SetOf,
    SqlJoin,
    TableScan,
    WhereClause,
    Windows,
    coalesced,
    ref,
    refs,
)
from stepping_spark.sql.relation import (
    PlacedStream,
    all_of,
    built,
    fields_of,
    filtered,
    key_of,
    order_of,
    projected,
)

LEFT, RIGHT = "left", "right"
_join, _outer_join, _cross_join, _semijoin, _antijoin = (
    incremental(on_streams(q))
    for q in (
        algebra.join,
        algebra.outer_join,
        algebra.cross_join,
        algebra.semijoin,
        algebra.antijoin,
    )
)


def joined(plan: SqlJoin, left: PlacedStream, right: PlacedStream) -> PlacedStream:
    """The join of two relations."""
    return _Joined.of(plan, left, right).relation()


@dataclass(frozen=True)
class _Joined:
    """A join with its conditions sorted.

    `keys` are equalities, each with whether NULL equals NULL; `left_only` are conditions of an
    antijoin or a mark join that read the left side only; `rest` are the other conditions.
    """

    plan: SqlJoin
    left: PlacedStream
    right: PlacedStream
    keys: tuple[tuple[Scalar, Scalar, bool], ...]
    rest: tuple[Scalar, ...]
    left_only: tuple[Scalar, ...]

    @classmethod
    def of(cls, plan: SqlJoin, left: PlacedStream, right: PlacedStream) -> _Joined:
        """The join, with its conditions sorted."""
        sides = set(plan.left.columns), set(plan.right.columns)
        keys: list[tuple[Scalar, Scalar, bool]] = []
        others: list[Scalar] = []
        left_only: list[Scalar] = []
        for e in plan.on:
            pair = equality(e, *sides)
            if pair is not None:
                keys.append((*pair, isinstance(e, exp.NullSafeEQ)))
            elif plan.how in ("anti", "mark") and refs(e) and refs(e) <= sides[0]:
                left_only.append(e)
            else:
                others.append(e)
        if any(safe for *_, safe in keys):
            plain = [a for a, _, safe in keys if not safe and isinstance(left.type(a), Optional)]
            others += [exp.Not(this=exp.Is(this=a.copy(), expression=exp.Null())) for a in plain]
        return cls(plan, left, right, tuple(keys), tuple(others), tuple(left_only))

    def relation(self) -> PlacedStream:
        """The relation of the join."""
        match self.plan.how:
            case "mark":
                return self._marked()
            case "semi":
                return self.left.with_stream(self._semi(self.left.stream))
            case "anti":
                return self.left.with_stream(self._anti())
        return replace(self._pair, stream=self._pairs())

    @property
    def _pair(self) -> PlacedStream:
        """The pairs of rows, without their stream."""
        places = self.left.under(LEFT) | self.right.under(RIGHT)
        return PlacedStream(None, places, self.left.kinds | self.right.kinds, self.left.text)

    # -- arguments of the operators

    def _arguments(self) -> dict[str, Any]:
        """The arguments of an operator: the keys of both sides, and the condition on pairs."""
        where = None
        if self.rest:
            condition = self._pair.function(all_of(self.rest), "boolean")
            where = row_expr(condition, pair_of(self.left.row, self.right.row))
        if not self.keys:
            return {"on": (algebra.ONE_KEY, algebra.ONE_KEY), "where": where}
        kinds = [self._kind(a, b) for a, b, _ in self.keys]
        left = key_of(self.left, [a for a, *_ in self.keys], kinds)
        right = key_of(self.right, [b for _, b, _ in self.keys], kinds)
        return {
            "on": (left, right),
            "null_safe": any(safe for *_, safe in self.keys),
            "where": where,
        }

    def _kind(self, a: Scalar, b: Scalar) -> str:
        """The type in which two sides of an equality are compared."""
        kinds = self.left.kind(a), self.right.kind(b)
        kind = common_kind(*kinds)
        if kind is None:
            reason = f"a join compares {kinds[0]} with {kinds[1]}"
            raise failure(self.left.text, a, reason, "cast one of them")
        return kind

    # -- the joins

    def _pairs(self) -> Any:
        how: Any = self.plan.how
        streams = self.left.stream, self.right.stream
        arguments = self._arguments()
        if not self.keys and how in ("inner", "left"):
            return _cross_join(*streams, how=how, where=arguments["where"])
        if how == "inner":
            return _join(*streams, **arguments)
        return _outer_join(*streams, how=how, **arguments)

    def _semi(self, stream: Any) -> Any:
        return _semijoin(stream, self.right.stream, **self._arguments())

    def _anti(self) -> Any:
        """The rows without a match, including rows that fail a condition on the left side alone."""
        if not self.left_only:
            return _antijoin(self.left.stream, self.right.stream, **self._arguments())
        chosen = filtered(self.left, self.left_only)
        none = _antijoin(chosen.stream, self.right.stream, **self._arguments())
        untrue = coalesced(exp.Not(this=all_of(self.left_only)), exp.true())
        return add(filtered(self.left, (untrue,)).stream, none)

    def _marked(self) -> PlacedStream:
        """All rows of the left side, each with a column whether it has a match."""
        mark = self.plan.mark
        assert mark is not None
        chosen = filtered(self.left, self.left_only) if self.left_only else self.left
        matched = self._with_mark(self._semi(chosen.stream), mark, value=True)
        unmatched = self._with_mark(self._anti(), mark, value=False)
        return replace(matched, stream=add(matched.stream, unmatched.stream))

    def _with_mark(self, stream: Any, mark: PlanColumn, *, value: bool) -> PlacedStream:
        columns = self.plan.left.columns
        items = [*((c, ref(c)) for c in columns), (mark, exp.Boolean(this=value))]
        return projected(self.left.with_stream(stream), items)


_first_n = incremental(on_streams(algebra.first_n))
distinct = incremental(on_streams(algebra.distinct))
_SETS = {
    "union": incremental(on_streams(algebra.union)),
    "intersect": incremental(on_streams(algebra.intersect)),
    "except": incremental(on_streams(algebra.except_)),
}


@dataclass
class Emitter:
    """Makes the streams of plans; equal parts of plans become one vertex."""

    text: str
    tables: Mapping[str, tuple[Any, SqlColumns]]
    """By table: its stream and its columns."""
    clock: str
    """The Spark type of the step's time in the query."""
    view: str
    emitted: dict[RecursiveRows, PlacedStream] = field(default_factory=dict)
    """The rows of recursive queries so far, while their loops are traced."""

    def fail(self, node: Scalar | None, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error of a place in the text."""
        raise failure(self.text, node, reason, remedy)

    def facts(self) -> Facts:
        """The facts on the columns of the tables."""
        return Facts({name: _types(*table) for name, table in self.tables.items()})

    def relation(self, plan: RelationalPlan) -> PlacedStream:
        """The stream of a plan; its vertices get the line of the plan in the text."""
        with standing_at(line_of(plan.exprs(), self.view)):
            return self._relation(plan)

    def _relation(self, plan: RelationalPlan) -> PlacedStream:
        match plan:
            case TableScan():
                return self._scan(plan)
            case SelectList():
                return projected(self.relation(plan.source), plan.items)
            case WhereClause():
                return self._where(plan)
            case SqlJoin():
                return joined(plan, self.relation(plan.left), self.relation(plan.right))
            case GroupBy():
                return aggregated(self.relation(plan.source), plan)
            case SessionsOf():
                return self._sessions(plan)
            case Windows():
                return over_windows(self.relation(plan.source), plan)
            case SelectDistinct():
                source = self.relation(plan.source)
                return source.with_stream(distinct(source.stream))
            case SetOf():
                return self._set(plan)
            case RecursiveQuery():
                return self._recursive(plan)
            case RecursiveRows():
                return self.emitted[plan]
            case Limit():
                return self._first(plan)
            case InlineValues():
                return self._values(plan)
            case LateralView():
                return self._unnested(plan)
        raise NotImplementedError(type(plan).__name__)

    def _scan(self, plan: TableScan) -> PlacedStream:
        stream, columns = self.tables[plan.table]
        fields = [
            (c, path, kind) for c in plan.new_columns for path, kind in [columns[c.name]] if path
        ]
        kinds = {c: kind for c, _, kind in fields}
        return PlacedStream(stream, {c: path for c, path, _ in fields}, kinds, self.text)

    def _where(self, plan: WhereClause) -> PlacedStream:
        """The rows for which the conditions are true; conditions on the step's time come last."""
        source = self.relation(plan.source)
        for e in plan.conditions:
            kind = "boolean" if reads_clock(e) else source.kind(e)
            if kind not in ("boolean", "void"):
                self.fail(e, f"a condition is {kind}, and not TRUE or FALSE", "compare it")
        timed = [e for e in plan.conditions if reads_clock(e)]
        lasting = [e for e in plan.conditions if e not in timed]
        if lasting:
            source = filtered(source, lasting)
        return held_by_clock(source, timed, self.clock) if timed else source

    # -- constants and lists

    def _values(self, plan: InlineValues) -> PlacedStream:
        """Rows of constants, which exist from the first step on.

        The count of an empty relation is one row from the first step on, which never changes. It is
        mapped to the rows of constants.
        """
        none: Any = make(Nothing(ZSetType(INT)))
        single: Any = circuits.aggregate(none, by=None, fields={"rows": agg.count()})
        source = PlacedStream(single, {}, {}, self.text)
        if not plan.new_columns:
            return source
        kinds = [
            self._kind(source, [row[i] for row in plan.rows]) for i in range(len(plan.new_columns))
        ]
        names = fields_of(plan.new_columns)

        def items(row: Any) -> Any:
            rows = [
                to_expr(
                    built(
                        names, [source.function(e, k)(row) for e, k in zip(r, kinds, strict=True)]
                    )
                )
                for r in plan.rows
            ]
            types = [_common_types(rows[0].type, r.type) for r in rows]
            common = [
                next((t for t in column if isinstance(t, Optional)), column[0])
                for column in zip(*types, strict=True)
            ]
            cells = [to_expr(built(names, [symbolic(e) for e in r.parts()], common)) for r in rows]
            return symbolic(Items(ListOf(cells[0].type), tuple(cells)))

        stream = map_many(single, f=items)
        places = {c: (n,) for c, n in zip(plan.new_columns, names, strict=True)}
        return PlacedStream(
            stream, places, dict(zip(plan.new_columns, kinds, strict=True)), self.text
        )

    def _kind(self, source: PlacedStream, cells: Sequence[Scalar]) -> str:
        """The common type of a column of constants."""
        kind = source.kind(cells[0])
        for e in cells[1:]:
            common = common_kind(kind, source.kind(e))
            if common is None:
                self.fail(e, f"a column of VALUES has {kind} and {source.kind(e)}", "cast one")
            kind = common
        return "string" if kind == "void" else kind

    def _unnested(self, plan: LateralView) -> PlacedStream:
        """Each row with each item of a list, as pairs made by Python."""
        own_items = [(c, ref(c)) for c in plan.source.columns]
        listed = PlanColumn("items")
        source = projected(self.relation(plan.source), [*own_items, (listed, plan.value)])
        row, ((path,), kind) = source.row, (source.places[listed], source.kinds[listed])
        lists = unwrap(dict(row.fields)[path])  # type: ignore[attr-defined]
        called = "inline" if plan.fields else "explode"
        if not isinstance(lists, ListOf):
            self.fail(plan.value, f"{called} takes a list, found {kind}")
        kind = item_kind(kind)
        fields, kinds_of = None, [kind]
        items: list[RowType] = [Optional(unwrap(lists.inner)) if plan.outer else lists.inner]
        if plan.fields:
            struct = unwrap(lists.inner)
            if not isinstance(struct, Struct) or len(struct.fields) != len(plan.new_columns):
                count = len(plan.new_columns)
                reason = f"inline takes a list of structs of {count} fields, found {kind}"
                self.fail(plan.value, reason, "name each field: LATERAL VIEW inline(…) t AS a, b")
            fields = tuple(n for n, _ in struct.fields)
            items = [Optional(unwrap(t)) for _, t in struct.fields]
            kinds_of = [k for _, k in struct_fields(kind)]
        position = Optional(INT) if plan.outer else INT
        t = pair_of(row, tuple_of((position, *items)))
        pairs = PythonCall(ListOf(t), Exploded(path, plan.outer, fields), called)
        stream = make(MapMany(pairs), source.stream)
        places = {c: ("left", *p) for c, p in source.places.items() if c != listed}
        kinds = {c: source.kinds[c] for c in places}
        if plan.position is not None:
            places[plan.position], kinds[plan.position] = ("right", "_1"), "int"
        for i, (column, of) in enumerate(zip(plan.new_columns, kinds_of, strict=True), 2):
            places[column], kinds[column] = ("right", f"_{i}"), of
        return PlacedStream(stream, places, kinds, self.text)

    def _sessions(self, plan: SessionsOf) -> PlacedStream:
        source = self.relation(plan.source)
        by: Any = key_of(source, plan.by) if plan.by else None
        at: Any = source.function(plan.at)
        gap = dt.timedelta(microseconds=plan.gap)
        stream: Any = circuits.sessions(source.stream, by=by, at=at, gap=gap)
        places = source.under("row")
        kinds = dict(source.kinds)
        for c, edge in zip(plan.new_columns, ("start", "end"), strict=True):
            places[c], kinds[c] = (edge,), source.kind(plan.at)
        return PlacedStream(stream, places, kinds, self.text)

    # -- sets

    def _set(self, plan: SetOf) -> PlacedStream:
        sides = [self.relation(plan.left), self.relation(plan.right)]
        columns = [plan.left.columns, plan.right.columns]
        kinds = []
        for a, b, column in zip(*columns, plan.new_columns, strict=True):
            both = sides[0].kinds[a], sides[1].kinds[b]
            kind = common_kind(*both, casts_text=plan.casts_text)
            if kind is None:
                clause = plan.kind.upper() if plan.casts_text else "UNPIVOT"
                reason = f"column {column.name} is {both[0]} before, and {both[1]} here"
                self.fail(plan.at, f"{clause}: {reason}", "cast one of them")
            kinds.append(kind)
        names = fields_of(plan.new_columns)
        made_of = [
            _converted(side, side_columns, names, kinds)
            for side, side_columns in zip(sides, columns, strict=True)
        ]
        types = _common_types(*[placed.row for placed in made_of])
        left, right = (
            _converted(side, side_columns, names, kinds, types).stream
            for side, side_columns in zip(sides, columns, strict=True)
        )
        stream = _SETS[plan.kind](left, right, all=plan.all)
        places = {c: (n,) for c, n in zip(plan.new_columns, names, strict=True)}
        return PlacedStream(
            stream, places, dict(zip(plan.new_columns, kinds, strict=True)), self.text
        )

    # -- recursion

    def _recursive(self, plan: RecursiveQuery) -> PlacedStream:
        """The fixpoint of a recursive query; the anchor determines the types of its columns.

        All columns are nullable, as a step may produce NULL.
        """
        anchor = self.relation(plan.anchor)
        kinds = [anchor.kinds[c] for c in plan.anchor.columns]
        names = fields_of(plan.new_columns)
        row = _converted(anchor, plan.anchor.columns, names, kinds).row
        assert isinstance(row, Struct)
        types = [Optional(unwrap(t)) for _, t in row.fields]
        places = {c: (n,) for c, n in zip(plan.new_columns, names, strict=True)}

        def step(first: Any, y: Any) -> Any:
            rows = plan.rows.columns
            where = {c: (n,) for c, n in zip(rows, names, strict=True)}
            self.emitted[plan.rows] = PlacedStream(
                y, where, dict(zip(rows, kinds, strict=True)), self.text
            )
            further = self.relation(plan.step)
            for c, column, kind in zip(plan.step.columns, plan.new_columns, kinds, strict=True):
                if common_kind(kind, further.kinds[c]) != kind:
                    self.fail(
                        next((e for e in plan.step.exprs() if c in refs(e)), None),
                        f"column {column.name} of {plan.name} is {kind}, and the recursive part "
                        f"makes {further.kinds[c]} of it",
                        f"cast it to {kind} there, or to {further.kinds[c]} in the first part",
                    )
            again = _converted(further, plan.step.columns, names, kinds, types)
            return add(first, again.stream)

        step.__name__ = step.__qualname__ = plan.name
        first = _converted(anchor, plan.anchor.columns, names, kinds, types)
        # The first iteration has the rows of the anchor
        most = {} if plan.most is None else {"max_iterations": plan.most + 1}
        stream: Any = fixpoint(first.stream, step, distinct=not plan.all, name=plan.name, **most)
        return PlacedStream(
            stream, places, dict(zip(plan.new_columns, kinds, strict=True)), self.text
        )

    # -- the first rows

    def _first(self, plan: Limit) -> PlacedStream:
        source = self.relation(plan.source)
        order: Any = order_of(source, plan.order) or [Sorting(Literal(INT, 0), True, True)]
        by: Any = key_of(source, plan.by) if plan.by else None
        if plan.count is not None:
            if plan.count == 0:
                return filtered(source, (exp.false(),))
            n = plan.count + plan.offset
            keys = () if by is None else by.parts
            source = source.with_stream(_first_n(source.stream, order=order, n=n, by=keys))
        if not plan.offset:
            return source
        field = "number_"
        numbered: Any = circuits.window(
            source.stream, by=by, order=order, fields={field: win.row_number()}
        )
        remaining = filter_(numbered, f=lambda row: getattr(row, field) > plan.offset)
        return source.with_stream(remaining)


@dataclass(frozen=True)
class Exploded:
    """The pairs of a row with each item of a list in it, and the item's position.

    With `fields`, the fields of the item replace the item.
    """

    path: str
    outer: bool
    fields: tuple[str, ...] | None = None

    def __call__(self, row: Any) -> list[Pair[Any, Any]]:
        """The pairs of a row."""
        items = getattr(row, self.path)
        if not items:
            return [Pair(left=row, right=(None, *self._parts(None)))] if self.outer else []
        return [Pair(left=row, right=(i, *self._parts(item))) for i, item in enumerate(items)]

    def _parts(self, item: Any) -> tuple[Any, ...]:
        if self.fields is None:
            return (item,)
        return tuple(None if item is None else getattr(item, n) for n in self.fields)


def _types(stream: Any, columns: SqlColumns) -> dict[str, ColumnType]:
    """The types of the columns of a table."""
    types = {}
    for name, (path, kind) in columns.items():
        if path is None:
            types[name] = ColumnType(kind, nullable=True, storable=False)
            continue
        t, nullable = row_of(stream, "sql"), False
        for part in path:
            t = dict(unwrap(t).fields)[part]  # type: ignore[attr-defined]
            nullable |= isinstance(t, Optional)
        types[name] = ColumnType(kind, nullable)
    return types


def _common_types(left: RowType, right: RowType) -> list[RowType]:
    """The types of the columns of a union: NULL is possible if it is on one side."""
    assert isinstance(left, Struct) and isinstance(right, Struct)
    return [
        Optional(unwrap(a)) if isinstance(a, Optional) or isinstance(b, Optional) else a
        for (_, a), (_, b) in zip(left.fields, right.fields, strict=True)
    ]


def _converted(
    source: PlacedStream,
    columns: Sequence[PlanColumn],
    names: Sequence[str],
    kinds: Sequence[str],
    types: Sequence[RowType] | None = None,
) -> PlacedStream:
    """The relation with the columns as fields of these names and Spark types."""

    def row_of(row: Any) -> Any:
        pairs = zip(columns, kinds, strict=True)
        values = [converted(source.value(ref(c), row), kind).column for c, kind in pairs]
        return built(names, values, types)

    stream = map_(source.stream, f=row_of)
    places = {c: (n,) for c, n in zip(columns, names, strict=True)}
    return PlacedStream(stream, places, dict(zip(columns, kinds, strict=True)), source.text)
