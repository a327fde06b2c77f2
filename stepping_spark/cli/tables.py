"""Pipelines without Python: views in a file of SQL, and tables as texts or in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from stepping_spark.errors import InputError
from stepping_spark.from_sql import sql
from stepping_spark.pipeline import Pipeline
from stepping_spark.pipeline.delta import DeltaTable
from stepping_spark.pipeline.files import Files
from stepping_spark.pipeline.iceberg import IcebergTable
from stepping_spark.pipeline.postgres import Postgres

KINDS = {"delta": DeltaTable, "files": Files, "iceberg": IcebergTable, "postgres": Postgres}
TABLE = "NAME=KIND:ADDRESS"
_EXAMPLES = "orders=delta:lake/orders, or revenue=delta:lake/revenue:country with a key"


def pipeline_of(
    file: Path, store: str | None, sources: Sequence[str], sinks: Sequence[str]
) -> Pipeline:
    """The pipeline of a file of SQL with the tables of the command line, or of a TOML file."""
    said: dict[str, Any] = {"sql": str(file), "sources": {}, "sinks": {}}
    if file.suffix == ".toml":
        said |= _read(file)
    if store is not None:
        said["store"] = store
    if "store" not in said:
        raise click.UsageError(
            f"{file} does not say where the state is; give --store parquet:DIRECTORY or "
            "--store postgresql://user@host/database"
        )
    inputs = _tables(said["sources"], sources, "source")
    into = _tables(said["sinks"], sinks, "sink")
    text = Path(said["sql"]).read_text(encoding="utf-8")
    options = {name: said[name] for name in OPTIONS if name in said}
    return Pipeline(sql(text), store=said["store"], sources=inputs, into=into, **options)


OPTIONS = ("max_versions", "max_rows", "max_bytes", "append_only", "strict")
"""What a TOML file may say of a pipeline, beside its views and tables."""


def _read(file: Path) -> dict[str, Any]:
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as e:
        raise click.UsageError(f"{file} is no TOML: {e}") from None
    known = {"sql", "store", "sources", "sinks", *OPTIONS}
    unknown = [name for name in said if name not in known]
    if unknown or "sql" not in said:
        reason = f"{unknown[0]!r} is not known" if unknown else "it does not name a file: sql = …"
        raise click.UsageError(f"{file}: {reason}; it may say {', '.join(sorted(known))}")
    said["sql"] = str(file.parent / said["sql"])
    return said


def _tables(
    said: Mapping[str, Mapping[str, Any]], given: Sequence[str], what: str
) -> dict[str, Any]:
    """The tables of a file and of the command line, which comes first, by the names of views."""
    known = {name: dict(one) for name, one in said.items()}
    for text in given:
        name, table = _parsed(text, what)
        known[name] = table
    return {name: _table(name, one, what) for name, one in known.items()}


def _parsed(text: str, what: str) -> tuple[str, dict[str, Any]]:
    """A table of the command line, as a TOML file says it."""
    name, equals, rest = text.partition("=")
    kind, colon, address = rest.partition(":")
    if kind in ("postgresql", "postgres") and address.startswith("//"):
        return name, _of_postgres(rest, what)
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
    """postgresql://user@host/database#schema.table, of a sink with its key: #table:id."""
    base, _, table = url.partition("#")
    place, _, key = table.partition(":")
    schema, _, name = place.rpartition(".")
    if not name:
        raise click.UsageError(
            f"--{what} {base}: say the table after a #: {base}#orders, or #schema.orders"
        )
    found: dict[str, Any] = {"postgres": base, "table": name}
    if schema:
        found["schema"] = schema
    return found | ({"key": key.split(",")} if key else {})


def _table(name: str, said: Mapping[str, Any], what: str) -> Any:
    """A table, from what a file says: its kind with its address, and its options."""
    kinds = [kind for kind in said if kind in KINDS]
    if len(kinds) != 1:
        raise click.UsageError(
            f"the {what} {name} has {len(kinds)} kinds; say one of {', '.join(KINDS)} with its "
            "address: delta = 'lake/orders'"
        )
    (kind,) = kinds
    options = {k: v for k, v in said.items() if k != kind}
    try:
        return KINDS[kind](said[kind], **options)
    except TypeError as e:
        of = KINDS[kind].__name__
        raise InputError(f"the {what} {name}: {e}; see the arguments of st.{of}") from None
