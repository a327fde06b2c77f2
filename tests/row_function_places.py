"""Every place of a query where a function of rows can stand, as a circuit of two inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.expressions.functions import row_expr
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, row_type
from tests.row_function_cases import Row

Function = Callable[[Any], Any]
Z = st.ZSetPython
ROW = row_type(Row)


@dataclass(frozen=True)
class Place:
    """A circuit with holes for functions of rows."""

    name: str
    kinds: tuple[str, ...]  # of the functions, see `functions_of`
    build: Callable[..., Any]


PLACES: dict[str, Place] = {}


def place(name: str, *kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a place for functions of these kinds."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        PLACES[name] = Place(name, kinds, build)
        return build

    return register


# -- matching


@place("join", "key")
def _join(a: Any, b: Any, f: Function) -> Any:
    return st.join(a, b, on_left=f, on_right=f)


@place("join of two keys", "bool", "bool")
def _join_of_two(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.join(a, b, on_left=lambda r: (f(r), r.x), on_right=lambda r: (g(r), r.x))


@place("join on another", "bool", "bool")
def _join_on_another(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.join(a, b, on_left=_always(f), on_right=_always(g))


@place("semijoin", "key")
def _semijoin(a: Any, b: Any, f: Function) -> Any:
    return st.semijoin(a, b, on_left=f, on_right=f)


@place("antijoin", "key")
def _antijoin(a: Any, b: Any, f: Function) -> Any:
    return st.antijoin(a, b, on_left=f, on_right=f)


def _outer(how: Any) -> Callable[..., Any]:
    def build(a: Any, b: Any, f: Function) -> Any:
        return st.outer_join(a, b, on_left=f, on_right=f, how=how)

    return build


for _how in ("left", "right", "full"):
    place(f"outer join, {_how}", "key")(_outer(_how))


def _looked_up(how: Any) -> Callable[..., Any]:
    def build(a: Any, b: Any, f: Function) -> Any:
        return st.delta_join(a, st.Lookup(b, key=f, on=lambda row: f(row[0]), how=how))

    return build


for _how in ("inner", "left"):
    place(f"delta join, {_how}", "key")(_looked_up(_how))


@place("delta join of three", "key", "key")
def _delta_of_three(a: Any, b: Any, f: Function, g: Function) -> Any:
    first = st.Lookup(b, key=f, on=lambda row: f(row[0]), how="left")
    return st.delta_join(a, first, st.Lookup(b, key=g, on=lambda row: g(row[0])))


def _half(state: Any) -> Callable[..., Any]:
    def build(a: Any, b: Any, f: Function) -> Any:
        return st.half_join(a, b, on_left=f, on_right=f, state=state)

    return build


for _state in ("new", "old"):
    place(f"half join, {_state}", "key")(_half(_state))


ITERATIONS = 20
"""More than it takes with so few rows, but where rows of negative counts make it swing for ever."""


@place("fixpoint of a join", "key")
def _fixpoint(a: Any, b: Any, f: Function) -> Any:
    def nearer(a: Any, y: Any) -> Any:
        met = st.join(y, b, on_left=f, on_right=f)
        return st.add(a, st.map(met, f=lambda p: p.right))

    return st.fixpoint(st.distinct(a), nearer, max_iterations=ITERATIONS)


@place("fixpoint of a semijoin and a filter", "key", "bool")
def _fixpoint_of_semijoin(a: Any, b: Any, f: Function, g: Function) -> Any:
    def kept(a: Any, y: Any) -> Any:
        met = st.semijoin(b, y, on_left=f, on_right=f)
        return st.add(a, st.filter(met, f=g))

    return st.fixpoint(st.distinct(a), kept, max_iterations=ITERATIONS)


@place("join on a struct", "scalar", "scalar")
def _join_on_struct(a: Any, b: Any, f: Function, g: Function) -> Any:
    key = lambda r: F.struct(f(r).alias("u"), g(r).alias("v"))  # noqa: E731
    return st.join(a, b, on_left=key, on_right=key)


# -- rows that are NULL themselves


def _maybe(a: Any, b: Any) -> Any:
    """Rows of b, and NULL for a row of a that has none of them."""
    pairs = st.outer_join(a, b, on_left=lambda r: r.s, on_right=lambda r: r.s)
    return st.map(pairs, f=lambda p: p.right)


@place("filter of optional rows", "bool")
def _filter_optional(a: Any, b: Any, f: Function) -> Any:
    return st.filter(_maybe(a, b), f=f)


@place("map of optional rows", "any")
def _map_optional(a: Any, b: Any, f: Function) -> Any:
    return st.distinct(st.map(_maybe(a, b), f=f))


@place("join of optional rows", "key")
def _join_optional(a: Any, b: Any, f: Function) -> Any:
    return st.join(_maybe(a, b), _maybe(b, a), on_left=f, on_right=f)


@place("antijoin of optional rows", "key")
def _antijoin_optional(a: Any, b: Any, f: Function) -> Any:
    return st.antijoin(_maybe(a, b), _maybe(b, a), on_left=f, on_right=f)


@place("first_n of optional rows", "ordered", "key")
def _first_n_optional(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.first_n(_maybe(a, b), f, 1, by=g)


@place("group_reduce_flatten of optional rows", "key")
def _group_optional(a: Any, b: Any, f: Function) -> Any:
    return st.group_reduce_flatten(
        _maybe(a, b), by=f, zero=Z, pick_value=st.agg.collect(lambda r: r)
    )


# -- rows, one by one


@place("filter", "bool")
def _filter(a: Any, b: Any, f: Function) -> Any:
    return st.filter(a, f=f)


@place("map", "any")
def _map(a: Any, b: Any, f: Function) -> Any:
    return st.map(a, f=f)


@place("map to several", "scalar", "scalar", "bool")
def _map_to_several(a: Any, b: Any, *fs: Function) -> Any:
    return st.map(a, f=lambda r: tuple(f(r) for f in fs))


@place("map, then filter", "scalar", "bool", "bool")
def _map_then_filter(a: Any, b: Any, f: Function, g: Function, h: Function) -> Any:
    mapped = st.map(a, f=lambda r: (r.x, f(r), g(r), h(r)))
    return st.filter(mapped, f=lambda m: (m[2] | m[3]) & (m[0] >= 0))


@place("map_many", "list")
def _map_many(a: Any, b: Any, f: Function) -> Any:
    return st.map_many(a, f=f)


@place("map_many of several", "int", "int")
def _map_many_of_several(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.map_many(a, f=lambda r: [f(r), g(r)])


@place("explode", "int", "int")
def _explode(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.explode(a, f=lambda r: [((r.s, f(r)), 2), ((r.s, g(r)), -1)])


@place("join_function", "int", "int")
def _join_function(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.join_function(
        a,
        f=lambda r: [
            st.Update(value=f(r), time=_at(g(r)), weight=1),
            st.Update(value=f(r), time=_at(g(r)) + 1, weight=-1),
        ],
    )


@place("temporal_filter", "int", "int")
def _temporal_filter(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.temporal_filter(a, lower=f, upper=g)


# -- groups and order


@place("group_reduce_flatten", "key", "number")
def _group_reduce(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.group_reduce_flatten(a, by=f, zero=_zero(g), pick_value=g)


@place("reduce", "number")
def _reduce(a: Any, b: Any, f: Function) -> Any:
    return st.reduce(a, zero=_zero(f), pick_value=f)


@place("group_reduce_flatten, collected", "key", "any")
def _group_collect(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.group_reduce_flatten(a, by=f, zero=Z, pick_value=st.agg.collect(g))


@place("reduce, collected", "any")
def _collect(a: Any, b: Any, f: Function) -> Any:
    return st.reduce(a, zero=Z, pick_value=st.agg.collect(f))


@place("group by a struct", "scalar", "scalar")
def _group_by_struct(a: Any, b: Any, f: Function, g: Function) -> Any:
    key = lambda r: F.struct(f(r).alias("u"), g(r).alias("v"))  # noqa: E731
    return st.group_reduce_flatten(a, by=key, zero=int, pick_value=lambda r: r.x)


@place("group, then distinct", "key", "scalar")
def _per_group(a: Any, b: Any, f: Function, g: Function) -> Any:
    groups: Any = st.group(a, by=f)
    return st.flatten(st.per_group[groups](lambda s: st.distinct(st.map(s, f=g))))


@place("first_n", "ordered")
def _first_n(a: Any, b: Any, f: Function) -> Any:
    return st.first_n(a, f, 2)


@place("first_n, by a key", "key")
def _first_n_of_each(a: Any, b: Any, f: Function) -> Any:
    return st.first_n(a, lambda r: r.x, 1, by=f)


@place("first_n, descending, by a key", "ordered", "key")
def _first_n_by(a: Any, b: Any, f: Function, g: Function) -> Any:
    return st.first_n(a, st.Index.pick(Row, f, ascending=False), 1, by=g)


@place("integrate_indexed", "key")
def _indexed(a: Any, b: Any, f: Function) -> Any:
    kept = st.integrate_indexed(a, indexes=(f,))
    return st.differentiate(st.linear.join(kept, b, on_left=f, on_right=f))


@place("distinct of a map", "any")
def _distinct(a: Any, b: Any, f: Function) -> Any:
    return st.distinct(st.map(a, f=f))


# -- aggregates


def _aggregate(agg: Callable[..., Any], result: Callable[[RowType], Any]) -> Callable[..., Any]:
    def build(a: Any, b: Any, f: Function, *others: Function) -> Any:
        into = made_of(k=int, v=result(type_of(f)))
        return st.aggregate(a, lambda r: r.x % 2, into, v=agg(f, *others))

    return build


def _same(t: RowType) -> Any:
    return annotation(t) | None


def _summed(t: RowType) -> Any:
    bare = t.inner if isinstance(t, Optional) else t
    if isinstance(bare, Atom) and bare.name == "Decimal":
        bare = Atom("Decimal", bare.python, min(38, bare.precision + 10), bare.scale)
    return annotation(bare) | None


def _mean(t: RowType) -> Any:
    bare = t.inner if isinstance(t, Optional) else t
    if isinstance(bare, Atom) and bare.name == "Decimal":
        precision, scale = min(38, bare.precision + 4), min(38, bare.scale + 4)
        return annotation(Atom("Decimal", bare.python, precision, scale)) | None
    return float | None


for _name, _kind, _agg, _result in (
    ("count", "any", st.agg.count, lambda t: int),
    ("sum", "number", st.agg.sum, _summed),
    ("avg", "number", st.agg.avg, _mean),
    ("stddev", "number", st.agg.stddev, lambda t: float | None),
    ("min", "ordered", st.agg.min, _same),
    ("max", "ordered", st.agg.max, _same),
    ("count_distinct", "any", st.agg.count_distinct, lambda t: int),
    ("sum_distinct", "number", st.agg.sum_distinct, _summed),
    ("collect", "key", st.agg.collect, lambda t: st.ZSetPython[annotation(t)]),  # type: ignore[misc]
):
    place(f"aggregate: {_name}", _kind)(_aggregate(_agg, _result))


@place("aggregate: arg_max", "scalar", "ordered")
def _arg_max(a: Any, b: Any, value: Function, order: Function) -> Any:
    into = made_of(k=int, v=_same(type_of(value)))
    return st.aggregate(a, lambda r: r.x % 2, into, v=st.agg.arg_max(order, value))


@place("aggregate: arg_min", "scalar", "ordered")
def _arg_min(a: Any, b: Any, value: Function, order: Function) -> Any:
    into = made_of(k=int, v=_same(type_of(value)))
    return st.aggregate(a, lambda r: r.x % 2, into, v=st.agg.arg_min(order, value))


@place("aggregate: first_n", "scalar", "ordered")
def _agg_first_n(a: Any, b: Any, value: Function, order: Function) -> Any:
    into = made_of(k=int, v=list[annotation(type_of(value))])  # type: ignore[misc]
    return st.aggregate(a, lambda r: r.x % 2, into, v=st.agg.first_n(order, 2, value))


@place("aggregate by", "scalar", "bool")
def _aggregate_by(a: Any, b: Any, f: Function, g: Function) -> Any:
    into = made_of(k=annotation(type_of(f)), c=annotation(type_of(g)), n=int, least=int)
    both = lambda r: (f(r), g(r))  # noqa: E731
    return st.aggregate(a, both, into, n=st.agg.count(), least=st.agg.min(lambda r: r.x))


# -- what the builders need


def type_of(f: Function) -> RowType:
    """The type of what a function of `Row` gives."""
    return row_expr(f, ROW).type


def annotation(t: RowType) -> Any:
    """A type as it is written in a class of rows."""
    if isinstance(t, Optional):
        return annotation(t.inner) | None
    if isinstance(t, ZSetOf):
        return st.ZSetPython[annotation(t.inner)]  # type: ignore[misc]
    if isinstance(t, ListOf):
        return list[annotation(t.inner)]  # type: ignore[misc]
    if isinstance(t, Struct) and t.python is tuple:
        return tuple[tuple(annotation(f) for _, f in t.fields)]  # type: ignore[misc]
    if isinstance(t, Struct) and t.python is st.Pair:
        left, right = (annotation(f) for _, f in t.fields)
        return st.Pair[left, right]  # type: ignore[valid-type]
    if isinstance(t, Atom) and t.name == "Decimal":
        return Annotated[t.python, st.Precision(t.precision, t.scale)]
    assert isinstance(t, Struct | Atom)
    return t.python


def made_of(**fields: Any) -> type[st.Data]:
    """A class of rows with these fields; the same for the same fields, so that rows compare."""
    return _made_of(tuple(fields.items()))


@functools.cache
def _made_of(fields: tuple[tuple[str, Any], ...]) -> type[st.Data]:
    return type("Made", (st.Data,), {"__annotations__": dict(fields), "__module__": __name__})


def _always(f: Function) -> Function:
    """A condition that is never NULL, so that two of them are of one type."""
    return lambda r: ~(f(r).eqNullSafe(False))


def _at(time: Any) -> Any:
    """A number of a step that is never NULL."""
    return F.coalesce(time, F.lit(0).cast("bigint"))


def _zero(f: Function) -> Any:
    t = type_of(f)
    bare = t.inner if isinstance(t, Optional) else t
    assert isinstance(bare, Atom)
    return bare.python
