"""Delta tables as sources and sinks, by the package deltalake, without Spark: `st.DeltaTable`.

`source` reads snapshots and change feeds. `sink` writes views, by deltalake or by `writing`, which
marks old rows in deletion vectors. `log` reads the actions of each commit, and rows of a version by
deltalake's scan. `files` reads the data files of a change, and finds the places of rows in files,
which deltalake does not return. All need the packages of `[delta]`, which take long to import, so
they are imported when a table is read or written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError
from stepping_spark.base.packages import module_of_extra
from stepping_spark.pipeline.protocols import (
    checked_path,
    flag_given,
    names_given,
    one_given,
    same_path,
    texts_given,
)

if TYPE_CHECKING:
    from stepping_spark.pipeline.delta.sink import DeltaSink
    from stepping_spark.pipeline.delta.source import DeltaSource


DIFFS = ("feed", "snapshot")


class DeltaTable:
    """A Delta table, as a source or as a sink: `st.DeltaTable("s3://lake/orders")`.

    Needs `pip install 'stepping-spark[delta]'`; reads and writes without Spark. `options` are
    deltalake's `storage_options`, for object stores.

    **As a source** it reads the table's rows, then the changes of each version, by the change data
    feed (`delta.enableChangeDataFeed`), which must be on. Versions from before it was switched on
    are compared, as far as their files exist. With `diff="snapshot"` all versions are compared: a
    step then reads the rows of two versions in the partitions that changed. A version that changes
    the type of a column, or replaces the table, is compared, too. In a table with column mapping,
    so is a version that deletes rows by vectors alone; and each version, if the mapping is by ids
    or a nested column is read.

    Columns are found by name; those that the row class does not have are not read. Columns may be
    added, dropped and reordered, renamed by column mapping, and become wider. OPTIMIZE and VACUUM
    change nothing. An overwrite and `CREATE OR REPLACE TABLE` are ordinary changes: the difference
    between the two versions. Deletion vectors are read. A table that was deleted and created again
    is refused: the store keeps (version, table) as the position. `lag` counts versions that changed
    rows.

    **As a sink** it is created if it does not exist, with a change data feed, so that another
    pipeline can read it. Its content depends on the arguments:

    - `key=("country",)`: the rows of the view, one for each key; the key must be unique in the
      view. A step is one commit: an append if rows are only added, otherwise a merge by the key.
    - without `key`: the rows of the view and `_count_`, how often each occurs; merged by all
      columns, which then may not be lists, structs or floats.
    - `changes=True`: the changes of each step, for other readers: `_change_type` (`insert`,
      `delete`), and `_step`, the step's number. With `key`, a key occurs once in a step: `insert`,
      `update_postimage` or `delete`, as Spark's `create_auto_cdc_flow` takes it, with
      `sequence_by="_step"` and `apply_as_deletes="_change_type = 'delete'"`.

    Spark's tasks write a change of more than 256 MB in Spark, each for a part of the keys, and the
    driver commits the files. They rewrite a table with rows, if it has at most eight times the size
    of the change. The driver writes other changes, and tables that are append-only or that
    deltalake must write.

    `columns={field: column}` are the columns that have other names in the table than fields in the
    row class; `key` names fields, or columns. `on_invalid` decides about rows of a source that do
    not fit the class: `"fail"`, `"drop"`, or a sink for them.

    Types that Delta does not have (durations) are refused when the pipeline is opened. A key that
    is not unique and an append-only table are refused before the step is committed.

    A step that deletes rows rewrites the files that contain them. If the table has
    `delta.enableDeletionVectors`, the step instead writes its new rows, and the places of the old
    rows, as deletion vectors within the log. With `deletion_vectors=True` the table is created with
    this property, and an existing table without it is refused. Tables that also have partitions,
    column mapping, constraints, or another unsupported feature are merged.

    Every 64 steps small files are merged (OPTIMIZE), and files with many deleted rows are
    rewritten. Old files stay. With `vacuum=True` they are removed, every 64 steps, when they are
    older than `delta.deletedFileRetentionDuration` of the table (a week by default); otherwise call
    VACUUM yourself.

    The number of the step goes into the same commit. A table that already has rows of others, rows
    that others write between two steps, and a second pipeline raise `SinkError`; OPTIMIZE and
    VACUUM do not.

    Raises `SourceError` and `SinkError`, which name the version.

    >>> import deltalake
    >>> def big(orders: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(orders, f=lambda x: x > 10)
    >>> orders = pa.table({"_value_": [5, 20, 30]})
    >>> deltalake.write_deltalake(
    ...     "orders", orders, configuration={"delta.enableChangeDataFeed": "true"}
    ... )
    >>> pipeline = st.Pipeline(
    ...     big,
    ...     store="parquet:state",
    ...     orders=st.DeltaTable("orders"),
    ...     into={"big": st.DeltaTable("big", key="_value_")},
    ... )
    >>> pipeline.run()
    1
    >>> _ = deltalake.DeltaTable("orders").delete("_value_ = 20")
    >>> pipeline.run(), pipeline.lag()
    (1, {'orders': 0})
    >>> pa.table(deltalake.DeltaTable("big").to_pyarrow_table()).to_pylist()
    [{'_value_': 30}]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str | Sequence[str] = (),
        changes: bool = False,
        diff: str = "feed",
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
        options: Mapping[str, str] | None = None,
        vacuum: bool = False,
        deletion_vectors: bool = False,
    ) -> None:
        if deletion_vectors and changes:
            raise InputError(
                f"{user_line()}: deletion_vectors=True marks rows that go, and with changes=True "
                "rows are only added; leave one of them out"
            )
        self.path = checked_path(path, "options=")
        self.key = names_given("key", key)
        self.changes = flag_given("changes", changes)
        self.diff = one_given("diff", diff, DIFFS)
        self.columns = texts_given("columns", columns)
        self.on_invalid = on_invalid
        self._options = texts_given("options", options)
        self._vacuum = flag_given("vacuum", vacuum)
        self._vectors = flag_given("deletion_vectors", deletion_vectors)

    def __repr__(self) -> str:
        return f"DeltaTable({self.path!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for two objects of the same table."""
        return same_path(self.path)

    def source(self) -> DeltaSource:
        """The table as a source; raises `InputError` if a package is missing."""
        source: DeltaSource = _of("source").DeltaSource(
            self.path, self._options, by_snapshot=self.diff == "snapshot"
        )
        return source

    def sink(self) -> DeltaSink:
        """The table as a sink; raises `InputError` if a package is missing."""
        sink: DeltaSink = _of("sink").DeltaSink(
            self.path,
            self._options,
            self.key,
            changes=self.changes,
            vacuum=self._vacuum,
            vectors=self._vectors,
        )
        return sink


def _of(module: str) -> Any:
    name = f"stepping_spark.pipeline.delta.{module}"
    return module_of_extra(name, "st.DeltaTable", "delta", ("deltalake", "obstore", "pyroaring"))
