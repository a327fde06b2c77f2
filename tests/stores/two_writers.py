"""Writers of one state at once, whatever becomes of the lock: a machine that Hypothesis drives.

Each writer and each reader is in a simulated process: what it does runs in a thread of its own,
which can be killed, or stopped and let go again later, at any call of what lies below the store. So
can the renewal of a writer's lease, which runs beside it. A `Place` says what the store is, and
calls `at` at each of those calls.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stepping_spark.base.errors import StoreLocked, StoreUnavailable
from stepping_spark.relations.store import Register, Store
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is, as_table

REGISTERS = [BY_WORD, WHOLE]
PROCESSES, READERS = 3, 2
PATIENCE = 300.0
"""Seconds after which a process that neither ends nor stops is taken to hang."""


class Killed(BaseException):
    """A simulated process has ended: no part of the library may catch this."""


class Then(Enum):
    """What happens to a process at a moment."""

    KILL = "kill"
    STOP = "stop"


Moment: TypeAlias = tuple[Then, int] | None
"""At which call of what lies below something happens, counted from 1; None: at none."""

moments = st.one_of(
    st.none(),
    st.tuples(st.just(Then.STOP), st.integers(1, 60)),
    st.tuples(st.sampled_from(Then), st.integers(1, 120)),
)

soon = st.one_of(st.none(), st.tuples(st.sampled_from(Then), st.integers(1, 12)))


class Place(Protocol):
    """Where a state is: it is opened here, and disturbed."""

    def watched(self) -> AbstractContextManager[object]:
        """While this lasts, each call below the store calls `at`, before it and after it."""

    def open_writer(self) -> Store:
        """A writer of `REGISTERS`, as the current process opens it; made, where none is."""

    def open_reader(self) -> Store:
        """A store that reads what is committed, and sees all of it."""

    def break_lock(self) -> None:
        """Whatever keeps a second writer out is lost: removed, run out, or cut off."""

    def replace_lock(self) -> bool:
        """Somebody else makes the lock anew; whether that keeps writers out for a while."""

    def renewal(self, process: Process) -> Callable[[], object] | None:
        """What renews the lease of a process; None where there is none, or it would wait."""

    def kill(self, process: Process) -> None:
        """Take back what the system takes back from a process that has ended, such as locks."""


class Process:
    """A simulated process: it does one thing at a time, and may be stopped or killed in it."""

    def __init__(self, name: str, *, reads: bool = False) -> None:
        self.name = name
        self.reads = reads
        self.store: Store | None = None
        self.dead = False
        self.stopped = False
        self._left = 0  # calls until the moment
        self._then = Then.STOP
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._outcome: Callable[[], Any] | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return self.name

    def does(self, work: Callable[[], object], moment: Moment = None) -> None:
        """Do something, until it has ended, or until its moment has come."""
        assert self._thread is None
        self._until(moment)
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(work,), name=self.name, daemon=True)
        self._thread.start()
        self._wait()

    def goes_on(self, moment: Moment = None) -> None:
        """Go on where it was stopped."""
        assert self.stopped
        self.stopped = False
        self._until(moment)
        self._go.release()
        self._wait()

    def outcome(self) -> Any:
        """What came of it; what it raised is raised here."""
        assert self._outcome is not None
        return self._outcome()

    def dies(self) -> None:
        """End, at once."""
        self.dead = True
        if self.stopped:
            self.goes_on()

    def passed(self) -> None:
        """A call of what lies below: it may be the last one."""
        if self.dead:
            raise Killed
        self._left -= 1
        if self._left:
            return
        if self._then is Then.STOP:
            self.stopped = True
            self._back.release()
            self._go.acquire()
        else:
            self.dead = True
        if self.dead:
            raise Killed

    def _until(self, moment: Moment) -> None:
        self._then, self._left = moment or (Then.STOP, 0)

    def _wait(self) -> None:
        if not self._back.acquire(timeout=PATIENCE):
            faulthandler.dump_traceback()
            raise AssertionError(f"{self.name} hangs")
        if not self.stopped:
            assert self._thread is not None
            self._thread.join()
            self._thread = None

    def _run(self, work: Callable[[], object]) -> None:
        _current.process = self
        try:
            found = work()
        except BaseException as e:
            self._outcome = partial(_raise, e)
        else:
            self._outcome = lambda: found
        self._back.release()


def _raise(e: BaseException) -> None:
    raise e


_current = threading.local()


def current() -> Process | None:
    """The process that this thread is of."""
    found: Process | None = getattr(_current, "process", None)
    return found


def at(_: str) -> None:
    """A call below a store begins or has ended: the process may be stopped or killed here."""
    process = current()
    if process is not None:
        process.passed()


@dataclass
class Attempt:
    """What a process is in the middle of."""

    what: str
    step: int = 0
    word: str = ""
    overtaken: bool = False
    """Whether another writer had opened the state before this began, and after this one."""
    reported: int = 0
    """The last step that was reported before this began."""


@dataclass
class Tally:
    """How often what has happened, over all runs of a machine."""

    counts: dict[str, int] = field(default_factory=dict)

    def note(self, what: str) -> None:
        """Count something."""
        self.counts[what] = self.counts.get(what, 0) + 1


class TwoWriters(RuleBasedStateMachine):
    """Processes that write one state; what was reported as committed is in it, in order.

    Step n adds one row to each register, whose number is n and whose word is that attempt's alone:
    so a state is right if it has the rows 1 to n, and of the steps that were reported the very
    rows that they added.
    """

    tally: ClassVar[Tally]

    def place(self) -> Place:
        """A place of a new, empty state."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.at_place = self.place()
        self.watching = self.at_place.watched()
        self.watching.__enter__()
        self.processes: list[Process] = []
        self.readers: list[Process] = []
        self.renewals: dict[Process, Process] = {}  # those that are stopped, by whose lease it is
        self.impostor = False  # whether somebody has made the lock anew, and seems to write
        self.doing: dict[Process, Attempt] = {}
        self.reported: dict[int, str] = {}
        self.words = self.names = self.time = 0
        self.opening_began: dict[Process, int] = {}  # when, by a clock of this machine
        self.opening_went_on: dict[Process, int] = {}  # at last
        self.opened: dict[Process, tuple[int, int]] = {}  # when it began, and had it open

    @initialize()
    def there_are_processes(self) -> None:
        self.processes += [self.new_process() for _ in range(PROCESSES)]
        self.readers += [self.new_process(reads=True) for _ in range(READERS)]
        self.opens(0, None)

    def new_process(self, *, reads: bool = False) -> Process:
        self.names += 1
        return Process(f"{'reader' if reads else 'process'} {self.names}", reads=reads)

    def one_that_is_open(self, number: int) -> Process | None:
        """A process that has the state open and is not stopped: the so-manieth, around."""
        able = [p for p in self.processes if p.store is not None and not p.stopped]
        return able[number % len(able)] if able else None

    # -- rules

    numbers = st.integers(0, PROCESSES - 1)

    @rule(number=numbers, moment=moments)
    def opens(self, number: int, moment: Moment) -> None:
        """A process opens the state to write."""
        process = self.processes[number]
        if process.stopped or process.store is not None:
            return
        self.begins(process, Attempt("open"), lambda: self.at_place.open_writer(), moment)

    @rule(number=numbers, moment=moments, steps=st.integers(1, 4))
    def steps(self, number: int, moment: Moment, steps: int) -> None:
        """A process takes steps, and something may happen in the last of them."""
        process = self.one_that_is_open(number)
        for left in range(steps - 1, -1, -1):
            if process is None or process.dead or process.stopped or process.store is None:
                return
            self.words += 1
            word = f"w{self.words}"
            attempt = Attempt("step", 0, word)
            self.begins(
                process,
                attempt,
                partial(step, process.store, word, attempt),
                None if left else moment,
            )

    @rule(number=numbers, moment=moments)
    def takes_one_step(self, number: int, moment: Moment) -> None:
        """A process takes a step."""
        self.steps(number, moment, 1)

    @rule(number=numbers, moment=moments)
    def compacts(self, number: int, moment: Moment) -> None:
        """A process merges all there is."""
        process = self.one_that_is_open(number)
        if process is not None and process.store is not None:
            self.begins(process, Attempt("compact"), process.store.compact, moment)

    @rule(number=numbers, moment=moments)
    def closes(self, number: int, moment: Moment) -> None:
        """A process closes its store."""
        process = self.one_that_is_open(number)
        if process is not None and process.store is not None:
            self.begins(process, Attempt("close"), process.store.close, moment)

    @rule(number=numbers, moment=soon)
    def renews(self, number: int, moment: Moment) -> None:
        """The thread that renews a lease does so, or goes on, whatever its process does."""
        process = self.processes[number]
        running = self.renewals.pop(process, None)
        if running is not None:
            running.goes_on(moment)
        else:
            renewal = self.at_place.renewal(process)
            if renewal is None:
                return
            running = Process(f"renewal of {process}")
            running.does(renewal, moment)
        if running.stopped:
            self.renewals[process] = running
            return
        self.tally.note("renewals")
        if running.dead:
            self.buries(process)
        else:
            running.outcome()

    @rule(number=st.integers(0, READERS - 1), moment=soon)
    def reads(self, number: int, moment: Moment) -> None:
        """Somebody who has had the state open for long reads it, or opens it, or goes on."""
        reader = self.readers[number]
        if reader.stopped:
            reader.goes_on(moment)
        elif self.opened:
            attempt = Attempt("read", reported=max(self.reported, default=0))
            self.doing[reader] = attempt
            reader.does(partial(all_there_is, reader, self.at_place.open_reader), moment)
        else:
            return
        self.has_read(reader)

    @rule(number=numbers, moment=moments)
    def goes_on(self, number: int, moment: Moment) -> None:
        """A process that was stopped goes on."""
        stopped = [p for p in self.processes if p.stopped]
        if stopped:
            process = stopped[number % len(stopped)]
            self.ends_renewal(process)
            self.time += 1
            if self.doing[process].what == "open":
                self.opening_went_on[process] = self.time
            process.goes_on(moment)
            self.ends(process)

    @rule(number=numbers, seldom=st.integers(0, 3))
    def dies(self, number: int, seldom: int) -> None:
        """A process is killed; another comes in its place."""
        if seldom == 3:
            self.buries(self.processes[number])

    @rule()
    def lock_breaks(self) -> None:
        """The lock is lost, and nobody is told."""
        self.at_place.break_lock()
        self.tally.note("locks broken")

    @rule(seldom=st.integers(0, 3))
    def lock_is_replaced(self, seldom: int) -> None:
        """Somebody removes the lock, and makes one of the same name."""
        if seldom == 3:
            self.impostor |= self.at_place.replace_lock()
            self.tally.note("locks replaced")

    @precondition(lambda self: self.opened)
    @rule()
    def is_read(self) -> None:
        """Somebody reads all there is."""
        self.checks()

    @invariant()
    def counts(self) -> None:
        self.tally.note("rule steps")

    # -- what comes of them

    def begins(
        self, process: Process, attempt: Attempt, work: Callable[[], object], moment: Moment
    ) -> None:
        self.time += 1
        self.ends_renewal(process)
        self.doing[process] = attempt
        if attempt.what == "open":
            self.opening_began[process] = self.opening_went_on[process] = self.time
        else:
            _, since = self.opened[process]
            attempt.overtaken = any(began > since for began, _ in self.opened.values())
        process.does(work, moment)
        self.ends(process)

    def ends(self, process: Process) -> None:
        """See what came of what a process did, unless it is stopped."""
        if process.stopped:
            self.tally.note("stopped")
            return
        attempt = self.doing.pop(process)
        try:
            found = process.outcome()
        except Killed:
            self.buries(process)
        except StoreLocked:
            self.is_refused(process, attempt)
        else:
            self.has_ended(process, attempt, found)

    def has_ended(self, process: Process, attempt: Attempt, found: Any) -> None:
        self.tally.note(f"{attempt.what}, done")
        if attempt.what == "open":
            self.time += 1
            process.store = found
            self.opened[process] = self.opening_began[process], self.time
        elif attempt.what == "step":
            assert not attempt.overtaken, f"{process} was overtaken, and not told"
            said = self.reported.setdefault(attempt.step, attempt.word)
            assert said == attempt.word, f"step {attempt.step} is both {said} and {attempt.word}"
        elif attempt.what == "close":
            process.store = None

    def is_refused(self, process: Process, attempt: Attempt) -> None:
        self.tally.note(f"{attempt.what}, refused")
        others = {p: at for p, at in self.opening_went_on.items() if p is not process}
        mine = 0 if attempt.what == "open" else self.opened[process][0]
        alone = not any(at > mine for at in others.values())
        assert self.impostor or not alone, f"{process} was refused, and is alone"

    def ends_renewal(self, process: Process) -> None:
        """A renewal that was stopped goes on to its end: its process may have to wait for it."""
        running = self.renewals.pop(process, None)
        if running is not None:
            running.goes_on()
            running.outcome()

    def has_read(self, reader: Process) -> None:
        """See that what a reader found was committed, and is no older than when it began."""
        if reader.stopped:
            self.tally.note("stopped")
            return
        attempt = self.doing.pop(reader)
        try:
            last, rows = reader.outcome()
        except Killed:
            self.tally.note("readers killed")
            self.at_place.kill(reader)
            self.readers[self.readers.index(reader)] = self.new_process(reads=True)
        except StoreUnavailable as e:
            if "is gone: the writer keeps the last" not in str(e):
                raise
            self.tally.note("read, gone")
        else:
            self.tally.note("read, done")
            assert attempt.reported <= last
            self.is_right(last, rows)

    def buries(self, process: Process) -> None:
        """A process has ended; another comes in its place."""
        self.tally.note("killed")
        renewal = self.renewals.pop(process, None)
        if renewal is not None:
            renewal.dies()
        process.dies()
        self.doing.pop(process, None)
        self.at_place.kill(process)
        self.processes[self.processes.index(process)] = self.new_process()

    def checks(self) -> None:
        """The state is all steps from 1 on, and has those that were reported."""
        reader = Process("who looks from outside")
        last, rows = all_there_is(reader, self.at_place.open_reader)
        assert reader.store is not None
        reader.store.close()
        assert max(self.reported, default=0) <= last, (self.reported, rows[0])
        self.is_right(last, rows)

    def is_right(self, last: int, rows: list[dict[tuple[str, int], int]]) -> None:
        """The rows of all steps to the last one, and of those that were reported the very ones."""
        assert rows[0] == rows[1]
        assert set(rows[0].values()) <= {1}
        by_step = {number: word for word, number in rows[0]}
        assert sorted(number for _, number in rows[0]) == list(range(1, last + 1))
        said = {n: word for n, word in self.reported.items() if n <= last}
        assert {n: by_step[n] for n in said} == said

    def teardown(self) -> None:
        try:
            for reader in self.readers:
                reader.dies()
                self.at_place.kill(reader)
            for process in list(self.processes):
                self.buries(process)
            if self.opened:
                self.at_place.break_lock()
                self.opens(0, None)
                self.steps(0, None, 2)
                self.checks()
                self.buries(self.processes[0])
        finally:
            for process in self.processes:
                process.dies()
            self.watching.__exit__(None, None, None)


def step(store: Store, word: str, attempt: Attempt) -> None:
    """A step that adds a row to both registers: a word, and the step's number."""
    attempt.step = store.last_step() + 1
    for register in REGISTERS:
        add(store, register, as_it_is, [(word, attempt.step, 1)])
    store.commit(attempt.step, None)


def all_there_is(
    reader: Process, opens: Callable[[], Store]
) -> tuple[int, list[dict[tuple[str, int], int]]]:
    """The last step, and the rows of each register after it; the reader stays open."""
    if reader.store is None:
        reader.store = opens()
    with reader.store.snapshot() as seen:
        return seen.last_step(), [counted(seen, register) for register in REGISTERS]


def counted(store: Store, register: Register) -> dict[tuple[str, int], int]:
    """How often each row is in a register, by its word and its number."""
    found: dict[tuple[str, int], int] = {}
    for part in store.read(register.name):
        for row in as_table(part).to_pylist():
            key = row["word"], row["length"]
            found[key] = found.get(key, 0) + row["_count_"]
    return {key: n for key, n in found.items() if n}
