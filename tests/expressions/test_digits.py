"""Numbers with more digits than a Decimal has are computed as Spark does, to the last digit."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stepping_spark.expressions.arrow_kernels import kernel_of
from stepping_spark.expressions.expr import Call, Field
from stepping_spark.expressions.operations import result_type
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.types import unwrap

TYPES = [
    ((32, 4), (16, 2)),
    ((38, 10), (10, 5)),
    ((20, 20), (20, 20)),
    ((38, 38), (2, 0)),
    ((38, 37), (37, 1)),
    ((30, 15), (20, 10)),
    ((38, 0), (20, 10)),
    ((38, 2), (38, 6)),
]
FUNCTIONS = {"*": "try_multiply(a, b)", "+": "try_add(a, b)", "-": "try_subtract(a, b)",
             "/": "try_divide(a, b)", "<": "a < b", "==": "a = b"}  # fmt: skip


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


def pairs(one: tuple[int, int], other: tuple[int, int]) -> list[tuple[Any, Any]]:
    """Pairs of numbers; some are almost equal."""
    r = random.Random(str((one, other)))
    found = [(number(r, *one), number(r, *other)) for _ in range(300)]
    near = [(a, a if r.random() < 0.5 else a + 1) for a in range(30)]
    units = [(Decimal(1).scaleb(-s), Decimal(4).scaleb(-s)) for _, s in (one, other)]
    for whole, also in near:
        a, b = Decimal(whole % 10), Decimal(also % 10)
        for x, y in ((a, b), (a + units[0][0], b), (a, b + units[1][1])):
            if all(abs(v) < 10 ** (p - s) for v, (p, s) in ((x, one), (y, other))):
                found.append((x, y))
    return found


@pytest.mark.turn(3)
@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize(("one", "other"), TYPES)
def test_a_result_is_the_one_of_spark(
    spark: SparkSession, one: tuple[int, int], other: tuple[int, int], op: str
) -> None:
    rows = pairs(one, other)
    frame = spark.createDataFrame(rows, f"a decimal{one}, b decimal{other}")
    results = frame.selectExpr(f"{FUNCTIONS[op]} AS x")
    types = decimal(*one), decimal(*other)
    made = unwrap(result_type(op, types, ""))
    assert made.ddl.replace(" ", "").lower() == results.schema[0].dataType.simpleString()
    kernel = kernel_of(Call(made, op, (Field(types[0], ("a",)), Field(types[1], ("b",)))))
    assert kernel is not None
    asked = 0
    for values, (wanted,) in zip(rows, results.collect(), strict=True):
        columns = [pa.array([v], t.arrow) for v, t in zip(values, types, strict=True)]
        found = kernel(columns)
        if found is None:  # it is too large, or divided by zero, and Spark is asked
            asked += 1
            assert wanted is None or op in ("<", "==")
        else:
            assert found.to_pylist() == [wanted]
    assert asked < len(rows) / 2
