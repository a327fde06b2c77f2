"""Threads for work that waits for a disk or a network, or that Arrow and NumPy do."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, "stepping-spark-store")


# The threads of a pool are not in a process that is forked: what is given to them would wait.
os.register_at_fork(after_in_child=_pool.cache_clear)


def side_by_side(f: Callable[[T], U], given: Sequence[T]) -> list[U]:
    """Call a function for each item, several at a time: for work that waits for input and output.

    All calls have ended when it returns, even if one failed.
    """
    if len(given) < 2:
        return [f(x) for x in given]
    futures = [_pool().submit(f, x) for x in given]
    wait(futures)
    return [future.result() for future in futures]


def later(f: Callable[[], T]) -> Future[T]:
    """Begin to run a function in another thread."""
    return _pool().submit(f)
