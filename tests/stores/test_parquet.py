"""The Parquet store on a local directory: the contract, and what can happen to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from stepping_spark.store import Register, Store
from stores.contract import StoreContract
from stores.contract_rows import Create, Reopen
from stores.parquet import StoreParquet


@pytest.fixture
def places(tmp_path: Path) -> dict[int, Path]:
    """Where each store is, by its id."""
    return {}


@pytest.fixture
def made(tmp_path: Path, places: dict[int, Path]) -> Create:
    def create(registers: Sequence[Register]) -> Store:
        path = tmp_path / uuid4().hex
        store = StoreParquet(path, registers, create=True)
        places[id(store)] = path
        return store

    return create


class TestOnALocalPath(StoreContract):
    @pytest.fixture
    def create(self, made: Create) -> Create:
        return made

    @pytest.fixture
    def rival(self, places: dict[int, Path]) -> Reopen:
        return lambda store, registers: StoreParquet(places[id(store)], registers)

    @pytest.fixture
    def reopen(self, rival: Reopen) -> Reopen:
        def again(store: Store, registers: Sequence[Register]) -> Store:
            store.close()
            return rival(store, registers)

        return again
