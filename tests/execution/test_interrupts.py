"""Ctrl-C between steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from stepping_spark.cli.output import INTERRUPTED, Stop
from tests.cases import ROOT


@pytest.fixture
def stop() -> Iterator[Stop]:
    """One that listens, until the test is over."""
    before = signal.getsignal(signal.SIGINT)
    found = Stop()
    found.listen()
    yield found
    signal.signal(signal.SIGINT, before)


def test_steps_end_after_the_one_in_which_ctrl_c_was_pressed(stop: Stop) -> None:
    steps = stop.between(range(5))
    taken: list[int] = []
    assert len(steps) == 5

    def take() -> None:
        for n in steps:
            if n == 2:
                os.kill(os.getpid(), signal.SIGINT)
            taken.append(n)

    with pytest.raises(KeyboardInterrupt):
        take()
    assert taken == [0, 1, 2]


def test_without_ctrl_c_all_steps_are_taken(stop: Stop) -> None:
    assert list(stop.between(range(5))) == list(range(5))


def test_work_that_takes_its_time_gives_its_value_or_its_error(stop: Stop) -> None:
    assert stop.during(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="too late"):
        stop.during(fail)


def fail() -> None:
    raise TimeoutError("too late")


def test_ctrl_c_does_not_wait_for_work_that_takes_its_time(stop: Stop) -> None:
    end = threading.Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        end.wait(60)

    with pytest.raises(KeyboardInterrupt):
        stop.during(work)
    end.set()


@pytest.mark.turn(3)
@pytest.mark.spark
def test_a_session_that_starts_beside_the_main_thread_leaves_ctrl_c_alone() -> None:
    code = (
        "import signal\n"
        "from stepping_spark.cli.output import Stop\n"
        "from stepping_spark.spark.session import get_session\n"
        "stop = Stop()\n"
        "stop.listen()\n"
        "session = stop.during(get_session)\n"
        "assert signal.getsignal(signal.SIGINT) is stop\n"
        "assert get_session() is session\n"
        "print(session.range(3).count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_a_second_ctrl_c_ends_the_process_at_once() -> None:
    code = (
        "import os, signal, time\n"
        "from stepping_spark.cli.output import Stop\n"
        "stop = Stop()\n"
        "stop.listen()\n"
        "for _ in range(2):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('still here', flush=True)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "still here\n", "")
