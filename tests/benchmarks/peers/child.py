"""The process of a peer, as seen from the outside: commands, answers, and the memory it takes."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

PYTHON = "BENCHMARK_PYTHON_"  # and the name of a peer: the Python that has what it needs
PROBED = 0.25  # seconds


@dataclass
class Measured:
    """What one peer took, in milliseconds, by size of change.

    `left_out` says why there is nothing of it, and `failed` that this is not for want of a program.
    """

    load: float = 0.0
    ms: dict[int, list[float]] = field(default_factory=dict)
    jobs: dict[int, list[int]] = field(default_factory=dict)
    empty: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    left_out: str = ""
    failed: bool = False


class Child:
    """A peer in a process of its own; once it fails, or is left out, it answers nothing."""

    def __init__(self, name: str, view: str, root: Path, directory: Path, timeout: float) -> None:
        self.name = name
        self.measured = Measured()
        module, _, variant = name.partition(":")
        directory.mkdir()
        self._timeout = timeout
        self._log = directory / "log"
        python = os.environ.get(PYTHON + module.upper(), sys.executable)
        arguments = [module, view, str(root), str(directory), variant]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "tests.benchmarks.peers.worker", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=self._watch, daemon=True).start()

    def ask(self, command: str, argument: str = "") -> dict[str, Any]:
        """What the peer answers; nothing, once it is out."""
        if self.measured.left_out:
            return {}
        found: dict[str, Any]
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([command, argument]) + "\n")
            self._process.stdin.flush()
            found = self._answer(command)
        except OSError:
            found = {"error": f"it died at {command!r}"}
        if "left_out" in found:
            self.measured.left_out = str(found["left_out"])
        elif "error" in found:
            end = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            self.measured.left_out = f"{found['error']}\n{end}"
            self.measured.failed = True
        return found

    def _answer(self, command: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            if not ready.select(self._timeout):
                return {"error": f"no answer to {command!r} in {self._timeout:g} s"}
        line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": f"it died at {command!r}"}
        return found

    def end(self) -> None:
        """Stop the process and those that it has started."""
        with suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                process.kill()
        self._process.kill()
        self._process.wait()

    def _watch(self) -> None:
        while self._process.poll() is None:
            self.measured.peak_bytes = max(self.measured.peak_bytes, self._bytes())
            time.sleep(PROBED)

    def _bytes(self) -> int:
        """The memory of the process and of those it has started; what they share, for each."""
        total = 0
        with suppress(psutil.Error):
            of = psutil.Process(self._process.pid)
            for process in (of, *of.children(recursive=True)):
                with suppress(psutil.Error):
                    total += process.memory_info().rss
        return total
