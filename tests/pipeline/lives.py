"""A pipeline whose process is killed: each life takes a step, or dies on the way.

The circuit needs no Spark session, so that a process costs what a fork costs.
"""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import obstore
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.table import TableMerger
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Transaction

import stepping_spark as st
from stepping_spark.base.errors import StoreUnavailable
from stepping_spark.pipeline.delta import sink as delta_sink
from stepping_spark.pipeline.delta.sink import DeltaSink
from stepping_spark.pipeline.delta.source import DeltaSource
from stepping_spark.pipeline.files import directory
from stepping_spark.pipeline.files.sink import FilesSink
from stepping_spark.pipeline.files.source import FilesSource
from stepping_spark.pipeline.iceberg import sink as rewriting
from stepping_spark.pipeline.iceberg.sink import IcebergSink
from stepping_spark.pipeline.iceberg.source import IcebergSource
from stepping_spark.pipeline.postgres.sink import PostgresSink
from stepping_spark.pipeline.postgres.source import PostgresSource
from stores.parquet.inspection import ParquetState
from stores.postgres import PostgresState
from tests.cases import User
from tests.pipeline.shop import names
from tests.stores.lives import FORKS, Place, killer, last_words, told, watched

STEPS = 4
OURS = (
    *(DeltaSource, DeltaSink, FilesSource, FilesSink),
    *(IcebergSource, IcebergSink, PostgresSource, PostgresSink),
)
CALLS = ("read", "open", "last_step", "prepare", "write", "close")


def batches() -> list[tuple[list[User], list[int]]]:
    """The rows that come with each version, and the ids of those that go."""
    made = []
    for i in range(STEPS):
        came = [User(id=10 * i + j, name=f"n{(3 * i + j) % 7}") for j in range(3)]
        made.append((came, [10 * (i - 2), 10 * (i - 2) + 1] if i >= 2 else []))
    return made


BATCHES = batches()


@dataclass(frozen=True)
class World:
    """The tables of a pipeline: of which kind its source and its sink are, and where."""

    source: str
    sink: str
    folder: str
    url: str = ""
    schema: str = ""

    def make(self) -> None:
        """Make the source, without rows."""
        if self.source == "postgres":
            self._sql(f"CREATE TABLE {self.schema}.users (id bigint PRIMARY KEY, name text)")
            self.table("users").install()
        elif self.source == "delta":
            feed = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(f"{self.folder}/users", _rows([], [])[:0], configuration=feed)
        elif self.source == "iceberg":
            self._lake.create_namespace("shop")
            self._lake.create_table("shop.users", _rows([], []).schema)
        else:
            Path(self.folder, "users").mkdir()

    def next(self, number: int, users: dict[int, str]) -> None:
        """Make the version of a step; `users` are those who are there."""
        came, gone = BATCHES[number - 1]
        if self.source == "files":
            gone = []  # files are only added
            pq.write_table(_rows(came, []), f"{self.folder}/_new")
            Path(self.folder, "_new").rename(f"{self.folder}/users/{number:03d}.parquet")
        elif self.source == "delta":
            (
                DeltaTable(f"{self.folder}/users")
                .merge(_rows(came, gone), "t.id = s.id", source_alias="s", target_alias="t")
                .when_matched_delete("s.name IS NULL")
                .when_not_matched_insert({"id": "s.id", "name": "s.name"})
                .execute()
            )
        elif self.source == "iceberg":
            with self._lake.load_table("shop.users").transaction() as transaction:
                if gone:
                    transaction.delete(f"id in ({', '.join(map(str, gone))})")
                transaction.append(_rows(came, []))
        else:
            values = ", ".join(f"({u.id}, '{u.name}')" for u in came)
            text = f"INSERT INTO {self.schema}.users VALUES {values};"
            ids = ", ".join(map(str, [*gone, -1]))
            self._sql(f"{text} DELETE FROM {self.schema}.users WHERE id IN ({ids})")
        users |= {u.id: u.name for u in came}
        for i in gone:
            del users[i]

    def view(self) -> Counter[str]:
        """What is in the sink."""
        found: list[str] = []
        if self.sink in ("delta", "marked"):
            with suppress(TableNotFoundError):
                reader = DeltaTable(f"{self.folder}/names").scan()
                found = _values(pa.RecordBatchReader.from_stream(reader).read_all())
        elif self.sink == "iceberg":
            with suppress(NoSuchTableError):
                found = _values(self._lake.load_table("shop.names").scan().to_arrow())
        elif self.sink == "files":
            files = sorted(Path(self.folder, "names").glob("step-*.parquet"))
            found = _values(pq.read_table(files[-1])) if files else []
        else:
            with suppress(psycopg.errors.UndefinedTable):
                rows = self._sql(f"SELECT _value_ FROM {self.schema}.names")
                found = [name for (name,) in rows]
        return Counter(found)

    def pipeline(self, store: Any) -> st.Pipeline:
        """The pipeline, on a store that is yet to be opened; a version is a step."""
        folder = self.folder
        sinks: dict[str, Any] = {
            "delta": lambda: st.DeltaTable(f"{folder}/names", key="_value_"),
            "marked": lambda: st.DeltaTable(
                f"{folder}/names", key="_value_", deletion_vectors=True
            ),
            "files": lambda: st.Files(f"{folder}/names"),
            "iceberg": lambda: self._iceberg("shop.names", key="_value_"),
            "postgres": lambda: self.table("names", key="_value_"),
        }
        return st.Pipeline(
            names,
            store=store,
            users=self.users(),
            into={"names": sinks[self.sink]()},
            max_versions=None if self.source == "iceberg" else 1,
        )

    def users(self) -> Any:
        """The table that the pipeline reads."""
        sources: dict[str, Any] = {
            "delta": lambda: st.DeltaTable(f"{self.folder}/users"),
            "files": lambda: st.Files(f"{self.folder}/users"),
            "iceberg": lambda: self._iceberg("shop.users"),
            "postgres": lambda: self.table("users"),
        }
        return sources[self.source]()

    def step(self) -> int:
        """The last step that is committed."""
        place = self.place()
        state = PostgresState(self.url, place.path) if self.url else ParquetState(place.path)
        try:
            return state.summary().step
        except StoreUnavailable:
            return 0

    def place(self) -> Place:
        """Where the state is."""
        if self.url:
            return Place(path=f"state {self.schema}", url=self.url)
        return Place(path=f"{self.folder}/state")

    def table(self, name: str, **given: Any) -> st.Postgres:
        return st.Postgres(self.url, table=name, schema=self.schema, **given)

    @property
    def _options(self) -> dict[str, str]:
        folder = self.folder
        uri, warehouse = f"sqlite:///{folder}/lake.db", f"file://{folder}/warehouse"
        return {"type": "sql", "uri": uri, "warehouse": warehouse}

    @property
    def _lake(self) -> Catalog:
        return load_catalog("lake", **self._options)

    def _iceberg(self, name: str, **given: Any) -> st.IcebergTable:
        return st.IcebergTable(name, catalog="lake", options=self._options, **given)

    def _sql(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            found = connection.execute(text)
            return found.fetchall() if found.description else []


def _rows(came: list[User], gone: list[int]) -> pa.Table:
    ids = [*(u.id for u in came), *gone]
    names = [*(u.name for u in came), *(None for _ in gone)]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def _values(table: pa.Table) -> list[str]:
    found: list[Any] = table.column("_value_").to_pylist()
    return found


def live(world: World, number: int, moment: int, answer: Connection) -> None:
    """Bring the view to a step, or be killed at the moment of that number."""
    at = killer(moment, answer)
    in_store = False

    def at_store(name: str) -> None:
        nonlocal in_store
        in_store = name.startswith("before")
        at(name)

    def at_server(name: str) -> None:
        # What a store does within its own calls is disturbed by the tests of stores.
        if not in_store:
            at(name)

    psycopg.Connection.wait = told(psycopg.Connection.wait, "exchange", at_server)  # type: ignore[method-assign]
    for kind in OURS:
        for call in CALLS:
            if hasattr(kind, call):
                setattr(kind, call, told(getattr(kind, call), f"{kind.__name__}.{call}", at))
    for module, name in (
        (delta_sink, "write_deltalake"),
        (obstore, "put"),
        (directory, "_settle"),
        (rewriting, "write_file"),
        (Transaction, "commit_transaction"),
    ):
        setattr(module, name, told(getattr(module, name), name, at))
    TableMerger.execute = told(TableMerger.execute, "merge", at)  # type: ignore[method-assign]
    with world.pipeline(watched(world.place().store(), at_store)) as pipeline:
        left = number - pipeline.stepper.store.last_step()
        pipeline.run(max_steps=left)
        pipeline.stepper.store.close()
    answer.send(None)


FORKS.set_forkserver_preload(["tests.stores.warm_lives", "tests.pipeline.lives"])


def life(world: World, number: int, moment: int) -> str | None:
    """Where a process was killed that brings the view to a step; None: it got there."""
    said, code = last_words(live, world, number, moment)
    killed: str | None = said[0] if said else "an error"
    assert code == (-signal.SIGKILL if killed else 0), (code, said)
    return killed
