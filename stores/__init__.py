"""Where state is kept between steps: one protocol, `stepping_spark.store`, and a class for each."""

# The facade re-exports this package: it must be complete before a store imports from below it.
import stepping_spark.errors  # noqa: F401
from stores.memory import StoreMemory
from stores.parquet.store import StoreParquet
from stores.postgres import StorePostgres

__all__ = ["StoreMemory", "StoreParquet", "StorePostgres"]
