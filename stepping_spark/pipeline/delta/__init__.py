"""Delta tables as sources and sinks, by the package deltalake, without Spark.

`table` is what users write; `source` reads snapshots and change feeds, `sink` writes views,
`vectors` those whose old rows are marked, `files` finds rows in data files, and `log` reads what
each commit did. Only `table` does without the packages of `[delta]`, which take long to import, so
they are imported when a table is read or written.
"""

from stepping_spark.pipeline.delta.table import DeltaTable as DeltaTable
