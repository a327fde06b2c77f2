"""A line of progress, in a terminal or in a notebook."""

from __future__ import annotations

import html
import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from stepping_spark.base.packages import rich_console, rich_progress

PAUSE = 0.1  # seconds between two updates of a notebook's cell


class Bar(Protocol):
    """A display of progress, called for each finished piece of work."""

    def show(self, text: str, advance: int = 0) -> None:
        """Show a text, and advance by a number of pieces."""


class NoBar:
    """Shows nothing."""

    def show(self, text: str, advance: int = 0) -> None:
        """Do nothing."""


@dataclass
class TerminalBar:
    """A line of a terminal, drawn by rich."""

    progress: rich_progress.Progress
    task: Any

    def show(self, text: str, advance: int = 0) -> None:
        """Show a text, and advance by a number of pieces."""
        self.progress.update(self.task, advance=advance, description=text)


@dataclass
class NotebookBar:
    """A piece of HTML in a notebook's output, replaced as the work goes on."""

    name: str
    count: bool
    total: int | None
    done: int
    cell: Any  # a DisplayHandle of IPython
    begun: float
    text: str = ""
    drawn: float = 0.0

    def show(self, text: str, advance: int = 0) -> None:
        """Show a text, and advance by a number of pieces; draws at most once per `PAUSE`."""
        self.done += advance
        self.text = text
        if time.monotonic() - self.drawn >= PAUSE:
            self.draw()

    def draw(self) -> None:
        """Replace the content of the cell."""
        self.drawn = time.monotonic()
        self.cell.update({"text/html": self.html(), "text/plain": self.plain()}, raw=True)

    def plain(self) -> str:
        """The progress as text, for a front end without HTML."""
        if not self.count:
            return f"{self.text or self.name} · {self._seconds()}"
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.name} {self.done:,}{of} · {self._seconds()} · {self.text}"

    def html(self) -> str:
        """The progress as HTML: a bar, the finished pieces, the time, and the text."""
        bar = ""
        if self.total is not None:
            bar = (
                f'<progress max="{max(self.total, 1)}" value="{self.done}" '
                'style="width: 16em; vertical-align: middle"></progress> '
            )
        content = f"{bar}{html.escape(self.plain())}"
        return f'<div style="font-variant-numeric: tabular-nums">{content}</div>'

    def _seconds(self) -> str:
        return f"{time.monotonic() - self.begun:.1f} s"


@contextmanager
def bar_of(name: str, *, total: int | None = None, done: int = 0, count: bool) -> Iterator[Bar]:
    """A bar for a terminal or a notebook; with `count` it shows the number of finished pieces.

    In a notebook rich would need ipywidgets; HTML needs nothing, and stays in the saved notebook.
    """
    if rich_console.Console().is_jupyter:
        display: Any = importlib.import_module("IPython.display")
        cell = display.display({"text/plain": name}, raw=True, display_id=True)
        bar = NotebookBar(name, count, total, done, cell, time.monotonic())
        try:
            yield bar
        finally:
            bar.draw()
        return
    description = rich_progress.TextColumn("{task.description}", markup=False)
    elapsed = rich_progress.TimeElapsedColumn()
    columns: list[rich_progress.ProgressColumn]
    if count:
        title = rich_progress.TextColumn(name, markup=False)
        bars = rich_progress.BarColumn(), rich_progress.MofNCompleteColumn()
        columns = [title, *bars, elapsed, description]
    else:
        columns = [rich_progress.SpinnerColumn(), description, elapsed]
    with rich_progress.Progress(*columns) as progress:
        task = progress.add_task("" if count else name, total=total, completed=done)
        yield TerminalBar(progress, task)
