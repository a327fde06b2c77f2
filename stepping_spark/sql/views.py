"""The statements of a text, as views, and the tables that they name.

The head of `CREATE … VIEW name … AS` is read here, token by token: its clauses differ between
platforms, and do not affect the rows. The text after AS is parsed as a query, at its own place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.tokenizer_core import Token

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, short
from stepping_spark.base.packages import StructType
from stepping_spark.language.trace import Stream, row_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import Data
from stepping_spark.rows.names import as_named
from stepping_spark.rows.row_class import class_of
from stepping_spark.rows.types import Struct, row_type
from stepping_spark.sql.changes import ChangeFlow, flow_of
from stepping_spark.sql.ctes import used_queries
from stepping_spark.sql.facts import SqlColumns
from stepping_spark.sql.kinds import (
    item_kind,
    kind_of,
    kind_of_struct,
    row_type_of,
    struct_fields,
)
from stepping_spark.sql.operators import kind_written
from stepping_spark.sql.parse import query_of, tokens_of
from stepping_spark.sql.places import failure
from stepping_spark.sql.plan import (
    RelationalPlan,
    Scalar,
    SelectList,
    TableScan,
    WhereClause,
    nodes,
    with_fresh_columns,
)
from stepping_spark.sql.query import QueryScope

_TABLES_KEPT = 1_000
"""The size of caches of tables: views of a project read the same tables."""
_KINDS = ("VIEW", "TABLE")
_BEFORE = ("OR", "REPLACE", "REFRESH", "TEMPORARY", "TEMP", "GLOBAL", "MATERIALIZED", "STREAMING",
           "LIVE", "PRIVATE")  # fmt: skip


@dataclass(frozen=True)
class View:
    """A view: its name, its plan, and the text and comment of its statement."""

    name: str
    plan: RelationalPlan
    at: Scalar
    text: str
    comment: str | None = None

    @property
    def tables(self) -> set[str]:
        """The tables that it reads."""
        return {node.table for node in nodes(self.plan) if isinstance(node, TableScan)}

    @property
    def exprs(self) -> Iterator[Scalar]:
        """The expressions of its plan."""
        return (e for node in nodes(self.plan) for e in node.exprs())

    @property
    def keeps_state(self) -> bool:
        """Whether it has more than maps and filters of a table."""
        return not all(
            isinstance(n, TableScan | SelectList | WhereClause) for n in nodes(self.plan)
        )


@dataclass(frozen=True)
class SqlStatement:
    """A statement: the tree of its query, its text, and the head of a CREATE."""

    tree: Scalar
    text: str
    name: str = ""
    columns: tuple[str, ...] = ()
    comment: str | None = None
    temporary: bool = False
    flow: ChangeFlow | None = None
    has_query: bool = True  # not for a streaming table that is only the target of a flow


class Views:
    """Makes the views of statements in order; later views may read earlier ones."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        self._tables = dict(tables)
        self._known: dict[str, RelationalPlan] = {}
        self._written: dict[str, RelationalPlan] = {}

    def view(self, statement: SqlStatement) -> View:
        """The view of a statement. Raises `SqlError` with its place."""
        tree = statement.tree.copy()
        queries = QueryScope(statement.text, self._tables, self._known, self._written)
        if statement.flow is not None:
            events = queries.table(statement.flow.source.copy(), None)[0]
            tree = statement.flow.query([c.name for c in events.columns])
        plan = queries.planned(tree)
        if statement.columns:
            if len(statement.columns) != len(plan.columns):
                queries.fail(
                    tree,
                    f"view {statement.name} names {len(statement.columns)} columns, and its query "
                    f"has {len(plan.columns)}",
                )
            plan = with_fresh_columns(plan, "", statement.columns)
        if statement.name:
            self._known[statement.name.lower()] = plan
        return View(statement.name, plan, tree, statement.text, statement.comment)

    def cut(self, view: View) -> None:
        """Let later views read a view like a table, instead of composing its plan."""
        name = view.name.lower()
        del self._known[name]  # which may hide a table of this name
        self._tables = {n: table for n, table in self._tables.items() if n.lower() != name}
        self._tables[view.name] = [c.name for c in view.plan.columns]
        self._written[view.name] = view.plan


def views_of(statements: Sequence[SqlStatement], tables: Mapping[str, Sequence[str]]) -> list[View]:
    """The views of statements. The views that read a view share its state.

    A temporary view is no result: it is composed into each of its readers.
    """
    views = Views(tables)
    by_name: dict[str, View] = {}
    for statement in statements:
        view = views.view(statement)
        if statement.temporary:
            continue
        if view.name.lower() in by_name:
            if not view.name:
                again = "the text has several SELECTs without a name"
                raise failure(view.text, view.at, again, "write CREATE VIEW name AS before each")
            again = f"the text makes view {view.name} twice"
            raise failure(view.text, view.at, again, "give one of them another name")
        by_name[view.name.lower()] = view
        if view.name:
            views.cut(view)
    if not by_name:
        raise failure(
            statements[0].text,
            statements[0].tree,
            "all views of the text are temporary, so it has no result",
            "leave out TEMPORARY",
        )
    return [*by_name.values()]


def tables_in(statements: Iterable[SqlStatement]) -> list[str]:
    """The names of tables that statements read, without their own views; in any case, once."""
    names: dict[str, str] = {}
    views: set[str] = set()
    for statement in statements:
        for node in tables_of(statement.tree):
            if node.name.lower() not in views:
                names.setdefault(node.name.lower(), node.name)
        views.add(statement.name.lower())
    return list(names.values())


def tables_of(tree: Scalar, ctes: frozenset[str] = frozenset()) -> Iterator[exp.Table]:
    """The tables and views that a query names, without queries of its WITH.

    Tables that only unread queries of WITH name are left out.

    A query of WITH sees those before it, so `WITH orders AS (SELECT * FROM orders) …` reads a table
    `orders`. A name with a schema is always a table.
    """
    with_ = tree.args.get("with_")
    if with_ is not None:
        for cte in used_queries(tree, with_):
            names = {cte.alias.lower()}
            yield from tables_of(cte.this, ctes | names if with_.args.get("recursive") else ctes)
            ctes |= names
    if (
        isinstance(tree, exp.Table)
        and isinstance(tree.this, exp.Identifier)
        and (tree.args.get("db") or tree.name.lower() not in ctes)
    ):
        yield tree
    for child in tree.iter_expressions():
        if child is not with_:
            yield from tables_of(child, ctes)


def statements_of(text: str) -> list[SqlStatement]:
    """The statements of a text."""
    statements: list[SqlStatement] = []
    tokens: list[Token] = []
    for token in tokens_of(text, text):
        if token.token_type is not TokenType.SEMICOLON:
            tokens.append(token)
        elif tokens:
            statements.append(_statement(tokens, text))
            tokens = []
    statements += [_statement(tokens, text)] if tokens else []
    return _with_targets(statements)


def _with_targets(statements: list[SqlStatement]) -> list[SqlStatement]:
    """The statements without declarations of streaming tables that are targets of flows."""
    flows = {s.name.lower() for s in statements if s.flow is not None}
    for s in statements:
        if not s.has_query and s.name.lower() not in flows:
            reason = f"TABLE {s.name} has no query: there is no AS"
            raise failure(s.text, None, reason, _SHAPE)
    queries = [s for s in statements if s.has_query]
    names = [s.name.lower() for s in queries if s.name]
    for s in queries:
        if s.flow is not None and names.count(s.name.lower()) > 1:
            remedy = "write UNION ALL of the events in a view, and one flow from it"
            raise failure(s.text, s.flow.source, f"{s.name} has several flows", remedy)
    return queries


_SHAPE = "write CREATE MATERIALIZED VIEW name AS SELECT …"


def _statement(tokens: list[Token], text: str) -> SqlStatement:
    before = "\n".join(c.strip() for c in tokens[0].comments).strip() or None
    if tokens[0].text.upper() != "CREATE":
        tree = query_of(_at_its_place(text, tokens), text)
        return SqlStatement(tree, text, comment=before)
    definition = _Head(tokens, text).statement()
    return definition if definition.comment else replace(definition, comment=before)


def _at_its_place(text: str, tokens: list[Token]) -> str:
    """The text of tokens, padded with lines and spaces to its place in the whole text."""
    start, end = tokens[0].start, tokens[-1].end + 1
    before = "".join(c if c == "\n" else " " for c in text[:start])
    return before + text[start:end]


class _Head:
    """The head of a CREATE statement."""

    def __init__(self, tokens: list[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.at = 1

    def statement(self) -> SqlStatement:
        """The statement; raises `SqlError` if it makes no view."""
        words = set()
        while self._word() in _BEFORE:
            words.add(self._take())
        kind = self._take()
        if kind == "FLOW":
            return self._flow()
        if kind not in _KINDS:
            self._fail(f"CREATE {kind} makes no view")
        if self._word() == "IF":
            self.at += 3
        name = self._name()
        columns = self._columns() if self._word() == "(" else ()
        comment = None
        depth = 0
        while depth or self._word() != "AS":
            if not depth and self._words(3) == ["FLOW", "AUTO", "CDC"]:
                return self._changes(name, 3)
            if self.at >= len(self.tokens) and "STREAMING" in words:
                return SqlStatement(exp.Null(), self.text, name, has_query=False)
            if self.at >= len(self.tokens):
                self._fail(f"{kind} {name} has no query: there is no AS")
            word = self._word()
            if word == "COMMENT" and not depth:
                comment = self.tokens[self.at + 1].text
            depth += (word == "(") - (word == ")")
            self.at += 1
        query_tokens = self.tokens[self.at + 1 :]
        if not query_tokens:
            self._fail(f"{kind} {name} has no query after AS")
        temporary = bool(words & {"TEMPORARY", "TEMP", "PRIVATE"})
        tree = query_of(_at_its_place(self.text, query_tokens), self.text)
        return SqlStatement(tree, self.text, name, columns, comment, temporary)

    def _flow(self) -> SqlStatement:
        """CREATE FLOW … AS AUTO CDC INTO target FROM …"""
        self._name()
        if self._word() == "COMMENT":
            self.at += 2
        if self._words(4) != ["AS", "AUTO", "CDC", "INTO"]:
            remedy = "write CREATE FLOW … AS AUTO CDC INTO …, or a view with UNION ALL"
            raise failure(self.text, None, "CREATE FLOW is of AUTO CDC only", remedy)
        self.at += 4
        return self._changes(self._name(), 0)

    def _changes(self, name: str, skipped: int) -> SqlStatement:
        """The rest of an AUTO CDC statement, from FROM on."""
        flow_tokens = self.tokens[self.at + skipped :]
        flow = flow_of(flow_tokens, self.text, self.tokens[0].start)
        return SqlStatement(flow.tree, self.text, name, flow=flow)

    def _words(self, count: int) -> list[str]:
        return [t.text.upper() for t in self.tokens[self.at : self.at + count]]

    def _word(self) -> str:
        return self.tokens[self.at].text.upper() if self.at < len(self.tokens) else ""

    def _take(self) -> str:
        word = self._word()
        self.at += 1
        return word

    def _name(self) -> str:
        """The name of the view, without a schema."""
        name = self.tokens[self.at].text
        self.at += 1
        while self._word() == ".":
            name = self.tokens[self.at + 1].text
            self.at += 2
        return name

    def _columns(self) -> tuple[str, ...]:
        """The names in parentheses; their types, comments and constraints are ignored."""
        names, depth, expected = [], 0, False
        while True:
            word = self._word()
            if not word:
                self._fail("a list of columns does not end")
            depth += (word == "(") - (word == ")")
            if expected and word != "CONSTRAINT":
                names.append(self.tokens[self.at].text)
            expected = depth == 1 and word in ("(", ",")
            self.at += 1
            if not depth:
                return tuple(names)

    def _fail(self, reason: str) -> None:
        raise failure(self.text, None, reason, _SHAPE)


@dataclass(frozen=True)
class SqlTable:
    """A table: the class or a stream of its rows, and its columns with their Spark types."""

    row: RowType
    python: Any  # the row class; None for a stream
    columns: SqlColumns
    stream: Any = None

    def narrowed(self, read: Collection[str]) -> SqlTable:
        """The table with a row class of only these columns, but at least one."""
        fields = {path[0]: n for n, (path, _) in self.columns.items() if path}
        chosen = [f for f, n in fields.items() if n in read] or list(fields)[:1]
        if len(chosen) == len(fields):
            return self
        body = {"__annotations__": {f: self.python.__annotations__[f] for f in chosen}}
        cls: type[Data] = type(self.python.__name__, (Data,), body)
        return _with_kinds(cls, {n: kind for n, (_, kind) in self.columns.items()}, cls.__name__)


ColumnNames: TypeAlias = "tuple[tuple[str, tuple[str, ...]], ...]"
"""The names of the columns of tables, by table: plans depend on nothing else of tables."""


def column_names(tables: Mapping[str, SqlTable]) -> ColumnNames:
    """The names of the columns of tables."""
    return tuple((name, tuple(table.columns)) for name, table in tables.items())


def table_of(name: str, argument: Any) -> SqlTable:
    """A table from a row class, a schema, a DDL string, a DataFrame, a source or a stream."""
    if isinstance(argument, SqlTable):
        return argument
    where = f"{user_line()}: table {name}"
    if isinstance(argument, Stream):
        return _of_row(row_of(argument, "sql"), None, where, argument)
    if isinstance(argument, str):
        return _of_kinds(_of_ddl(argument, where), name)
    if isinstance(argument, pa.Schema):
        return _of_arrow(argument, name)
    schema = getattr(argument, "schema", argument)  # of a DataFrame
    if isinstance(schema, StructType):
        fields = schema.fields
        kinds = tuple((f.name, f.dataType.simpleString(), f.nullable) for f in fields)
        return _of_kinds(kinds, name)
    if isinstance(argument, type) and issubclass(argument, Data):
        return _of_class(argument, where)
    source = argument.source() if hasattr(argument, "source") else argument
    if hasattr(source, "schema") and hasattr(source, "close"):
        try:
            return _of_arrow(as_named(source.schema(), argument), name)
        finally:
            source.close()
    raise CompileError(
        f"{where}: expected a row class, a schema of Spark or Arrow, a DDL string, a DataFrame, a "
        f"source of a pipeline, or a stream of a query; found {short(argument)}"
    )


_Columns = tuple[tuple[str, str, bool], ...]
"""The columns of a table: name, Spark type, and whether it is nullable."""


def _of_ddl(text: str, where: str) -> _Columns:
    """The columns of a DDL string."""
    remedy = "write each column with its type, as in 'id BIGINT, name STRING'"
    try:
        columns = _columns_said(text)
    except sqlglot.errors.ParseError as e:
        found = [repr(str(error["highlight"])) for error in e.errors if error.get("highlight")]
        at = f", from {found[0]} on" if found else ""
        raise CompileError(f"{where}: {text!r} is no DDL{at}; {remedy}") from None
    if not columns:
        raise CompileError(f"{where}: the DDL {text!r} has no columns with a type; {remedy}")
    _check_once([n for n, _, _ in columns], f"{where}: the DDL {text!r}")
    return columns


def _check_once(columns: Sequence[str], where: str) -> None:
    """Raise `CompileError` if two columns have one name; case does not count, as in Spark."""
    names = [n.lower() for n in columns]
    twice = next((n for n in columns if names.count(n.lower()) > 1), None)
    if twice is not None:
        raise CompileError(f"{where} has the column {twice!r} twice; leave one out")


@functools.lru_cache(_TABLES_KEPT)
def _columns_said(text: str) -> _Columns:
    columns = []
    for column in _definitions(text):
        kinds = [c.kind for c in column.args.get("constraints") or ()]
        collation = next((k for k in kinds if isinstance(k, exp.CollateColumnConstraint)), None)
        required = any(
            isinstance(k, exp.NotNullColumnConstraint) and not k.args.get("allow_null")
            for k in kinds
        )
        kind = kind_written(column.args["kind"])
        if collation is not None and collation.this.name.upper() != "UTF8_BINARY":
            kind = f"{kind} collate {collation.this.name}"
        columns.append((column.name, kind, not required))
    return tuple(columns)


def _definitions(text: str) -> list[exp.ColumnDef]:
    """The columns of a table, or of a struct, whose types may be behind colons."""
    texts = f"CREATE TABLE t ({text})", f"CAST(t AS STRUCT<{text}>)"
    try:
        table = sqlglot.parse_one(texts[0], read="spark").this.expressions
    except sqlglot.errors.ParseError:
        if ":" not in text:
            raise
        table = []
    if not any(isinstance(e, exp.ColumnDef) for e in table) and ":" in text:
        table = sqlglot.parse_one(texts[1], read="spark").args["to"].expressions
    return [e for e in table if isinstance(e, exp.ColumnDef)]  # others are constraints


_TEXT = re.compile(r"\b(var)?char\(\d+\)")  # strings to Spark, of any length


@functools.lru_cache(_TABLES_KEPT)
def _of_kinds(columns: _Columns, name: str) -> SqlTable:
    _check_once([n for n, _, _ in columns], f"{user_line()}: table {name}: the schema")
    kinds = {n: _TEXT.sub("string", kind) for n, kind, _ in columns}
    schema = pa.schema([pa.field(n, _arrow_type(kinds[n]), null) for n, _, null in columns])
    return _with_kinds(_class_of(schema, name), kinds, name)


def _arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column; an opaque one if rows cannot hold its values."""
    try:
        return row_type_of(kind, nullable=True).arrow
    except (TypeError, ValueError):  # a decimal of more than 38 digits is the latter
        return pa.opaque(pa.null(), kind, "Spark")


_NARROW = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.float32(): "float",
}
"""The Spark types of numbers that are narrower than the types of rows."""


def _of_arrow(schema: pa.Schema, name: str) -> SqlTable:
    _check_once(schema.names, f"{user_line()}: table {name}: the schema")
    cls = _class_of(schema, name)
    kinds = {n: kind for n, (_, kind) in _of_class(cls, name).columns.items()}
    kinds |= {f.name: _narrowed(kinds[f.name], f.type) for f in schema if f.name in kinds}
    return _with_kinds(cls, {f.name: kinds.get(f.name, str(f.type)) for f in schema}, name)


def _narrowed(kind: str, t: Any) -> str:
    """The kind of a column of an Arrow type, from that of its row type.

    Rows have wider numbers than their table may have, at any depth, and names that Python allows.
    """
    if isinstance(t, pa.StructType):
        parts = zip(t, struct_fields(kind), strict=True)
        return kind_of_struct([(f.name, _narrowed(of, f.type)) for f, (_, of) in parts])
    if isinstance(t, pa.ListType | pa.LargeListType):
        return f"array<{_narrowed(item_kind(kind), t.value_type)}>"
    return _NARROW.get(t, kind)


def _with_kinds(cls: type[Data], kinds: Mapping[str, str], name: str) -> SqlTable:
    """The table of a row class and all its columns; the class has those that rows can hold."""
    row_table = _of_class(cls, name)
    places = {n: path for n, (path, _) in row_table.columns.items()}
    columns = {n: (places.get(n), kind) for n, kind in kinds.items() if n}
    return SqlTable(row_table.row, row_table.python, columns)


def _of_class(cls: type[Data], where: str) -> SqlTable:
    row_class: Any = cls
    return _of_row(row_type(row_class), cls, where, None)


def _of_row(row: RowType, cls: Any, where: str, stream: Any) -> SqlTable:
    if not isinstance(row, Struct):
        raise CompileError(
            f"{where}: rows that are {row} have no columns; st.map them to a st.Data first"
        )
    named = row.column_names
    columns = {named.get(n, n): ((n,), kind_of(t)) for n, t in row.fields}
    return SqlTable(row, cls, columns, stream)


def _class_of(schema: pa.Schema, table: str) -> type[Data]:
    """The class of the rows of a table, without columns that rows cannot hold."""
    name = "".join(part.capitalize() for part in table.split("_")) or "Row"
    try:
        return class_of(schema, name)
    except TypeError as e:
        raise CompileError(f"{user_line()}: table {table}: {e}") from None
