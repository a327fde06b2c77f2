"""Nothing is lost or doubled: a process killed between its source, its store and its sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.pipeline.lives import STEPS, World, life
from tests.postgres_server import PostgresServer

PAIRS = [(kind, kind) for kind in ("delta", "files", "iceberg", "postgres")] + [("delta", "marked")]
MIXED = [(a, b) for a, _ in PAIRS for b, _ in PAIRS if a != b]


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    source, sink = request.param
    if "postgres" not in (source, sink):
        return World(source, sink, str(tmp_path))
    server: PostgresServer = request.getfixturevalue("postgres")
    schema = f"w{uuid4().hex}"
    with psycopg.connect(server.url) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return World(source, sink, str(tmp_path), server.url, schema)


def deaths(world: World, every: int) -> Iterator[str]:
    """Bring the view to each step in turn, each by as many processes as die on the way."""
    world.make()
    users: dict[int, str] = {}
    view: Counter[str] = Counter()
    for number in range(1, STEPS + 1):
        before = view
        world.next(number, users)
        view = Counter(set(users.values()))
        moment, step = 1 + number % every, number - 1
        while (killed := life(world, number, moment)) is not None:
            yield killed
            assert world.view() in (before, view)
            # Once the step is committed, what is left to do is disturbed from its first moment on.
            committed = world.step()
            moment = 1 if committed != step else moment + every
            step = committed
        assert (world.view(), world.step()) == (view, number)


@pytest.mark.slow
@pytest.mark.turn(3)
@pytest.mark.parametrize("world", PAIRS, indirect=True, ids="-".join)
def test_a_process_killed_between_source_store_and_sink_loses_and_doubles_nothing(
    world: World,
) -> None:
    assert len(set(deaths(world, 17))) > 3


@pytest.mark.long
@pytest.mark.parametrize("world", PAIRS + MIXED, indirect=True, ids="-".join)
def test_a_process_killed_at_each_call_loses_and_doubles_nothing(world: World) -> None:
    died = set(deaths(world, 1))
    calls = ("Source.read", "Sink.write", "Sink.last_step", "Sink.open", " commit")
    ends = {(name.split()[0], call) for name in died for call in calls if name.endswith(call)}
    missing = {(when, call) for when in ("before", "after") for call in calls} - ends
    # A sink that has the step is not written again, once a process has died within the write.
    assert missing <= {("after", "Sink.write")}
