"""Up to where a log can be read: the oldest transaction of the server that still runs."""

from __future__ import annotations

from stepping_spark.pipeline.postgres.link import run
from stores.postgres.connection import Connection

# All transactions before the oldest one that runs have ended, so nothing is added before it.
_HORIZON = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint"

# Who may not see the statistics of others still sees their process.
_HOLDER = """
SELECT pg_catalog.format('process %s of %s', pid, coalesce(usename, 'an unknown user')), xact_start
FROM pg_catalog.pg_stat_activity WHERE backend_xid = $1::text::xid8::xid
UNION ALL
SELECT pg_catalog.format('PREPARE TRANSACTION %L', gid), prepared
FROM pg_catalog.pg_prepared_xacts WHERE transaction = $1::text::xid8::xid
"""


def horizon_of(connection: Connection) -> int:
    """The oldest transaction that runs, or the next one."""
    return int(connection.execute(_HORIZON).fetchall()[0][0])


def holder_of(connection: Connection, transaction: int) -> str:
    """A transaction that runs, in words: whose it is, and since when it is open."""
    found = run(connection, _HOLDER, str(transaction)).fetchone()
    if found is None:
        return f"transaction {transaction}, which is open on the server"
    whose, since = found
    opened = "open" if since is None else f"open since {since:%Y-%m-%d %H:%M:%S} UTC"
    return f"transaction {transaction} ({whose}), {opened}"
