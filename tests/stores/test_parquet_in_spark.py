"""The Parquet store, where batches are too large for the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import StoreError
from stepping_spark.relations.relation import DriverRelation, Relation
from stepping_spark.relations.store import Register, Store
from stores.contract.store import StoreContract
from stores.contract.values import (
    BY_WORD,
    WORDS,
    Create,
    Hold,
    Reopen,
    content,
    keys_relation,
    relation_of,
    row,
)
from stores.parquet import files
from stores.parquet.store import StoreParquet
from tests.cases import constants


@pytest.mark.long
class TestInSpark(StoreContract):
    """Nothing fits the driver: changes and large sets of keys are DataFrames, few keys a table."""

    commits = 20

    @pytest.fixture
    def places(self) -> dict[int, Path]:
        return {}

    @pytest.fixture
    def create(self, tmp_path: Path, places: dict[int, Path], spark: SparkSession) -> Create:
        def made(registers: Sequence[Register]) -> Store:
            # Spark takes some of these for patterns.
            path = tmp_path / f"[a] {{b}} *{uuid4().hex}"
            store = StoreParquet(path, registers, create=True, driver_rows=0, spark=spark)
            places[id(store)] = path
            return store

        return made

    @pytest.fixture
    def reopen(self, places: dict[int, Path], spark: SparkSession) -> Reopen:
        def again(store: Store, registers: Sequence[Register]) -> Store:
            store.close()
            return StoreParquet(places[id(store)], registers, driver_rows=0, spark=spark)

        return again

    @pytest.fixture
    def hold(self, spark: SparkSession) -> Hold:
        def as_frame(relation: DriverRelation) -> Relation:
            few_keys = not relation.schema.diffs and relation.rows <= 100
            return relation if few_keys else relation.in_spark(lambda: spark)

        return as_frame


# -- what the driver leaves to Spark


def large(first: int, n: int) -> list[tuple[str, int, int]]:
    return [(f"w{i}", i, 1) for i in range(first, first + n)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Batches have several files, and these several row groups."""
    monkeypatch.setattr(files, "GROUP_ROWS", 100)
    with constants(rows_per_file=300):
        yield


def rows_of(store: StoreParquet) -> list[str]:
    return ["driver" if p.frame is None else "Spark" for p in store.read(BY_WORD.name)]


@pytest.mark.compat
def test_a_change_is_written_where_its_size_puts_it_and_both_are_read(
    path: Path, spark: SparkSession, small_files: None
) -> None:
    with StoreParquet(path, [BY_WORD], create=True, driver_rows=500, spark=spark) as store:
        for step, n in ((1, 2_000), (2, 200)):
            store.add(
                BY_WORD.name, relation_of(WORDS, large(step * 10_000, n)).in_spark(lambda: spark)
            )
            store.commit(step, None)
        assert rows_of(store) == ["driver", "Spark"]
        assert len(content(store, BY_WORD)) == 2_200
        asked = keys_relation(BY_WORD, [("w10000",), ("w11999",), ("w20001",), ("w30002",)])
        assert len(content(store, BY_WORD, asked)) == 3
    # Opened anew, nothing is cached: what is found is found in files.
    with StoreParquet(path, [BY_WORD], driver_rows=500, spark=spark) as store:
        parts = [p for p in store.read(BY_WORD.name, asked) if p.table is not None]
        assert sum(p.rows or 0 for p in parts) == 3


@pytest.mark.compat
def test_spark_merges_what_is_too_much_for_the_driver_to_the_same_batch(
    path: Path, spark: SparkSession, small_files: None
) -> None:
    found = []
    for most in (10, 10_000_000):
        with (
            constants(merged_here_rows=most),
            StoreParquet(
                path / str(most), [BY_WORD], create=True, driver_rows=0, spark=spark
            ) as store,
        ):
            for step, first in ((1, 0), (2, 1_500), (3, 100)):
                sign = -1 if step == 3 else 1
                rows = [(w, i, sign * n) for w, i, n in large(first, 2_000)]
                store.add(BY_WORD.name, relation_of(WORDS, rows))
                store.commit(step, None)
            store.compact()
            assert store.batches(BY_WORD.name) == 1
            found.append(content(store, BY_WORD))
            asked = keys_relation(BY_WORD, [("w50",), ("w100",), ("w1600",), ("w3000",)])
            assert content(store, BY_WORD, asked).keys() == {
                row("w50", 50),
                row("w1600", 1_600),
                row("w3000", 3_000),
            }
    assert found[0] == found[1]
    assert len(found[0]) == 100 + 500 + 1_400


def test_a_sum_that_no_column_can_hold_is_an_error_of_a_merge_in_spark_too(
    path: Path, spark: SparkSession
) -> None:
    with (
        constants(merged_here_rows=0),
        StoreParquet(path, [BY_WORD], create=True, driver_rows=0, spark=spark) as store,
    ):
        for step in (1, 2):
            store.add(BY_WORD.name, relation_of(WORDS, [("a", 1, 2**62), ("b", step, 1)]))
            store.commit(step, None)
        with pytest.raises(StoreError, match="BIGINT"):
            store.compact()
        assert len(content(store, BY_WORD)) == 3


def test_a_dataframe_that_was_read_stays_good_after_its_files_were_merged_away(
    path: Path, spark: SparkSession
) -> None:
    with StoreParquet(path, [BY_WORD], create=True, driver_rows=100, spark=spark) as store:
        store.add(BY_WORD.name, relation_of(WORDS, large(0, 150)))
        store.commit(1, None)
        (before,) = store.read(BY_WORD.name)
        assert before.frame is not None
        for step in range(2, 9):
            store.add(BY_WORD.name, relation_of(WORDS, large(step * 1_000, 120)))
            store.commit(step, None)
        assert before.frame.count() == 150


def test_an_aborted_change_leaves_no_files(path: Path, spark: SparkSession) -> None:
    with StoreParquet(path, [BY_WORD], create=True, driver_rows=0, spark=spark) as store:
        store.add(BY_WORD.name, relation_of(WORDS, large(0, 5)).in_spark(lambda: spark))
        assert len(list((path / "data").iterdir())) == 1
        store.abort()
        assert not list((path / "data").iterdir())


# -- circuits


class Item(st.Data):
    """A row with an odd field."""

    name: str
    price: Decimal


def kept(items: st.ZSet[Item]) -> st.ZSet[Item]:
    few = st.distinct(items)
    _ = CACHE[few](lambda x: st.integrate_indexed(x, indexes=(lambda i: i.name,)))
    return few


CACHE = st.Cache[Item](name="few")


@pytest.mark.parametrize("driver_rows", [0, 100_000])
def test_a_circuit_goes_on_where_another_process_stopped(
    path: Path, spark: SparkSession, driver_rows: int
) -> None:
    tea, milk = Item(name="tea", price=Decimal(3)), Item(name="milk", price=Decimal("0.5"))
    for number, (change, expected) in enumerate(
        [({tea: 1, milk: 2}, {tea: 1, milk: 1}), ({tea: 1, milk: -1}, {}), ({tea: -2}, {tea: -1})],
        1,
    ):
        graph = st.compile(kept)
        with st.StoreParquet.from_graph(
            graph, path, create=True, driver_rows=driver_rows, spark=spark
        ) as store:
            stepper = st.Stepper(graph, store)
            (out,) = stepper.step((st.ZSetPython(change),), step=number)
            assert out == st.ZSetPython(expected)
        with st.StoreParquet.from_graph(graph, path, driver_rows=driver_rows, spark=spark) as store:
            (again,) = st.Stepper(graph, store).step((None,), step=number)
            assert again == out
            assert store.last_step() == number
    with st.StoreParquet.from_graph(graph, path, read_only=True, spark=spark) as store:
        assert CACHE.zset(store) == st.ZSetPython({milk: 1})
