"""The stores that circuits are tested on: each makes new, empty ones, and opens them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import stepping_spark as st
from stepping_spark.relations.store import Store


class MakeStore(Protocol):
    """Makes a new, empty store for a graph."""

    def __call__(self, graph: Any, *, limits: st.Limits | None = None) -> Store:
        """A new, empty store for a graph."""

    def reopen(self, store: Store, graph: Any, *, evolve: bool = False) -> Store:
        """What a store has kept, read by another one; the same, where it ends with the process."""

    def close(self) -> None:
        """Close all that are open."""


class InMemory:
    """Stores that end with the process."""

    def __call__(self, graph: Any, *, limits: st.Limits | None = None) -> Store:
        return st.StoreMemory.from_graph(graph, limits=limits)

    def reopen(self, store: Store, graph: Any, *, evolve: bool = False) -> Store:
        return store

    def close(self) -> None:
        pass


class Kept:
    """Stores that outlive the process, each under a name of its own."""

    def __init__(self) -> None:
        self._names: dict[Store, str] = {}

    def __call__(self, graph: Any, *, limits: st.Limits | None = None) -> Store:
        name = f"s {uuid4().hex}"
        store = self.opened(graph, name, create=True, limits=limits)
        self._names[store] = name
        return store

    def reopen(self, store: Store, graph: Any, *, evolve: bool = False) -> Store:
        name = self._names.pop(store)
        store.close()
        store = self.opened(graph, name, evolve=evolve)
        self._names[store] = name
        return store

    def close(self) -> None:
        for store in self._names:
            store.close()

    def opened(self, graph: Any, name: str, **options: Any) -> Store:
        """The store of a name."""
        raise NotImplementedError


class InFiles(Kept):
    """Stores in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def opened(self, graph: Any, name: str, **options: Any) -> Store:
        return st.StoreParquet.from_graph(graph, self._directory / name, **options)


class InPostgres(Kept):
    """Stores in a database."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def opened(self, graph: Any, name: str, **options: Any) -> Store:
        return st.StorePostgres.from_graph(graph, self._url, schema=name, **options)
