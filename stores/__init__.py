"""Stores persist state between steps: one protocol, `st.Store`, and a class for each kind.

`memory`, `parquet` and `postgres` are the kinds; `base` has their common parts: the last step and
its commit, registers by the names of a circuit, and JSON decoding. `step_lock` lets one thread at a
time take a step, and pins a committed step for readers. `batches` are rows in key order. `threads`
wait for disks, networks and sorts. `contract` tests the behaviour that every store must have.
`inspection` looks at a state without its circuit. `location` parses the place of a state on a
command line, such as `parquet:PATH`, and `redaction` says which parts of an address a message may
show.
"""

# The facade re-exports this package: the facade must be loaded before the modules below.
import stepping_spark.base.errors  # noqa: F401
from stores.location import Place, place_of
from stores.memory import StoreMemory
from stores.parquet.store import StoreParquet
from stores.postgres import StorePostgres

__all__ = ["Place", "StoreMemory", "StoreParquet", "StorePostgres", "place_of"]
