"""What tests of stores share: small disks, and how to fill them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

SmallDisk = Callable[[int], Path]


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """Gives a disk of so many megabytes of its own, which any user may look into."""
    with ExitStack() as ends:

        def mounted(megabytes: int) -> Path:
            disk = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="stepping-disk-")))
            disk.chmod(0o755)
            try:
                subprocess.run(
                    ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(disk)],
                    capture_output=True,
                    check=True,
                )
            except FileNotFoundError:
                pytest.skip("there is no program `mount`")
            except subprocess.CalledProcessError as e:
                pytest.skip(f"a disk cannot be mounted: {e.stderr.decode().strip()}")
            ends.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
            return disk

        yield mounted


def fill(filler: Path) -> None:
    """Leave no room on the disk of a file."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"?" * 4096)
