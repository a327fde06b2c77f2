"""Which way of adding up rows is faster, as a sample of them says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stepping_spark.relations.arrow import are_mostly_different, repeated, sample

ROWS = 200_000
RANDOM = np.random.default_rng(1)


def values(many: int) -> npt.NDArray[np.uint64]:
    """Rows of so many values, in any order."""
    return RANDOM.integers(0, many, ROWS).astype(np.uint64)


def half(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return numbers[: ROWS // 2]


@pytest.mark.parametrize(
    ("numbers", "different"),
    [
        (np.arange(ROWS), True),
        (values(100 * ROWS), True),
        (values(ROWS), False),
        (values(ROWS // 13), False),  # of 16,000 rows in one place, half differ
        (np.repeat(half(np.arange(ROWS)), 2), False),
        (np.append(*[half(values(2**62))] * 2), False),  # two of each, far from each other
        (np.zeros(ROWS), False),
    ],
)
def test_a_sample_tells_whether_few_rows_are_equal(
    numbers: npt.NDArray[Any], different: bool
) -> None:
    numbers = numbers.astype(np.uint64)
    assert are_mostly_different(numbers[sample(ROWS)], ROWS) == different


@pytest.mark.parametrize("rows", [0, 1, 2, 100, 16_384, 16_385, 16_386, 24_577, 10_000_000])
def test_a_sample_is_of_different_rows_from_the_first_to_the_last_ones(rows: int) -> None:
    at = sample(rows)
    assert (np.diff(at) > 0).all()
    assert len(at) <= rows
    if rows:
        assert at[0] == 0
        assert at[-1] > rows - 1 - max(rows // 8_192, 2)


@pytest.mark.parametrize("many", [1, 50, ROWS, 100 * ROWS])
def test_numbers_that_occur_more_than_once_are_found(many: int) -> None:
    numbers = values(many)
    _, back, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    assert (repeated(numbers) == (counts[back] > 1)).all()
