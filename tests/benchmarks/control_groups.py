"""Processes with a part of the machine, as in a container: control groups, which take root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def with_cores(pid: int, cores: float) -> Iterator[None]:
    """Give a process, and those that it starts, some cores, or a part of one."""
    group = GROUPS / "cpu" / f"stepping-{pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text(f"{cores * 100_000:.0f}")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        _empty(group)


@dataclass(frozen=True)
class Container:
    """A control group with a limit of memory."""

    group: Path

    def of(self, command: list[str]) -> list[str]:
        """A command that runs in it, and sees its limit as that of the machine."""
        enter = f"echo $$ > {self.group}/cgroup.procs && mount --bind {self.group} {GROUPS}/memory"
        return ["unshare", "--mount", "sh", "-c", f'{enter} && exec "$@"', "sh", *command]

    @property
    def peak(self) -> int:
        """The most bytes that its processes have used, with the cache of their files."""
        return int((self.group / "memory.max_usage_in_bytes").read_text())


@contextmanager
def with_memory(nbytes: int) -> Iterator[Container]:
    """A container in which processes may use so many bytes together."""
    group = GROUPS / "memory" / f"stepping-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(nbytes))
        yield Container(group)
    finally:
        _empty(group)


def _empty(group: Path) -> None:
    """Remove a group; its processes go on without it."""
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()
