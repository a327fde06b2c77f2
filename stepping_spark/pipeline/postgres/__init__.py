"""Tables of Postgres as sources and sinks.

`table` is the public class. `link` is the connection. `log` installs a log of changes, which
triggers write. `followed` reads a table from the catalogs, and checks the owner and the
completeness of its log. `types` has the types of its columns and their values. `source` reads the
log, and `lines` converts its lines to rows. `sink` writes views; `staging` compares a step's rows
with the table before. All of it needs psycopg. Without psycopg, `Postgres` is a class that raises
an error when it is used.
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
        """Stands in for the table if psycopg is missing."""

        def __init__(self, *_: object, **__: object) -> None:
            raise InputError(
                f"st.Postgres needs psycopg, and its import fails: {_missing}; install it with "
                "pip install 'stepping-spark[postgres]'"
            ) from _missing
