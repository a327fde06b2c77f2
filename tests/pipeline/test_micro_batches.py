"""Streams of Spark as sources of pipelines: each micro-batch is a step, exactly once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark.base.errors import InputError, SourceError, StepError
from tests.cases import User, Z
from tests.pipeline.shop import View, names

DDL = "id BIGINT, name STRING"


class World:
    """A directory that files are added to, a stream of them, and a pipeline that follows it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.checkpoint = folder / "checkpoint"
        self.view = View()
        (folder / "users").mkdir()

    def write(self, file: str, *users: tuple[int, str]) -> None:
        """Add a file, at once."""
        hidden = self._folder / f".{file}"
        rows = [json.dumps({"id": i, "name": name}) for i, name in users]
        hidden.write_text("\n".join(rows), encoding="utf-8")
        os.utime(hidden, (1_000 + int(file), 1_000 + int(file)))  # files are read by their times
        hidden.rename(self._folder / "users" / f"{file}.json")

    def stream(self) -> DataFrame:
        files = self._spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return files.json(str(self._folder / "users")).where("id <> 0")

    @contextmanager
    def pipeline(
        self, to_zset: Callable[[DataFrame], Any] | None = None, sink: object = None
    ) -> Iterator[st.Pipeline]:
        """The pipeline as a new process has it."""
        source = st.MicroBatches(self.stream(), checkpoint=self.checkpoint, to_zset=to_zset)
        into: Any = self.view if sink is None else sink
        store = f"parquet:{self._folder / 'state'}"
        with st.Pipeline(names, store=store, users=source, into={"names": into}) as made:
            yield made


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def test_each_batch_is_a_step_and_the_next_process_goes_on(world: World) -> None:
    world.write("0", (1, "ann"), (2, "bob"))
    world.write("1", (3, "ann"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 2
        assert pipeline.lag() == {"users": None}
        world.write("2", (4, "eve"))
        assert pipeline.run() == 1
    world.write("3", (5, "joe"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 1
        assert pipeline.run() == 0
    assert world.view.rows == Z({"ann": 1, "bob": 1, "eve": 1, "joe": 1})


def test_a_batch_that_the_store_has_and_the_checkpoint_has_not_changes_nothing(
    world: World,
) -> None:
    world.write("0", (1, "ann"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 1
    for file in (world.checkpoint / "commits").glob("*0*"):
        file.unlink()  # as where the process died between the two
    world.write("1", (2, "bob"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 1
    assert world.view.steps == [1, 2]
    assert world.view.rows == Z({"ann": 1, "bob": 1})


def test_a_batch_without_rows_is_a_step_so_that_the_next_one_follows_it(world: World) -> None:
    world.write("0", (1, "ann"))
    world.write("1", (0, "left out"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 2
    world.write("2", (2, "bob"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 1
    assert world.view.rows == Z({"ann": 1, "bob": 1})


def test_a_pipeline_that_stops_between_two_batches_gets_the_second_again(world: World) -> None:
    world.write("0", (1, "ann"))
    world.write("1", (2, "bob"))
    with world.pipeline() as pipeline:
        assert pipeline.run(max_steps=1) == 1
    assert world.view.rows == Z({"ann": 1})
    with world.pipeline() as pipeline:
        assert pipeline.run() == 1
    assert world.view.rows == Z({"ann": 1, "bob": 1})


@pytest.mark.long
def test_a_batch_whose_step_failed_is_read_again(world: World) -> None:
    world.write("0", (1, "ann"))
    calls: list[object] = []

    def failing(batch: DataFrame) -> DataFrame:
        calls.append(batch)
        if len(calls) == 1:
            raise StepError("the first time it fails")
        return batch

    with world.pipeline(to_zset=failing) as pipeline:
        with pytest.raises(StepError, match="the first time it fails"):
            pipeline.run()
        assert pipeline.run() == 1
    assert world.view.rows == Z({"ann": 1})


@pytest.mark.long
def test_a_batch_whose_rows_a_sink_did_not_take_is_not_read_again(world: World) -> None:
    world.write("0", (1, "ann"))
    world.write("1", (2, "bob"))

    class Full(View):
        def write(self, step: int, change: st.ZSet[Any]) -> None:
            if step == 1 and not full:
                full.append(step)
                raise OSError("no space left")
            super().write(step, change)

    full: list[int] = []
    sink = Full()
    with world.pipeline(sink=sink) as pipeline:
        with pytest.raises(OSError, match="no space left"):
            pipeline.run()
        assert pipeline.run() == 1
    assert sink.steps == [1, 2]
    assert sink.rows == Z({"ann": 1, "bob": 1})


@pytest.mark.long
def test_a_function_makes_z_sets_of_batches(world: World) -> None:
    world.write("0", (1, "ann"), (2, "bob"))
    world.write("1", (-1, "ann"))

    def counted(batch: DataFrame) -> DataFrame:
        return batch.selectExpr("abs(id) AS id", "name", "sign(id)::bigint AS _count_")

    with world.pipeline(to_zset=counted) as pipeline:
        assert pipeline.run() == 2
    assert world.view.rows == Z({"bob": 1})


def test_a_stream_of_changes_is_not_taken_for_rows(world: World, tmp_path: Path) -> None:
    world.write("0", (1, "ann"))
    stream = world.stream().selectExpr("*", "'insert' AS _change_type")
    stream = stream.unionByName(world.stream().selectExpr("*", "'delete' AS _change_type"))

    def read(**given: Any) -> st.ZSet[Any]:
        source = st.MicroBatches(stream, checkpoint=world.checkpoint, **given)
        store = f"parquet:{tmp_path / 'state'}"
        view = View()
        with st.Pipeline(names, store=store, users=source, into={"names": view}) as made:
            assert made.run() == 1
        return view.rows

    with pytest.raises(SourceError, match="rows that a change feed deletes would be added"):
        read()
    assert read(to_zset=lambda batch: st.from_change_feed(batch, User)) == Z({})


@pytest.mark.long
def test_a_checkpoint_that_does_not_belong_to_the_store_is_an_error(world: World) -> None:
    world.write("0", (1, "ann"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 1
    old = world.checkpoint.with_name("old")
    shutil.copytree(world.checkpoint, old)
    world.write("1", (2, "bob"))
    world.write("2", (3, "eve"))
    with world.pipeline() as pipeline:
        assert pipeline.run() == 2
    world.checkpoint = old
    said = r"returns batch 1, and the next one for the store is 3"
    with world.pipeline() as pipeline, pytest.raises(SourceError, match=said):
        pipeline.run()
    world.checkpoint = world.checkpoint.with_name("new")
    said = "this is another streaming query"
    with world.pipeline() as pipeline, pytest.raises(SourceError, match=said):
        pipeline.run()


def test_a_query_that_fails_says_why(world: World) -> None:
    world.write("0", (1, "ann"))
    world.checkpoint.write_text("no directory")
    said = r"the stream with checkpoint \S+: the query does not start: "
    with world.pipeline() as pipeline, pytest.raises(SourceError, match=said):
        pipeline.run()


def test_what_is_no_stream_is_refused(spark: SparkSession) -> None:
    rows: Any = spark.createDataFrame([(1, "ann")], DDL)
    with pytest.raises(InputError, match=r"give \[\(1, df\)\]"):
        st.MicroBatches(rows, checkpoint="c")
    wrong: Any = [User(id=1, name="ann")]
    with pytest.raises(InputError, match=r"expected a streaming DataFrame .* found list"):
        st.MicroBatches(wrong, checkpoint="c")
