"""From a text to a query function, or to the streams of a query that is being compiled."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.from_sql.columns import Column, Expr, ref
from stepping_spark.from_sql.emit import Emitter
from stepping_spark.from_sql.parse import failure
from stepping_spark.from_sql.plan import OneSource, Project
from stepping_spark.from_sql.relation import fields_of
from stepping_spark.from_sql.rules import optimized
from stepping_spark.from_sql.tables import Table, table_of
from stepping_spark.from_sql.views import View, tables_in, views_of
from stepping_spark.query.primitives import map as map_
from stepping_spark.query.trace import Stream
from stepping_spark.rows.atoms import Column as Named
from stepping_spark.rows.atoms import short
from stepping_spark.rows.data import Data
from stepping_spark.zsets.spark import ZSet

__all__ = ["sql"]


def sql(text: Any, /, *, to: type[Data] | None = None, **tables: Any) -> Any:
    """See `stepping_spark.from_sql.sql`."""
    text = text if isinstance(text, str) else _text_of(text)
    known = {name: table_of(name, given) for name, given in tables.items()}
    streams = {name: t.stream for name, t in known.items() if t.stream is not None}
    if streams and len(streams) < len(known):
        rest = ", ".join(name for name in known if name not in streams)
        raise CompileError(
            f"{user_line()}: sql: {', '.join(streams)} is a stream, and {rest} is not; inside of a "
            "query, give streams for all tables"
        )
    if streams:
        return _emitted(_views(text, known), known, streams, text, to)
    given = {name.lower() for name in known}
    missing = [name for name in tables_in(text) if name.lower() not in given]
    if missing:
        return _unbound(text, known, missing, to)
    return _function(text, known, to)


def _text_of(given: Any) -> str:
    """The text of an object that has one: a query of sqlframe, or an expression of ibis."""
    if hasattr(given, "sql"):
        found = given.sql(dialect="spark")
        return "; ".join(found) if isinstance(found, list) else str(found)
    if type(given).__module__.startswith("ibis."):
        ibis = importlib.import_module("ibis")
        return str(ibis.to_sql(given, dialect="pyspark"))
    raise CompileError(
        f"{user_line()}: sql takes the text of a query, or an object with a method sql(dialect=…), "
        f"found {short(given)}"
    )


def _views(text: str, tables: Mapping[str, Table]) -> list[View]:
    views = views_of(text, {name: list(t.columns) for name, t in tables.items()})
    if not views:
        raise CompileError(f"{user_line()}: sql: the text has no query; write SELECT …")
    return views


def _emitted(
    views: list[View],
    tables: Mapping[str, Table],
    streams: Mapping[str, Stream],
    text: str,
    to: type[Data] | None,
) -> Any:
    """The streams of the views' rows."""
    emitter = Emitter(text, {n: (s, tables[n].columns) for n, s in streams.items()})
    made = [_named(emitter, v, text, to) for v in views]
    return made[0] if len(made) == 1 else tuple(made)


def _named(emitter: Emitter, view: View, text: str, to: type[Data] | None) -> Any:
    """The rows of a view, as a class whose columns have the view's names."""
    columns = view.plan.columns
    _check_names(view, text)
    if to is None:
        names = fields_of(columns)
        cls: Any = _row_class(view.name, columns, names)
    else:
        cls, names = to, _fields_for(to, view, text)
    plan = optimized(view.plan)
    values: tuple[Expr, ...] = tuple(ref(c) for c in columns)
    if isinstance(plan, Project):
        values, plan = tuple(dict(plan.items)[c] for c in columns), plan.source
    relation = emitter.relation(plan)

    def row_of(row: Any) -> Any:
        pairs = zip(names, values, strict=True)
        return cls(**{n: relation.value(e, row).column for n, e in pairs})

    return map_(relation.stream, f=row_of, name=view.name or None)


def _check_names(view: View, text: str) -> None:
    """Raise an error for two columns of one name, unless they are the same."""
    plan = view.plan
    while isinstance(plan, OneSource) and plan.keeps_columns:
        plan = plan.source
    items = dict(plan.items) if isinstance(plan, Project) else {}
    seen: dict[str, Column] = {}
    for c in view.plan.columns:
        other = seen.setdefault(c.name.lower(), c)
        if other is not c and (c not in items or items[c] != items[other]):
            raise failure(
                text,
                view.at,
                f"two columns of the result are called {c.name}",
                f"give one another name: … AS {c.name}_2",
            )


def _row_class(name: str, columns: tuple[Column, ...], names: list[str]) -> type[Data]:
    """A class with a field of any type for each column."""
    annotations: dict[str, Any] = {}
    taken: set[str] = set()
    for n, c in zip(names, columns, strict=True):
        variable = TypeVar(n)  # type: ignore[misc]
        named = n == c.name or c.name in taken
        annotations[n] = variable if named else Annotated[variable, Named(c.name)]
        taken.add(c.name)
    made: type[Data] = type(name or "Row", (Data,), {"__annotations__": annotations})
    return made


def _fields_for(to: type[Data], view: View, text: str) -> list[str]:
    """The field of a class for each column, by name."""
    fields = {to.__row_columns__.get(f, f).lower(): f for f in to.__row_fields__()}
    columns = [c.name.lower() for c in view.plan.columns]
    if sorted(fields) != sorted(columns):
        there = ", ".join(c.name for c in view.plan.columns)
        raise failure(
            text,
            view.at,
            f"the columns are {there}, and the fields of {to.__name__} are {', '.join(fields)}",
            "name the columns like the fields, with AS",
        )
    return [fields[c] for c in columns]


def _unbound(
    text: str, tables: Mapping[str, Table], missing: list[str], to: type[Data] | None
) -> Callable[..., Any]:
    """A query whose tables are not all known yet: a pipeline has their sources."""
    line, first = user_line(), missing[0]

    def query() -> Any:
        raise CompileError(
            f"{line}: sql: the columns of table {first} are not known; say them, {first}=Row or "
            f"{first}='id BIGINT, …', or give the query to st.Pipeline with a source for {first}"
        )

    def with_tables(given: Mapping[str, Any]) -> Callable[..., Any]:
        known = {**tables, **{n: table_of(n, given[n]) for n in missing if n in given}}
        rest = [n for n in missing if n not in given]
        return _unbound(text, known, rest, to) if rest else _function(text, known, to)

    made: Any = query
    made.with_tables = with_tables
    made.__doc__ = text.strip()
    return query


def _function(text: str, tables: Mapping[str, Table], to: type[Data] | None) -> Callable[..., Any]:
    """A query function whose parameters are the tables that the views read."""
    views = _views(text, tables)
    used = [name for name in tables if any(name in view.tables for view in views)]

    def query(*streams: Any) -> Any:
        return _emitted(views, tables, dict(zip(used, streams, strict=True)), text, to)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    annotations: dict[str, Any] = {}
    for name in used:
        row: Any = tables[name].python
        annotations[name] = ZSet[row]
    made: Any = query
    made.__signature__ = inspect.Signature(
        [inspect.Parameter(n, kind, annotation=a) for n, a in annotations.items()]
    )
    made.__annotations__ = annotations
    made.__name__ = made.__qualname__ = views[-1].name or "query"
    made.__doc__ = text.strip()
    made.rows = {name: tables[name].python for name in used}
    return query
