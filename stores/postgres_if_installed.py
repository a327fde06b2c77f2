"""What needs psycopg; where that is not installed, classes of the same names that say so when used.

`StorePostgres`, and `PostgresState` to look at what it keeps.
"""

from __future__ import annotations

from typing import NoReturn

from stepping_spark.errors import StoreUnavailable

try:
    from stores.postgres import StorePostgres as StorePostgres
    from stores.postgres_inspection import PostgresState as PostgresState
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

    class PostgresState:  # type: ignore[no-redef]
        """Stands for what looks at its state."""

        def __init__(self, *_: object, **__: object) -> None:
            _refuse()

    def _refuse() -> NoReturn:
        raise StoreUnavailable(
            f"StorePostgres needs psycopg, and importing it gives: {_missing}; install it with "
            "pip install 'stepping-spark[postgres]'"
        ) from _missing
