"""From a text to a query function, or to the streams of a query that is being compiled."""

from __future__ import annotations

import importlib
import inspect
import keyword
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias, TypeVar

from sqlglot import exp

from stepping_spark.base.callsite import Line, standing_at, user_line
from stepping_spark.base.errors import CompileError, short
from stepping_spark.language.primitives import map as map_
from stepping_spark.language.trace import Stream, tracer, translating
from stepping_spark.language.trace import row_of as stream_row
from stepping_spark.rows.atoms import Column as Named
from stepping_spark.rows.data import Data
from stepping_spark.rows.row_class import field_name, open_class
from stepping_spark.rows.types import unwrap
from stepping_spark.sql.clock import clock_of
from stepping_spark.sql.emit import Emitter, distinct
from stepping_spark.sql.facts import Facts
from stepping_spark.sql.places import failure, line_of
from stepping_spark.sql.plan import (
    OneSource,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    column_of,
    nodes,
    ref,
)
from stepping_spark.sql.relation import PlacedStream, fields_of
from stepping_spark.sql.rules import columns_of_plan, optimized
from stepping_spark.sql.views import (
    ColumnNames,
    SqlStatement,
    SqlTable,
    View,
    column_names,
    statements_of,
    table_of,
    tables_in,
    tables_of,
    views_of,
)
from stepping_spark.zsets.spark import ZSet

__all__ = ["sql"]

LONGEST = 1_000_000
"""The most characters of a text. Longer texts are lists of values, and would take seconds."""

DEPTH = 5_000
"""The recursion limit while a text is read: about ten calls for each nested expression."""


def sql(text: Any, /, *, to: type[Data] | None = None, **tables: Any) -> Any:
    """See `stepping_spark.sql.sql`."""
    if isinstance(tables.get("whole_rows"), bool):
        raise CompileError(
            f"{user_line()}: sql: whole_rows is an argument of st.compile and st.Pipeline; give it "
            "there"
        )
    text = text if isinstance(text, str) else _text_of(text)
    if len(text) > LONGEST:
        raise CompileError(
            f"{user_line()}: sql: the text has {len(text):,} characters, more than {LONGEST:,}; "
            "put long lists of values into a table, and join it"
        )
    with _not_too_deep(), translating("query"):
        return _query_of(text, tables, to)


def _query_of(text: str, tables: Mapping[str, Any], to: type[Data] | None) -> Any:
    statements = statements_of(text)
    read_tables = tables_in(statements)
    places = {node.name: node for s in statements for node in tables_of(s.tree)}
    for table in read_tables:
        if not table.isidentifier() or keyword.iskeyword(table):
            called = field_name(table)
            reason = f"no input can have the name {table!r}"
            remedy = f"read FROM {called}, and give the table as {called}, whatever its own name is"
            raise failure(text, places[table], reason, remedy)
    sql_tables = {name: table_of(name, table) for name, table in tables.items()}
    streams = {name: t.stream for name, t in sql_tables.items() if t.stream is not None}
    if streams and len(streams) < len(sql_tables):
        others = ", ".join(name for name in sql_tables if name not in streams)
        raise CompileError(
            f"{user_line()}: sql: {', '.join(streams)} is a stream, and {others} is not; inside of "
            "a query, give streams for all tables"
        )
    if not statements:
        raise CompileError(f"{user_line()}: sql: the text has no query; write SELECT …")

    planned: dict[ColumnNames, list[View]] = {}

    def views(tables: Mapping[str, SqlTable]) -> list[View]:
        names = column_names(tables)
        if names not in planned:
            planned[names] = views_of(statements, dict(names))
        return planned[names]

    if streams:
        return _emitted(views(sql_tables), sql_tables, streams, to)
    name = _function_name(statements)

    def query(tables: Mapping[str, SqlTable]) -> Callable[..., Any]:
        written = views(tables)
        used, before = set[str](), set[str]()
        for view in written:
            used |= view.tables - before
            before.add(view.name)

        def streams_of(streams: Mapping[str, Stream]) -> Any:
            with _not_too_deep(), translating("query"):
                return _emitted(written, tables, streams, to)

        return function_of({n: t for n, t in tables.items() if n in used}, name, text, streams_of)

    def read(tables: Mapping[str, SqlTable]) -> ColumnsRead:
        return columns_of_views(views(tables))

    names = {name.lower() for name in sql_tables}
    missing = [name for name in read_tables if name.lower() not in names]
    if not missing:
        return query(sql_tables)
    made_later = {s.name for s in statements if s.name in missing}
    return unbound(QueryText(name, text, query, read, places, made_later), sql_tables, missing)


def _function_name(statements: list[SqlStatement]) -> str:
    """The name of the query function: that of its only view, if it has one."""
    names = [s.name for s in statements if not s.temporary]
    return "views" if len(names) > 1 else "".join(names) or "query"


@contextmanager
def _not_too_deep() -> Iterator[None]:
    """A context with a higher recursion limit, for nested expressions."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEPTH))
    try:
        yield
    except RecursionError:
        raise CompileError(
            f"{user_line()}: sql: an expression is nested too deeply; write it with fewer "
            "parentheses, a long chain of OR as IN (…), or in parts, with WITH"
        ) from None
    finally:
        sys.setrecursionlimit(before)


def _text_of(query: Any) -> str:
    """The text of a query object: a query of sqlframe, or an expression of ibis."""
    if type(query).__module__.startswith("ibis."):  # its tables have another method `sql`
        ibis = importlib.import_module("ibis")
        return str(ibis.to_sql(query, dialect="pyspark"))
    if hasattr(query, "sql"):
        texts = query.sql(dialect="spark")
        return "; ".join(texts) if isinstance(texts, list) else str(texts)
    raise CompileError(
        f"{user_line()}: sql takes the text of a query, or an object with a method sql(dialect=…), "
        f"found {short(query)}"
    )


def _emitted(
    views: list[View],
    tables: Mapping[str, SqlTable],
    streams: Mapping[str, Stream],
    to: type[Data] | None,
) -> Any:
    """The streams of the views."""
    tables_of_views = {
        name: replace(tables[name], stream=stream) for name, stream in streams.items()
    }
    clock = clock_of(e for view in views for e in view.exprs)
    outputs = []
    for view in views:
        if to is None:
            tables_of_views[view.name] = made_of(view, tables_of_views, clock)
            outputs.append(tables_of_views[view.name].stream)
        else:  # other views read the columns without the types of this class
            outputs.append(made_of(view, tables_of_views, clock, to).stream)
            unnamed = replace(view, name="")
            tables_of_views[view.name] = made_of(unnamed, tables_of_views, clock)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def made_of(
    view: View,
    tables: Mapping[str, SqlTable],
    clock: str,
    to: type[Data] | None = None,
) -> SqlTable:
    """A view as a table: the stream of its rows, and the places of the view's columns.

    `clock` is the Spark type of the step's time in the circuit.
    """
    name = view.name or "query"
    with standing_at(line_of([view.at], name)), translating(name):
        inputs = {n: (t.stream, t.columns) for n, t in tables.items()}
        emitter = Emitter(view.text, inputs, clock, name)
        facts = emitter.facts()
        plan = optimized(view.plan, facts, whole_rows=tracer().whole_rows)
        _check_held(plan, facts, view.text)
        return _made_of(view, plan, emitter, to)


def _made_of(view: View, plan: RelationalPlan, emitter: Emitter, to: type[Data] | None) -> SqlTable:
    columns = view.plan.columns
    _check_names(view)
    if to is None:
        names = fields_of(columns)
        cls: Any = _row_class(view.name, columns, names)
    else:
        cls, names = to, _fields_for(to, view)
    repeated = plan.source if isinstance(plan, SelectDistinct) else None
    rows = _ViewRows.of(plan if repeated is None else repeated, columns, emitter)
    stream = rows.as_rows(cls, names)
    if repeated is not None and rows.are_kept(stream, names):
        stream = distinct(stream)
    elif repeated is not None:  # the class may make different rows equal
        rows = _ViewRows.of(plan, columns, emitter)
        stream = rows.as_rows(cls, names)
    if view.name:
        stream = tracer().record(stream.vertex, view.name)
    if view.comment:
        tracer().comments[stream.vertex] = view.comment
    kinds = map(rows.relation.kind, rows.values)
    places = {c.name: ((n,), k) for c, n, k in zip(columns, names, kinds, strict=True)}
    return SqlTable(stream_row(stream, "sql"), None, places, stream)


@dataclass(frozen=True)
class _ViewRows:
    """The columns of a view, as expressions on a relation."""

    relation: PlacedStream
    values: tuple[Scalar, ...]

    @classmethod
    def of(
        cls, plan: RelationalPlan, columns: tuple[PlanColumn, ...], emitter: Emitter
    ) -> _ViewRows:
        """The columns of a plan; a last select list becomes expressions on its source."""
        if isinstance(plan, SelectList):
            items = dict(plan.items)
            return cls(emitter.relation(plan.source), tuple(items[c] for c in columns))
        return cls(emitter.relation(plan), tuple(map(ref, columns)))

    def as_rows(self, cls: Any, names: Sequence[str]) -> Any:
        """The rows of the view."""

        def row_of(row: Any) -> Any:
            pairs = zip(names, self.values, strict=True)
            return cls(**{n: self.relation.storable(e, row).column for n, e in pairs})

        return map_(self.relation.stream, f=row_of)

    def are_kept(self, stream: Any, names: Sequence[str]) -> bool:
        """Whether rows of a class have the values unchanged, so that distinct rows stay so."""
        types = dict(stream_row(stream, "sql").fields)  # type: ignore[attr-defined]
        pairs = zip(names, self.values, strict=True)
        return all(unwrap(types[n]) == unwrap(self.relation.type(e)) for n, e in pairs)


def _check_held(plan: RelationalPlan, facts: Facts, text: str) -> None:
    """Raise an error if the plan reads a column whose type rows cannot hold."""
    kinds = {c: t.kind for c, t in facts.of_tables(plan).items() if not t.storable}
    exprs = (e for node in nodes(plan) for e in node.exprs()) if kinds else ()
    for node in (column for e in exprs for column in e.find_all(exp.Column)):
        c = column_of(node)
        if c in kinds:
            reason = f"column {c.name} is {kinds[c]}, and rows cannot hold that"
            ddl = f"state the types of its table as DDL ({c.name} STRING), or "
            all_null = ddl if kinds[c] == "null" else ""
            raise failure(
                text, node, reason, f"{all_null}leave it out, as in SELECT * EXCEPT ({c.name})"
            )


def _check_names(view: View) -> None:
    """Raise an error for two columns with one name, unless they are the same expression."""
    plan = view.plan
    while isinstance(plan, OneSource) and plan.keeps_columns:
        plan = plan.source
    items = dict(plan.items) if isinstance(plan, SelectList) else {}
    seen: dict[str, PlanColumn] = {}
    for c in view.plan.columns:
        other = seen.setdefault(c.name.lower(), c)
        if other is not c and (c not in items or items[c] != items[other]):
            named = re.sub(r"\W+", "_", c.name).strip("_")
            raise failure(
                view.text,
                view.at,
                f"two columns of the result are called {c.name}",
                f"give one another name: … AS {named or 'x'}_2",
            )


def _row_class(name: str, columns: tuple[PlanColumn, ...], names: list[str]) -> type[Data]:
    """A generic row class with a field for each column."""
    if not name and names == [c.name for c in columns]:
        return open_class(tuple(names))
    annotations: dict[str, Any] = {}
    seen: set[str] = set()
    for n, c in zip(names, columns, strict=True):
        variable = TypeVar(n)  # type: ignore[misc]
        named = n == c.name or c.name in seen
        annotations[n] = variable if named else Annotated[variable, Named(c.name)]
        seen.add(c.name)
    called = field_name(name) if name else "Result"
    row_class: type[Data] = type(called, (Data,), {"__annotations__": annotations})
    return row_class


def _fields_for(to: type[Data], view: View) -> list[str]:
    """The field of a class for each column, by name."""
    fields = {to.__row_columns__.get(f, f).lower(): f for f in to.__row_fields__()}
    columns = [c.name.lower() for c in view.plan.columns]
    if sorted(fields) != sorted(columns):
        listed = ", ".join(c.name for c in view.plan.columns)
        raise failure(
            view.text,
            view.at,
            f"the columns are {listed}, and the fields of {to.__name__} are {', '.join(fields)}",
            "name the columns like the fields, with AS",
        )
    return [fields[c] for c in columns]


ColumnsRead: TypeAlias = "dict[str, set[str]]"
"""The names of columns that are read, by table."""


def columns_of_views(views: Iterable[View]) -> ColumnsRead:
    """The columns of tables that views read."""
    read: ColumnsRead = {}
    for view in views:
        for name, columns in columns_of_plan(view.plan).items():
            read.setdefault(name, set()).update(columns)
    return read


def with_sources(
    queries: Sequence[Any], sources: Sequence[Mapping[str, Any]], whole: Collection[str] | None
) -> list[Any]:
    """See `stepping_spark.sql.with_sources`."""
    tables: dict[str, SqlTable] = {}
    for query, given in zip(queries, sources, strict=True):
        for name in query.takes(given):
            tables[name] = tables.get(name) or table_of(name, given[name])
    read = [query.columns_read(tables) for query in queries]
    for name, table in tables.items():
        if whole is not None and name not in whole:
            columns = (of_query.get(name, ()) for of_query in read)
            tables[name] = table.narrowed(set().union(*columns))
    return [query.with_tables(tables) for query in queries]


@dataclass(frozen=True)
class QueryText:
    """A query in SQL: `query` makes its function of all tables, and `read` the columns it reads.

    `places` has a place of each table in the text, and `made_later` the tables that are views of
    the text, which stand after a view that reads them.
    """

    name: str
    text: str
    query: Callable[[Mapping[str, SqlTable]], Callable[..., Any]]
    read: Callable[[Mapping[str, SqlTable]], ColumnsRead]
    places: Mapping[str, Scalar] = field(default_factory=dict)
    made_later: Collection[str] = ()

    def missing(self, table: str, line: Line) -> CompileError:
        """The error for a table without columns."""
        reason = f"the columns of table {table} are not known"
        remedy = (
            f"say them, {table}=Row or {table}='id BIGINT, …', or give the query to st.Pipeline "
            f"with a source for {table}"
        )
        if table in self.made_later:
            reason = f"{table} is read before the text makes this view"
            remedy = "write each view after those that it reads; no view reads itself"
        if table in self.places:
            return failure(self.text, self.places[table], reason, remedy)
        return CompileError(f"{line}: sql: {reason}; {remedy}")


def as_given(name: str, given: Collection[str]) -> str:
    """The name of a table among given ones: the same name, or one that differs in case only."""
    others = [] if name in given else [g for g in given if g.lower() == name.lower()]
    return others[0] if len(others) == 1 else name


def unbound(
    text: QueryText, tables: Mapping[str, SqlTable], missing: list[str]
) -> Callable[..., Any]:
    """A query with tables of unknown columns, which `with_sources` binds to those of sources."""
    line = user_line()

    def unknown() -> Any:
        raise text.missing(missing[0], line)

    def takes(given: Mapping[str, Any]) -> list[str]:
        return [n for n in (as_given(m, given) for m in missing) if n in given]

    def with_tables(given: Mapping[str, Any]) -> Callable[..., Any]:
        sql_tables = {**tables, **{n: table_of(n, given[n]) for n in takes(given)}}
        still_missing = [n for n in missing if as_given(n, given) not in given]
        if still_missing:
            return unbound(text, sql_tables, still_missing)
        return text.query(sql_tables)

    def columns_read(given: Mapping[str, SqlTable]) -> ColumnsRead:
        return text.read({**tables, **given}) if len(takes(given)) == len(missing) else {}

    function: Any = unknown
    function.__name__ = function.__qualname__ = text.name
    function.missing = missing
    function.made_later = text.made_later
    function.takes = takes
    function.columns_read = columns_read
    function.with_tables = with_tables
    function.__doc__ = text.text.strip()
    return unknown


def function_of(
    tables: Mapping[str, SqlTable],
    name: str,
    doc: str,
    streams_of: Callable[[Mapping[str, Stream]], Any],
) -> Callable[..., Any]:
    """A query function whose parameters are tables, from a function that makes its streams."""

    def query(*streams: Any) -> Any:
        return streams_of(dict(zip(tables, streams, strict=True)))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    annotations: dict[str, Any] = {}
    for table, sql_table in tables.items():
        row: Any = sql_table.python
        annotations[table] = ZSet[row]
    function: Any = query
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(n, kind, annotation=a) for n, a in annotations.items()]
    )
    function.__annotations__ = annotations
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc.strip()
    function.rows = {table: sql_table.python for table, sql_table in tables.items()}
    return query
