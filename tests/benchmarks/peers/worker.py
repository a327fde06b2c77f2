"""The process of one peer: reads commands from its standard input, and answers in JSON.

python -m tests.benchmarks.peers.worker ours orders WORKLOAD DIRECTORY VARIANT
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.peers.peer import CannotDo, Tables, Way


def tables_of(directory: Path) -> Tables:
    """The tables in a directory."""
    return {f.stem: pq.read_table(f).combine_chunks() for f in directory.glob("*.parquet")}


def answer(peer: Way, root: Path, command: str, argument: str) -> dict[str, object]:
    """Do what a command says; times are milliseconds."""
    if command == "load":
        tables = tables_of(root / "base")
        begun = time.perf_counter()
        peer.load(tables)
        return {"ms": (time.perf_counter() - begun) * 1e3}
    if command == "step":
        change = tables_of(root / argument)
        peer.prepare(change)
        begun = time.perf_counter()
        jobs = peer.step(change)
        ms = (time.perf_counter() - begun) * 1e3
        peer.keep()
        return {"ms": ms, "jobs": jobs}
    if command == "empty":
        begun = time.perf_counter()
        peer.empty_job()
        return {"ms": (time.perf_counter() - begun) * 1e3}
    if command == "result":
        result: pa.Table = peer.result()
        pq.write_table(result, argument)
        return {}
    peer.close()
    return {}


def main() -> None:
    """Make the peer, and answer until there is nothing more to do."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not come between the answers
    module, view, root, directory, variant = sys.argv[1:6]
    made: Way | None = None
    for line in sys.stdin:
        command, argument = json.loads(line)
        try:
            if made is None:
                made = importlib.import_module(f"tests.benchmarks.peers.{module}").Peer(
                    view, Path(directory), variant
                )
            found = answer(made, Path(root), command, argument)
        except (CannotDo, ImportError) as e:
            found = {"left_out": str(e)}
        except Exception as e:
            traceback.print_exc()
            found = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(found), file=answers)
        if command == "close":
            break
    os._exit(0)  # whatever threads an engine has left


if __name__ == "__main__":
    main()
