"""Iceberg tables as sources and sinks, by the package pyiceberg, without Spark.

`table` is what users write. `source` reads the difference between two snapshots. `sink` writes
views, and finds and rewrites the files of a step. `place` is the catalog. `types` are those of
Iceberg and Arrow, and the values that pyiceberg would lose. Only `table` does without pyiceberg,
which takes long to import, so it is imported when a table is read or written.
"""

from stepping_spark.pipeline.iceberg.table import IcebergTable as IcebergTable
