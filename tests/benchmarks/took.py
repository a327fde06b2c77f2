"""What a call takes: the time that passes, and that of processors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

T = TypeVar("T")


@dataclass(frozen=True)
class Took:
    """Seconds, and those of processors."""

    wall: float
    cpu: float


def took(f: Callable[[], T]) -> tuple[T, Took]:
    """What a function returns, and what it took; processes that it started are counted."""
    wall, before = time.perf_counter(), _cpu()
    found = f()
    return found, Took(time.perf_counter() - wall, _cpu() - before)


def _cpu() -> float:
    """Seconds of processors that this process and those it has started have taken.

    The system counts those of other processes in units of 10 ms.
    """
    times = (p.cpu_times() for p in psutil.Process().children(recursive=True))
    return time.process_time() + float(sum(t.user + t.system for t in times))
