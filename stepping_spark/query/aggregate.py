"""`st.linear.aggregate`: from the aggregates that are asked for to the vertices of their plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Literal,
    Opaque,
    PythonCall,
    coerce,
    whole,
)
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Index, Key, key_of
from stepping_spark.graph.monotone import grows
from stepping_spark.graph.operators import (
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
from stepping_spark.graph.reduce_plan import ReducePlan
from stepping_spark.query.agg import Aggregate, Collect
from stepping_spark.query.primitives import beside
from stepping_spark.query.reductions import Asked, First, Planner, Reduction, Sums
from stepping_spark.query.trace import Stream, make, tracer, vertex_of
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Optional, Struct, row_type, tuple_of
from stepping_spark.zsets.spark import ZSet, ZSetPython

T = TypeVar("T")
R = TypeVar("R")
MANY = 2**31 - 1  # rows of a group: what an array holds


def aggregate(
    a: ZSet[T],
    by: Index[T, Any] | Callable[[T], Any] | None,
    into: type[R],
    *,
    fields: Mapping[str, Aggregate[T] | Callable[[T], ZSetPython[Any]]] | None = None,
    **aggregates: Aggregate[T] | Callable[[T], ZSetPython[Any]],
) -> ZSet[R]:
    """A row for each group of a value: the aggregates, and the key. Keeps no state.

    See `st.aggregate`, which is the same of all changes so far.
    """
    row = _row_of(a)
    where = f"{user_line()}: aggregate"
    for argument, given in (("by", by), ("into", into), ("fields", fields)):
        if isinstance(given, Aggregate | Collect):
            raise CompileError(
                f"{where}: {argument}= is an argument of aggregate itself, found the aggregate "
                f"st.agg.{'collect' if isinstance(given, Collect) else given.kind}; for a field of "
                f"that name write fields={{{argument!r}: st.agg.…}}"
            )
    target = _target(into, where)
    wanted = _by_field(fields, aggregates, where)
    asked = [_asked(name, given, row, where) for name, given in wanted.items()]
    key = None if by is None else key_of(by, row, "`by` of aggregate")
    note = (f"{target} by {key}" if key else str(target), *map(str, asked))
    doubted = _doubted(key, asked)
    stream, key, asked = _mapped(a, row, key, asked)
    planner = Planner(keyed=key is not None)
    for one in asked:
        planner.add(one)
    planner.ensure_row()
    monotonic = grows(vertex_of(a, "aggregate"))
    parts = tuple(r.part(monotonic) for r in planner.reductions)
    plan = ReducePlan("" if key is None else str(key), str(target), parts)
    tracer().reductions.append(plan)
    pieces = _collated(stream, key, planner)
    filled = _fields(planner, key, target, doubted, where)
    return cast("ZSet[R]", make(Map(Build(target, filled), note=note), pieces))


def _row_of(a: object) -> RowType:
    t = vertex_of(a, "aggregate").type
    if not isinstance(t, ZSetType):
        raise CompileError(f"{user_line()}: aggregate takes a ZSet, found {t}")
    return t.row


def _by_field(fields: Any, aggregates: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What is asked for, by the field that it fills."""
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


def _target(into: Any, where: str) -> Struct:
    try:
        t = row_type(into)
    except TypeError as e:
        raise CompileError(f"{where}: into: {e}") from None
    if not isinstance(t, Struct) or t.python is tuple:
        raise CompileError(
            f"{where}: into={into!r}: expected a st.Data with a field for each aggregate and each "
            "part of the key"
        )
    return t


# -- what is asked for, as expressions


def _asked(name: str, given: Any, row: RowType, where: str) -> Asked:
    if isinstance(given, Collect):
        return Asked(name, "collect", row_expr(given.f, row, to=given.to), (), 1, where)
    if not isinstance(given, Aggregate):
        raise CompileError(
            f"{where}: {name}={given!r}: expected an aggregate, such as st.agg.sum(lambda a: a.x)"
        )
    order: tuple[tuple[Expr, bool], ...] = ()
    value = None if given.value is None else row_expr(given.value, row)
    if given.kind == "first_n":
        key = key_of(given.order, row, f"the index of {name}")
        order = tuple(zip(key.parts, key.ascending, strict=True))
        if type(given.n) is not int or not 1 <= given.n <= MANY:
            raise CompileError(
                f"{where}: {name}: n should be an int from 1 to {MANY}, found {given.n!r}"
            )
    elif given.order is not None:
        order = ((row_expr(given.order, row), True),)
    if value is None and given.kind != "count":
        value = whole(row)
    return Asked(name, given.kind, value, order, given.n, where)


@dataclass(frozen=True)
class _All:
    """Several Python functions as one."""

    functions: tuple[Callable[[Any], Any], ...]

    def __call__(self, row: Any) -> tuple[Any, ...]:
        return tuple(f(row) for f in self.functions)


def _mapped(
    a: Any, row: RowType, key: Key | None, asked: list[Asked]
) -> tuple[Any, Key | None, list[Asked]]:
    """The stream and expressions of its rows, after what is Python has been mapped."""
    found = [e for x in asked for e in (x.value, *(e for e, _ in x.order))]
    calls = list(dict.fromkeys(e for e in found if isinstance(e, PythonCall)))
    if not calls:
        return a, key, asked
    t = tuple_of(c.type for c in calls)
    together = PythonCall(t, _All(tuple(c.function for c in calls)), ", ".join(map(str, calls)))
    stream = make(Map(beside(together, row)), a)

    def moved(e: Expr) -> Expr:
        if isinstance(e, PythonCall):
            return Field(e.type, ("right", f"_{calls.index(e) + 1}"))
        return e.under("left")

    if key is not None:
        key = Key(key.expr.under("left"), key.ascending)
    return (
        stream,
        key,
        [
            dataclasses.replace(
                x,
                value=None if x.value is None else moved(x.value),
                order=tuple((moved(e), up) for e, up in x.order),
            )
            for x in asked
        ],
    )


# -- the plan, as vertices


def _collated(a: Any, key: Key | None, planner: Planner) -> Stream:
    """Rows of the key and then a piece for each reduction."""
    made = [_reduced(a, key, r) for r in planner.reductions]
    key_type = INT if key is None else key.type
    types = [piece.type for _, _, piece in made]
    if len(made) == 1:
        ((stream, key_expr, piece),) = made
        return make(Map(Build(tuple_of((key_type, *types)), (key_expr, piece))), stream)
    optional = [Optional(t) for t in types]
    rows = tuple_of((key_type, *optional))
    total: Stream | None = None
    for i, (stream, key_expr, piece) in enumerate(made):
        pieces = [
            dataclasses.replace(piece, type=t) if i == j else Literal(t, None)
            for j, t in enumerate(optional)
        ]
        mapped = make(Map(Build(rows, (key_expr, *pieces))), stream)
        total = mapped if total is None else make(Add(), total, mapped)
    required = sum(planner.keyed or not isinstance(r, First) for r in planner.reductions)
    return make(Collate(required), total)


def _reduced(a: Any, key: Key | None, r: Reduction) -> tuple[Stream, Expr, Expr]:
    """The rows that a reduction gives, and over them the key and the piece."""
    key_expr: Expr = Literal(INT, 0) if key is None else key.expr
    types = tuple_of((key_expr.type, *(e.type for e in r.args)))
    rows = make(Map(Build(types, (key_expr, *r.args))), a)
    own = Field(key_expr.type, ("_1",))
    if isinstance(r, First):
        return _first(rows, own, r)
    if isinstance(r, Sums) and r.distinct:
        rows = make(Distinct(), rows)
    pick = r.pick
    accumulated = make(Accumulate(None if key is None else Key(own), pick), rows)
    if key is None:
        made = make(MakeSet(), accumulated)
        kept: Expr = _as_built(pick.type)
        key_kept: Expr = key_expr
    else:
        made = make(Flatten(), accumulated)
        kept, key_kept = Field(pick.type, ("left",)), Field(key.type, ("right",))
    if not isinstance(r, Sums):
        kept = Build(tuple_of((pick.type,)), (kept,))
    return made, key_kept, kept


def _as_built(t: RowType) -> Expr:
    """The row itself, made again of its fields."""
    if not isinstance(t, Struct):
        return whole(t)
    return Build(t, tuple(Field(ft, (n,)) for n, ft in t.fields))


def _first(rows: Stream, key: Field, r: First) -> tuple[Stream, Expr, Expr]:
    first = make(Top((key,), r.order, r.n), rows)
    if not r.listed:
        return first, key, Build(tuple_of(e.type for e in r.values), r.values)
    (item,) = r.values
    made = make(Listed(key, r.order, item), first)
    t = Listed(key, r.order, item).list_type
    return made, Field(key.type, ("right",)), Build(tuple_of((t,)), (Field(t, ("left",)),))


# -- the fields of the row that is wanted


def _doubted(key: Key | None, asked: list[Asked]) -> tuple[bool, ...]:
    """Whether Spark alone says that they may be NULL: parts of the key, then what is asked for.

    Spark says it of much that never is. Then a field without None is believed, and what it gets is
    looked at in every step.
    """
    parts = () if key is None else key.parts
    return tuple(isinstance(e, Opaque) for e in (*parts, *(x.value for x in asked)))


def _fields(
    planner: Planner, key: Key | None, target: Struct, doubted: tuple[bool, ...], where: str
) -> tuple[Expr, ...]:
    values: dict[str, Expr] = {}
    for name, r, shown in planner.shown:
        piece = planner.reductions.index(r)
        values[name] = shown((f"_{piece + 2}",))
    names = [n for n, _ in target.fields]
    unknown = [n for n in values if n not in names]
    if unknown:
        raise CompileError(f"{where}: {target} has no field {unknown[0]!r}; it has {names}")
    left = [n for n in names if n not in values]
    parts = _key_parts(key)
    whole = [t for n, t in target.fields if n in left] == [key.type] if key is not None else True
    if not whole and len(parts) == 1 and isinstance(parts[0][1].type, Struct):
        parts = [(n, Field(t, ("_1", n))) for n, t in parts[0][1].type.fields]
        doubted = (*((False,) * len(parts)), *doubted[1:])
    if len(parts) != len(left):
        raise CompileError(f"{where}: {_misfit(target, left, [n for n, _ in parts])}")
    named = [n for n, _ in parts if n in left]
    rest = iter([n for n in left if n not in named])
    of_key = {name if name in named else next(rest): part for name, part in parts}
    values = of_key | values
    believed = {name for name, doubt in zip(values, doubted, strict=True) if doubt}
    for name, t in target.fields:
        found = values[name].type
        if name in believed and isinstance(found, Optional) and not isinstance(t, Optional):
            values[name] = Call(found.inner, "known", (values[name],))
    return tuple(_coerced(values[n], t, n, where) for n, t in target.fields)


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


def _key_parts(key: Key | None) -> list[tuple[str, Expr]]:
    """The parts of the key: what each is called, and where it is now."""
    if key is None:
        return []
    if key.parts == (key.expr,):
        return [(str(key.expr).rsplit(".", 1)[-1], Field(key.type, ("_1",)))]
    return [
        (str(p).rsplit(".", 1)[-1], Field(p.type, ("_1", f"_{i}")))
        for i, p in enumerate(key.parts, 1)
    ]


def _coerced(e: Expr, t: RowType, name: str, where: str) -> Expr:
    if isinstance(e.type, Optional) and not isinstance(t, Optional):
        raise CompileError(
            f"{where}: field {name!r} is {t}, and what fills it may be NULL (of no rows or of "
            f"NULLs); declare it {t} | None"
        )
    return coerce(e, t, f"{where}: field {name!r}")
