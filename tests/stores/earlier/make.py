"""Makes states with the version that is imported: `python -m tests.stores.earlier.make NAME`.

Writes NAME.tar.xz, a directory for each query, and NAME.sql, a schema for each query. Run it from
the root of the version that is to make them, with this folder copied into its `tests/stores/`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import stepping_spark as st
from tests.postgres_server import PostgresServer
from tests.stores.earlier.queries import QUERIES, STEPS, changes_of

HERE = Path(__file__).parent


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, PostgresServer() as server:
        for query, function in QUERIES.items():
            graph = st.compile(function)
            for store in (
                st.StoreParquet.from_graph(graph, Path(scratch) / query, create=True),
                st.StorePostgres.from_graph(graph, server.url, schema=query, create=True),
            ):
                stepper = st.Stepper(graph, store)
                for step in range(len(STEPS) - 1):
                    stepper.step(changes_of(query, step))
                store.close()
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as packed:
            packed.add(scratch, ".")
        dump = subprocess.run(
            [server._bin / "pg_dump", "--inserts", "--no-owner", server.url],
            capture_output=True,
            check=True,
            text=True,
        )
        # Settings and commands of psql are left out: a test executes the rest as it is.
        kept = [
            line
            for line in dump.stdout.splitlines()
            if line and not re.match(r"--|SET |\\|SELECT pg_catalog.set_config", line)
        ]
        (HERE / f"{name}.sql").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
