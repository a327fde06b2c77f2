"""Parses the place of a state on a command line: `memory`, `parquet:PATH`, `postgres:URL`.

A URL of Postgres may name the schema: `postgresql://…/database?schema=flights`. A path or a URL
alone also works. No message shows a password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from stepping_spark.base.errors import StoreUnavailable
from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.relations.store import Store
from stores.inspection import InspectedState
from stores.memory import StoreMemory
from stores.parquet.inspection import ParquetState
from stores.parquet.store import StoreParquet
from stores.postgres import PostgresState, StorePostgres
from stores.redaction import is_of_postgres, uri_of, wrong_with_files, wrong_with_postgres

MEMORY, PARQUET, POSTGRES = "memory", "parquet", "postgres"
SCHEMA = "stepping_spark"
"""The default schema of Postgres."""


@dataclass(frozen=True)
class Place:
    """A place of state: the kind of the store, and its path or URL."""

    kind: str
    where: str = field(repr=False)
    schema: str = SCHEMA

    def __str__(self) -> str:
        if self.kind == MEMORY:
            return MEMORY
        uri = uri_of(self.where)
        if self.kind == PARQUET:
            return str(uri or self.where)
        if wrong_with_postgres(self.where) is not None:
            uri = None
        user = f"{uri.user_name}@" if uri and uri.user_name else ""
        where = f"{uri.scheme}://{user}{uri.host}{uri.path}" if uri else ""
        return f"{where}, schema {self.schema!r}"

    def store(self, graph: AnyGraph, limits: Limits = DEFAULT, *, evolve: bool = False) -> Store:
        """The store of a circuit at this place. It is created if it does not exist."""
        match self.kind:
            case "parquet":
                return StoreParquet.from_graph(
                    graph, self.where, create=True, limits=limits, evolve=evolve
                )
            case "postgres":
                return StorePostgres.from_graph(
                    graph,
                    self.where,
                    schema=self.schema,
                    create=True,
                    limits=limits,
                    evolve=evolve,
                )
        return StoreMemory.from_graph(graph, limits=limits)

    def state(self) -> InspectedState:
        """The state at this place, for inspection."""
        match self.kind:
            case "parquet":
                return ParquetState(self.where)
            case "postgres":
                return PostgresState(self.where, self.schema)
        raise StoreUnavailable(
            "memory: its state ends with its process; give the path or the URL of a state"
        )


def place_of(text: str, schema: str | None = None) -> Place:
    """The place that a text names, or a ValueError, which does not quote the text."""
    kind, _, rest = text.partition(":")
    if text == MEMORY:
        place = Place(MEMORY, "")
    elif kind == POSTGRES and not rest.startswith("//"):
        if not is_of_postgres(rest):
            raise ValueError("a store in Postgres is postgres:postgresql://user@host/database")
        place = _postgres(rest)
    elif is_of_postgres(text):
        place = _postgres(text)
    else:
        _check_kind(text)
        place = _files(rest if kind == PARQUET and not rest.startswith("//") else text)
    if schema is None:
        return place
    if place.kind != POSTGRES:
        raise ValueError("only a store in Postgres has a schema; leave --schema out")
    if place.schema not in (SCHEMA, schema):
        raise ValueError(f"the URL says the schema {place.schema!r}, and --schema {schema!r}")
    return Place(POSTGRES, place.where, schema)


def _check_kind(text: str) -> None:
    """Raise a ValueError for a word that looks like a kind of store, but is not."""
    kind, colon, rest = text.partition(":")
    is_path = not kind.isalnum() or len(kind) == 1 or kind == "file" or rest.startswith("//")
    if text.lower() == MEMORY or (colon and kind != PARQUET and not is_path):
        raise ValueError(
            f"{kind!r} is not a kind of store; write memory, parquet:PATH, or "
            "postgresql://user@host/database (a directory with a colon in its name is "
            "parquet:PATH too)"
        )


def _files(path: str) -> Place:
    if not path:
        raise ValueError("say which directory: parquet:PATH")
    wrong = wrong_with_files(path)
    if wrong is not None:
        raise ValueError(wrong)
    return Place(PARQUET, path)


def _postgres(url: str) -> Place:
    """The place of a URL. The parameter `schema` is our own, not one of Postgres."""
    wrong = wrong_with_postgres(url)
    if wrong is not None:
        raise ValueError(wrong)
    address, _, query = url.partition("?")
    parameters = query.split("&")
    schema = [p.removeprefix("schema=") for p in parameters if p.startswith("schema=")]
    if not schema:
        return Place(POSTGRES, url)
    rest = "&".join(p for p in parameters if not p.startswith("schema="))
    return Place(POSTGRES, f"{address}?{rest}" if rest else address, unquote(schema[-1]))
