"""The buckets of rows in Spark: numbers that Python workers compute. SQL has no such hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.circuit.physical import BUCKET
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import bucket_numbers
from stepping_spark.rows.schema import Schema


def workers_compute(spark: SparkSession) -> bool:
    """Whether the Python workers of a session have what `BucketColumn` needs. Runs a job."""
    try:
        return spark.range(1).mapInArrow(_unchanged, "id BIGINT").count() == 1
    except raised.PySparkException:
        return False


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@dataclass(frozen=True)
class BucketColumn:
    """The number of the bucket of each row, by a hash of some of its columns."""

    schema: Schema
    columns: Sequence[str]
    buckets: int

    def beside(self, frame: DataFrame) -> DataFrame:
        """Rows of the schema, with the number as one more column."""
        names = [n for n, _ in self.schema.all]
        # mapInArrow reads a dot in a name as a field access.
        numbered = frame.toDF(*[f"c{i}" for i in range(len(names))])
        types = ", ".join(f"c{i} {t.ddl}" for i, (_, t) in enumerate(self.schema.all))
        return numbered.mapInArrow(self._with_numbers, f"{types}, b BIGINT").toDF(*names, BUCKET)

    def _with_numbers(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            rows = conform(table.rename_columns(self.schema.arrow.names), self.schema)
            numbers = pa.array(bucket_numbers(rows, self.columns, self.buckets))
            yield from table.append_column("b", numbers).to_batches()
