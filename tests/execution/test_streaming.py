"""Streams as sources of steps: real streaming queries over files, and the order of batches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import stepping_spark as st
from stepping_spark.spark.session import JobCounter
from tests.cases import ROOT, Z, stepper_of

LARGE = 20_001  # rows, where one less is few
Take = Callable[[DataFrame, int], None]


class Order(st.Data):
    user: str
    amount: int


class User(st.Data):
    name: str
    city: str


Total = st.Pair[int, str]
TOTALS = st.Cache[Total](name="totals")
CITIES = st.Cache[st.Pair[Order, User]](name="cities")
DDL = {Order: "user STRING, amount BIGINT", User: "name STRING, city STRING"}


def totals(orders: st.ZSet[Order], limit: int) -> int:
    grouped = st.group_reduce_flatten(
        orders, by=lambda o: o.user, zero=int, pick_value=lambda o: o.amount
    )
    _ = TOTALS[grouped](lambda g: st.integrate(g))
    return limit


def cities(orders: st.ZSet[Order], users: st.ZSet[User]) -> st.ZSet[st.Pair[Order, User]]:
    pairs = st.join(orders, users, on_left=lambda o: o.user, on_right=lambda u: u.name)
    _ = CITIES[pairs](lambda p: st.integrate(p))
    return pairs


def total(amount: int, user: str) -> st.Pair[int, str]:
    return st.Pair(left=amount, right=user)


def write(folder: Path, name: str, *rows: st.Data) -> None:
    """A file of rows that a stream sees when it is whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(vars(row)) + "\n" for row in rows), encoding="utf-8")
    hidden.rename(folder / f"{name}.json")


def start(
    spark: SparkSession, folder: Path, of: type[Any], checkpoint: Path, take: Take
) -> StreamingQuery:
    """A query that reads the files that are there, each in a batch of its own."""
    files = spark.readStream.schema(DDL[of]).option("maxFilesPerTrigger", 1).json(str(folder))
    writer = files.writeStream.foreachBatch(take).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def stream(*query: Any) -> None:
    assert start(*query).awaitTermination(120)


def forget_commit(checkpoint: Path, batch: int) -> None:
    """The checkpoint as it is where the process died before the batch was noted as done."""
    for file in (checkpoint / "commits").glob(f"*{batch}*"):
        file.unlink()


def test_a_restarted_query_goes_on_and_a_batch_that_is_committed_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    stepper = stepper_of(totals)
    take = st.foreach_batch(stepper, input="orders")
    orders, checkpoint = tmp_path / "orders", tmp_path / "checkpoint"
    write(orders, "0", Order(user="Ann", amount=1), Order(user="Bob", amount=2))
    write(orders, "1", Order(user="Ann", amount=10))
    stream(spark, orders, Order, checkpoint, take)
    assert stepper.store.last_step() == 2

    forget_commit(checkpoint, 1)
    write(orders, "2", Order(user="Bob", amount=20))
    stream(spark, orders, Order, checkpoint, take)
    assert stepper.store.last_step() == 3
    assert TOTALS.zset(stepper.store) == Z({total(11, "Ann"): 1, total(22, "Bob"): 1})

    # A new checkpoint reads everything again: its batches are no repeats.
    new = tmp_path / "new"
    with pytest.raises(StreamingQueryException, match=r"another streaming query .* source="):
        stream(spark, orders, Order, new, take)
    assert stepper.store.last_step() == 3
    stream(spark, orders, Order, new, st.foreach_batch(stepper, input="orders", source="again"))
    assert TOTALS.zset(stepper.store) == Z({total(22, "Ann"): 1, total(44, "Bob"): 1})


def test_two_streams_feed_one_stepper_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    stepper = stepper_of(cities)
    write(tmp_path / "orders", "0", Order(user="Ann", amount=1), Order(user="Bob", amount=2))
    write(tmp_path / "users", "0", User(name="Ann", city="Kiel"))
    write(tmp_path / "users", "1", User(name="Bob", city="Ulm"))
    queries = [
        start(
            spark,
            tmp_path / name,
            of,
            tmp_path / f"of {name}",
            st.foreach_batch(stepper, input=number),
        )
        for number, (name, of) in enumerate((("orders", Order), ("users", User)))
    ]
    assert all(query.awaitTermination(120) for query in queries)
    found = {(p.left.amount, p.right.city, n) for p, n in CITIES.zset(stepper.store).iter()}
    assert found == {(1, "Kiel", 1), (2, "Ulm", 1)}


def test_a_large_batch_is_computed_once_in_the_session_of_the_stepper(
    spark: SparkSession, tmp_path: Path
) -> None:
    stepper = stepper_of(cities, st.Limits(fetched_rows=LARGE - 1))
    stepper.step((None, Z({User(name="Ann", city="Kiel"): 1})))
    take = st.foreach_batch(stepper, input="orders")
    write(tmp_path / "orders", "0", Order(user="Ann", amount=1))

    def enlarged(batch: DataFrame, batch_id: int) -> None:
        # rand() would give others if it were computed again.
        rows = f"explode(sequence(1, {LARGE})) AS n"
        many = batch.selectExpr("user", rows)
        take(many.selectExpr("user", "CAST(rand() * 1e15 AS BIGINT) AS amount"), batch_id)

    stream(spark, tmp_path / "orders", Order, tmp_path / "checkpoint", enlarged)
    (output,) = stepper.store.last_outputs() or ()
    kept = CITIES.zset(stepper.store)
    assert sum(n for _, n in kept.iter()) == LARGE
    assert st.ZSetSpark(output, kept.type) == kept


def test_a_large_change_may_come_from_another_session(spark: SparkSession) -> None:
    stepper = stepper_of(cities, st.Limits(fetched_rows=LARGE - 1))
    stepper.step((None, Z({User(name="Ann", city="Kiel"): 1})))
    rows = spark.newSession().range(LARGE).selectExpr("'Ann' AS user", "id AS amount")
    (pairs,) = stepper.step((st.ZSetSpark.from_dataframe(rows, Order), None))
    assert pairs.to_dataframe().count() == LARGE


# -- killed between the store's commit and the checkpoint's

PROGRAM = """
import os, signal, sys
from pathlib import Path
import stepping_spark as st
from stepping_spark.spark.session import get_session
from tests.execution.test_streaming import TOTALS, Order, stream, totals

folder, dies_at = Path(sys.argv[1]), int(sys.argv[2])
graph = st.compile(totals)
state = folder / "state"
store = st.StoreParquet.from_graph(graph, str(state), create=not state.exists())
step = st.foreach_batch(st.Stepper(graph, store), input="orders")

def take(batch, batch_id):
    step(batch, batch_id)
    if batch_id == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

stream(get_session(), folder / "orders", Order, folder / "checkpoint", take)
print(store.last_step(), sorted((p.right, p.left, n) for p, n in TOTALS.zset(store).iter()))
store.close()
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.turn(2, number=1)
def test_a_query_killed_after_the_store_committed_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    for i in range(3):
        rows = (Order(user="Ann", amount=10**i), Order(user="Bob", amount=-i))
        write(tmp_path / "orders", str(i), *rows)
    assert program(tmp_path, dies_at=1).returncode == -signal.SIGKILL
    done = program(tmp_path, dies_at=-1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 [('Ann', 111, 1), ('Bob', -3, 1)]\n"


def program(folder: Path, dies_at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(dies_at)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# -- what a batch is


def frame(spark: SparkSession, *rows: tuple[Any, ...], ddl: str = DDL[Order]) -> DataFrame:
    return spark.createDataFrame(list(rows), ddl)


def test_a_batch_is_rows_or_rows_with_counts_or_a_change_feed_or_what_one_makes_of_it(
    spark: SparkSession,
) -> None:
    stepper = stepper_of(totals)
    st.foreach_batch(stepper, 0)(frame(spark, ("Ann", 1), ("Ann", 1), ("Bob", 5)), 0)
    counted = frame(spark, ("Bob", 5, -1), ddl=f"{DDL[Order]}, _count_ INT")
    st.foreach_batch(stepper, "orders")(counted, 1)
    feed = frame(spark, ("Ann", 1, "delete"), ddl=f"{DDL[Order]}, _change_type STRING")
    st.foreach_batch(stepper, "orders", change_feed=True)(feed, 2)
    numbers = spark.createDataFrame([(7,)], "amount BIGINT")

    def of_cid(batch: DataFrame) -> st.ZSet[object]:
        return Z({Order(user="Cid", amount=row.amount): 2 for row in batch.collect()})

    st.foreach_batch(stepper, "orders", to_zset=of_cid)(numbers, 3)
    assert TOTALS.zset(stepper.store) == Z({total(1, "Ann"): 1, total(14, "Cid"): 1})


def test_an_empty_batch_is_a_step_without_changes(spark: SparkSession) -> None:
    stepper = stepper_of(totals)
    take = st.foreach_batch(stepper, "orders")
    take(frame(spark), 0)
    take(frame(spark, ("Ann", 1)), 1)
    assert stepper.store.last_step() == 2
    assert TOTALS.zset(stepper.store) == Z({total(1, "Ann"): 1})


def test_a_batch_again_runs_no_job(spark: SparkSession) -> None:
    stepper = stepper_of(totals)
    take = st.foreach_batch(stepper, "orders")
    batch = frame(spark, ("Ann", 1))
    take(batch, 0)
    with JobCounter(spark) as jobs:
        take(batch, 0)
    assert jobs.count == 0
    assert stepper.store.last_step() == 1


def test_a_batch_that_does_not_fit_is_an_input_error_and_may_be_given_again(
    spark: SparkSession,
) -> None:
    stepper = stepper_of(totals)
    take = st.foreach_batch(stepper, "orders")
    feed = frame(spark, ("Ann", 1, "delete"), ddl=f"{DDL[Order]}, _change_type STRING")
    wrong = {
        "there is no column amount": feed.select("user"),
        "'_change_type' is not one of .* say change_feed=True": feed,
        "column 'user': expected str, found NULL": frame(spark, (None, 1)),
    }
    for said, batch in wrong.items():
        with pytest.raises(st.InputError, match=f"^input 'orders'.*{said}"):
            take(batch, 0)
    assert stepper.store.last_step() == 0
    take(frame(spark, ("Ann", 1)), 0)
    assert stepper.store.last_step() == 1


# -- which batch comes next


def taken(spark: SparkSession, batches: Iterable[int], **options: Any) -> int:
    """Take empty batches of these numbers; gives the number of steps."""
    stepper = stepper_of(totals)
    take = st.foreach_batch(stepper, "orders", **options)
    empty = frame(spark)
    for batch in batches:
        take(empty, batch)
    return stepper.store.last_step()


def test_batches_come_one_after_the_other_the_last_one_perhaps_again(spark: SparkSession) -> None:
    assert taken(spark, [0, 0, 1, 1, 1, 2]) == 3
    assert taken(spark, [7, 7, 8], first_batch=7) == 2


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([7], "the first batch of source 'orders' is number 7, .* say first_batch=7"),
        ([0, 1, 2, 0], "gave batch 0, .* is 2, so that the next is 3: the checkpoint is an older"),
        ([0, 2], "gave batch 2, .* is 0, so that the next is 1: the store is an older copy .*"),
    ],
)
def test_a_batch_out_of_order_is_refused(
    spark: SparkSession, batches: list[int], said: str
) -> None:
    with pytest.raises(st.StoreError, match=said):
        taken(spark, batches)


def test_sources_of_several_names_count_apart(spark: SparkSession) -> None:
    stepper = stepper_of(totals)
    for source in ("a", "b", "a"):
        st.foreach_batch(stepper, "orders", source=source)(frame(spark, ("Ann", 1)), 0)
    assert TOTALS.zset(stepper.store) == Z({total(2, "Ann"): 1})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"input": "order"}, "totals has no input 'order'; its inputs are orders, limit: give one"),
        ({"input": 2}, "no input 2; its inputs are orders, limit: .* from 0 to 1"),
        ({"input": -1}, "no input -1"),
        ({"input": True}, "no input True"),
        ({"input": "limit"}, "input 'limit' of totals takes int, .* Stepper.step_from"),
        ({"input": 0, "change_feed": True, "to_zset": Z}, "change_feed=True and to_zset= were"),
    ],
)
def test_an_input_that_cannot_be_fed_is_one_clear_error(options: Any, said: str) -> None:
    with pytest.raises(st.InputError, match=f"^foreach_batch.*{said}"):
        st.foreach_batch(stepper_of(totals), **options)
