"""Opens a page in the browser, if somebody uses the terminal."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path


def somebody_looks() -> bool:
    """Whether a person sees this program's output, on a machine with a display. CI has neither."""
    if os.environ.get("CI") or not sys.stdout.isatty():
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(path: str | os.PathLike[str]) -> bool:
    """Open a file in a browser, if a person would see it. Returns whether it was opened."""
    return somebody_looks() and webbrowser.open(Path(path).resolve().as_uri())
