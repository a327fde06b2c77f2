"""State as Parquet files in a directory or an object store.

`store` has the store, and reads committed rows. `transaction` makes a step visible by its
`manifest`, and removes files that no manifest names. `fencing` keeps other writers out, by a lock
or a lease, and orders writers if that fails. `description` has the registers and the circuit of a
state, and checks them before the state is opened. `writer` adds the batches of a step, `merges` and
`spark_files` merge them. `files` reads and writes rows, row group by row group; `file_validation`
compares a file with its description. `directories` are on disks and in object stores; `s3` uses
obstore. `inspection` looks at a state without a circuit, and verifies its files.
"""

from stores.parquet.store import StoreParquet

__all__ = ["StoreParquet"]
