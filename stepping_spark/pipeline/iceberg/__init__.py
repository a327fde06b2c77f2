"""Iceberg tables as sources and sinks, by the package pyiceberg, without Spark: `st.IcebergTable`.

`source` reads the difference between two snapshots. `sink` writes views, and finds and rewrites the
files of a step. `place` loads the table from its catalog. `types` converts types between Iceberg
and Arrow, and detects values that pyiceberg would lose. All need pyiceberg, which takes long to
import, so it is imported when a table is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError
from stepping_spark.base.packages import module_of_extra
from stepping_spark.pipeline.protocols import Sink, Source, flag_given, names_given, texts_given

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class IcebergTable:
    """An Iceberg table, as a source or as a sink: `st.IcebergTable("shop.orders", catalog="prod")`.

    Needs `pip install 'stepping-spark[iceberg]'`, and the packages that pyiceberg needs for the
    catalog, such as `pip install 'pyiceberg[sql-sqlite]'`; reads and writes without Spark. `name`
    has the namespace and the table. `catalog` is the name of a catalog, which `options`,
    pyiceberg's configuration file or its environment variables describe, or a catalog that
    pyiceberg has loaded.

    **As a source** it reads the rows of the current snapshot, then the changes of each newer one.
    A change is the difference between two snapshots: files that both have are not read, and a row
    that stays in a rewritten file cancels out. So rows may be appended, overwritten, merged and
    deleted, and a table may be rolled back; compaction changes nothing. A step reads the files that
    differ, and the lists of files of both snapshots.

    The snapshot that was read last must still exist: keep snapshots for longer than the pipeline
    may stand still. Columns are found by name; those that the row class does not have are not read,
    and columns may be added, dropped, reordered and become wider. A UUID is a text. pyiceberg
    applies position deletes. It cannot read equality deletes, and would lose NULL for a list of
    structs: both are refused. A position is (snapshot, table), and `lag` counts snapshots that
    changed rows. A transaction of several snapshots, such as pyiceberg's `upsert`, is one step,
    unless `max_versions` or `max_bytes` end a step within it.

    **As a sink** the table, and its namespace, are created if they do not exist. A step is one
    snapshot. `key`, `changes` and `columns` are as for `st.DeltaTable`: the rows of the view by
    key, all rows with `_count_`, or a change feed. A step by key rewrites the files that hold its
    keys; only files whose bounds allow a key are read. Spark's tasks write a change of more than
    256 MB in Spark, as for `st.DeltaTable`. Every 64 steps small files are merged; call
    `expire_snapshots` yourself. The number of the step is in the snapshot's summary and in the
    table's properties. A table that already has rows of others, rows that others write between two
    steps, and a second pipeline raise `SinkError`; compaction and expired snapshots do not. Rows of
    a view go to tables without partitions. Types that Iceberg does not have (durations) are refused
    when the pipeline is opened.

    `on_invalid` decides about rows of a source that do not fit the class: `"fail"`, `"drop"`, or a
    sink for them.

    Raises `SourceError` and `SinkError`, which name the table.

    >>> from pyiceberg.catalog import load_catalog
    >>> lake = load_catalog("lake", type="sql", uri="sqlite:///lake.db", warehouse="warehouse")
    >>> lake.create_namespace("shop")
    >>> orders = lake.create_table("shop.orders", pa.schema([("_value_", pa.int64())]))
    >>> orders.append(pa.table({"_value_": [5, 20, 30]}))
    >>> def big(orders: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(orders, f=lambda x: x > 10)
    >>> pipeline = st.Pipeline(
    ...     big,
    ...     store="memory",
    ...     orders=st.IcebergTable("shop.orders", catalog=lake),
    ...     into={"big": st.IcebergTable("shop.big", catalog=lake, key="_value_")},
    ... )
    >>> pipeline.run()
    1
    >>> orders.delete("_value_ = 20")
    >>> pipeline.run(), pipeline.lag()
    (1, {'orders': 0})
    >>> lake.load_table("shop.big").scan().to_arrow().to_pylist()
    [{'_value_': 30}]
    """

    def __init__(
        self,
        name: str,
        *,
        catalog: str | Catalog = "default",
        key: str | Sequence[str] = (),
        changes: bool = False,
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
        options: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(name, str) or "." not in name.strip("."):
            raise InputError(
                f"{user_line()}: expected the name of an Iceberg table with its namespace, as "
                f"'shop.orders', found {name!r}"
            )
        if not isinstance(catalog, str) and not callable(getattr(catalog, "load_table", None)):
            raise InputError(
                f"{user_line()}: catalog=: expected the name of a catalog or one that pyiceberg "
                f"has loaded, found {type(catalog).__name__}"
            )
        if options is not None and not isinstance(catalog, str):
            raise InputError(
                f"{user_line()}: options= describe a catalog that is named, and catalog= has one "
                "that is loaded; give its name, or leave options= out"
            )
        self.name = name
        self.key = names_given("key", key)
        self.changes = flag_given("changes", changes)
        self.columns = texts_given("columns", columns)
        self.on_invalid = on_invalid
        self._catalog = catalog
        self._options = texts_given("options", options)

    def __repr__(self) -> str:
        return f"IcebergTable({self.name!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for two objects of the same table."""
        catalog = self._catalog if isinstance(self._catalog, str) else self._catalog.name
        return ("iceberg", catalog, self.name)

    def source(self) -> Source:
        """The table as a source; raises `InputError` if pyiceberg is missing."""
        source: Source = _of("source").IcebergSource(self.name, self._catalog, self._options)
        return source

    def sink(self) -> Sink:
        """The table as a sink; raises `InputError` if pyiceberg is missing."""
        sink: Sink = _of("sink").IcebergSink(
            self.name, self._catalog, self._options, self.key, changes=self.changes
        )
        return sink


def _of(module: str) -> Any:
    name = f"stepping_spark.pipeline.iceberg.{module}"
    return module_of_extra(name, "st.IcebergTable", "iceberg", ("pyiceberg",))
