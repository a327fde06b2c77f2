"""Threads: for work that waits for a disk or a network, for sorts of many rows, and for merges."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, "stepping-spark-files")


@functools.cache
def _sorters() -> ThreadPoolExecutor:
    """A small pool, so that sorts do not compete for processors, nor all use memory at once."""
    return ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 1) - 1)), "stepping-spark-sorts")


@functools.cache
def _mergers() -> ThreadPoolExecutor:
    """A pool of its own: merges wait for threads of the other pools, and could deadlock in them."""
    return ThreadPoolExecutor(4, "stepping-spark-merges")


# A forked process does not have the threads of a pool: work submitted to the pool would wait.
os.register_at_fork(after_in_child=_pool.cache_clear)
os.register_at_fork(after_in_child=_sorters.cache_clear)
os.register_at_fork(after_in_child=_mergers.cache_clear)


def side_by_side(f: Callable[[T], U], given: Sequence[T]) -> list[U]:
    """Call a function for each item, several at a time: for work that waits for input and output.

    All calls have ended when it returns, even if one failed.
    """
    if len(given) < 2:
        return [f(x) for x in given]
    futures = [later(functools.partial(f, x)) for x in given]
    wait(futures)
    return [future.result() for future in futures]


def later(f: Callable[[], T]) -> Future[T]:
    """Begin to run a function in another thread: for work that waits for input and output."""
    return _submitted(_pool(), f)


def sorted_later(f: Callable[[], T]) -> Future[T]:
    """Begin to run work of Arrow and NumPy, which releases the interpreter's lock, in a thread."""
    return _submitted(_sorters(), f)


def merged_later(f: Callable[[], T]) -> Future[T]:
    """Begin to run work that submits parts of itself to other threads, and waits for them."""
    return _submitted(_mergers(), f)


def _submitted(pool: ThreadPoolExecutor, f: Callable[[], T]) -> Future[T]:
    with suppress(RuntimeError):
        return pool.submit(f)
    # The main thread has ended, and another one goes on: pools take no more work then.
    done: Future[T] = Future()
    try:
        done.set_result(f())
    except Exception as e:
        done.set_exception(e)
    return done
