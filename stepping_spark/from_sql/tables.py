"""The tables that a text names: the row class of each, and where its columns are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.from_sql.kinds import kind_of, row_type_of
from stepping_spark.packages import StructType
from stepping_spark.query.trace import Stream, row_of
from stepping_spark.rows.atoms import RowType, short
from stepping_spark.rows.data import Data
from stepping_spark.rows.row_class import class_of
from stepping_spark.rows.types import Struct, row_type


@dataclass(frozen=True)
class Table:
    """A table: the class of its rows, or a stream of them; its columns and their Spark types."""

    row: RowType
    python: Any  # the row class; None for a stream
    columns: Mapping[str, tuple[tuple[str, ...], str]]
    stream: Any = None


def table_of(name: str, given: Any) -> Table:
    """A table from a row class, a schema, a DDL string, a DataFrame, a source or a stream."""
    where = f"{user_line()}: table {name}"
    if isinstance(given, Stream):
        return _of_row(row_of(given, "sql"), None, where, given)
    if isinstance(given, str):
        return _of_kinds(_of_ddl(given, where), name)
    if isinstance(given, pa.Schema):
        return _of_arrow(given, name)
    schema = getattr(given, "schema", given)  # of a DataFrame
    if isinstance(schema, StructType):
        kinds = [(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields]
        return _of_kinds(kinds, name)
    if isinstance(given, type) and issubclass(given, Data):
        return _of_class(given, where)
    source = given.source() if hasattr(given, "source") else given
    if hasattr(source, "schema") and hasattr(source, "close"):
        try:
            return _of_arrow(source.schema(), name)
        finally:
            source.close()
    raise CompileError(
        f"{where}: expected a row class, a schema of Spark or Arrow, a DDL string, a DataFrame, a "
        f"source of a pipeline, or a stream of a query; found {short(given)}"
    )


def _of_ddl(text: str, where: str) -> list[tuple[str, str, bool]]:
    """The columns of a DDL string: name, Spark type, and whether it may be NULL."""
    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({text})", read="spark")
    except sqlglot.errors.ParseError as e:
        raise CompileError(f"{where}: {text!r} is no DDL: {e}") from None
    found = []
    for column in tree.find_all(exp.ColumnDef):
        kinds = [c.kind for c in column.args.get("constraints") or ()]
        required = any(
            isinstance(k, exp.NotNullColumnConstraint) and not k.args.get("allow_null")
            for k in kinds
        )
        found.append((column.name, column.args["kind"].sql("spark").lower(), not required))
    if not found:
        raise CompileError(f"{where}: the DDL {text!r} has no columns")
    return found


def _of_kinds(columns: list[tuple[str, str, bool]], name: str) -> Table:
    fields = [pa.field(n, row_type_of(kind, null).arrow, null) for n, kind, null in columns]
    table = _of_class(class_of(pa.schema(fields), _class_name(name)), name)
    kinds = {n: kind.replace(" ", "") for n, kind, _ in columns}
    known = {n: (path, kinds.get(n, kind)) for n, (path, kind) in table.columns.items()}
    return Table(table.row, table.python, known)


_NARROW = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.float32(): "float",
}
"""The Spark types of numbers that are narrower than those of rows."""


def _of_arrow(schema: pa.Schema, name: str) -> Table:
    table = _of_class(class_of(schema, _class_name(name)), name)
    narrow = {f.name: _NARROW[f.type] for f in schema if f.type in _NARROW}
    known = {n: (path, narrow.get(n, kind)) for n, (path, kind) in table.columns.items()}
    return Table(table.row, table.python, known)


def _of_class(cls: type[Data], where: str) -> Table:
    made: Any = cls
    return _of_row(row_type(made), cls, where, None)


def _of_row(row: RowType, cls: Any, where: str, stream: Any) -> Table:
    if not isinstance(row, Struct):
        raise CompileError(
            f"{where}: rows that are {row} have no columns; st.map them to a st.Data first"
        )
    named = row.column_names
    columns = {named.get(n, n): ((n,), kind_of(t)) for n, t in row.fields}
    return Table(row, cls, columns, stream)


def _class_name(table: str) -> str:
    return "".join(part.capitalize() for part in table.split("_")) or "Row"
