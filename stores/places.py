"""Where state is, in one word of a command line: `memory`, `parquet:PATH`, `postgres:URL`.

A URL of Postgres may say which schema, as `postgresql://…/database?schema=flights`; and a path or
URL alone is as good. Whatever is shown of a place has no password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from typing_extensions import TypeVarTuple

from stepping_spark.errors import StoreUnavailable
from stepping_spark.graph import Graph
from stepping_spark.store import Store
from stores.inspection import State
from stores.memory import StoreMemory
from stores.parquet import StoreParquet
from stores.parquet_inspection import ParquetState
from stores.postgres_if_installed import PostgresState, StorePostgres

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out", covariant=True)

MEMORY, PARQUET, POSTGRES = "memory", "parquet", "postgres"
SCHEMA = "stepping_spark"
"""The schema of Postgres where none is said."""

_URL = re.compile(r"postgres(ql)?://")
_USER_AND_PASSWORD = re.compile(r"(?:[a-z][\w+.-]*:?//)?[^:/?#]*:(?!//)(.+)@", re.I | re.S)
"""In a URL, also one that is mistyped, or in `user:password@host`: no `/` is before its `:`."""

_PARAMETER = re.compile(r"password\s*=\s*(?:'((?:[^'\\]|\\.)*)'?|((?:\\.|\S)+))", re.I | re.S)
"""In a connection string, where a value may be in quotes, or in the query of a URL."""


@dataclass(frozen=True)
class Place:
    """A place of state: a store of which kind, and where."""

    kind: str
    where: str = field(repr=False)
    schema: str = SCHEMA

    def __str__(self) -> str:
        if self.kind == MEMORY:
            return MEMORY
        where = without_password(self.where, self.where)
        return f"{where}, schema {self.schema!r}" if self.kind == POSTGRES else where

    def store(self, graph: Graph[*Ins, Out]) -> Store:
        """The store of a circuit there; made, where there is none."""
        match self.kind:
            case "parquet":
                return StoreParquet.from_graph(graph, self.where, create=True)
            case "postgres":
                return StorePostgres.from_graph(graph, self.where, schema=self.schema, create=True)
        return StoreMemory.from_graph(graph)

    def state(self) -> State:
        """What is kept there, to be looked at."""
        match self.kind:
            case "parquet":
                return ParquetState(self.where)
            case "postgres":
                return PostgresState(self.where, self.schema)
        raise StoreUnavailable(
            "memory: what it keeps ends with its process; give the path or the URL of a state"
        )


def place_of(text: str, schema: str | None = None) -> Place:
    """The place that a text names; a ValueError, without its password, where it is none."""
    kind, _, rest = text.partition(":")
    if text == MEMORY:
        found = Place(MEMORY, "")
    elif _URL.match(text):
        found = _postgres(text)
    elif kind == POSTGRES:
        if not _URL.match(rest):
            raise ValueError("a store in Postgres is postgres:postgresql://user@host/database")
        found = _postgres(rest)
    else:
        path = rest if kind == PARQUET and not rest.startswith("//") else text
        if not path:
            raise ValueError("say which directory: parquet:PATH")
        found = Place(PARQUET, path)
    if schema is None:
        return found
    if found.kind != POSTGRES:
        raise ValueError("only a store in Postgres has a schema; leave --schema out")
    if found.schema not in (SCHEMA, schema):
        raise ValueError(f"the URL says the schema {found.schema!r}, and --schema {schema!r}")
    return Place(POSTGRES, found.where, schema)


def _postgres(url: str) -> Place:
    """The place of a URL; `schema` is our own, and no parameter of Postgres."""
    try:
        parts = urlsplit(url)
    except ValueError:  # which Postgres will say
        return Place(POSTGRES, url)
    said = parse_qsl(parts.query, keep_blank_values=True)
    schema = [value for name, value in said if name == "schema"]
    if not schema:
        return Place(POSTGRES, url)
    rest = urlencode([pair for pair in said if pair[0] != "schema"], quote_via=quote)
    return Place(POSTGRES, urlunsplit(parts._replace(query=rest)), schema[-1])


def without_password(text: str, place: str) -> str:
    """The text without what may be a password in a place: also where that is no URL at all."""
    place = re.sub(rf"^({PARQUET}|{POSTGRES}):(?!//)", "", place)
    for secret in filter(None, _secrets(place)):
        for shown in {secret, unquote(secret), quote(secret, safe="")}:
            text = text.replace(shown, "***")
    return text


def _secrets(place: str) -> Iterator[str]:
    """What may be a password: of a user, or of a parameter."""
    of_user = _USER_AND_PASSWORD.match(place)
    if of_user:
        yield of_user[1]
    for parameter in _PARAMETER.finditer(place):
        quoted, plain = parameter.groups()
        if plain is None:
            yield re.sub(r"\\(.)", r"\1", quoted)
            yield quoted
        else:
            yield plain
            yield plain.partition("&")[0]  # of a URL, where other parameters follow
