"""Iceberg tables as sources, by the package pyiceberg, without Spark.

`table` is what users write; `source` reads what differs between two snapshots. Only `source` needs
pyiceberg, which takes long to import: so it is imported when a table is read.
"""

from stepping_spark.pipeline.iceberg.table import IcebergTable as IcebergTable
