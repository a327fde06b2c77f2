"""Whatever happens to the lock, a step that was reported is in the state, and who lost is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stores.two_writers import Place, Tally, TwoWriters
from tests.stores.two_writers_of_files import Here, InBucket

LONG_RUNS = 8
PHASES = set(Phase) - {Phase.explain}
PLACES: dict[str, Callable[[], Place]] = {
    "directory": lambda: Here(locking=True),
    "directory without locks": lambda: Here(locking=False),
    "bucket": InBucket,
}


def run(place: Callable[[], Place], examples: int, steps: int, number: int = 0) -> Tally:
    """Run the machine on a place, each number with other examples; how often what has happened."""

    @seed(number)
    class Machine(TwoWriters):
        tally = Tally()

        def place(self) -> Place:
            return place()

    some: Any = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=some)
    return Machine.tally


@pytest.mark.parametrize("place", PLACES)
def test_of_several_writers_each_step_that_was_reported_is_in_the_state(place: str) -> None:
    found = run(PLACES[place], 6, 30)
    assert found.counts["rule steps"] > 100
    assert found.counts["step, done"] > 10


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_of_several_writers_each_step_that_was_reported_is_in_the_state_for_long(
    place: str,
) -> None:
    found = Counter[str]()
    for number in range(LONG_RUNS):  # each chooses some rules more often than others
        found.update(run(PLACES[place], 60, 50, number).counts)
        if found["rule steps"] > 5_000 and found["step, refused"] > 0:
            break
    print(place, dict(sorted(found.items())))
    assert found["rule steps"] > 5_000
    assert found["step, refused"] > 0
