"""What the tests of pipelines share as fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.pipeline.following import Database
from tests.postgres_server import PostgresServer, has

# Where there are two, each run takes one of them.
SERVERS = [which for which in ("system", "package") if has(which)] or ["package"]


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(which, marks=pytest.mark.turn(len(SERVERS), number=number))
        for number, which in enumerate(SERVERS)
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A Postgres server: the system's, and the newer one of the Python package."""
    if not has(request.param):
        pytest.skip(f"there is no Postgres of the {request.param}")
    with PostgresServer(which=request.param, autovacuum="off") as server:
        yield server


@pytest.fixture
def db(server: PostgresServer) -> Iterator[Database]:
    """A schema of its own on the server, as an application uses it."""
    made = Database(server.url)
    yield made
    made.connection.close()


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog of Iceberg in SQLite, without a namespace."""
    return load_catalog(
        "lake", type="sql", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}"
    )


@pytest.fixture
def lake(catalog: Catalog) -> Catalog:
    """A catalog with the namespace `shop`."""
    catalog.create_namespace("shop")
    return catalog
