"""States of earlier versions are stepped on rightly; `tests.stores.earlier.make` makes them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

import stepping_spark as st
from tests.postgres_server import PostgresServer
from tests.stores.earlier.queries import QUERIES, STEPS, changes_of

EARLIER = Path(__file__).parent / "earlier"
VERSIONS = sorted(path.stem for path in EARLIER.glob("*.sql"))
REFUSED = {
    ("1252fed", "aggregate"),
    ("1252fed", "first_n"),
    ("aaa84f6", "aggregate"),
    ("aaa84f6", "first_n"),
}
"""Versions and queries whose states are refused until they evolve: CHANGELOG says so."""

Open = Callable[..., Any]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["parquet", "postgres"])
def open_state(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> Iterator[Open]:
    """Opens the state of a query."""
    if request.param == "parquet":
        with tarfile.open(EARLIER / f"{version}.tar.xz") as packed:
            packed.extractall(tmp_path, filter="data")
        yield lambda graph, query, **more: st.StoreParquet.from_graph(
            graph, tmp_path / query, **more
        )
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"earlier_{uuid4().hex}"
    database = sql.Identifier(name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
    url = server.url.removesuffix("/postgres") + f"/{name}"
    with psycopg.connect(url) as connection:
        connection.execute((EARLIER / f"{version}.sql").read_bytes())
    yield lambda graph, query, **more: st.StorePostgres.from_graph(graph, url, schema=query, **more)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


@pytest.mark.parametrize("query", QUERIES)
def test_a_state_of_an_earlier_version_is_stepped_on(
    version: str, query: str, open_state: Open
) -> None:
    graph = st.compile(QUERIES[query])
    changes = [changes_of(query, step) for step in range(len(STEPS))]
    new = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    for change in changes:
        expected = new.step(change)
    refused = (version, query) in REFUSED
    if refused:
        with pytest.raises(
            st.StoreMismatch, match=r"another circuit:\n  register .(totals\.aggreg|dearest\.f)"
        ):
            open_state(graph, query)
    with open_state(graph, query, evolve=refused) as store:
        stepper = st.Stepper(graph, store)
        assert store.last_step() == len(STEPS) - 1
        if refused:
            sales = {"sales": changes[0][0] + changes[1][0]}
            assert stepper.evolution is not None
            stepper.evolve(**(sales if stepper.evolution.read_again else {}))
        assert stepper.step(changes[-1]) == expected
    with open_state(graph, query) as store:
        assert store.last_step() == len(STEPS) + refused
