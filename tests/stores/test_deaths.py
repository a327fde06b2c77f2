"""Nothing is lost: a process killed at any moment of any step, and what comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from stepping_spark.base.errors import StoreUnavailable
from stores.parquet.fencing import CLAIMS
from tests.postgres_server import PostgresServer
from tests.stores.lives import STEPS, Place, Told, Undisturbed, caches, life, reader, undisturbed

CLAIMS_LEFT = 16
CALLS = (
    *("open", "last_step", "last_now", "read", "add", "abort", "commit", "last_outputs"),
    *("last_settings", "last_made_by", "last_circuit", "compact", "close"),
)


@pytest.fixture(scope="module")
def right() -> Undisturbed:
    return undisturbed()


@pytest.fixture(
    params=[
        pytest.param("parquet", marks=pytest.mark.turn(2, number=0)),
        pytest.param("postgres", marks=pytest.mark.turn(2, number=1)),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "parquet":
        return Place(path=str(tmp_path / "state"))
    server: PostgresServer = request.getfixturevalue("postgres")
    return Place(path=f"deaths {uuid4().hex}", url=server.url)


def committed(place: Place) -> tuple[int, Told | None]:
    """The last step, and what the caches hold then, as somebody else sees it."""
    with suppress(StoreUnavailable), reader(place) as store:  # none: it is not made yet
        while True:
            step = store.last_step()
            held = caches(store)
            if store.last_step() == step:
                return step, held
    return 0, None


def deaths(place: Place, right: Undisturbed, *, every: int, within: bool) -> Iterator[str]:
    """Take all steps, each by as many processes as die on the way to it; gives how they died.

    The first is killed at the first moment, the next `every` moments later, until one is through.
    Once a step is committed, what comes after it answers again, and is killed from its first moment
    on as well.
    """
    for number in range(1, STEPS + 1):
        moment, again = 1 + number % every, False
        while True:
            found = life(place, number, moment, within=within)
            last, held = committed(place)
            assert last in (number - 1, number)
            assert held is None or held == right.caches[last]
            assert found.gave in (None, right.outputs[number])
            if found.killed is None:
                assert found.gave is not None
                assert last == number
                break
            yield found.killed
            days_pass(place)
            moment += every
            if last == number and not again:
                moment, again = 1 + number % every, True


def days_pass(place: Place) -> None:
    """Remove claims as a writer does after a day, but for the last ones.

    Each process that dies while it opens the state leaves a claim, and the next one reads all of
    them. Else each death would move the next moment further away, and no process came to the end.
    """
    if not place.url:
        for old in sorted(Path(place.path, CLAIMS).glob("[0-9]*.json"))[:-CLAIMS_LEFT]:
            old.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 21])
def test_a_process_killed_before_or_after_a_call_of_its_store_loses_nothing(
    place: Place, right: Undisturbed, every: int
) -> None:
    died = set(deaths(place, right, every=every, within=False))
    assert len(died) > len(CALLS)
    if every == 1:
        assert died == {f"{when} {name}" for name in CALLS for when in ("before", "after")}
    assert_whole(place, right)


@pytest.mark.slow
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 97])
def test_a_process_killed_while_it_writes_or_waits_for_the_server_loses_nothing(
    place: Place, right: Undisturbed, every: int
) -> None:
    died = set(deaths(place, right, every=every, within=True))
    uses = ("exchange",) if place.url else ("input", "output", "_link", "_sync", "remove")
    inner = {f"{when} {name}" for name in uses for when in ("before", "after")}
    assert inner <= died if every == 1 else inner & died
    assert_whole(place, right)


def assert_whole(place: Place, right: Undisturbed) -> None:
    """After all that the store has what an undisturbed run has."""
    with reader(place) as store:
        assert store.last_step() == STEPS
        assert caches(store) == right.caches[STEPS]
