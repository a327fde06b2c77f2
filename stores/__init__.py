"""Stores persist state between steps: one protocol, `st.Store`, and a class for each kind.

`place_of` parses the place of a state on a command line, such as `parquet:PATH`.
"""

# The facade re-exports this package: the facade must be loaded before the modules below.
import stepping_spark.base.errors  # noqa: F401
from stores.location import Place, place_of
from stores.memory import StoreMemory
from stores.parquet.store import StoreParquet
from stores.postgres import StorePostgres

__all__ = ["Place", "StoreMemory", "StoreParquet", "StorePostgres", "place_of"]
