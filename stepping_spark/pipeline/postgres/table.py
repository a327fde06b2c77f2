"""`st.Postgres`: a table of Postgres that a pipeline reads, or writes a view to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepping_spark.pipeline.postgres.link import database_of
from stepping_spark.pipeline.postgres.sink import PostgresSink
from stepping_spark.pipeline.postgres.source import PostgresSource


class Postgres:
    """A table of Postgres 15 or newer, as a source or as a sink.

    `url` is as for `st.StorePostgres`; keep passwords in a password file. Needs `pip install
    'stepping-spark[postgres]'`.

    **As a source** it is read by a log of its changes, the table `<table>_changes`. Triggers write
    the log in the transaction that changes the rows. `install()`, or `stepping-spark source
    install`, creates it once, and puts the existing rows into it; it waits for transactions that
    write the table. Each row that is inserted, deleted or updated is a row in the log; TRUNCATE
    deletes all rows. The log costs a statement one such line for each row, and lets no statement
    fail, except that a row has to be shorter than 1 GB as JSON. Transactions are read in the order
    of their numbers, up to the oldest one that still runs on the server. So a transaction that
    commits late is not missed, and one that stays open, in any database of the server, delays the
    views. Columns that the row class does not have are not read, and may come, go and be renamed.
    The log is kept for other pipelines; with `trim=True`, what this pipeline has committed is
    removed from it, and others are refused that have not read it. Nobody else can remove rows of
    the log. `lag` counts rows of the log, also those that wait for an open transaction.

    No trigger sees DDL. The source compares the table with what it was when the log was made, each
    time it reads. If the table was replaced or restored, if triggers were disabled, partitions
    attached with rows, detached or dropped, or if columns that are read were added, renamed or
    altered, it raises an error: `install(again=True)` then writes the difference to the log, and
    pipelines go on. A new partition is followed; until the log is installed again, each read counts
    its rows. So install again when a partition has become large.

    Columns keep their types: a `numeric` is a Decimal, and no `int` or `float`. JSON is `str`, or a
    list or a row class. A type that rows do not have, such as `inet` or `int4range`, is
    read as `str`, in the text that Postgres has for it. NaN in a `numeric`, infinite dates, years
    beyond 9999, and intervals with months are rows that do not fit: an error that names the row, or
    what `on_invalid` says, `"drop"` or a sink, which gets them as `st.Rejected`. JSON's `null` in a
    column that may be NULL is read as NULL. `columns={field: column}` names columns that have other
    names than their fields.

    **As a sink** it is created if it does not exist, with `key` and `changes` as for
    `st.DeltaTable`. The rows of a step and its number, in the table `stepping_spark_steps` of the
    schema, are one transaction, which locks that number: a second pipeline is refused. Lists and
    rows within rows are `jsonb`, as `to_jsonb` writes them. A table with rows that no pipeline
    wrote raises `SinkError`. Before a step is committed, its rows are compared with the table: rows
    that are missing, keys that are not unique, a NUL in a text, or a key that is too long for an
    index raise `SinkError` by then. So does a table that somebody dropped or emptied, and, when it
    is opened, one that has fewer rows than were written; only of `changes` some may be removed, but
    not all. The sink does not look for rows that somebody adds.

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
        self.table = table
        self.schema = schema
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.changes = changes
        self.columns = dict(columns or {})
        self.on_invalid = on_invalid
        self._url = url
        self._trim = trim

    def __repr__(self) -> str:
        return f"Postgres(…, table={self.table!r}, schema={self.schema!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """What is the same for two that name the same table."""
        return database_of(self._url), self.schema, self.table

    def install(self, *, again: bool = False) -> bool:
        """Create the log of changes and its triggers; False if they exist already.

        With `again`, a log that may lack changes is mended: what differs between the log and the
        table is written to the log, so pipelines that read it go on. A log that was trimmed does
        not tell what it has lacked, and is created anew: its pipelines start with a new store.
        """
        source = self.source()
        try:
            return source.install(again=again)
        finally:
            source.close()

    def uninstall(self) -> bool:
        """Remove the log of changes and its triggers; False if there are none.

        Pipelines that read it cannot go on.
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
