"""Holds views to Spark SQL: after random changes, their sums are what SQL says of the tables."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.rows.types import row_type

Draw = Callable[[random.Random], Any]
Found = Counter[tuple[Any, ...]]


def changes(
    tables: Mapping[str, Draw], *, steps: int, many: int, seed: int
) -> Iterator[tuple[dict[str, Counter[Any]], tuple[st.ZSetPython[Any], ...]]]:
    """The tables after each step, and the step: insertions, deletions and updates of rows.

    Rows come several times. Before the last step all is deleted.
    """
    source = random.Random(seed)
    there: dict[str, Counter[Any]] = {name: Counter() for name in tables}
    for step in range(steps):
        change = []
        for name, draw in tables.items():
            rows = there[name]
            gone = Counter(r for r in rows.elements() if source.random() < 0.3)
            if step == steps - 2:
                gone = Counter(rows)
            new = [draw(source) for _ in range(many)]
            came = Counter(new + source.sample(new, many // 3))
            there[name] = rows - gone + came
            change.append(st.ZSetPython([*came.items(), *((r, -n) for r, n in gone.items())]))
        yield there, tuple(change)


def held_to_sql(
    spark: SparkSession,
    graph: Any,
    stepper: Callable[[], st.Stepper[Any, Any]],
    texts: Mapping[str, str],
    tables: Mapping[str, Draw],
    *,
    steps: int = 4,
    many: int = 9,
    seed: int = 0,
) -> None:
    """Compare the sum of a query's outputs with SQL's answers, and each with `st.reference`.

    `texts` are in the order of the outputs. `stepper` gives one for a step.
    """
    reference = st.reference(graph)
    total: list[st.ZSetPython[Any]] = [st.ZSetPython() for _ in texts]
    there: dict[str, Counter[Any]] = {}
    given = changes(tables, steps=steps, many=many, seed=seed)
    for step, (there, change) in enumerate(given):  # noqa: B007 - the last ones are looked at
        out = [z.to_python() for z in stepper().step(change)]
        plain = reference.step(change)
        for name, found, wanted in zip(texts, out, plain, strict=True):
            assert found == wanted, f"step {step}, {name}: not what st.reference gives"
        total = [a + b for a, b in zip(total, out, strict=True)]
    for name, draw in tables.items():
        rows = list(there[name].elements())
        in_spark(spark, rows, type(draw(random.Random(0)))).createOrReplaceTempView(name)
    for (name, text), found in zip(texts.items(), total, strict=True):
        assert shown(found) == by_sql(spark, text), f"{name}: not what SQL gives"


def in_spark(spark: SparkSession, rows: list[Any], row: type) -> Any:
    """Rows as a DataFrame, each as often as it is there."""
    columns = row_type(row).fields  # type: ignore[attr-defined]
    schema = ", ".join(f"`{n}` {t.ddl}" for n, t in columns)
    return spark.createDataFrame([dataclasses.astuple(r) for r in rows], schema)


def by_sql(spark: SparkSession, text: str) -> Found:
    """What Spark SQL gives: rows, each as often as it comes."""
    return Counter(tuple(map(normal, row)) for row in spark.sql(text).collect())


def shown(z: st.ZSetPython[Any]) -> Found:
    """A Z-set in the same form."""
    found: Found = Counter()
    for row, n in z.iter():
        found[tuple(flat(row))] += n
    return found


def flat(row: Any) -> Iterator[Any]:
    """The fields of a row, and of the rows in it."""
    if dataclasses.is_dataclass(row):
        row = tuple(getattr(row, f.name) for f in dataclasses.fields(row))
    elif not isinstance(row, tuple):
        row = (row,)
    for value in row:
        if dataclasses.is_dataclass(value):
            yield from flat(value)
        else:
            yield normal(value)


def normal(value: Any) -> Any:
    """A value that equals its like: floats of nine digits, lists as tuples, local times.

    What is left of numbers that cancel out is zero.
    """
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(float(f"{value:.9g}"), 12) + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(normal, value))
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)  # as `collect` gives it
    return value
