"""Python functions of rows: called once per row and step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from stepping_spark.codec import decode, encode
from stepping_spark.errors import InputError, StepError, SteppingError
from stepping_spark.expr import PythonCall
from stepping_spark.graph import Vertex
from stepping_spark.operators import MapMany
from stepping_spark.relations import consolidate
from stepping_spark.schema import ZSetType
from stepping_spark.store import Held
from stepping_spark.types import ListOf

Pairs = Iterable[tuple[Any, int]]


def apply_python(v: Vertex, held: Held, where: str) -> Held:
    """Apply a vertex's Python function to a relation, in which no row stands twice.

    A relation on the driver is worked on here, one in Spark in its Python workers. A function
    that raises, or gives something of another type, is a `StepError` that shows the row.
    """
    f, source, made = v.operator.f, v.inputs[0].type, v.type  # type: ignore[attr-defined]
    assert isinstance(source, ZSetType) and isinstance(made, ZSetType)
    many = isinstance(v.operator, MapMany)
    if isinstance(held, pa.Table):
        return consolidate(_table(f, many, held, source, made, where), made.schema)

    def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in incoming:
            table = pa.Table.from_batches([batch])
            yield from _table(f, many, table, source, made, where).to_batches()

    schema = _spark_schema(held, made)
    return held.mapInArrow(batches, schema).localCheckpoint()


def _spark_schema(frame: DataFrame, made: ZSetType) -> StructType:
    return frame.sparkSession.createDataFrame([], made.schema.ddl).schema


def _table(
    f: PythonCall, many: bool, table: pa.Table, source: ZSetType, made: ZSetType, where: str
) -> pa.Table:
    return encode(_called(f, many, decode(table, source), made, where), made, where)


def _called(
    f: PythonCall, many: bool, rows: Pairs, made: ZSetType, where: str
) -> Iterator[tuple[Any, int]]:
    check: Callable[[Any, str], Any] = f.type.encode
    for row, count in rows:
        try:
            value = f.value(row)
        except SteppingError:
            raise
        except Exception as e:
            raise StepError(
                f"{where}: {f.name} raised {type(e).__name__}: {e}, for the row {row!r}; the "
                "store is as it was before the step"
            ) from e
        if many and isinstance(f.type, ListOf):
            value = list(value)
        try:
            check(value, f"{f.name} of {row!r}")
        except InputError as e:
            raise StepError(f"{where}: {e}; correct it, or its annotation") from None
        if many:
            yield from ((item, count) for item in value)
        else:
            yield value, count
