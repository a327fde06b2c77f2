"""Pipelines without Python: views in SQL or dbt, and tables as texts or in a TOML file."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import click
import msgspec

import stepping_spark as st
from stepping_spark.base.callsite import SqlText
from stepping_spark.cli.loading import naming_target
from stepping_spark.pipeline.views import by_name

T = TypeVar("T")

KINDS = {
    "delta": st.DeltaTable,
    "files": st.Files,
    "iceberg": st.IcebergTable,
    "postgres": st.Postgres,
}
TABLE = "NAME=KIND:ADDRESS"
PLACE = "KIND:ADDRESS"
COLUMNS = "NAME=DDL"
_COLUMNS_OF = "orders='id BIGINT, country STRING'"
_OBJECTS = ("filesystem",)  # arguments that no text can express
_OF_OTHERS = {
    "source": ("key", "changes", "vacuum", "deletion_vectors"),
    "sink": ("order", "diff", "trim", "on_invalid"),
}
"""The arguments of tables that a source ignores, and those that a sink ignores."""
_EXAMPLES = "orders=delta:lake/orders, or revenue=delta:lake/revenue:country with a key"


def pipeline_of(
    file: Path,
    settings: Mapping[str, Any],
    store: str | None,
    sources: Sequence[str],
    columns: Sequence[str],
    sinks: Sequence[str],
) -> st.Pipeline:
    """The pipeline of a file or a dbt project, with tables of the command line.

    `file` is views in SQL, a TOML file, or the folder of a dbt project; `settings` are further
    settings of a TOML file. `columns` has the columns of tables as DDL.
    """
    entries = settings_of(file, settings)
    if store is not None:
        entries["store"] = store
    if "store" not in entries:
        raise click.UsageError(
            f"{file} does not say where the state is; give --store parquet:DIRECTORY or "
            "--store postgresql://user@host/database"
        )
    inputs = _sources(entries, sources)
    stated = _stated(entries, columns, inputs)
    of_views = _merged_tables(entries.get("sinks", {}), sinks, "sink")

    def pipeline() -> st.Pipeline:
        query = query_of(entries, stated)
        read = _read_by(query, inputs, file)
        tables = of_models(getattr(query, "written", {}), of_views, entries.get("into"))
        into = {name: [_table(name, entry, "sink") for entry in of] for name, of in tables.items()}
        options = {name: entries[name] for name in OPTIONS if name in entries}
        return st.Pipeline(query, store=entries["store"], sources=read, into=into, **options)

    return naming_target(file, pipeline)


def graph_of(
    file: Path, settings: Mapping[str, Any], sources: Sequence[str], columns: Sequence[str]
) -> st.Graph[Any, Any]:
    """The circuit of a file or a dbt project; `columns` has the columns of tables as DDL."""
    entries = settings_of(file, settings)
    inputs = _sources(entries, sources)
    stated = _stated(entries, columns, inputs)

    def compiled() -> st.Graph[Any, Any]:
        query = query_of(entries, stated)
        otherwise = f"; or its columns, as --columns {_COLUMNS_OF}"
        read = _read_by(query, inputs, file, otherwise)
        whole_rows = entries.get("whole_rows", False)
        bound: Any = by_name(query, read, None if whole_rows else ())
        graph: st.Graph[Any, Any] = st.compile(bound, whole_rows=whole_rows)
        return graph

    return naming_target(file, compiled)


def settings_of(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pipeline of views in SQL, of a TOML file, or of a dbt project."""
    kind = {".sql": "sql", ".toml": "toml"}.get(file.suffix, "dbt")
    return dict(settings) | (_read(file) if kind == "toml" else {kind: str(file)})


def query_of(entries: Mapping[str, Any], stated: Mapping[str, str]) -> Any:
    """The query function of views in SQL, or of a dbt project; `stated` has columns as DDL."""
    if "dbt" not in entries:
        file = Path(entries["sql"])
        text = SqlText(_text_of(file), file.name, file=str(file))
        query = st.sql(text)
        read = query.takes(stated) if hasattr(query, "takes") else ()
        for name in stated.keys() - read:
            raise click.UsageError(
                f"the columns of {name} are stated, and {file} reads no table {name}; leave them "
                "out, or correct the name"
            )
    else:
        options = {n: entries[n] for n in OF_DBT if n in entries and n != "into"}
        query = st.dbt_project(entries["dbt"], **options)
    return query.with_tables(stated) if hasattr(query, "with_tables") else query


def _stated(
    entries: Mapping[str, Any], columns: Sequence[str], inputs: Collection[str]
) -> dict[str, str]:
    """The columns of sources as DDL, by the names of inputs, in their case."""
    of_file = {
        name: entry[DDL] for name, entry in entries.get("sources", {}).items() if DDL in entry
    }
    for text in columns:
        name, equals, ddl = text.partition("=")
        if not equals:
            raise click.UsageError(f"--columns {text}: expected {COLUMNS}, such as {_COLUMNS_OF}")
        of_file[next((n for n in inputs if n.lower() == name.lower()), name)] = ddl
    return of_file


def _text_of(file: Path) -> str:
    """The text of a file in UTF-8, also with a byte order mark."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise click.UsageError(
            f"{file} is not in UTF-8: byte {e.start:,} is {e.object[e.start]:#04x}; save it so"
        ) from None


def _read_by(
    query: Any, inputs: Mapping[str, Any], file: Path, otherwise: str = ""
) -> dict[str, Any]:
    """The sources that a query reads, without those that only left-out dbt models read."""
    unknown = getattr(query, "missing", ())
    given = {name.lower() for name in query.takes(inputs)} if unknown else set()
    missing = [name for name in unknown if name.lower() not in given]
    if missing:
        name = missing[0]
        if name in query.made_later:
            raise click.UsageError(
                f"{file} reads {name} before it makes this view; write each view after those that "
                "it reads; no view reads itself"
            )
        in_file = f"write [sources.{name}] in it, or " if file.suffix == ".toml" else ""
        raise click.UsageError(
            f"{file} reads {', '.join(missing)}, and there is no source for {name}; {in_file}give "
            f"--source {name}=delta:lake/{name}, or another {TABLE}{otherwise}"
        )
    unread = getattr(query, "unread", ())
    return {name: source for name, source in inputs.items() if name not in unread}


class _Table(TypedDict, total=False):
    """The entries of a table in a TOML file, besides its kind with the address, and its options."""

    key: str | list[str]
    changes: bool
    columns: dict[str, str]
    ddl: str


class _File(TypedDict, total=False):
    """The entries of a TOML file."""

    sql: str
    dbt: str
    store: str
    sources: dict[str, object]
    sinks: dict[str, object]
    whole_rows: bool
    select: list[str]
    exclude: list[str]
    checks: bool
    into: str
    max_versions: int
    max_rows: int
    max_bytes: int
    append_only: list[str]
    strict: bool | list[str]


OPTIONS = ("max_versions", "max_rows", "max_bytes", "append_only", "strict", "whole_rows")
"""The entries of a pipeline in a TOML file, besides its views and tables."""

DDL = "ddl"
"""The entry of a source in a TOML file with its columns and their types."""

OF_DBT = ("select", "exclude", "checks", "into")
"""The entries of a dbt project in a TOML file."""


def _read(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(_text_of(file))
    except tomllib.TOMLDecodeError as e:
        raise click.UsageError(f"{file} is no TOML: {e}") from None
    _check_types(content, _File, str(file))
    for name, table in content.get("sources", {}).items():
        _check_types(table, _Table, f"{file}, [sources.{name}]")
    for name, tables in content.get("sinks", {}).items():
        for table in tables if isinstance(tables, list) else [tables]:
            _check_types(table, _Table, f"{file}, [sinks.{name}]")
    of = [kind for kind in ("sql", "dbt") if kind in content]
    allowed = {
        *of,
        "store",
        "sources",
        "sinks",
        *OPTIONS,
        *(OF_DBT if of == ["dbt"] else ()),
    }
    unknown = [name for name in content if name not in allowed]
    if unknown or len(of) != 1:
        reason = "it says sql and dbt" if of else "it says neither sql = … nor dbt = …"
        if len(of) == 1:
            with_dbt = " without dbt = …" if unknown[0] in OF_DBT else ""
            reason = f"{unknown[0]!r} is not known{with_dbt}"
        else:
            allowed |= {"sql", "dbt", *OF_DBT}
        raise click.UsageError(f"{file}: {reason}; it may say {', '.join(sorted(allowed))}")
    place = file.parent / content[of[0]]
    if not (place.is_file() if of[0] == "sql" else place.is_dir()):
        what = "file" if of[0] == "sql" else "folder"
        raise click.UsageError(f"{file}: {of[0]} = {content[of[0]]!r}: there is no {what} {place}")
    content[of[0]] = str(place)
    return content


def _check_types(content: object, of: Any, where: str) -> None:
    """Refuse entries of another type."""
    try:
        msgspec.convert(content, of)
    except msgspec.ValidationError as e:
        raise click.UsageError(f"{where}: {str(e).replace('$.', '')}") from None


def of_models(
    written: Mapping[str, Sequence[str]],
    sinks: Mapping[str, list[dict[str, Any]]],
    into: str | None,
) -> dict[str, list[dict[str, Any]]]:
    """The sinks of models: the given ones, and tables under `into`, with the models' keys."""
    tables_of = {name: [dict(entry) for entry in tables] for name, tables in sinks.items()}
    for name, key in written.items():
        if into is not None and name not in tables_of:
            tables_of[name] = [_under(into, name)]
        for table in tables_of.get(name, ()):
            if key and "files" not in table:
                table.setdefault("key", list(key))
    return tables_of


def _under(place: str, name: str) -> dict[str, Any]:
    """A table of this name: in a directory, a namespace, or a schema of a database."""
    kind, colon, address = place.partition(":")
    if kind in ("postgresql", "postgres") and address.startswith("//"):
        base, _, schema = place.partition("#")
        return {"postgres": base, "table": name, **({"schema": schema} if schema else {})}
    if kind == "iceberg":
        return {kind: f"{address}.{name}"}
    if not colon or kind not in ("delta", "files"):
        raise click.UsageError(
            f"--into {place}: expected {PLACE}, such as delta:lake, iceberg:shop, files:lake or "
            "postgresql://user@host/database#schema"
        )
    return {kind: f"{address.rstrip('/')}/{name}"}


def _sources(entries: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """The sources of a file and of the command line, by the names of inputs."""
    tables_of = _merged_tables(entries.get("sources", {}), texts, "source")
    for name, tables in tables_of.items():
        if len(tables) > 1:
            raise click.UsageError(
                f"the source {name} is said {len(tables)} times; to read several tables as one, "
                "give each a name, and unite them in a view: SELECT … UNION ALL SELECT …"
            )
    return {name: _table(name, entry, "source") for name, (entry,) in tables_of.items()}


def _merged_tables(
    of_file: Mapping[str, Any], texts: Sequence[str], what: str
) -> dict[str, list[dict[str, Any]]]:
    """The tables of each name; tables of the command line replace tables of the file."""
    parsed: dict[str, list[dict[str, Any]]] = {}
    for text in texts:
        name, table = _parsed(text, what)
        parsed.setdefault(name, []).append(table)
    return {n: of if isinstance(of, list) else [of] for n, of in of_file.items()} | parsed


def _parsed(text: str, what: str) -> tuple[str, dict[str, Any]]:
    """The name and the entries of a table from the command line, as in a TOML file."""
    name, equals, value = text.partition("=")
    kind, colon, address = value.partition(":")
    if kind in ("postgresql", "postgres") and address.startswith("//"):
        return name, _of_postgres(value, what)
    if kind == "postgres":
        return name, _of_postgres(address, what)
    if not equals or not colon or kind not in KINDS:
        raise click.UsageError(
            f"--{what} {text}: expected {TABLE}, such as {_EXAMPLES}; the kinds are "
            f"{', '.join(KINDS)}"
        )
    place, _, key = address.rpartition(":") if what == "sink" else ("", "", "")
    if place and "/" not in key:
        return name, {kind: place, "key": key.split(",")}
    return name, {kind: address}


def _of_postgres(url: str, what: str) -> dict[str, Any]:
    """The entries of postgresql://user@host/database#schema.table; of a sink also #table:key."""
    base, _, table = url.partition("#")
    place, _, key = table.partition(":")
    schema, _, name = place.rpartition(".")
    if not name:
        raise click.UsageError(
            f"--{what} {base}: say the table after a #: {base}#orders, or #schema.orders"
        )
    entry: dict[str, Any] = {"postgres": base, "table": name}
    if schema:
        entry["schema"] = schema
    return entry | ({"key": key.split(",")} if key else {})


def _table(name: str, entry: Mapping[str, Any], what: str) -> Any:
    """The table object of entries: its kind with the address, and its options."""
    kinds = [kind for kind in entry if kind in KINDS]
    if len(kinds) != 1:
        which = " and ".join(kinds) or f"no kind, but {', '.join(entry) or 'nothing'}"
        raise click.UsageError(
            f"the {what} {name} has {which}; say one of {', '.join(KINDS)} with its address: "
            "delta = 'lake/orders'"
        )
    (kind,) = kinds
    if not isinstance(entry[kind], str):
        raise click.UsageError(
            f"the {what} {name}: {kind} = {entry[kind]!r}: expected its address, a text"
        )
    if kind == "postgres" and "#" in entry[kind] and "table" not in entry:
        entry = _of_postgres(entry[kind], what) | {k: v for k, v in entry.items() if k != kind}
    stated = (DDL,) if what == "source" else ()
    options = {k: v for k, v in entry.items() if k not in (kind, *stated)}
    _, *arguments = inspect.signature(KINDS[kind]).parameters.values()
    takes = [p for p in arguments if p.name not in _OF_OTHERS[what]]
    unknown = options.keys() - {p.name for p in takes}
    lacking = [p.name for p in takes if p.default is p.empty and p.name not in options]
    if unknown or lacking:
        wrong = f"lacks {lacking[0]!r}" if lacking else f"has no {min(unknown)!r} as a {what}"
        names = ", ".join([*(p.name for p in takes if p.name not in _OBJECTS), *stated])
        raise st.InputError(
            f"the {what} {name}: {kind} {wrong}; beside its address it may say {names}"
        )
    return naming_target(f"the {what} {name}", lambda: KINDS[kind](entry[kind], **options))


F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--dbt",
        type=click.Path(exists=True, path_type=Path),
        metavar="DIR",
        help="Instead of FILE: a dbt project, after `dbt compile --full-refresh`.",
    ),
    click.option("--select", multiple=True, metavar="MODEL", help="With --dbt: only these models."),
    click.option(
        "--exclude", multiple=True, metavar="NAME", help="With --dbt: without this model or test."
    ),
    click.option("--no-checks", is_flag=True, help="With --dbt: without the tests of the project."),
)


def of_project(command: F) -> F:
    """Add --dbt, --select, --exclude and --no-checks to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def said_of_project(
    select: Sequence[str], exclude: Sequence[str], no_checks: bool
) -> dict[str, Any]:
    """The entries of the options for a dbt project, as in a TOML file."""
    options: dict[str, Any] = {"select": list(select), "exclude": list(exclude)}
    return {k: v for k, v in options.items() if v} | ({"checks": False} if no_checks else {})
