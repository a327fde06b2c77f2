"""`st.linear.aggregate`: from the requested aggregates to the vertices of their plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.graph import grows
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    Collate,
    Distinct,
    Flatten,
    Listed,
    MakeSet,
    Map,
    Top,
)
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Literal,
    Opaque,
    PythonCall,
    tupled,
    whole,
)
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Index, Key
from stepping_spark.expressions.portable import one_if_known
from stepping_spark.language import agg
from stepping_spark.language.agg import Aggregate, Collect
from stepping_spark.language.algebra import beside, under
from stepping_spark.language.call_errors import call_of
from stepping_spark.language.grouping import GroupingSets, Groups, groups_of
from stepping_spark.language.reduce_planner import Planner
from stepping_spark.language.reductions import (
    ONE,
    AggregateCall,
    First,
    Frequent,
    Gathered,
    Reduction,
    Sums,
)
from stepping_spark.language.sort_orders import sorting_of
from stepping_spark.language.trace import Stream, make, tracer, vertex_of
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.row_class import open_class
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Optional, Struct, row_type, tuple_of
from stepping_spark.zsets.spark import ZSet, ZSetPython


def collated(a: Any, groups: Groups | None, planner: Planner) -> Stream:
    """Rows with the key and the result of each reduction."""
    reduced = [_reduced(a, groups, r, planner.group_size) for r in planner.reductions]
    key_type = INT if groups is None else groups.type
    types = [piece.type for _, _, piece in reduced]
    if len(reduced) == 1:
        ((stream, key_expr, piece),) = reduced
        return make(Map(Build(tuple_of((key_type, *types)), (key_expr, piece))), stream)
    optional = [Optional(t) for t in types]
    rows = tuple_of((key_type, *optional))
    total: Stream | None = None
    for i, (stream, key_expr, piece) in enumerate(reduced):
        pieces = [
            dataclasses.replace(piece, type=t) if i == j else Literal(t, None)
            for j, t in enumerate(optional)
        ]
        mapped = make(Map(Build(rows, (key_expr, *pieces))), stream)
        total = mapped if total is None else make(Add(), total, mapped)
    required = sum(planner.keyed or r.always for r in planner.reductions)
    return make(Collate(required), total)


def _reduced(
    a: Any, groups: Groups | None, r: Reduction, group_size: int | None
) -> tuple[Stream, Expr, Expr]:
    """The result rows of a reduction, and the expressions for their key and their result."""
    keys: tuple[Expr, ...] = (Literal(INT, 0),) if groups is None else groups.keys
    types = tuple_of((keys[0].type, *(e.type for e in r.args)))
    rows, *others = (make(Map(Build(types, (key, *r.args))), a) for key in keys)
    for other in others:
        rows = make(Add(), rows, other)
    key_field = Field(keys[0].type, ("_1",))
    if isinstance(r, First):
        return _first(rows, key_field, r, group_size)
    if isinstance(r, Gathered):
        if r.distinct:
            rows = make(Distinct(), rows)
        return _lists_by_key(rows, key_field, r)
    if isinstance(r, Frequent):
        return _most_frequent(rows, key_field, r, group_size)
    if isinstance(r, Sums) and r.distinct:
        rows = make(Distinct(), rows)
    pick = r.pick
    accumulated = make(Accumulate(None if groups is None else Key(key_field), pick), rows)
    if groups is None:
        stream = make(MakeSet(), accumulated)
        result: Expr = _as_built(pick.type)
        key_expr: Expr = keys[0]
    else:
        stream = make(Flatten(), accumulated)
        result, key_expr = Field(pick.type, ("left",)), Field(groups.type, ("right",))
    if not isinstance(r, Sums):
        result = Build(tuple_of((pick.type,)), (result,))
    return stream, key_expr, result


def _as_built(t: RowType) -> Expr:
    """The row itself, rebuilt from its fields."""
    if not isinstance(t, Struct):
        return whole(t)
    return Build(t, tuple(Field(ft, (n,)) for n, ft in t.fields))


def _first(rows: Stream, key: Field, r: First, group_size: int | None) -> tuple[Stream, Expr, Expr]:
    first = make(Top((key,), r.order, r.n, group_size=group_size), rows)
    if not r.listed:
        return first, key, tupled(*r.values)
    return _lists_by_key(first, key, r)


def _lists_by_key(rows: Stream, key: Field, r: First | Gathered) -> tuple[Stream, Expr, Expr]:
    """For each key, the list of the values of its rows."""
    (item,) = r.values
    operator = Listed(key, r.order, item)
    t = operator.list_type
    stream = make(operator, rows)
    return stream, Field(key.type, ("right",)), tupled(Field(t, ("left",)))


def _most_frequent(
    rows: Stream, key: Field, r: Frequent, group_size: int | None
) -> tuple[Stream, Expr, Expr]:
    """The most frequent value; NULL only if there is no other."""
    (value,) = r.values
    both = tuple_of((key.type, value.type))
    each = Key(Build(both, (key, value)), (True, True))
    counted = make(Flatten(), make(Accumulate(each, ONE), rows))
    key_field, most = Field(key.type, ("right", "_1")), Field(value.type, ("right", "_2"))
    order = ((one_if_known(most), False), (Field(INT, ("left",)), False), (most, True))
    first = make(Top((key_field,), order, 1, group_size=group_size), counted)
    return first, key_field, tupled(most)


T = TypeVar("T")
R = TypeVar("R")
MANY = 2**31 - 1  # rows of a group: the limit of an array
GROUPING_ID = "grouping_id"


def aggregate(
    a: ZSet[T],
    /,
    by: Index[T, Any] | Callable[[T], Any] | GroupingSets[T] | None,
    into: type[R] | None = None,
    *,
    fields: Mapping[str, Aggregate[T] | Callable[[T], ZSetPython[Any]]] | None = None,
    group_size: int | None = None,
    **aggregates: Aggregate[T] | Callable[[T], ZSetPython[Any]],
) -> ZSet[R]:
    """SELECT by, aggregates FROM a GROUP BY by, of the values of one step. Keeps no state.

    See `st.aggregate`, the incremental form.
    """
    row = _row_of(a)
    where = f"{user_line()}: aggregate"
    for argument, value in (
        ("by", by),
        ("into", into),
        ("fields", fields),
        ("group_size", group_size),
    ):
        if isinstance(value, Aggregate | Collect):
            raise CompileError(
                f"{where}: {argument}= is an argument of aggregate itself, found the aggregate "
                f"st.agg.{'collect' if isinstance(value, Collect) else value.kind}; for a field of "
                f"that name write fields={{{argument!r}: st.agg.…}}"
            )
    check_size(group_size, where)
    target = None
    if into is not None:
        target = target_of(into, "each aggregate and each part of the key", where)
    by_field = _by_field(fields, aggregates, where)
    requests = [_request(name, value, row, where) for name, value in by_field.items()]
    groups = groups_of(by, row)
    named = "Row" if target is None else str(target)
    title = f"{target or ''} {'' if groups is None else f'by {groups.shown}'}".strip()
    note = tuple(filter(None, (title, *map(str, requests))))
    doubted = _doubted(groups, requests)
    texts = {request.field: request.call for request in requests}
    stream, groups, requests = _mapped(a, row, groups, requests)
    planner = Planner(groups is not None, group_size)
    for request in requests:
        if request.kind != GROUPING_ID:
            planner.add(request)
    planner.ensure_row()
    monotonic = grows(vertex_of(a, "aggregate"))
    parts = tuple(r.part(monotonic, group_size) for r in planner.reductions)
    key_text, scope = "" if groups is None else groups.shown, tracer().scope()
    tracer().reductions.append(ReducePlan(key_text, named, parts, user_line(), scope))
    pieces = collated(stream, groups, planner)
    values = _values(requests, planner, groups)
    if target is None:
        target = _type_of_row(values, groups, where)
    filled = _fields(values, groups, target, doubted, where, texts)
    return cast("ZSet[R]", make(Map(Build(target, filled), note=note), pieces))


def _row_of(a: object) -> RowType:
    t = vertex_of(a, "aggregate").type
    if not isinstance(t, ZSetType):
        raise CompileError(f"{user_line()}: aggregate takes a ZSet, found {t}")
    return t.row


def _by_field(fields: Any, aggregates: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The requested aggregates, by the field that each fills."""
    if fields is not None and not isinstance(fields, Mapping):
        raise CompileError(
            f"{where}: fields={fields!r}: expected aggregates by the names of the fields that they "
            "fill; write fields={'n': st.agg.count()}"
        )
    fields = fields or {}
    twice = [name for name in fields if name in aggregates]
    if twice:
        raise CompileError(
            f"{where}: {twice[0]!r} is in fields= and is an argument too; leave one out"
        )
    if not fields and not aggregates:
        raise CompileError(f"{where}: no aggregate is asked for; write n=st.agg.count()")
    return {**fields, **aggregates}


def check_size(group_size: Any, where: str) -> None:
    """Raise `CompileError` if it is neither a number of rows nor None."""
    if group_size is not None and (type(group_size) is not int or group_size < 1):
        raise CompileError(
            f"{where}: group_size={group_size!r}: expected about how many rows the largest group "
            "has, as an int from 1; leave it out where you do not know"
        )


def target_of(into: Any, of: str, where: str) -> Struct:
    """The row type of an aggregate or a window, from `into`."""
    try:
        t = row_type(into)
    except TypeError as e:
        raise CompileError(f"{where}: into: {e}") from None
    if not isinstance(t, Struct) or t.python is tuple:
        raise CompileError(f"{where}: into={into!r}: expected a st.Data with a field for {of}")
    return t


# -- the requested aggregates, as expressions


def _request(name: str, argument: Any, row: RowType, where: str) -> AggregateCall:
    if isinstance(argument, Collect):
        return AggregateCall(
            name, "collect", row_expr(argument.f, row, to=argument.to), (), 1, where
        )
    call = call_of(argument, agg, "st.agg")
    if call is not None:
        raise CompileError(
            f"{where}: {name}= is a function that is not called; write {name}={call}"
        )
    if not isinstance(argument, Aggregate):
        raise CompileError(
            f"{where}: {name}={argument!r}: expected an aggregate, such as "
            "st.agg.sum(lambda a: a.x)"
        )
    _check_options(name, argument, where)
    order: tuple[Sorting, ...] = ()
    value, other = (
        None if f is None else row_expr(f, row) for f in (argument.value, argument.other)
    )
    if argument.order is not None and argument.kind in ORDERED:
        order = sorting_of(argument.order, row, f"the order of {name}")
    elif argument.order is not None:
        order = (Sorting(row_expr(argument.order, row), True, True),)
    if value is None and argument.kind not in ("count", GROUPING_ID):
        value = whole(row)
    return AggregateCall(
        name, argument.kind, value, order, argument.n, where, other, argument.option
    )


# With an order, as for a window.
ORDERED = (
    "first_n",
    "collect_list",
    "string_agg",
    "string_agg_distinct",
)


def _check_options(name: str, argument: Aggregate[Any], where: str) -> None:
    option = argument.option
    if argument.kind == "first_n" and (type(argument.n) is not int or not 1 <= argument.n <= MANY):
        raise CompileError(
            f"{where}: {name}: n should be an int from 1 to {MANY}, found {argument.n!r}"
        )
    if argument.kind == "percentile":
        check_share(option, f"{where}: {name}")
    if argument.kind in ("string_agg", "string_agg_distinct") and not isinstance(option, str):
        raise CompileError(f"{where}: {name}: the separator should be a str, found {option!r}")


def check_share(p: object, where: str) -> None:
    """Raise `CompileError` if it is not the fraction of a percentile."""
    if not isinstance(p, int | float) or type(p) is bool or not 0 <= p <= 1:
        raise CompileError(
            f"{where}: a percentile is a number from 0 to 1, found {p!r}; write 0.9 for the 90th"
        )


@dataclass(frozen=True)
class Together:
    """Several Python functions as one."""

    functions: tuple[Callable[[Any], Any], ...]

    def __call__(self, row: Any) -> tuple[Any, ...]:
        return tuple(f(row) for f in self.functions)


def _mapped(
    a: Any, row: RowType, groups: Groups | None, requests: list[AggregateCall]
) -> tuple[Any, Groups | None, list[AggregateCall]]:
    """The stream and its expressions, after a map that computes Python functions as fields."""
    exprs = [e for x in requests for e in (x.value, x.other, *(s.expr for s in x.order))]
    calls = list(dict.fromkeys(e for e in exprs if isinstance(e, PythonCall)))
    if not calls:
        return a, groups, requests
    t = tuple_of(c.type for c in calls)
    together = PythonCall(t, Together(tuple(c.function for c in calls)), ", ".join(map(str, calls)))
    stream = make(Map(beside(together, row)), a)

    def moved(e: Expr) -> Expr:
        if isinstance(e, PythonCall):
            return Field(e.type, ("right", f"_{calls.index(e) + 1}"))
        return e.under("left")

    return (
        stream,
        None if groups is None else groups.under("left"),
        [
            dataclasses.replace(
                x,
                value=None if x.value is None else moved(x.value),
                other=None if x.other is None else moved(x.other),
                order=under(x.order, [moved(s.expr) for s in x.order]),
            )
            for x in requests
        ],
    )


# -- the fields of the result


def _doubted(groups: Groups | None, requests: list[AggregateCall]) -> tuple[bool, ...]:
    """For the parts of the key, then the aggregates: whether they are nullable only to Spark.

    Spark declares many values nullable that never are NULL. Then a field without None is accepted,
    and its values are checked in every step.
    """
    parts = () if groups is None else groups.parts
    return tuple(isinstance(e, Opaque) for e in (*parts, *(x.value for x in requests)))


def _values(
    requests: list[AggregateCall], planner: Planner, groups: Groups | None
) -> dict[str, Expr]:
    """The requested aggregates, over rows with the key and the partial results."""
    exprs = {
        name: show((f"_{planner.reductions.index(r) + 2}",)) for name, r, show in planner.shown
    }
    for request in requests:
        if request.kind == GROUPING_ID:
            if groups is None or not groups.several:
                raise CompileError(
                    f"{request.where}: {request.field}: grouping_id() is of by=st.rollup(…), "
                    "st.cube(…) or st.grouping_sets(…), found another key; leave it out"
                )
            exprs[request.field] = groups.grouping_id
    return {request.field: exprs[request.field] for request in requests}


def _fields(
    values: dict[str, Expr],
    groups: Groups | None,
    target: Struct,
    doubted: tuple[bool, ...],
    where: str,
    texts: Mapping[str, str],
) -> tuple[Expr, ...]:
    """The expressions for the fields of a row; `texts`: the aggregates as the user wrote them."""
    names = [n for n, _ in target.fields]
    unknown = [n for n in values if n not in names]
    if unknown:
        raise CompileError(
            f"{where}: {target} has no field {unknown[0]!r}; it has {', '.join(names)}"
        )
    left = [n for n in names if n not in values]
    parts = [] if groups is None else groups.fields()
    whole = groups is None or [t for n, t in target.fields if n in left] == [groups.type]
    if not whole and len(parts) == 1 and isinstance(parts[0][1].type, Struct):
        parts = [(n, Field(t, ("_1", n))) for n, t in parts[0][1].type.fields]
        doubted = (*((False,) * len(parts)), *doubted[1:])
    if len(parts) != len(left):
        raise CompileError(f"{where}: {_misfit(target, left, [n for n, _ in parts])}")
    named = [n for n, _ in parts if n in left]
    free_fields = iter([n for n in left if n not in named])
    filled = [name if name in named else next(free_fields) for name, _ in parts]
    values = dict(zip(filled, (part for _, part in parts), strict=True)) | values
    if groups is not None and len(groups.parts) == len(filled):
        texts = {**dict(zip(filled, map(str, groups.parts), strict=True)), **texts}
    believed = {name for name, doubt in zip(values, doubted, strict=True) if doubt}
    for name, t in target.fields:
        value_type = values[name].type
        if name in believed and isinstance(value_type, Optional) and not isinstance(t, Optional):
            values[name] = Call(value_type.inner, "known", (values[name],))
    return tuple(coerced(values[n], t, n, where, texts.get(n, "")) for n, t in target.fields)


def _type_of_row(values: dict[str, Expr], groups: Groups | None, where: str) -> Struct:
    """The type of rows that have the parts of the key and the aggregates, without a class."""
    parts = {} if groups is None else dict(groups.fields())
    for name in parts:
        if name in values:
            raise CompileError(
                f"{where}: a part of the key and an aggregate are both called {name}; give the "
                "aggregate another name"
            )
        if not name.isidentifier() or name.startswith("_"):
            raise CompileError(
                f"{where}: a part of the key, {name}, has no name that a field may have; give "
                "into= a class with a field for it"
            )
    return open_row([(n, e.type) for n, e in (parts | values).items()])


def open_row(fields: Sequence[tuple[str, RowType]]) -> Struct:
    """The type of rows without a class of their own."""
    return Struct("Row", tuple(fields), open_class(tuple(n for n, _ in fields)))


def _misfit(target: Struct, left: list[str], parts: list[str]) -> str:
    key = f"the key gives {', '.join(parts)}" if parts else "there is no key"
    if len(left) > len(parts):
        missing = [n for n in left if n not in parts] or left
        return (
            f"nothing fills {', '.join(missing)} of {target} ({key}); say each by an aggregate, "
            f"{missing[0]}=st.agg.…, or by a part of the key"
        )
    spare = [n for n in parts if n not in left] or parts
    return (
        f"{key}, and {target} has {', '.join(left) or 'nothing'} left for it; "
        f"give {', '.join(spare)} a field, or leave it out of the key"
    )


def coerced(e: Expr, t: RowType, name: str, where: str, text: str = "") -> Expr:
    """The expression for a field, converted to the field's type."""
    if isinstance(e.type, Optional) and not isinstance(t, Optional):
        raise CompileError(
            f"{where}: field {name!r} is {t}, and what fills it may be NULL (of no rows or of "
            f"NULLs); declare it {t} | None"
        )
    return coerce(e, t, f"{where}: field {name!r}", text.replace("`", ""))
