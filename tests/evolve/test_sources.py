"""Each source gives its rows as of the position that was committed, when it has gone on since."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

import stepping_spark as st
from tests.cases import User
from tests.pipeline.lives import World


class Summed:
    """A sink that adds up what it gets, and remembers the steps."""

    def __init__(self) -> None:
        self.steps: dict[int, Counter[str]] = {}

    @property
    def rows(self) -> Counter[str]:
        """The rows of the view."""
        found: Counter[str] = Counter()
        for change in self.steps.values():
            found.update(change)
        return Counter({row: n for row, n in found.items() if n})

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Nothing to prepare."""

    def last_step(self) -> int:
        """The last step that it has."""
        return max(self.steps, default=0)

    def write(self, step: int, change: Any) -> None:
        """Add up the rows of a step."""
        self.steps[step] = Counter(dict(change.to_python().iter()))

    def close(self) -> None:
        """Nothing to release."""


def named(last: int) -> Any:
    """The names of users, up to an id."""

    def query(users: st.ZSet[User]) -> st.ZSet[str]:
        return st.map(st.filter(users, f=lambda u: u.id <= last), f=lambda u: u.name)

    return query


@pytest.fixture(params=["delta", "files", "iceberg", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    kind = request.param
    if kind != "postgres":
        return World(kind, kind, str(tmp_path))
    url, schema = request.getfixturevalue("postgres").url, f"w{uuid4().hex}"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return World(kind, kind, str(tmp_path), url, schema)


@pytest.mark.parametrize("max_rows", [None, 2])
def test_what_came_since_is_counted_once(world: World, max_rows: int | None) -> None:
    world.make()
    users: dict[int, str] = {}
    sink = Summed()

    def run(last: int, *, evolve: bool, max_steps: int | None = None) -> None:
        with st.Pipeline(
            {"named": named(last)},
            store=f"parquet:{world.folder}/state",
            users=world.users(),
            into={"named": sink},
            max_rows=max_rows,
            evolve=evolve,
        ) as pipeline:
            pipeline.run(max_steps=max_steps)

    for number in (1, 2):
        world.next(number, users)
        run(5, evolve=False, max_steps=number)  # also in the midst of a version, read in pieces
    for number in (3, 4):
        world.next(number, users)
    run(21, evolve=True)
    assert sink.rows == Counter(name for i, name in users.items() if i <= 21)
    run(30, evolve=True)
    assert sink.rows == Counter(name for i, name in users.items() if i <= 30)
