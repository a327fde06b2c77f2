"""`StorePostgres`; where psycopg is not installed, a class of that name that says so when used."""

from __future__ import annotations

from typing import NoReturn

from stepping_spark.errors import StoreUnavailable

try:
    from stores.postgres import StorePostgres as StorePostgres
except ImportError as e:
    # Also "no pq wrapper available": psycopg without its library. What else is missing is a bug.
    if "psycopg" not in f"{e.name} {e}" and "pq wrapper" not in str(e):
        raise
    _missing = e

    class StorePostgres:  # type: ignore[no-redef]
        """Stands for the store that needs psycopg."""

        def __init__(self, *_: object, **__: object) -> None:
            _refuse()

        @classmethod
        def from_graph(cls, *_: object, **__: object) -> NoReturn:
            """Says what to install."""
            _refuse()

    def _refuse() -> NoReturn:
        raise StoreUnavailable(
            f"StorePostgres needs psycopg, and importing it gives: {_missing}; install it with "
            "pip install 'stepping-spark[postgres]'"
        ) from _missing
