"""The Postgres store, against a real server: the contract, and what can happen to a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stepping_spark.codec import frame_of
from stepping_spark.schema import Schema
from stepping_spark.store import Held, Register, Store
from stores.contract import StoreContract
from stores.contract_rows import Create, Hold, Reopen
from stores.postgres import StorePostgres
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


class Stores:
    """Makes stores on a server, each in a schema of its own, and closes them in the end."""

    def __init__(self, server: PostgresServer, driver_bytes: int = 64 << 20) -> None:
        self._server = server
        self._driver_bytes = driver_bytes
        self._made: dict[StorePostgres, str] = {}

    def create(self, registers: Sequence[Register]) -> StorePostgres:
        return self._open(f"s {uuid4().hex}", registers, create=True)

    def rival(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        assert isinstance(store, StorePostgres)
        return self._open(self._made[store], registers)

    def reopen(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        store.close()
        return self.rival(store, registers)

    def close(self) -> None:
        for store in self._made:
            store.close()

    def _open(
        self, schema: str, registers: Sequence[Register], create: bool = False
    ) -> StorePostgres:
        store = StorePostgres(
            self._server.url,
            registers,
            schema=schema,
            create=create,
            driver_bytes=self._driver_bytes,
        )
        self._made[store] = schema
        return store


class TestOnTheDriver(StoreContract):
    @pytest.fixture
    def stores(self, server: PostgresServer) -> Iterator[Stores]:
        made = Stores(server)
        yield made
        made.close()

    @pytest.fixture
    def create(self, stores: Stores) -> Create:
        return stores.create

    @pytest.fixture
    def reopen(self, stores: Stores) -> Reopen:
        return stores.reopen

    @pytest.fixture
    def rival(self, stores: Stores) -> Reopen:
        return stores.rival


class TestInSpark(TestOnTheDriver):
    """Nothing fits the driver: changes are DataFrames that workers send, and reads are too."""

    commits = 10

    @pytest.fixture
    def stores(self, server: PostgresServer, spark: SparkSession) -> Iterator[Stores]:
        made = Stores(server, driver_bytes=0)
        yield made
        made.close()

    @pytest.fixture
    def hold(self, spark: SparkSession) -> Hold:
        def as_frame(table: pa.Table, schema: Schema) -> Held:
            few_keys = not schema.diffs and table.num_rows <= 100
            return table if few_keys else frame_of(table, schema, spark)

        return as_frame
