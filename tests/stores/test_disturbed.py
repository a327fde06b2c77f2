"""Nothing is lost where a server, a disk or a directory fails at any moment of a step."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import stepping_spark as st
from stepping_spark.base.errors import StoreUnavailable
from tests.cases import Order, User
from tests.postgres_server import PostgresServer
from tests.stores.conftest import SmallDisk, fill
from tests.stores.lives import (
    GRAPH,
    INPUTS,
    STEPS,
    Place,
    Undisturbed,
    caches,
    reader,
    shown,
    undisturbed,
    watched,
)


@dataclass(frozen=True)
class Trouble:
    """Something that can fail, and be mended."""

    place: Place
    harm: Callable[[int], None]  # in a step of this number
    mend: Callable[[], None]
    said: str  # by the error


@pytest.fixture(scope="module")
def right() -> Undisturbed:
    return undisturbed()


@pytest.fixture(scope="module")
def frail() -> Iterator[PostgresServer]:
    """A server that is stopped and killed."""
    with PostgresServer(fsync=True) as server:
        yield server


@pytest.fixture
def server_trouble(frail: PostgresServer) -> Trouble:
    """A server that is started again, stopped, or killed."""
    down: list[bool] = []

    def harm(number: int) -> None:
        if number % 3 == 0:
            frail.restart()
            return
        (frail.stop if number % 3 == 1 else frail.crash)()
        down.append(True)

    def mend() -> None:
        if down:
            down.clear()
            frail.start()

    return Trouble(Place("disturbed", frail.url), harm, mend, "is it running")


@pytest.fixture
def full_disk(small_disk: SmallDisk) -> Trouble:
    """A disk that something else fills."""
    disk = small_disk(8)
    filler = disk / "filler"
    return Trouble(
        Place(str(disk / "state")),
        lambda _: fill(filler),
        filler.unlink,
        "No space left .*make room",
    )


@pytest.fixture
def read_only_directory(tmp_path: Path) -> Iterator[Trouble]:
    """A directory that nobody can write to; for root it is hidden below a mount of itself."""
    state, aside = tmp_path / "state", tmp_path / "aside"
    for folder in (state, aside):
        folder.mkdir()
    root = os.getuid() == 0
    folders = [state, state / "data", state / "manifests"]
    mounts: list[Path] = []

    def mount(*arguments: str | Path) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)

    def harm(_: int) -> None:
        if root:
            mount("--bind", aside, state)
            mounts.append(state)
        else:
            for folder in folders:
                folder.chmod(0o555)

    def mend() -> None:
        while len(mounts) > 1:
            subprocess.run(["umount", "-l", mounts.pop()], check=True)
        if not root:
            for folder in folders:
                folder.chmod(0o755)

    try:
        if root:
            try:
                mount("--bind", state, aside)
                mounts.append(aside)
                mount("-o", "remount,bind,ro", aside)
            except (OSError, subprocess.CalledProcessError) as e:
                pytest.skip(f"a directory cannot be mounted: {e}")
        yield Trouble(
            Place(str(state)), harm, mend, "commit step .*let this user read and write there"
        )
    finally:
        mend()
        for place in mounts:
            subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.slow
@pytest.mark.turn(3)
@pytest.mark.parametrize("trouble", ["server_trouble", "full_disk", "read_only_directory"])
def test_what_fails_at_any_moment_costs_one_clear_error_and_nothing_is_lost(
    request: pytest.FixtureRequest, right: Undisturbed, trouble: str
) -> None:
    found: Trouble = request.getfixturevalue(trouble)
    harmed: list[int] = []
    errors: list[str] = []
    now: tuple[int, Iterator[int]] = (0, count())

    def at(_: str) -> None:
        number, passed = now
        if number and number not in harmed and next(passed) == 2 * number:
            harmed.append(number)
            found.harm(number)

    with found.place.store() as bare:
        stepper = st.Stepper(GRAPH, watched(bare, at))
        for number, change in enumerate(INPUTS, 1):
            now = (number, count())
            try:
                outputs = stepper.step(change, step=number)
                if number in harmed:
                    found.mend()
            except StoreUnavailable as e:
                errors.append(str(e))
                assert re.search(found.said, errors[-1])
                found.mend()
                outputs = stepper.step(change, step=number)
            assert shown(outputs) == right.outputs[number]
            assert caches(bare) == right.caches[number]
    assert len(harmed) > STEPS // 2
    assert errors
    with reader(found.place) as store:
        assert (store.last_step(), caches(store)) == (STEPS, right.caches[STEPS])


def test_a_tablespace_that_is_full_is_one_clear_error_and_nothing_is_lost(
    small_disk: SmallDisk,
) -> None:
    disk = small_disk(16)
    many = (
        st.ZSetPython({Order(id=i, user=i % 7, amount=i): 1 for i in range(5_000)}),
        st.ZSetPython({User(id=i, name=f"n{i}"): 1 for i in range(7)}),
    )
    alone = st.Stepper(GRAPH, st.StoreMemory.from_graph(GRAPH))
    with PostgresServer() as server:
        shutil.chown(disk, *server.owner)
        with psycopg.connect(server.url, autocommit=True) as connection:
            place = sql.Literal(str(disk))
            connection.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(place))
            connection.execute("ALTER ROLE CURRENT_USER SET default_tablespace = small")
        with Place("full", server.url).store() as store:
            stepper = st.Stepper(GRAPH, store)
            assert shown(stepper.step(INPUTS[0])) == shown(alone.step(INPUTS[0]))
            before = caches(store)
            fill(disk / "filler")
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=r"No space left .*is its disk full"):
                    stepper.step(many)
                assert (store.last_step(), caches(store)) == (1, before)
            (disk / "filler").unlink()
            assert shown(stepper.step(many)) == shown(alone.step(many))
            assert caches(store) == caches(alone.store)
