"""GROUP BY as an operator: a map to keys and arguments, then `st.aggregate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

import circuits
from stepping_spark.language import agg, win
from stepping_spark.language.grouping import grouping_sets
from stepping_spark.language.primitives import map as map_
from stepping_spark.rows.row_class import field_name
from stepping_spark.sql.kinds import FLOATS, INTEGERS, kind_of
from stepping_spark.sql.places import failure
from stepping_spark.sql.plan import FunctionCall, GroupBy, PlanColumn, Scalar, column_of, ref
from stepping_spark.sql.relation import PlacedStream, built, fields_of, projected

GROUPINGS = ("grouping", "grouping_id")
SAME_IF_DISTINCT = frozenset(
    ("any_value", "bit_and", "bit_or", "bool_and", "bool_or", "collect_set", "max", "min")
)
KEPT = ("min", "max", "any_value", "mode", "max_by", "min_by", "bit_and", "bit_or", "bit_xor")
"""Aggregates whose Spark type is the type of their argument."""
NUMERIC = (
    "sum",
    "avg",
    "stddev",
    "variance",
    "stddev_pop",
    "var_pop",
    "corr",
    "kurtosis",
    "median",
    "percentile",
    "percentile_cont",
    "skewness",
    *(name for name in agg.__all__ if name.startswith(("covar_", "regr_"))),
)
"""Aggregates that convert a string to a DOUBLE."""
_TAKEN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **dict.fromkeys(NUMERIC, ("numbers", "double", (*INTEGERS, *FLOATS, "decimal"))),
    **dict.fromkeys(("bool_and", "bool_or"), ("booleans", "boolean", ("boolean",))),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), ("whole numbers", "bigint", INTEGERS)),
}
"""The arguments of an aggregate: in words, the type for NULL (and for strings), its kinds."""

_MADE = {
    "numbers": "unix_date(day), unix_micros(instant), or CAST(x AS DOUBLE)",
    "booleans": "x <> 0",
    "whole numbers": "CAST(x AS BIGINT)",
}


def taken(source: PlacedStream, call: FunctionCall, e: Scalar) -> Scalar:
    """An argument converted for its aggregate. Raises `SqlError` for another type."""
    if call.name not in _TAKEN:
        return e
    words, instead, kinds = _TAKEN[call.name]
    kind = source.kind(e)
    if kind == "void" or (kind == "string" and call.name in NUMERIC):
        return exp.Cast(this=e.copy(), to=exp.DataType.build(instead, dialect="spark"))
    if kind.partition("(")[0] not in kinds:
        reason = f"{call.name} takes {words}, and this is {kind}"
        raise failure(source.text, call.at, reason, f"make it one: {_MADE[words]}")
    return e


def aggregated(source: PlacedStream, plan: GroupBy) -> PlacedStream:
    """The groups of a relation."""
    return _Groups(source, plan).relation()


@dataclass
class _Groups:
    """The groups of a relation. Its rows are first mapped to the keys and the arguments."""

    source: PlacedStream
    plan: GroupBy
    names: list[str] = field(default_factory=list)  # of the fields of these rows
    args: dict[Scalar, str] = field(default_factory=dict)  # the field of each argument

    def relation(self) -> PlacedStream:
        """The relation of the groups."""
        keys = [c for c, _ in self.plan.keys]
        calls = [(c, call) for c, call in self.plan.calls if call.name not in GROUPINGS]
        groupings = [(c, call) for c, call in self.plan.calls if call.name in GROUPINGS]
        columns = [*keys, *(c for c, _ in calls)]
        fields = fields_of([*columns, PlanColumn("grouping_id")])
        self.names = fields[: len(keys)]
        aggregates = zip(fields[len(keys) :], calls, strict=False)
        by_field = {f: self._aggregate(call) for f, (_, call) in aggregates}
        if groupings:
            by_field[fields[-1]] = agg.grouping_id()
        rows = self._rows()
        stream: Any = circuits.aggregate(
            rows, self._by(), fields=by_field, group_size=self.plan.group_size
        )
        places = {c: (f,) for c, f in zip(columns, fields, strict=False)}
        groups = PlacedStream(stream, places, {}, self.source.text)
        groups.kinds.update(self._kinds(groups, calls))
        return self._with_groupings(groups, groupings, fields[-1]) if groupings else groups

    def _kinds(
        self, groups: PlacedStream, calls: Sequence[tuple[PlanColumn, FunctionCall]]
    ) -> dict[PlanColumn, str]:
        """The Spark types of the keys and the aggregates."""
        types = dict(groups.row.fields)  # type: ignore[attr-defined]
        kinds = {c: kind_of(types[f]) for c, (f,) in groups.places.items()}
        kinds |= {c: self.source.kind(e) for c, e in self.plan.keys}
        calls_kept = [(c, _with_argument(call)) for c, call in calls if call.name in KEPT]
        return kinds | {c: self.source.kind(self.value_of(call)) for c, call in calls_kept}

    # -- the mapped rows

    def argument(self, e: Scalar) -> str:
        """The field of the mapped rows with an argument."""
        if e not in self.args:
            named = column_of(e).name if isinstance(e, exp.Column) else "argument"
            self.args[e] = field_name(named, [*self.names, *self.args.values()])
        return self.args[e]

    def _rows(self) -> Any:
        """The rows with the keys and arguments as fields."""
        exprs = [*(e for _, e in self.plan.keys), *self.args]
        fields = [*self.names, *self.args.values()]
        if not exprs:
            return self.source.stream

        def row_of(row: Any) -> Any:
            return built(fields, [self.source.storable(e, row).column for e in exprs])

        return map_(self.source.stream, f=row_of)

    def _by(self) -> Any:
        if self.plan.sets is None:
            return _fields(self.names)
        return grouping_sets(*(_fields([self.names[i] for i in s]) for s in self.plan.sets))

    # -- grouping(x)

    def _with_groupings(
        self, groups: PlacedStream, groupings: Sequence[tuple[PlanColumn, FunctionCall]], name: str
    ) -> PlacedStream:
        """The groups with the values of `grouping` and `grouping_id`, from the set's number."""
        order = list(dict.fromkeys(i for s in self.plan.sets or () for i in s))
        columns = [c for c, _ in self.plan.keys]
        number = PlanColumn("grouping_id")
        places = {**groups.places, number: (name,)}
        kinds = {**groups.kinds, number: "bigint"}
        items: list[tuple[PlanColumn, Scalar]] = [(c, ref(c)) for c in groups.places]
        for c, call in groupings:
            positions = [columns.index(column_of(a)) for a in call.args] or range(len(columns))
            value: Scalar = exp.Literal.number(0)
            for key in positions:
                doubled = exp.Mul(this=value, expression=exp.Literal.number(2))
                value = exp.Add(this=doubled, expression=_bit(number, order, key))
            kind = "tinyint" if call.name == "grouping" else "bigint"
            items.append((c, exp.Cast(this=value, to=exp.DataType.build(kind, dialect="spark"))))
        return projected(PlacedStream(groups.stream, places, kinds, groups.text), items)

    # -- the aggregates

    def _aggregate(self, call: FunctionCall) -> Any:
        """The aggregate of the library for a call."""
        name = call.name
        if name in _PLAIN and call.distinct and name in SAME_IF_DISTINCT:
            call = FunctionCall(name, call.args, call.at, False, call.condition)
        if name == "count":
            return self._count(call)
        if name == "mode" and any(o.args.get("desc") for o in call.order):
            reason = "of values that are equally frequent, mode() gives the least one here"
            raise failure(self.source.text, call.at, reason, "leave out DESC")
        call = _with_argument(call)
        maker = _MAKERS.get((name, call.distinct))
        if maker is None or not call.args:
            signature = f"{name}(DISTINCT …)" if call.distinct else name
            reason = f"the aggregate {signature} is not supported"
            raise failure(self.source.text, call.at, reason, _INSTEAD.get(name, ""))
        return maker(self, call)

    def value_of(self, call: FunctionCall, at: int = 0) -> Scalar:
        """An argument, with NULL for rows that FILTER leaves out."""
        e = call.args[at]
        if call.condition is None:
            return e
        return exp.Case(ifs=[exp.If(this=call.condition.copy(), true=e.copy())])

    def picked(
        self, call: FunctionCall, at: int = 0, kind: str | None = None
    ) -> Callable[[Any], Any]:
        """The function from a mapped row to an argument."""
        e = self.value_of(call, at)
        if kind is not None:
            e = exp.Cast(this=e.copy(), to=exp.DataType.build(kind, dialect="spark"))
        return _field(self.argument(taken(self.source, call, e)))

    def _count(self, call: FunctionCall) -> Any:
        starred = bool(call.args) and isinstance(call.args[0], exp.Star)
        if starred and call.condition is None:
            return agg.count()
        one = exp.Literal.number(1)
        if starred:
            call = FunctionCall("count", (one,), call.at, False, call.condition)
        if len(call.args) > 1 and not call.distinct:
            not_null = [
                exp.Not(this=exp.Is(this=a.copy(), expression=exp.Null())) for a in call.args
            ]
            one_if_known = exp.Case(ifs=[exp.If(this=exp.and_(*not_null, copy=False), true=one)])
            call = FunctionCall("count", (one_if_known,), call.at, False, call.condition)
        if len(call.args) == 1:
            f = self.picked(call)
            return agg.count_distinct(f) if call.distinct else agg.count(f)
        return agg.count_distinct(self.picked(replace(call, args=(self._together(call.args),))))

    def _together(self, args: Sequence[Scalar]) -> Scalar:
        """Several values as one text, each after its length; NULL if one of them is NULL."""
        parts: list[Scalar] = []
        for e in args:
            kind = self.source.kind(e)
            if kind == "binary" or "<" in kind:
                reason = f"count(DISTINCT …) of several values cannot compare {kind}"
                raise failure(self.source.text, e, reason, "count a single value")
            text = exp.Cast(this=e.copy(), to=exp.DataType.build("string", dialect="spark"))
            length = exp.Anonymous(this="length", expressions=[text])
            length_text = exp.Cast(this=length, to=exp.DataType.build("string", dialect="spark"))
            parts += [length_text, exp.Literal.string(":"), text.copy()]
        return exp.Anonymous(this="concat", expressions=parts)

    def constant(self, e: Scalar) -> Any:
        """The value of a constant argument."""
        if isinstance(e, exp.Literal):
            return e.name if e.is_string else float(e.name)
        remedy = "write a literal"
        if isinstance(e, exp.Array) or (isinstance(e, exp.Anonymous) and e.name.lower() == "array"):
            remedy = "lists of percentages are not supported: write a percentile for each"
        raise failure(self.source.text, e, "this argument has to be a constant", remedy)


def _with_argument(call: FunctionCall) -> FunctionCall:
    """The call with its argument: that of `mode() WITHIN GROUP (ORDER BY x)` is x."""
    if call.name == "mode" and call.order:
        return replace(call, args=(call.order[0].this,), order=())
    return call


def _field(name: str) -> Callable[[Any], Any]:
    return lambda row: getattr(row, name)


def _fields(names: Sequence[str]) -> Any:
    """The function from a row to a key of fields; None without fields."""
    if not names:
        return None
    if len(names) == 1:
        return _field(names[0])
    return lambda row: tuple(getattr(row, n) for n in names)


def _bit(number: PlanColumn, order: Sequence[int], key: int) -> Scalar:
    """1 if a key is left out of the grouping set of a row, else 0, from the set's number."""
    if key not in order:
        return exp.Literal.number(1)
    at = len(order) - 1 - order.index(key)
    remainder = exp.Mod(this=ref(number), expression=exp.Literal.number(2 ** (at + 1)))
    high = exp.GTE(this=remainder, expression=exp.Literal.number(2**at))
    return exp.Case(
        ifs=[exp.If(this=high, true=exp.Literal.number(1))], default=exp.Literal.number(0)
    )


_INSTEAD = {
    "approx_count_distinct": "count exactly: count(DISTINCT x)",
    **dict.fromkeys(
        ("approx_percentile", "percentile_approx", "percentile_disc"), "use percentile(x, 0.5)"
    ),
    "try_avg": "use avg",
    "try_sum": "use sum, which raises an error for a sum that does not fit",
}
"""Remedies for aggregates that are not supported."""

Maker = Callable[[_Groups, FunctionCall], Any]
_PLAIN: dict[str, Any] = {
    "sum": agg.sum,
    "avg": agg.avg,
    "min": agg.min,
    "max": agg.max,
    "any_value": agg.any_value,
    "first": agg.any_value,
    "first_value": agg.any_value,
    "last": agg.any_value,
    "last_value": agg.any_value,
    "mode": agg.mode,
    "median": agg.median,
    "stddev": agg.stddev,
    "variance": agg.variance,
    "bool_and": agg.bool_and,
    "bool_or": agg.bool_or,
    "bit_and": agg.bit_and,
    "bit_or": agg.bit_or,
    "bit_xor": agg.bit_xor,
    "collect_list": agg.collect_list,
    "collect_set": agg.collect_set,
    "kurtosis": agg.kurtosis,
    "skewness": agg.skewness,
}
_OF_PAIRS = ("corr", *(name for name in agg.__all__ if name.startswith(("covar_", "regr_"))))


def _plain(make: Any) -> Maker:
    return lambda groups, call: make(groups.picked(call))


def _of_pairs(make: Any) -> Maker:
    return lambda groups, call: make(groups.picked(call), groups.picked(call, 1))


def _count_if(groups: _Groups, call: FunctionCall) -> Any:
    one = exp.Case(ifs=[exp.If(this=groups.value_of(call).copy(), true=exp.Literal.number(1))])
    name = groups.argument(one)
    return agg.count(lambda row: getattr(row, name))


def _percentile(groups: _Groups, call: FunctionCall) -> Any:
    """percentile(x, p), or percentile_cont(p) WITHIN GROUP (ORDER BY x)."""
    if call.order:
        share = groups.constant(call.args[0])
        ordered = call.order[0]
        inner = FunctionCall(call.name, (ordered.this,), call.at, False, call.condition)
        return agg.percentile(
            groups.picked(inner), 1 - share if ordered.args.get("desc") else share
        )
    return agg.percentile(groups.picked(call), groups.constant(call.args[1]))


def _string_agg(groups: _Groups, call: FunctionCall) -> Any:
    separator = str(groups.constant(call.args[1])) if len(call.args) > 1 else ""
    f = groups.picked(call, kind="string")
    order = []
    for o in call.order:
        direction = win.desc if o.args.get("desc") else win.asc
        if call.distinct and o.this != call.args[0]:
            reason = "distinct values have no other order than their own"
            raise failure(groups.source.text, o, reason, "order by the value that is aggregated")
        order.append(direction(f if call.distinct else _field(groups.argument(o.this))))
    return agg.string_agg(f, separator, order=tuple(order) or None, distinct=call.distinct)


_MAKERS: dict[tuple[str, bool], Maker] = {
    **{(name, False): _plain(make) for name, make in _PLAIN.items()},
    ("sum", True): _plain(agg.sum_distinct),
    ("stddev_pop", False): _plain(lambda f: agg.stddev(f, population=True)),
    ("var_pop", False): _plain(lambda f: agg.variance(f, population=True)),
    ("count_if", False): _count_if,
    ("avg", True): _plain(agg.avg_distinct),
    ("collect_list", True): _plain(agg.collect_set),
    ("listagg", True): _string_agg,
    **{(name, False): _of_pairs(getattr(agg, name)) for name in _OF_PAIRS},
    ("max_by", False): lambda g, c: agg.arg_max(g.picked(c, 1), g.picked(c)),
    ("min_by", False): lambda g, c: agg.arg_min(g.picked(c, 1), g.picked(c)),
    ("percentile", False): _percentile,
    ("percentile_cont", False): _percentile,
    ("listagg", False): _string_agg,
}
