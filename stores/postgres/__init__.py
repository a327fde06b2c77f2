"""State as tables in Postgres.

`store` is the store; `catalog` reads and writes what is said of a state, as `last_step` has it.
`additions` are those of the step under way, `outputs` what a step gave, and `changes` writes them
in one transaction. `session` holds the writer's lock, `connection` connects, `copy` moves rows,
`statements` has the SQL, `types` maps row types to Postgres' types, `trust` looks a schema up
before anything is read from it, `snapshot` keeps reads at one step, `inspection` looks at a state
without a circuit.

All of it needs psycopg. Where that is not installed, `StorePostgres` and `PostgresState` are
classes that say so when they are used.
"""

from __future__ import annotations

from typing import NoReturn

from stepping_spark.errors import StoreUnavailable

try:
    from stores.postgres.inspection import PostgresState as PostgresState
    from stores.postgres.store import StorePostgres as StorePostgres
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
