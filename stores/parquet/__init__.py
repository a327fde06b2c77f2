"""State as Parquet files in a directory or an object store.

`store` is the store; `commits` makes a step visible by its `manifest`, `locks` keeps other
writers out, `sweep` removes files that no manifest names. `files` writes and reads rows by row
group, `writer` adds a step's batches, `merges` and `spark_files` merge them. `filesystem` is the
only module that touches a directory, `inspection` looks at a state without a circuit.
"""

from stores.parquet.store import StoreParquet

__all__ = ["StoreParquet"]
