"""Products with more digits than a Decimal has are those of Spark, to the last digit."""

from __future__ import annotations

import random
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stepping_spark.expressions.arrow_kernels import kernel_of
from stepping_spark.expressions.expr import Call, Field
from stepping_spark.expressions.operations import result_type
from stepping_spark.rows.atoms import Atom, RowType

TYPES = [
    ((32, 4), (16, 2)),
    ((38, 10), (10, 5)),
    ((20, 20), (20, 20)),
    ((38, 38), (2, 0)),
    ((38, 37), (37, 1)),
    ((30, 15), (20, 10)),
    ((38, 0), (20, 10)),
]


def decimal(p: int, s: int) -> RowType:
    return Atom("Decimal", Decimal, p, s)


def number(r: random.Random, p: int, s: int) -> Decimal | None:
    """A decimal; many have a last digit of 5, which rounds away from zero."""
    if r.random() < 0.05:
        return None
    unscaled = r.randrange(10 ** r.choice((p, p // 2, 1)))
    if r.random() < 0.5:
        unscaled = unscaled // 10 * 10 + 5
    return Decimal(r.choice((-1, 1)) * unscaled).scaleb(-s, Context(prec=100))


@pytest.mark.parametrize(("one", "other"), TYPES)
def test_a_product_is_the_one_of_spark(
    spark: SparkSession, one: tuple[int, int], other: tuple[int, int]
) -> None:
    r = random.Random(str((one, other)))
    rows = [(number(r, *one), number(r, *other)) for _ in range(300)]
    frame = spark.createDataFrame(rows, f"a decimal{one}, b decimal{other}")
    product = frame.selectExpr("try_multiply(a, b) AS x")
    types = decimal(*one), decimal(*other)
    made = result_type("*", types, "")
    assert made.ddl.replace(" ", "").lower() == product.schema[0].dataType.simpleString()
    kernel = kernel_of(Call(made, "*", (Field(types[0], ("a",)), Field(types[1], ("b",)))))
    assert kernel is not None
    for (a, b), (wanted,) in zip(rows, product.collect(), strict=True):
        columns = [pa.array([v], t.arrow) for v, t in zip((a, b), types, strict=True)]
        found = kernel(columns)
        if found is None:  # it is too large, and Spark is asked
            assert wanted is None
            assert a is not None
            assert b is not None
        else:
            assert found.to_pylist() == [wanted]
