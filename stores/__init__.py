"""Stores keep state between steps: one protocol, `st.Store`, and a class for each kind of store.

`place_of` reads the place of a state in one word of a command line, such as `parquet:PATH`.
"""

# The facade re-exports this package: it must be complete before a store imports from below it.
import stepping_spark.errors  # noqa: F401
from stores.address import Place, place_of
from stores.memory import StoreMemory
from stores.parquet.store import StoreParquet
from stores.postgres import StorePostgres

__all__ = ["Place", "StoreMemory", "StoreParquet", "StorePostgres", "place_of"]
