"""Views that are held to Spark's own answers, and the queries of others.

These are data beside the project, not in it: `STEPPING_SPARK_CORPORA` names their folder.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from stepping_spark.relations.store import Store
from stepping_spark.spark.types import arrow_schema_of
from tests.every_store import InMemory, MakeStore

FAILED = (PySparkException, Py4JJavaError)
"""What Spark raises for values: errors that PySpark does not know come as those of Java."""

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
    """A view that is maintained, and the sum of its changes: the last one of several statements."""

    text: str
    ddls: Mapping[str, Any]
    rows: Rows = field(default_factory=Counter)
    make_store: MakeStore = field(default_factory=InMemory)
    local_rows: int | None = None
    whole_rows: bool = False

    def __post_init__(self) -> None:
        query = st.sql(self.text, **self.ddls)
        self.classes = query.rows
        self.graph = st.compile(query, whole_rows=self.whole_rows)
        self.stepper = self._stepper(self.make_store(self.graph))

    def _stepper(self, store: Store) -> Any:
        return st.Stepper(self.graph, store, local_rows=self.local_rows)

    def step(self, change: Change) -> None:
        """One step with the changes of all tables; a store that lasts is opened anew before."""
        if not isinstance(self.make_store, InMemory):
            store = self.make_store.reopen(self.stepper.store, self.graph)
            self.stepper = self._stepper(store)
        given = {
            name: st.ZSetPython({row_of(cls, row): n for row, n in change.get(name, {}).items()})
            for name, cls in self.classes.items()
        }
        *_, out = self.stepper.step(tuple(given.values()))
        for row, n in out.iter():
            self.rows[plain(tuple(vars(row).values()))] += n

    @property
    def left(self) -> Rows:
        """The rows that are there now."""
        return Counter({row: n for row, n in self.rows.items() if n})


def row_of(cls: Any, values: Sequence[Any]) -> Any:
    """A row of these values; a list may come as a tuple."""
    return cls(**dict(zip(cls.__row_fields__(), map(listed, values), strict=True)))


def listed(value: Any) -> Any:
    """A value with lists in place of tuples."""
    return list(map(listed, value)) if isinstance(value, tuple) else value


def plain(value: Any) -> Any:
    """A value for comparison: floats to nine digits, one NaN, lists and rows as tuples."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else float(f"{value:.9g}")
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
    """A table of these rows, as a DataFrame.

    It comes by Arrow, so that plans hold the rows: rows of a list go through a Python worker
    in each query.
    """
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    wanted = arrow_schema_of(schema)
    every = [listed(row) for row in rows.elements()]
    columns = zip(*every, strict=True) if every else [()] * len(wanted)
    arrays = [pa.array(column, f.type) for column, f in zip(columns, wanted, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=wanted), schema)


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


@dataclass
class Compared:
    """What became of the queries of a corpus: by name, why one is refused, and what is wrong."""

    right: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)


def compare(
    queries: Sequence[dict[str, Any]],
    ddls: Mapping[str, str],
    streams_of: Callable[[dict[str, Any]], Iterable[tuple[Change, dict[str, Rows]]]],
    spark: Any,
    **how: Any,
) -> Compared:
    """Step the view of each query; after every step it is what Spark answers.

    `how` are arguments of `Maintained`.
    """
    found = Compared()
    frames = Frames(spark, ddls)
    for q in queries:
        try:
            view = Maintained(q["sql"], {t: ddls[t] for t in q["tables"]}, **how)
        except CompileError as e:
            found.refused[q["name"]] = " | ".join(str(e).splitlines())
            continue
        except Exception as e:
            found.wrong[q["name"]] = f"{type(e).__name__}: {e}"
            continue
        said = _held(q, view, streams_of(q), frames)
        if said is None:
            found.right += 1
        else:
            found.wrong[q["name"]] = said
    return found


class Frames:
    """Tables in Spark, each made once for the views that are compared on the same rows."""

    def __init__(self, spark: Any, ddls: Mapping[str, str]) -> None:
        self.spark = spark
        self._ddls = ddls
        self._made: dict[int, tuple[Rows, Any]] = {}

    def register(self, names: Iterable[str], tables: Mapping[str, Rows]) -> None:
        """Let texts read these tables."""
        for name in names:
            rows = tables[name]
            if id(rows) not in self._made:
                self._made[id(rows)] = rows, table_in_spark(self.spark, rows, self._ddls[name])
            self._made[id(rows)][1].createOrReplaceTempView(name)


def _held(
    q: Mapping[str, Any],
    view: Maintained,
    steps: Iterable[tuple[Change, dict[str, Rows]]],
    frames: Frames,
) -> str | None:
    """What is wrong with a view; None: nothing."""
    for number, (change, tables) in enumerate(steps):
        try:
            view.step(change)
        except Exception as e:
            ours: Exception | None = e
        else:
            ours = None
        frames.register(q["tables"], tables)
        if ours is not None:
            return None if _fails(frames.spark, q["sql"]) else f"step {number}: {ours}"
        try:
            wanted = plain_rows(frames.spark.sql(q["sql"]))
        except FAILED:  # of a sub-query whose rows nobody reads here
            return None
        if not same(view.left, wanted):
            more, fewer = view.left - wanted, wanted - view.left
            return f"step {number}: ours {[*more][:3]}, Spark's {[*fewer][:3]}"
    return None


def _fails(spark: Any, text: str) -> bool:
    """Whether Spark raises an error for these rows, too: of a division by zero, of two rows."""
    try:
        spark.sql(text).collect()
    except FAILED:
        return True
    return False


def same(ours: Rows, theirs: Rows) -> bool:
    """Whether rows are equal; doubles may differ in the ninth digit, as sums in any order do."""
    if ours == theirs:
        return True
    both = [sorted(rows.elements(), key=repr) for rows in (ours - theirs, theirs - ours)]
    return len(both[0]) == len(both[1]) and all(map(_alike, *both))


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-8)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(map(_alike, a, b))
    return bool(a == b)
