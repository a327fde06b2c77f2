"""Many small versions and large ones: time and memory stay what they were."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import stepping_spark as st
from stepping_spark.base.errors import SteppingError
from tests.pipeline.shop import names
from tests.stores.conftest import SmallDisk, fill, small_disk

__all__ = ["small_disk"]

FEED = {"delta.enableChangeDataFeed": "true"}


def users(first: int, n: int, of: int = 7) -> pa.Table:
    ids = range(first, first + n)
    return pa.table({"id": ids, "name": [f"n{i % of}" for i in ids]})


def pipeline(folder: Path, **given: int | None) -> st.Pipeline:
    return st.Pipeline(
        names,
        store=f"parquet:{folder / 'state'}",
        users=st.DeltaTable(folder / "users"),
        into={"names": st.DeltaTable(folder / "names", key="_value_")},
        **given,  # type: ignore[arg-type]
    )


def megabytes() -> float:
    size: int = psutil.Process().memory_info().rss
    return size / 2**20


@pytest.mark.parametrize("versions", [25, pytest.param(1_000, marks=pytest.mark.long)])
def test_following_small_versions_takes_flat_time_and_memory(tmp_path: Path, versions: int) -> None:
    write_deltalake(str(tmp_path / "users"), users(0, 1), configuration=FEED)
    times, sizes = [], []
    with pipeline(tmp_path) as running:
        running.run()
        for i in range(1, versions):
            write_deltalake(str(tmp_path / "users"), users(i, 1, of=10**9), mode="append")
            begun = time.process_time()
            assert running.run() == 1
            times.append(time.process_time() - begun)
            sizes.append(megabytes())
    tenth = versions // 5
    assert median(times[-tenth:]) < 4 * median(times[tenth : 2 * tenth])
    assert sizes[-1] < sizes[tenth] + 100
    assert DeltaTable(str(tmp_path / "names")).to_pyarrow_table().num_rows == versions


def test_many_small_versions_that_wait_are_one_step(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    write_deltalake(path, users(0, 1), configuration=FEED)
    with pipeline(tmp_path, max_versions=50) as running:
        running.run()
        for i in range(1, 100):
            write_deltalake(path, users(i, 1), mode="append")
        assert running.lag() == {"users": 99}
        assert running.run() == 2


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_version_of_many_rows_is_taken_in_pieces_of_bounded_size(
    tmp_path: Path, rows: int
) -> None:
    write_deltalake(str(tmp_path / "users"), users(0, rows, of=1_000), configuration=FEED)
    before = megabytes()
    with pipeline(tmp_path, max_rows=rows // 10) as running:
        steps = running.run()
        assert steps == 10
        assert max(m.step for m in running.stepper.metrics) == 10
    assert megabytes() - before < 100 + rows / 2_000
    assert DeltaTable(str(tmp_path / "names")).to_pyarrow_table().num_rows == 1_000


@pytest.mark.parametrize("full", ["state", "views"])
def test_a_full_disk_is_an_error_and_the_pipeline_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: SmallDisk, full: str
) -> None:
    disk = small_disk(4)
    state, views = (disk, tmp_path) if full == "state" else (tmp_path, disk)
    path = str(tmp_path / "users")
    write_deltalake(path, users(0, 3), configuration=FEED)
    with st.Pipeline(
        names,
        store=f"parquet:{state / 'state'}",
        users=st.DeltaTable(path),
        into={"names": [st.DeltaTable(views / "delta", key="_value_"), st.Files(views / "files")]},
    ) as running:
        assert running.run() == 1
        write_deltalake(path, users(3, 500, of=10**9), mode="append")
        fill(disk / "filler")
        for _ in range(2):
            with pytest.raises(SteppingError, match=r"space|room"):
                running.run()
        (disk / "filler").unlink()
        assert running.run() == (1 if full == "state" else 0)
    files = sorted((views / "files").iterdir())
    assert pq.read_table(files[-1]).num_rows == 503
    assert DeltaTable(str(views / "delta")).to_pyarrow_table().num_rows == 503
