"""The Parquet store, where batches are too large for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stepping_spark.codec import frame_of
from stepping_spark.schema import Schema
from stepping_spark.store import Held, Register, Store
from stores.contract import StoreContract
from stores.contract_rows import Create, Hold, Reopen
from stores.parquet import StoreParquet


class TestInSpark(StoreContract):
    """Nothing fits the driver: changes and large sets of keys are DataFrames, few keys a table."""

    commits = 20

    @pytest.fixture
    def places(self) -> dict[int, Path]:
        return {}

    @pytest.fixture
    def create(self, tmp_path: Path, places: dict[int, Path], spark: SparkSession) -> Create:
        def made(registers: Sequence[Register]) -> Store:
            # Spark takes some of these for patterns.
            path = tmp_path / f"[a] {{b}} *{uuid4().hex}"
            store = StoreParquet(path, registers, create=True, driver_rows=0, spark=spark)
            places[id(store)] = path
            return store

        return made

    @pytest.fixture
    def reopen(self, places: dict[int, Path], spark: SparkSession) -> Reopen:
        def again(store: Store, registers: Sequence[Register]) -> Store:
            store.close()
            return StoreParquet(places[id(store)], registers, driver_rows=0, spark=spark)

        return again

    @pytest.fixture
    def hold(self, spark: SparkSession) -> Hold:
        def as_frame(table: pa.Table, schema: Schema) -> Held:
            few_keys = not schema.diffs and table.num_rows <= 100
            return table if few_keys else frame_of(table, schema, spark)

        return as_frame
