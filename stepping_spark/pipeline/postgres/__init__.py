"""Tables of Postgres as sources and sinks.

`table` is what users write. `link` is the connection. `log` makes a log of changes, which triggers
write. `followed` is a table as the catalogs have it, and tells whose its log is, and whether it
lacks changes. `types` has the types of its columns and their values. `source` reads the log, whose
lines `lines` makes rows. `sink` writes views; `staging` compares a step's rows with the table
before. All of it needs psycopg. Where that is not installed, `Postgres` is a class that says so
when it is used.
"""

from __future__ import annotations

from stepping_spark.base.errors import InputError

try:
    from stepping_spark.pipeline.postgres.table import Postgres as Postgres
except ImportError as e:
    if "psycopg" not in f"{e.name} {e}" and "pq wrapper" not in str(e):
        raise
    _missing = e

    class Postgres:  # type: ignore[no-redef]
        """Stands for the table that needs psycopg."""

        def __init__(self, *_: object, **__: object) -> None:
            raise InputError(
                f"st.Postgres needs psycopg, and importing it gives: {_missing}; install it with "
                "pip install 'stepping-spark[postgres]'"
            ) from _missing
