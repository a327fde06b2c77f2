"""Python functions of rows: called once per row and step."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from stepping_spark.errors import InputError, StepError, SteppingError
from stepping_spark.expressions.expr import PythonCall
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Operator
from stepping_spark.packages import DataFrame, raised
from stepping_spark.relations.codec import decode, encode
from stepping_spark.rows.grouped import in_groups
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import ListOf
from stepping_spark.spark.errors import first_line, raised_in_worker
from stepping_spark.spark.fetch import check_cut
from stepping_spark.spark.relation import DriverRelation, SparkRelation

Pairs = Iterable[tuple[Any, int]]


def apply_python(v: Vertex, table: pa.Table, where: str, most: int) -> DriverRelation:
    """Apply a vertex's Python function to a relation on the driver, in which no row stands twice.

    A function that raises, or gives something of another type, is a `StepError` that shows the row.
    One that gives more rows than `most` is a `FanOut`.
    """
    operator, source, made = _parts(v)
    called = _called(operator, decode(table, source), where)
    if not operator.grows:
        return DriverRelation(encode(called, made, where), made.schema).added_up()
    pairs = list(itertools.islice(called, most + 1))
    check_cut(len(pairs), operator.name, most)
    return DriverRelation(encode(pairs, made, where), made.schema).added_up()


def apply_python_in_spark(v: Vertex, frame: DataFrame, where: str) -> SparkRelation:
    """The same in Spark's Python workers, computed once and cut off from its lineage.

    Where these are of another Python, which lacks a module, the `StepError` says how to choose it.
    """
    operator, source, made = _parts(v)

    def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in incoming:
            rows = decode(pa.Table.from_batches([batch]), source)
            yield from encode(_called(operator, rows, where), made, where).to_batches()

    schema = frame.sparkSession.createDataFrame([], made.schema.ddl).schema
    try:
        return SparkRelation(frame.mapInArrow(batches, schema).localCheckpoint(), made.schema)
    except raised.PySparkException as e:
        raise of_worker(e, where) from e


def of_worker(e: raised.PySparkException, where: str) -> StepError:
    """What failed in a Python worker of Spark."""
    ours = raised_in_worker(e)
    if ours is not None:
        return StepError(ours[1])
    missing = re.search(r"^ModuleNotFoundError: (.*)$", str(e), re.MULTILINE)
    if missing:
        return StepError(
            f"{where}: Spark's Python workers: {missing[1]}; they run another Python than this "
            "program, or are elsewhere: install it there, or have the environment variable "
            f"PYSPARK_PYTHON say {sys.executable!r} before the session is started"
        )
    return StepError(
        f"{where}: failed in Spark's Python workers: {first_line(e)}; the store is as it was "
        "before the step"
    )


def _parts(v: Vertex) -> tuple[Operator, ZSetType, ZSetType]:
    source, made = v.inputs[0].type, v.type
    assert isinstance(source, ZSetType) and isinstance(made, ZSetType)
    return v.operator, source, made


def _called(operator: Operator, rows: Pairs, where: str) -> Iterator[tuple[Any, int]]:
    f: PythonCall = operator.f  # type: ignore[attr-defined]
    for row, count in rows:
        try:
            value = f.value(row)
            if isinstance(f.type, ListOf) and value is not None:
                value = list(value)
        except SteppingError:
            raise
        except Exception as e:
            raise StepError(
                f"{where}: {f.name} raised {type(e).__name__}: {e}, for the row {row!r}; the "
                "store is as it was before the step"
            ) from e
        try:
            f.type.encode(value, f"{f.name} of {row!r}")
        except InputError as e:
            raise StepError(f"{where}: {e}; correct it, or its annotation") from None
        carried = operator.carried  # type: ignore[attr-defined]
        for item, weight in operator.items(value):  # type: ignore[attr-defined]
            yield in_groups(item, row, carried), count * weight
