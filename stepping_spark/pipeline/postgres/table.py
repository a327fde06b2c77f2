"""`st.Postgres`: a table of Postgres that a pipeline reads, or writes a view to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepping_spark.pipeline.postgres.link import database_of
from stepping_spark.pipeline.postgres.sink import PostgresSink
from stepping_spark.pipeline.postgres.source import PostgresSource
from stepping_spark.pipeline.protocols import flag_given, names_given, text_given, texts_given


class Postgres:
    """A table of Postgres 15 or newer, as a source or as a sink.

    `url` is as for `st.StorePostgres`; keep passwords in a password file. Needs `pip install
    'stepping-spark[postgres]'`.

    **As a source** it is read by a log of its changes, the table `<table>_changes`. Triggers write
    the log in the transaction that changes the rows. `install()`, or `stepping-spark source
    install`, creates it once, and puts the existing rows into it; it waits for transactions that
    write the table. Each row that is inserted, deleted or updated is a row in the log; TRUNCATE
    deletes all rows. The log costs a statement one such line for each row, and never makes it fail,
    except for a row of 1 GB or more as JSON. Transactions are read in the order of their numbers,
    up to the oldest one that still runs on the server, and in one step with those that changed the
    same rows before them. So a transaction that commits late is not missed, and one that stays
    open, in any database of the server, delays the views. Columns that the row class does not have
    are not read, and may be added, dropped and renamed. The log is kept for other pipelines; with
    `trim=True`, this pipeline removes the rows that it has committed, and pipelines that have not
    read them are refused. Nobody else can remove rows of the log. `lag` counts rows of the log,
    also rows that wait for an open transaction.

    No trigger sees DDL. At each read, the source compares the table with its state at the
    installation. If the table was replaced or restored, if triggers were disabled, partitions
    attached with rows, detached or dropped, or if columns that are read were added, renamed or
    altered, it raises an error: `install(again=True)` then writes the difference to the log, and
    pipelines continue. A new partition is followed; until the log is installed again, each read
    counts its rows. So install again when a partition has become large.

    Columns keep their types: a `numeric` is a Decimal, and no `int` or `float`. JSON is `str`, or a
    list or a row class. A type that rows lack, such as `inet` or `int4range`, is read as `str`, in
    the text form of Postgres. NaN in a `numeric`, infinite dates, years beyond 9999, and intervals
    with months are rows that do not fit: an error that names the row, unless `on_invalid` is
    `"drop"`, or a sink, which gets them as `st.Rejected`. JSON's `null` in a column that may be
    NULL is read as NULL. `columns={field: column}` maps fields to columns with other names.

    **As a sink** it is created if it does not exist, with `key` and `changes` as for
    `st.DeltaTable`. The rows of a step and its number, in the table `stepping_spark_steps` of the
    schema, are one transaction, which locks that number: a second pipeline is refused. Lists and
    rows within rows are `jsonb`, as `to_jsonb` writes them. A table with rows that no pipeline
    wrote raises `SinkError`. Before a step is committed, its rows are compared with the table: rows
    that are missing, keys that are not unique, a NUL in a text, or a key that is too long for an
    index raise `SinkError` before the commit. So does a table that somebody dropped or emptied,
    and, when it is opened, a table with fewer rows than were written; with `changes` some rows may
    be removed, but not all. The sink does not detect rows that somebody adds.

    Raises `SourceError` and `SinkError`, without the password.

    >>> customers = st.Postgres(
    ...     "postgresql://app@localhost/shop", table="customers"
    ... )                                                             # doctest: +SKIP
    >>> customers.install()                                           # doctest: +SKIP
    True
    >>> pipeline = st.Pipeline(
    ...     query,
    ...     store="postgresql://app@localhost/shop?schema=state",
    ...     customers=customers,
    ...     into={"query": st.Postgres(
    ...         "postgresql://app@localhost/shop", table="view", key=("id",)
    ...     )},
    ... )                                                             # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        *,
        table: str,
        schema: str = "public",
        key: str | Sequence[str] = (),
        changes: bool = False,
        trim: bool = False,
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
    ) -> None:
        self.table = text_given("table", table)
        self.schema = text_given("schema", schema)
        self.key = names_given("key", key)
        self.changes = flag_given("changes", changes)
        self.columns = texts_given("columns", columns)
        self.on_invalid = on_invalid
        self._url = text_given("url", url)
        self._trim = flag_given("trim", trim)

    def __repr__(self) -> str:
        return f"Postgres(…, table={self.table!r}, schema={self.schema!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for two objects of the same table."""
        return database_of(self._url), self.schema, self.table

    def install(self, *, again: bool = False) -> bool:
        """Create the log of changes and its triggers; False if they exist already.

        With `again`, a log that may lack changes is mended: the difference between the log and the
        table is written to the log, so its pipelines continue. A trimmed log cannot be compared
        with the table, and is created anew: its pipelines start with a new store.
        """
        source = self.source()
        try:
            return source.install(again=again)
        finally:
            source.close()

    def uninstall(self) -> bool:
        """Remove the log of changes and its triggers; False if there are none.

        Pipelines that read it cannot continue.
        """
        source = self.source()
        try:
            return source.uninstall()
        finally:
            source.close()

    def source(self) -> PostgresSource:
        """The table as a source."""
        return PostgresSource(self._url, self.schema, self.table, trim=self._trim)

    def sink(self) -> PostgresSink:
        """The table as a sink."""
        return PostgresSink(self._url, self.schema, self.table, self.key, changes=self.changes)
