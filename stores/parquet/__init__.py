"""State as Parquet files in a directory or an object store.

`store` is the store. `commits` makes a step visible by its `manifest`; `locks` keeps other writers
out, and `claims` tells them apart where a lock fails; `sweep` removes files that no manifest names.
`reading` reads what is committed, by `files`, row group by row group; `file_writer` writes them,
`checks` compares a file with what was written; `writer` adds a step's batches, `merges` and
`spark_files` merge them.
`directory` is what the store asks of a place, `local_directory` and `object_directory` (with
`conditional`) are the two kinds, `filesystem` finds that of a path.
`inspection` looks at a state without a circuit.
"""

from stores.parquet.store import StoreParquet

__all__ = ["StoreParquet"]
