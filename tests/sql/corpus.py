"""Views that are held to Spark's own answers; by hand also those of others, of openivm.

    STEPPING_SPARK_CORPORA=folder python -m tests.sql.corpus --every 10

The queries of others are data beside the project, not in it: the variable names their folder.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import stepping_spark as st
from stepping_spark.base.errors import CompileError

Rows = Counter[tuple[Any, ...]]
Change = Mapping[str, Mapping[tuple[Any, ...], int]]


def folder() -> Path:
    """The folder of the queries of others."""
    return Path(os.environ["STEPPING_SPARK_CORPORA"])


def queries(name: str) -> list[dict[str, Any]]:
    """The queries of a file of the corpora."""
    lines = (folder() / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def tpcc() -> Any:
    """The module that makes the data of TPC-C."""
    spec = importlib.util.spec_from_file_location("tpcc", folder() / "tpcc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tpcc"] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Maintained:
    """A view that is maintained, and the sum of its changes."""

    text: str
    ddls: Mapping[str, Any]
    rows: Rows = field(default_factory=Counter)

    def __post_init__(self) -> None:
        query = st.sql(self.text, **self.ddls)
        self.classes = query.rows
        graph = st.compile(query)
        self.stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))

    def step(self, change: Change) -> None:
        """One step with the changes of all tables."""
        given = {
            name: st.ZSetPython({_row(cls, row): n for row, n in change.get(name, {}).items()})
            for name, cls in self.classes.items()
        }
        (out,) = self.stepper.step(tuple(given.values()))
        for row, n in out.iter():
            self.rows[plain(tuple(vars(row).values()))] += n

    @property
    def left(self) -> Rows:
        """The rows that are there now."""
        return Counter({row: n for row, n in self.rows.items() if n})


def _row(cls: Any, values: Sequence[Any]) -> Any:
    return cls(**dict(zip(cls.__row_fields__(), values, strict=True)))


def plain(value: Any) -> Any:
    """A value for comparison: floats to nine digits, lists and rows as tuples."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple(plain(v) for v in value.values())
    if hasattr(value, "__row_fields__"):
        return tuple(plain(v) for v in vars(value).values())
    return value


def table_in_spark(spark: Any, rows: Rows, ddl: str) -> Any:
    """A table of these rows, as a DataFrame."""
    return spark.createDataFrame([row for row, n in rows.items() for _ in range(n)], ddl)


def plain_rows(frame: Any) -> Rows:
    """The rows of a DataFrame, for comparison."""
    return Counter(plain(tuple(row)) for row in frame.collect())


def streams(seed: int, steps: int) -> Iterator[tuple[Change, dict[str, Rows]]]:
    """The changes of each step, and the tables after it."""
    data = tpcc()
    now: dict[str, Rows] = {name: Counter() for name in data.TABLES}
    for change in data.changes(seed=seed, steps=steps):
        for name, rows in change.items():
            for row, n in rows.items():
                now[name][row] += n
        yield (
            change,
            {name: Counter({r: n for r, n in rows.items() if n}) for name, rows in now.items()},
        )


def main() -> None:
    """Run the queries of a corpus; print what is refused and what is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    ddls = tpcc().TABLES
    chosen = [q for q in queries("openivm")[:: given.every] if given.only in (None, q["name"])]
    said: Counter[str] = Counter()
    views: dict[str, tuple[dict[str, Any], Maintained]] = {}
    began = time.time()
    for q in chosen:
        try:
            views[q["name"]] = q, Maintained(q["sql"], {t: ddls[t] for t in q["tables"]})
        except CompileError as e:
            said["refused"] += 1
            print("REFUSED", q["name"], str(e).replace("\n", " | ")[:400], flush=True)
        except Exception as e:
            said["crashed"] += 1
            print("CRASHED", q["name"], type(e).__name__, str(e)[:300], flush=True)
            if given.only:
                raise
    print(f"{len(views)} of {len(chosen)} compiled in {time.time() - began:.0f} s", dict(said))
    if not given.compile:
        compare(views, ddls, given.steps)


def session() -> Any:
    """A session of Spark as a user has it, in UTC."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def compare(views: dict[str, tuple[dict[str, Any], Maintained]], ddls: Any, steps: int) -> None:
    """Step all views, and compare each with Spark after the first and the last step."""
    spark = session()
    said: Counter[str] = Counter()
    bad: set[str] = set()
    for number, (change, tables) in enumerate(streams(1, steps), 1):
        for name, rows in tables.items():
            table_in_spark(spark, rows, ddls[name]).createOrReplaceTempView(name)
        for name, (q, view) in views.items():
            if name in bad:
                continue
            try:
                view.step(change)
            except Exception as e:
                bad.add(name)
                print("CRASHED", name, number, type(e).__name__, str(e)[:500], flush=True)
                continue
            if number not in (1, steps):
                continue
            wanted = plain_rows(spark.sql(q["sql"]))
            if view.left != wanted:
                bad.add(name)
                more, less = view.left - wanted, wanted - view.left
                print(
                    "WRONG",
                    name,
                    number,
                    q["sql"][:500],
                    "\n   ours",
                    list(more)[:3],
                    "\n  spark",
                    list(less)[:3],
                    flush=True,
                )
            else:
                said["right"] += 1
    print(dict(said), f"bad: {len(bad)}")


if __name__ == "__main__":
    main()
