"""How much of a DataFrame comes to the driver at once: the same in all stores."""

from __future__ import annotations

MOST_KEYS = 100_000
"""A read by the keys of a DataFrame looks up no more than this; for more it gives all rows."""

MOST_FETCHED = 512 << 20
"""The bytes of a DataFrame that come to the driver: Spark refuses results of 1 GB by default."""
