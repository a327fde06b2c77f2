"""Merges in another thread, while Spark's tasks take the step."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import StoreCorrupt, StoreError
from stepping_spark.execution import task_executor
from stepping_spark.plan.segments import NotInTasks
from stores.batches.compaction import Tiers
from stores.parquet.file_validation import Damaged
from stores.parquet.merges import FileMerge
from tests.cases import constants
from tests.every_store import InFiles, InMemory, MakeStore

pytestmark = pytest.mark.spark

IN_TASKS = st.Limits(local_rows=0)


class Sale(st.Data):
    item: int
    shop: int


class Best(st.Data):
    shop: int
    n: int
    most: int


def best(sales: st.ZSet[Sale]) -> st.ZSet[Best]:
    return st.aggregate(
        sales,
        by=lambda s: s.shop,
        into=Best,
        n=st.agg.count(),
        most=st.agg.max(lambda s: s.item),
    )


GRAPH: Any = st.compile(best)


@pytest.fixture(params=["memory", "files"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    made = InMemory() if request.param == "memory" else InFiles(tmp_path)
    yield made
    made.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The threads that have merged, and how often each."""
    tend, found = Tiers.tend, Counter[str]()

    def counted(tiers: Any, batches: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
        found[threading.current_thread().name.partition("_")[0]] += 1
        return tend(tiers, batches, rows)

    monkeypatch.setattr(Tiers, "tend", counted)
    return found


class Life:
    """A view that is stepped in tasks, beside its executable meaning, with some steps behind it."""

    def __init__(self, make_store: MakeStore, steps: int = 0) -> None:
        self.store: Any = make_store(GRAPH)
        self.stepper = st.Stepper(GRAPH, self.store, limits=IN_TASKS)
        self.meaning = st.reference(GRAPH)
        self._random = random.Random(7)
        self._there: list[Sale] = []
        for _ in range(steps):
            self.step(50)

    def change(self, rows: int) -> st.ZSetPython[Sale]:
        """Rows that come, and others that go."""
        came = [Sale(item=self._random.randrange(10**6), shop=i % 9) for i in range(rows)]
        gone = self._random.sample(self._there, min(rows // 2, len(self._there)))
        self._there += came
        change: st.ZSetPython[Sale] = st.ZSetPython([(row, 1) for row in came])
        for row in gone:
            self._there.remove(row)
            change += st.ZSetPython({row: -1})
        return change

    def step(self, rows: int) -> None:
        """A step, held to the meaning."""
        self.take(self.change(rows))

    def take(self, change: st.ZSetPython[Sale]) -> None:
        """A step with this change, held to the meaning."""
        (out,) = self.stepper.step((change,))
        assert (out.to_python(),) == self.meaning.step((change,))


def batches_of(store: Any) -> int:
    """The most batches that a register has."""
    found: int = max(store.batches(name) for name in store.rows_written)
    return found


@pytest.mark.turn(2)
@constants(merged_rows=16)
def test_batches_are_merged_in_slices_while_tasks_compute(
    spark: SparkSession, make_store: MakeStore, threads: Counter[str]
) -> None:
    life = Life(make_store)
    for n in range(12):
        life.step(60 if n else 400)
        assert not life.stepper.metrics[-1].not_in_tasks
    assert batches_of(life.store) < 8
    # A register that got more rows than the change had merges the rest in the step's own thread.
    assert threads["stepping-spark-merges"] >= 12 * len(life.store.rows_written)
    assert threads["MainThread"] < 12


@pytest.mark.driver
def test_steps_of_the_driver_and_of_tasks_merge_each_in_its_thread(
    spark: SparkSession, make_store: MakeStore, threads: Counter[str]
) -> None:
    life = Life(make_store)
    here = st.Stepper(GRAPH, life.store)
    tasks, seen = life.stepper, set[str]()
    for n in range(6):
        life.stepper = tasks if n % 2 else here
        threads.clear()
        life.step(50)
        seen |= {f"{n % 2} {thread}" for thread in threads}
    assert seen == {"0 MainThread", "1 stepping-spark-merges"}


@pytest.mark.turn(2)
def test_a_job_that_fails_leaves_the_merges_to_the_step_that_goes_on(
    spark: SparkSession, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(make_store, steps=3)
    fetched = task_executor._fetched

    def fails(frame: Any) -> Any:
        raise NotInTasks("a worker is gone")

    monkeypatch.setattr(task_executor, "_fetched", fails)
    life.step(50)
    assert life.stepper.metrics[-1].not_in_tasks == "a worker is gone"
    monkeypatch.setattr(task_executor, "_fetched", fetched)
    again = st.Stepper(GRAPH, life.store, limits=IN_TASKS)
    life.stepper = again
    for _ in range(3):
        life.step(50)
        assert not again.metrics[-1].not_in_tasks


def test_an_interrupt_leaves_the_merge_to_the_step_that_is_taken_again(
    spark: SparkSession, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(make_store, steps=3)
    change = life.change(50)
    tend, done, begun = Tiers.tend, [], threading.Event()

    def slow(tiers: Any, batches: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
        begun.set()
        threading.Event().wait(0.2)
        done.append(tiers)
        return tend(tiers, batches, rows)

    def interrupted(frame: Any) -> Any:
        assert begun.wait(60)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Tiers, "tend", slow)
        patch.setattr(task_executor, "_fetched", interrupted)
        with pytest.raises(KeyboardInterrupt):
            life.stepper.step((change,))
    assert life.store.last_step() == 3
    life.take(change)
    assert done


def test_damage_that_a_merge_finds_ends_the_step_and_nothing_is_lost(
    spark: SparkSession, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(make_store, steps=3)
    change = life.change(50)

    def damaged(tiers: Any, batches: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
        raise StoreCorrupt("a page is not as it was written")

    with monkeypatch.context() as patch:
        patch.setattr(Tiers, "tend", damaged)
        with pytest.raises(StoreCorrupt, match="a page is not"):
            life.stepper.step((change,))
    assert life.store.last_step() == 3
    life.take(change)


def test_a_file_that_a_merge_cannot_read_is_told_as_damage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = InFiles(tmp_path)
    life = Life(stores, steps=3)
    change = life.change(50)

    def damaged(merge: Any, rows: int) -> None:
        raise Damaged("0001.parquet cannot be read as Parquet")

    with monkeypatch.context() as patch:
        patch.setattr(FileMerge, "work", damaged)
        with pytest.raises(StoreCorrupt, match=r"step 3 cannot be read: 0001\.parquet"):
            life.stepper.step((change,))
    life.take(change)
    stores.close()


@pytest.mark.turn(2)
def test_a_store_that_is_closed_while_it_merges_commits_no_step_without_rows(
    spark: SparkSession, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails, Spark SQL takes the step, and another thread closes the store meanwhile."""
    life = Life(make_store, steps=3)
    store, change = life.store, life.change(50)
    tend, commit, may_go_on = Tiers.tend, type(store)._commit, threading.Event()
    closing = threading.Thread(target=store.close)

    def slow(tiers: Any, batches: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
        may_go_on.wait(10)
        return tend(tiers, batches, rows)

    def fails(frame: Any) -> Any:
        raise NotInTasks("a worker is gone")

    def committed(*arguments: Any) -> None:
        closing.start()
        time.sleep(0.3)  # it waits for the merge
        may_go_on.set()
        commit(*arguments)

    monkeypatch.setattr(Tiers, "tend", slow)
    monkeypatch.setattr(task_executor, "_fetched", fails)
    monkeypatch.setattr(type(store), "_commit", committed)
    with pytest.raises(StoreError, match="closed"):
        life.stepper.step((change,))
    closing.join()
