"""What a source and a sink are: the two protocols that a pipeline is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.zsets.protocol import ZSet

if TYPE_CHECKING:
    from stepping_spark.zsets.spark import ZSetSpark

Position: TypeAlias = "int | tuple[int, ...]"
"""How far a source is read. It is committed with the step, so it is whole numbers."""

Change: TypeAlias = "ZSet[Any] | pa.Table | DataFrame"
"""Rows that came and went. A table has the columns of the rows, and may have `_count_`."""


@dataclass(frozen=True)
class Portion:
    """How much a step takes of a source: at most so many versions, and about so many rows.

    None: as much as there is.

    >>> st.Portion(versions=10, rows=None).rows is None
    True
    """

    versions: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Batch:
    """The next changes of a source, and how far it is read with them.

    `changes` are added up. None of them: there is a new position, and nothing has changed.
    `versions` counts what the source counts: commits, files, items. `final`: the source cannot give
    the batch again once it is asked for the next, so its position is committed, by a step without
    rows where nothing has changed.

    >>> st.Batch(7, (st.ZSetPython({"a": 1}),)).position
    7
    """

    position: Position
    changes: tuple[Change, ...] = ()
    versions: int = 1
    final: bool = False


class Source(Protocol):
    """Where the changes of one input come from.

    A source is asked for what comes after a position, and gives the same changes for the same
    position each time, also in the next process: that is what makes a step exactly once. It may
    have a text `unit`, what the first number of a position counts, as "version", for messages, and
    a method `confirm(position)`, which is called when the step that read up to it is committed and
    all sinks have its rows.

    >>> class Lines:
    ...     '''The lines of a file that only grows.'''
    ...     def __init__(self, path): self.path = path
    ...     def open(self, columns): pass
    ...     def close(self): pass
    ...     def read(self, after, portion):
    ...         lines = self.path.read_text().splitlines()[after or 0 :]
    ...         new = st.ZSetPython([(line, 1) for line in lines])
    ...         return st.Batch((after or 0) + len(lines), (new,)) if lines else None
    ...     def behind(self, after):
    ...         return len(self.path.read_text().splitlines()) - (after or 0)
    >>> _ = Path("names").write_text("ann\\nbob\\n")
    >>> def names(lines: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(lines)
    >>> st.Pipeline(names, store="memory", lines=Lines(Path("names")), into={"names": print}).run()
    1 <ZSetSpark>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         1 │ ann       │
    │         1 │ bob       │
    ╰───────────┴───────────╯
    1
    """

    def open(self, columns: pa.Schema) -> None:
        """Get ready. `columns` are those that the input reads, by name, with their Arrow types.

        A row that is a single value has the column `_value_`. A table may have more columns.
        """

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next changes after a position; None: there is nothing new.

        Without a position they are all that there is so far. Of more than `portion` it gives a
        part, if it can: the next call, with the position that it gave, goes on.
        """

    def behind(self, after: Position | None) -> int | None:
        """How much there is after a position, in what the source counts; None: unknown."""

    def close(self) -> None:
        """Let go of files and connections. The source may be opened again."""


class Sink(Protocol):
    """Where the rows of one view go.

    The step's number is written in the transaction that writes the step's rows: after a crash the
    pipeline asks for it, and writes the last step again where the sink does not have it.

    It may have the method `look(columns, owner)` too, which a dry run calls: it raises what `open`
    would raise, changes nothing, and gives the last step of the owner, or 0.

    >>> class Log:
    ...     '''Keeps changes in memory.'''
    ...     def __init__(self): self.steps = []
    ...     def open(self, columns, owner): pass
    ...     def last_step(self): return self.steps[-1][0] if self.steps else 0
    ...     def write(self, step, change): self.steps.append((step, change.to_python()))
    ...     def close(self): pass
    >>> def names(lines: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(lines)
    >>> log = Log()
    >>> steps = [(1, st.ZSetPython({"ann": 1}))]
    >>> st.Pipeline(names, store="memory", lines=steps, into={"names": log}).run()
    1
    >>> [step for step, _ in log.steps]
    [1]
    """

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Get ready for rows of these columns, which are nullable where the type has `| None`.

        `owner` is one state of one view: what another owner has written is refused here.
        """

    def last_step(self) -> int | None:
        """The last step of this owner that is written; 0: none. None: the sink cannot know."""

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step, and its number, at once or not at all.

        Steps without rows are left out. A step that is written already is not given again, where
        the sink can know it.
        """

    def close(self) -> None:
        """Let go of files and connections. The sink may be opened again."""


class ReadTable(Protocol):
    """A table that says what reads it."""

    def source(self) -> Source:
        """A source of its rows."""


class WrittenTable(Protocol):
    """A table that says what writes it."""

    def sink(self) -> Sink:
        """A sink for the rows of a view."""
