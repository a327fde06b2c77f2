"""States of earlier versions are stepped on rightly; `tests.stores.earlier.make` makes them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

import stepping_spark as st
from stepping_spark.store import Store
from tests.postgres_server import PostgresServer
from tests.stores.earlier.queries import QUERIES, STEPS, changes_of

EARLIER = Path(__file__).parent / "earlier"
VERSIONS = sorted(path.stem for path in EARLIER.glob("*.sql"))
REFUSED = {("1252fed", "aggregate")}
"""Versions and queries whose states are refused: CHANGELOG says so."""

Open = Callable[[st.Graph, str], Store]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["parquet", "postgres"])
def open_state(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> Any:
    """Opens the state of a query."""
    if request.param == "parquet":
        with tarfile.open(EARLIER / f"{version}.tar.xz") as packed:
            packed.extractall(tmp_path, filter="data")
        yield lambda graph, query: st.StoreParquet.from_graph(graph, tmp_path / query)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"earlier_{uuid4().hex}"
    database = sql.Identifier(name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
    url = server.url.removesuffix("/postgres") + f"/{name}"
    with psycopg.connect(url) as connection:
        connection.execute((EARLIER / f"{version}.sql").read_bytes())
    yield lambda graph, query: st.StorePostgres.from_graph(graph, url, schema=query)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


@pytest.mark.parametrize("query", QUERIES)
def test_a_state_of_an_earlier_version_is_stepped_on(
    version: str, query: str, open_state: Any
) -> None:
    graph = st.compile(QUERIES[query])
    if (version, query) in REFUSED:
        with pytest.raises(
            st.StoreMismatch,
            match=r"the state belongs to another circuit:\n  register .totals\.aggregate",
        ):
            open_state(graph, query)
        return
    new = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    *old, (_, before) = [
        (change, new.step(change)) for change in (changes_of(query, i) for i in range(len(STEPS)))
    ]
    with open_state(graph, query) as store:
        stepper = st.Stepper(graph, store)
        assert store.last_step() == len(old)
        assert stepper.step(changes_of(query, len(old))) == before
    with open_state(graph, query) as store:
        assert store.last_step() == len(STEPS)
