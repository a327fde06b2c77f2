"""A table of Postgres, and what a source makes of its log, for comparison with a plain query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa

import stepping_spark as st
from stepping_spark.pipeline.postgres.source import PostgresSource
from stepping_spark.pipeline.protocols import Position


class Database:
    """A schema of its own, as an application uses it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.schema = f"s{uuid4().hex}"
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self.run(f"CREATE SCHEMA {self.schema}; SET search_path = {self.schema}")

    def run(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        found = self.connection.execute(text, params or None)
        return found.fetchall() if found.description else []

    def table(self, name: str, **given: Any) -> st.Postgres:
        return st.Postgres(given.pop("url", self.url), table=name, schema=self.schema, **given)

    @contextmanager
    def session(self, settings: str = "") -> Iterator[psycopg.Connection[Any]]:
        """Another session of the application."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"SET search_path = {self.schema}; {settings}")
            yield connection


class Follower:
    """What a source has said so far, added up."""

    def __init__(self, table: st.Postgres, **columns: pa.DataType) -> None:
        self.table = table
        self.columns = pa.schema([pa.field(name, t) for name, t in columns.items()])
        self.source: PostgresSource = table.source()
        self.position: Position | None = None
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.misfits: Counter[tuple[str, str]] = Counter()

    def read(self, portion: st.Portion | None = None, most: int | None = None) -> None:
        """Read what is new: all of it, in batches of a portion, or `most` batches."""
        self.source.open(self.columns)
        batches = 0
        try:
            while batches != most and (
                batch := self.source.read(self.position, portion or st.Portion())
            ):
                self._add(batch)
                batches += 1
        finally:
            self.source.close()

    def look(self) -> None:
        """What a dry run asks."""
        try:
            self.source.look(self.position, st.Portion())
        finally:
            self.source.close()

    def schema(self) -> pa.Schema:
        """The columns that the source says."""
        self.source.open(self.columns)
        try:
            return self.source.schema()
        finally:
            self.source.close()

    def _add(self, batch: st.Batch) -> None:
        self.position = batch.position
        for table in batch.changes:
            assert isinstance(table, pa.Table)
            *values, counts = table.to_pydict().values()
            for row, n in zip(zip(*values, strict=True), counts, strict=True):
                self.rows[tuple(map(_hashed, row))] += n
        for line in batch.misfits.to_pylist() if batch.misfits else ():
            self.misfits[line["row"], line["reason"]] += line["_count_"]

    @property
    def left(self) -> Counter[tuple[Any, ...]]:
        """The rows, whose counts are none of them zero."""
        return Counter({row: n for row, n in self.rows.items() if n})

    @property
    def unfit(self) -> list[str]:
        """Why rows that are there do not fit."""
        return sorted(reason for (_, reason), n in self.misfits.items() if n)


def _hashed(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashed, value))
    if isinstance(value, dict):
        return tuple((name, _hashed(value[name])) for name in sorted(value))
    return value
