"""A run of a circuit that is disturbed: each process takes a step, or dies on the way.

The circuit needs no Spark session, so that a process costs what a fork costs.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, cast

import psycopg

import stepping_spark as st
from stepping_spark.base.errors import StepError
from stepping_spark.relations.store import Store
from stores.parquet import directories
from stores.parquet.directories import LocalDirectory
from stores.parquet.store import StoreParquet
from stores.postgres.store import StorePostgres
from tests.cases import Order, User, Z

Told = list[list[tuple[str, int]]]
Inputs = tuple[st.ZSetPython[Order], st.ZSetPython[User]]


class Total(st.Data):
    name: str
    orders: int
    total: int | None
    best: int | None


LINES = st.Cache[st.Pair[Order, User]](name="lines")
TOTALS = st.Cache[Total](name="totals")


def query(
    orders: st.ZSet[Order], users: st.ZSet[User]
) -> tuple[st.ZSet[str], st.ZSet[Total], st.ZSet[st.Pair[int, int]]]:
    """A join, a distinct, aggregates, a recursion, and caches."""
    lines = st.join(orders, users, on_left=lambda o: o.user, on_right=lambda u: u.id)
    _ = LINES[lines](lambda p: st.integrate_indexed(p, indexes=(lambda p: p.left.id,)))
    totals = st.aggregate(
        lines,
        by=lambda p: p.right.name,
        into=Total,
        orders=st.agg.count(),
        total=st.agg.sum(lambda p: p.left.amount),
        best=st.agg.max(lambda p: p.left.amount),
    )
    _ = TOTALS[totals](st.integrate)
    some = st.filter(orders, f=lambda o: o.id < 12)  # an iteration is most of a step
    edges = st.map(some, f=lambda o: st.Pair(left=o.user, right=o.amount))
    names = st.distinct(st.map(lines, f=lambda p: p.right.name))
    return names, totals, st.transitive_closure(edges)


GRAPH = st.compile(query)
STEPS = 20
COMPACTED = 7  # every so many steps


def inputs() -> list[Inputs]:
    """What each step is fed: rows that come, and some of those there that go."""
    rng = random.Random(20)
    makes: Sequence[Callable[[], Any]] = (
        lambda: Order(id=rng.randrange(40), user=rng.randrange(6), amount=rng.randrange(9)),
        lambda: User(id=rng.randrange(6), name=f"n{rng.randrange(4)}"),
    )
    there: list[list[Any]] = [[], []]
    made: list[Inputs] = []
    for _ in range(STEPS):
        changes: list[Z[Any]] = []
        for rows, make in zip(there, makes, strict=True):
            gone = rng.sample(rows, len(rows) // 4)
            coming = [make() for _ in range(3)]
            for row in gone:
                rows.remove(row)
            rows += coming
            changes.append(Z([*((r, -1) for r in gone), *((r, 1) for r in coming)]))
        orders, users = changes
        made.append((orders, users))
    return made


INPUTS = inputs()
TOO_MUCH: Inputs = (
    Z({Order(id=0, user=99, amount=1): 2**40}),
    Z({User(id=99, name="x"): 2**40}),
)


def shown(outputs: Sequence[Any]) -> Told:
    """Z-sets, so that they can be compared between processes."""
    return [sorted((repr(r), n) for r, n in z.to_python().iter()) for z in outputs]


def caches(store: Store) -> Told:
    """What the caches hold."""
    return shown([LINES.zset(store), TOTALS.zset(store)])


@dataclass(frozen=True)
class Undisturbed:
    """What each step gives, and what the caches hold after it; before the first: nothing."""

    outputs: list[Told]
    caches: list[Told]


def undisturbed(steps: int = STEPS) -> Undisturbed:
    """The run as it should be."""
    store = st.StoreMemory.from_graph(GRAPH)
    stepper = st.Stepper(GRAPH, store)
    found = Undisturbed([[]], [caches(store)])
    for change in INPUTS[:steps]:
        found.outputs.append(shown(stepper.step(change)))
        found.caches.append(caches(store))
    return found


# -- moments


class Watched:
    """A store, each call of which begins and ends with a call of `at`."""

    def __init__(self, store: Store, at: Callable[[str], None]) -> None:
        self._store = store
        self._at = at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return told(found, name, self._at) if callable(found) else found


def watched(store: Store, at: Callable[[str], None]) -> Store:
    """The same store, as `Watched`."""
    return cast(Store, Watched(store, at))


def told(f: Callable[..., Any], name: str, at: Callable[[str], None]) -> Callable[..., Any]:
    """The function, which says when it begins and when it has ended."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        at(f"before {name}")
        result = f(*args, **kwargs)
        at(f"after {name}")
        return result

    return wrapped


@dataclass(frozen=True)
class Place:
    """Where the state is: a directory, or a schema of a Postgres database."""

    path: str = ""
    url: str = ""

    def store(self, *, read_only: bool = False) -> StoreParquet | StorePostgres:
        """A store that is yet to be opened."""
        create = not read_only
        if self.url:
            return StorePostgres(self.url, schema=self.path, create=create, read_only=read_only)
        return StoreParquet(self.path, create=create, read_only=read_only)


@contextmanager
def reader(place: Place) -> Iterator[Store]:
    """A store that reads what is committed, whoever writes."""
    with place.store(read_only=True) as store:
        st.Stepper(GRAPH, store)
        yield store


def watch_within(at: Callable[[str], None]) -> None:
    """Have each use of files, and each exchange with a server, call `at`; in this whole process."""
    for name in ("make", "read", "input", "output", "sync", "create", "write", "sizes", "remove"):
        setattr(LocalDirectory, name, told(getattr(LocalDirectory, name), name, at))
    for name in ("_link", "_sync"):
        setattr(directories, name, told(getattr(directories, name), name, at))
    psycopg.Connection.wait = told(psycopg.Connection.wait, "exchange", at)  # type: ignore[method-assign]


# -- lives


def killer(moment: int, answer: Connection) -> Callable[[str], None]:
    """What is called at each moment, with its name; at that of the number it kills this process."""
    passed = itertools.count(1)
    one = threading.Lock()

    def at(name: str) -> None:
        with one:
            if next(passed) == moment:
                answer.send(name)
                os.kill(os.getpid(), signal.SIGKILL)

    return at


def live(place: Place, number: int, moment: int, within: bool, answer: Connection) -> None:
    """Open the store, take a step and close it; or be killed at the moment of that number."""
    at = killer(moment, answer)
    if within:
        watch_within(at)
    store = watched(place.store(), at)
    stepper = st.Stepper(GRAPH, store)
    if number % 4 == 0 and store.last_step() < number:
        with suppress(StepError):
            stepper.step(TOO_MUCH)
            raise AssertionError("weights beyond 64 bits were taken")
    answer.send(shown(stepper.step(INPUTS[number - 1], step=number)))
    if number % COMPACTED == 0:
        store.compact()
    store.close()
    answer.send(None)


@dataclass(frozen=True)
class Life:
    """What became of a process: what its step gave, and the moment at which it was killed."""

    gave: Told | None
    killed: str | None


FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["tests.stores.warm_lives"])


def last_words(live: Callable[..., None], *given: Any) -> tuple[list[Any], int | None]:
    """All that a process said before its end, and its exit code; `live` is also given the pipe."""
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=live, args=(*given, theirs))
    process.start()
    theirs.close()
    said = []
    with ours, suppress(EOFError):
        while True:
            said.append(ours.recv())
    process.join()
    code = process.exitcode
    process.close()
    return said, code


def life(place: Place, number: int, moment: int, *, within: bool) -> Life:
    """What becomes of a process that takes a step, in a world where it is killed at a moment."""
    said, code = last_words(live, place, number, moment, within)
    gave = next((s for s in said if isinstance(s, list)), None)
    killed = next((s for s in said if isinstance(s, str)), None)
    assert code == (-signal.SIGKILL if killed else 0), (code, said)
    return Life(gave, killed)
