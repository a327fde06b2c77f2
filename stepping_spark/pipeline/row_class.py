"""`st.row_class`: a row class with the columns of a source, of a table, or of a schema."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, short
from stepping_spark.base.packages import DataFrame, StructType, raised
from stepping_spark.base.packages import types as T
from stepping_spark.pipeline.delta import DeltaTable
from stepping_spark.pipeline.files import Files
from stepping_spark.pipeline.files.directory import HIDDEN
from stepping_spark.rows.names import as_named
from stepping_spark.rows.row_class import class_of, code_of, field_name
from stepping_spark.spark.session import first_line, get_session
from stepping_spark.spark.types import arrow_schema_of


def row_class(of: Any, *, name: str = "Row", required: Collection[str] = ()) -> type[Any]:
    """A row class with a field for each column of a table.

    `of` is a source, such as `st.DeltaTable(path)`; the path of a Delta table or of a directory of
    Parquet, CSV or JSON files; a schema of Arrow or of Spark; a table or a DataFrame; or a DDL text
    ("id INT, name STRING"), which Spark parses. `name` is the name of the class in messages. A
    field may be None if its column is nullable, as all columns of most tables are; `required` names
    columns that are never NULL. A column whose name is no name in Python gets a field of a similar
    name (`class_` for `class`), as with `st.Column`. A column without a name, or of a type that a
    row cannot hold, is left out; the docstring of the class lists such columns. `stepping-spark
    source class` prints the class as code, for type checkers and readers.

    Raises `InputError` if the table does not exist, and `SourceError` if it cannot be read.

    >>> Order = st.row_class(pa.schema([("id", pa.int64()), ("class", pa.string())]), name="Order")
    >>> Order(id=1, class_=None)
    Order(id=1, class_=None)
    >>> def total(orders: st.ZSet[Order]) -> st.ZSet[int | None]:
    ...     return st.map(orders, f=lambda o: o.id)
    >>> len(st.compile(total).inputs)
    1
    """
    try:
        return class_of(_schema_of(of), name, required)
    except TypeError as e:
        raise InputError(f"{user_line()}: {e}") from None


def code_of_table(of: Any, called: str, name: str | None, required: Collection[str]) -> str:
    """The class as Python code; without a `name`, it is named after the table."""
    chosen = name or "".join(part.capitalize() for part in field_name(called).split("_"))
    return code_of(row_class(of, name=chosen, required=required))


def _schema_of(of: Any) -> pa.Schema:
    if isinstance(of, pa.Schema):
        return of
    if isinstance(of, pa.Table):
        return of.schema
    if isinstance(of, DataFrame):
        return arrow_schema_of(of.schema)
    if isinstance(of, StructType):
        return arrow_schema_of(of)
    if isinstance(of, str | os.PathLike):
        text = os.fspath(of)
        if isinstance(of, str) and "://" not in text and " " in text and not Path(text).exists():
            return _of_ddl(text)
        return _of_source(table_at(text))
    return _of_source(of)


def table_at(path: str) -> Any:
    """The table at a path: of Delta if it has a log, otherwise a directory of files."""
    if "://" in path or Path(path, "_delta_log").is_dir():
        return DeltaTable(path)
    if Path(path).is_dir():
        return Files(path, _kind_in(Path(path)))
    raise InputError(
        f"{user_line()}: there is no table at {path!r}; give the path of a Delta table or of a "
        "directory of files, or a source such as st.Postgres(url, table=…)"
    )


def _kind_in(folder: Path) -> str:
    """The kind of the files in a directory, by the suffixes of their names."""
    names = [f.name for f in folder.iterdir() if not f.name.startswith(HIDDEN)]
    for kind, ends in _ENDS.items():
        if any(name.removesuffix(".gz").endswith(ends) for name in names):
            return kind
    return "parquet"


_ENDS = {"csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}


def _of_source(argument: Any) -> pa.Schema:
    """The columns of a source, which is opened and closed."""
    method = getattr(argument, "source", None)
    source = method() if callable(method) and not isinstance(argument, type) else argument
    schema = getattr(source, "schema", None)
    if not callable(schema):
        raise InputError(
            f"{user_line()}: {short(argument)} does not say its columns; give a table such as "
            "st.DeltaTable(path), a schema of Arrow or Spark, or a DDL text"
        )
    source.open(pa.schema([]))
    try:
        return as_named(schema(), argument)
    finally:
        source.close()


def _of_ddl(text: str) -> pa.Schema:
    get_session()  # Spark parses it
    try:
        parsed: Any = T.StructType.fromDDL(text)
    except raised.PySparkException as e:
        raise InputError(f"{user_line()}: {text!r} is no DDL: {first_line(e)}") from e
    return arrow_schema_of(parsed)
