"""A table of a Spark catalog that offers its changes (`spark.read.changes`), as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError, SourceError
from stepping_spark.packages import DataFrame, SparkSession, raised
from stepping_spark.packages import functions as F
from stepping_spark.packages import types as T
from stepping_spark.pipeline.frames import as_fields
from stepping_spark.pipeline.positions import numbers_of
from stepping_spark.pipeline.protocols import Batch, Portion, Position
from stepping_spark.pipeline.remedies import RETRY
from stepping_spark.spark.arrow_schema import arrow_schema_of
from stepping_spark.spark.errors import first_line, raised_by_java
from stepping_spark.spark.session import get_session
from stepping_spark.zsets.from_change_feed import counted_changes

VERSION = "_commit_version"


class CatalogTable:
    """A table of a Spark catalog that offers changes, as a source: `CatalogTable("lake.orders")`.

    Needs Spark 4.2 or newer, and a catalog that implements `TableCatalog.loadChangelog`, as Delta's
    connector for Spark does. `name` is what `spark.read.table` takes. It gives the rows of the
    table at `version`, then what each later version changed (`spark.read.changes`). The version
    must be one that the catalog can still read. `spark` is the session, by default the active one.

    Versions are whole numbers that grow: `_commit_version` is the position. Each round asks Spark
    which versions there are, by a job. Many versions may be one step; one version is not cut in
    pieces, and more rows than the driver takes stay in Spark. A table that is dropped and made anew
    is not recognized. `lag` counts versions that changed rows. `columns` and `on_invalid` are as
    for `st.DeltaTable`; one more job finds rows that do not fit, unless they are an error.

    Raises `SourceError`, which names the table.

    >>> def big(orders: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(orders, f=lambda x: x > 10)
    >>> table = st.CatalogTable("lake.orders", version=7)
    >>> pipeline = st.Pipeline(big, store="parquet:state", orders=table, into={"big": print})
    >>> table
    CatalogTable('lake.orders')
    """

    def __init__(
        self,
        name: str,
        *,
        version: int = 0,
        spark: SparkSession | None = None,
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{user_line()}: expected the name of a table, as 'lake.orders', found {name!r}"
            )
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise InputError(
                f"{user_line()}: version={version!r}: expected the number of the version that is "
                "read first, from 0 on"
            )
        self.name = name
        self.columns = dict(columns or {})
        self.on_invalid = on_invalid
        self._version = version
        self._spark = spark

    def __repr__(self) -> str:
        return f"CatalogTable({self.name!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """What is the same for two that name the same table."""
        return ("catalog", self.name)

    def source(self) -> CatalogSource:
        """The table as a source."""
        return CatalogSource(self.name, self._version, self._spark)


class CatalogSource:
    """What comes after a version; a position is the version up to which all is read."""

    unit = "version"
    """What the first number of a position counts, as messages say it."""

    def __init__(self, name: str, version: int, spark: SparkSession | None) -> None:
        self._name = name
        self._version = version
        self._spark = spark
        self._columns = pa.schema([])

    def open(self, columns: pa.Schema) -> None:
        """Say which columns are wanted."""
        self._columns = columns

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        with self._trying("its columns cannot be read"):
            return arrow_schema_of(self._session.table(self._name).schema)

    def close(self) -> None:
        """Nothing to do: the session is not this source's."""

    def look(self, after: Position | None, portion: Portion) -> None:
        """Refuse a table that is not there, and a catalog without changes."""
        self._after(self._version if after is None else numbers_of(after)[0])

    def behind(self, after: Position | None) -> int | None:
        """The versions that changed rows and were not read."""
        before = self._version if after is None else numbers_of(after)[0]
        return len(self._versions(before, None)) + (after is None)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The rows at the first version, then the changes of later ones."""
        if after is None:
            return Batch(self._version, (self._wanted(self._rows()),))
        before = numbers_of(after)[0]
        there = self._versions(before, portion.versions)
        if not there:
            return None
        rows, n = 0, 0
        for _, count in there:
            rows += count
            if n and portion.rows is not None and rows > portion.rows:
                break
            n += 1
        to = there[n - 1][0]
        changes = self._after(before).where(F.col(VERSION) <= to)
        return Batch(to, (self._wanted(counted_changes(changes)),), n)

    def _wanted(self, frame: DataFrame) -> DataFrame:
        return as_fields(frame, self._columns, self._failure)

    def _rows(self) -> DataFrame:
        with self._trying(f"its rows at version {self._version} cannot be read"):
            return self._session.read.option("versionAsOf", self._version).table(self._name)

    def _versions(self, before: int, most: int | None) -> list[tuple[int, int]]:
        """The versions after one that changed rows, with how many; in order."""
        changes = self._after(before)
        with self._trying(f"its versions after {before} cannot be listed"):
            counted = changes.groupBy(VERSION).count().orderBy(VERSION)
            found = (counted if most is None else counted.limit(most)).collect()
        return [(int(version), int(count)) for version, count in found]

    def _after(self, before: int) -> DataFrame:
        """What changed after a version.

        It is asked for from this version on, which is there: a catalog may refuse a range that
        begins after the newest one. Spark need not pair rows that were only copied: they add up to
        nothing.
        """
        with self._trying(f"its changes from version {before} on cannot be read"):
            wanted = self._session.read.option("deduplicationMode", "none")
            found = wanted.option("startingVersion", before).changes(self._name)
            kind = found.schema[VERSION].dataType
        if not isinstance(kind, T.IntegralType):
            raise self._failure(
                f"its versions are of type {kind.simpleString()}, and only whole numbers that grow "
                "can be followed; read it as st.MicroBatches(spark.readStream.changes(name), …)"
            )
        return found.where(F.col(VERSION) > before)

    @property
    def _session(self) -> SparkSession:
        return self._spark or get_session()

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        """Errors of Spark as ours."""
        try:
            yield
        except (raised.PySparkException, raised_by_java.Py4JError) as e:
            raise self._failure(f"{what}: {first_line(e)}; {RETRY}") from e

    def _failure(self, said: str) -> SourceError:
        return SourceError(f"table {self._name}: {said}")
