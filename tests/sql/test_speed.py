"""How long views from SQL take: CPU times, which other processes hardly change.

What is too great is measured again, and the least counts: noise only adds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stepping_spark as st
from tests.benchmarks.tpch_in_sql import MOST, compared, cpu
from tests.tpch.data import generate, table_of
from tests.tpch.sql import QUERIES
from tests.tpch.tables import TABLES

pytestmark = pytest.mark.long

MOST_COMPILING = 100
"""Milliseconds of compiling a view after the first."""
TRIES = 3


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """The tables of TPC-H."""
    folder: Path = tmp_path_factory.mktemp("tpch")
    generate(folder, "0.02")
    return {name: table_of(folder, name) for name in TABLES}


@pytest.mark.spark  # which divides the Decimals of two queries
@pytest.mark.parametrize("n", QUERIES)
def test_a_step_of_a_view_from_sql_takes_as_long_as_one_by_hand(
    n: int, tables: dict[str, pa.Table]
) -> None:
    ratios: list[float] = []
    while len(ratios) < TRIES and min(ratios, default=MOST + 1) > MOST:
        _, _, by_hand, in_sql, _, _ = compared(tables, n, share=0.1, rounds=7)
        ratios.append(in_sql / by_hand)
    assert min(ratios) <= MOST, ratios


@pytest.mark.parametrize("n", QUERIES)
def test_a_view_compiles_in_a_tenth_of_a_second_after_the_first(n: int) -> None:
    given: dict[str, Any] = {name: TABLES[name] for name in TABLES if name in QUERIES[n]}

    def compile_() -> object:
        return st.compile(st.sql(QUERIES[n], **given))

    compile_()
    assert min(cpu(compile_) for _ in range(TRIES)) <= MOST_COMPILING
