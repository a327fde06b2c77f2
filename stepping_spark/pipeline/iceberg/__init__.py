"""Iceberg tables as sources and sinks, by the package pyiceberg, without Spark.

`table` is what users write; `source` reads what differs between two snapshots, `sink` writes views,
and `rewriting` finds and writes the files of a step. `place` is the catalog, `types` are those of
Iceberg and Arrow, and `lists` what pyiceberg would lose. Only `table` does without pyiceberg, which
takes long to import: so it is imported when a table is read or written.
"""

from stepping_spark.pipeline.iceberg.table import IcebergTable as IcebergTable
