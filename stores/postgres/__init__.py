"""State as tables in Postgres.

`store` is the store, and keeps reads at one step. `catalog` reads and writes the description of a
state. `changes` collects the changes and the outputs of the current step, and writes them in one
transaction. `connection` connects, `session` holds the writer's lock, `copy` moves rows,
`statements` has the SQL, `types` maps row types to Postgres types. `privileges` checks owners and
rights, and `inspection` inspects a state without a circuit.

All of it needs psycopg. If psycopg is not installed, `StorePostgres` and `PostgresState` are
classes that raise an error when they are used.
"""

from __future__ import annotations

from typing import NoReturn

from stepping_spark.base.errors import StoreUnavailable

try:
    from stores.postgres.inspection import PostgresState as PostgresState
    from stores.postgres.store import StorePostgres as StorePostgres
except ImportError as e:
    # Also "no pq wrapper available": psycopg without libpq. Any other import error is a bug.
    if "psycopg" not in f"{e.name} {e}" and "pq wrapper" not in str(e):
        raise
    _missing = e

    class StorePostgres:  # type: ignore[no-redef]
        """The placeholder for the store if psycopg is not installed."""

        def __init__(self, *_: object, **__: object) -> None:
            _refuse()

        @classmethod
        def from_graph(cls, *_: object, **__: object) -> NoReturn:
            """Raise an error with the package to install."""
            _refuse()

    class PostgresState:  # type: ignore[no-redef]
        """The placeholder for the inspection of its state."""

        def __init__(self, *_: object, **__: object) -> None:
            _refuse()

    def _refuse() -> NoReturn:
        raise StoreUnavailable(
            f"StorePostgres needs psycopg, and its import fails: {_missing}; install it with "
            "pip install 'stepping-spark[postgres]'"
        ) from _missing
