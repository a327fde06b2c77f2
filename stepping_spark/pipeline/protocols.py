"""The protocols of sources and sinks, and their positions as offsets in a store.

The first number of a source's position is under the name of its input, the second one under
`name.1`, and so on. The last step of a sink before this one is under `into name`. A state has a
number of its own.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, StoreMismatch, cut_short
from stepping_spark.base.packages import DataFrame, SparkSession
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.python import ZSet
from stores.redaction import uri_of, wrong_with_files

if TYPE_CHECKING:
    from stepping_spark.zsets.spark import ZSetSpark


Position: TypeAlias = "int | tuple[int, ...]"
"""The position up to which a source is read. It is committed with the step, as whole numbers."""

Change: TypeAlias = "ZSet[Any] | pa.Table | DataFrame"
"""Inserted and deleted rows. A table has the columns of the rows, and may have `_count_`."""


def _no_session() -> None:
    """None: no Spark session has tasks to read with."""


@dataclass(frozen=True)
class Portion:
    """The amount that a step reads from a source: at most `versions`, about `rows` and `nbytes`.

    None means no limit. `nbytes` are bytes of rows in Arrow. If `tasks` returns a Spark session, a
    source may return more rows as a DataFrame, which its tasks read.

    >>> st.Portion(versions=10, rows=None).rows is None
    True
    """

    versions: int | None = None
    rows: int | None = None
    nbytes: int | None = None
    tasks: Callable[[], SparkSession | None] = _no_session

    def holds(self, rows: int, nbytes: int) -> bool:
        """Whether so many rows of so many bytes are within the portion."""
        fewer = self.rows is None or rows <= self.rows
        return fewer and (self.nbytes is None or nbytes <= self.nbytes)

    def without(self, rows: int, nbytes: int) -> Portion:
        """The rest of the portion after so many rows of so many bytes."""
        rows_left = None if self.rows is None else max(0, self.rows - rows)
        bytes_left = None if self.nbytes is None else max(0, self.nbytes - nbytes)
        return replace(self, rows=rows_left, nbytes=bytes_left)

    def pieces(self, rows: int, nbytes: int) -> int:
        """The number of portions that so many rows of so many bytes need."""
        of_rows = 1 if self.rows is None else -(-rows // max(1, self.rows))
        of_bytes = 1 if self.nbytes is None else -(-nbytes // max(1, self.nbytes))
        return max(1, of_rows, of_bytes)


@dataclass(frozen=True)
class Batch:
    """The next changes of a source, and the position up to which it is read with them.

    The `changes` are added up. An empty tuple means a new position without changed rows. `versions`
    is the number of commits, files or items in the batch. `final` means that the source cannot
    repeat the batch after it has read the next one. Its position is then committed, by a step
    without rows if nothing changed. `misfits` are rows that do not fit the input, as far as only
    the source can detect it: a line that is no JSON, a text that is no number. It is a table with
    the columns `row` (the original row, as text), `reason`, and `_count_`. The pipeline handles
    them: see `on_invalid`.

    >>> st.Batch(7, (st.ZSetPython({"a": 1}),)).position
    7
    """

    position: Position
    changes: tuple[Change, ...] = ()
    versions: int = 1
    final: bool = False
    misfits: pa.Table | None = None


_TEXT: pa.DataType = pa.string()
MISFITS = pa.schema({"row": _TEXT, "reason": _TEXT, COUNT: pa.int64()})
"""The columns of `Batch.misfits`; it may have one more, `AT`."""

AT = "at"
"""The exact place of a row in its source: a metadata key of a schema, and a column of misfits."""


class Source(Protocol):
    """A source of the changes of one input.

    A pipeline reads the changes after a position. For the same position a source must return the
    same changes each time, in every process: so a step is exactly once. Optional members are:

    - a text `unit`: the unit of the first number of a position, such as "version", for messages;
    - a text `counts`: the unit of `behind`, if it is another one, such as "log row";
    - a tuple `lengths`: how many numbers a position may have. The pipeline refuses a position with
      another number: it is one of another kind of source;
    - a method `confirm(position)`, which is called when the step that read up to this position is
      committed and all sinks have its rows;
    - a method `schema()`, called when the source is open: the current columns of the table, under
      their own names, with Arrow types. The pipeline compares them with the row class at once, and
      `st.row_class` makes a row class of them. A type that Arrow lacks is a `pa.opaque` type;
    - an attribute `on_invalid`: the treatment of rows that do not fit the input;
    - a method `look(after, portion)`, which a dry run calls: it raises the errors of `read` that it
      can detect without reading rows, changes nothing, and returns None, or the batch with tables
      without rows.

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
        """Prepare to read. `columns` are the columns that the input needs, with Arrow types.

        A row that is a single value has the column `_value_`. A table may have more columns. If a
        column has another name in the table than in the row class, the metadata of its field have
        that name under `column`; batches have the names of the row class.
        """

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next changes after a position; None if there is nothing new.

        Without a position it reads from the beginning. If the changes exceed `portion`, it returns
        a part if it can; the next call, with the returned position, continues.
        """

    def behind(self, after: Position | None) -> int | None:
        """The amount after a position, in the unit of the source; None if unknown."""

    def close(self) -> None:
        """Release files and connections. The source may be opened again."""


class Sink(Protocol):
    """A sink for the rows of one view.

    A sink writes the step's number in the same transaction as the step's rows. After a crash the
    pipeline reads this number, and writes the last step again if the sink lacks it.

    Optional members are:

    - a method `look(columns, owner)`, which a dry run calls. It raises the errors of `open`,
      changes nothing, and returns the last step of the owner, or 0;
    - a method `prepare(step, change)`, called before the step is committed: it raises the errors of
      `write` that the rows and the table show, and changes nothing. `write` follows with the same
      change, unless the step fails;
    - an attribute `is_removed`, set by `open` and `look`: whether the table of the owner was
      removed after a step. Then `last_step` and `look` raise an error. With `evolve=True` the
      pipeline does not call `last_step`: `prepare` creates the table again, and gets all rows of
      the view;
    - an attribute `anew`, False at first, for `refresh=…`: the pipeline sets it to True before
      `open` or `look`, and to False after `write`, or, if the sink has that step already, before
      it closes the sink and opens it again. While it is True, `open` accepts a table of the
      owner whose rows somebody else has changed, and the next step has all rows of the view, which
      replace the rows of the table. The sink gets this step also without rows.

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
        """Prepare for rows with these columns, which are nullable if their type has `| None`.

        The metadata of a field may have another name for the table, as for `Source.open`.

        `owner` identifies one view of one state: refuse here a table that another owner wrote.
        """

    def last_step(self) -> int | None:
        """The last written step of this owner: 0 for none, None if it is unknown."""

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step and its number, both or neither.

        Steps without rows are not written. A step is not written twice, if `last_step` returns it.
        """

    def close(self) -> None:
        """Release files and connections. The sink may be opened again."""


class ReadTable(Protocol):
    """A table that can be read."""

    def source(self) -> Source:
        """A source of its rows."""


class WrittenTable(Protocol):
    """A table that can be written."""

    def sink(self) -> Sink:
        """A sink for the rows of a view."""


STATE = "pipeline"
"""The offset with the number of the state; an input cannot have this name."""


def state_of(step: int, offsets: Mapping[str, int]) -> int:
    """The number of the state at a step; a new number before the first step."""
    number = offsets.get(STATE)
    if number is not None:
        return number
    if step:
        raise StoreMismatch(
            f"the store has {step} steps that no pipeline took, so the positions of its sources "
            "are unknown; give the pipeline a store of its own"
        )
    return secrets.randbits(48) | 1


def numbers_of(position: Position) -> tuple[int, ...]:
    """A position as a tuple."""
    return position if isinstance(position, tuple) else (position,)


def number_of(identity: str | bytes) -> int:
    """A digest of the identity of a table, or of a content, as a whole number."""
    data = identity.encode() if isinstance(identity, str) else identity
    return int.from_bytes(hashlib.sha256(data).digest()[:6], "big")


def offsets_of(name: str, position: Position) -> dict[str, int]:
    """The offsets of a position in a store."""
    first, *rest = numbers_of(position)
    return {name: first, **{f"{name}.{i}": n for i, n in enumerate(rest, 1)}}


def position_of(name: str, offsets: Mapping[str, int]) -> Position | None:
    """The position in the offsets of a store, or None."""
    if name not in offsets:
        return None
    numbers = [offsets[name]]
    while (key := f"{name}.{len(numbers)}") in offsets:
        numbers.append(offsets[key])
    return tuple(numbers) if len(numbers) > 1 else numbers[0]


def sink_key(view: str, place: int) -> str:
    """The offset with the last step of a sink; the sinks of a view are numbered."""
    return f"into {view}" if place == 0 else f"into {view}.{place}"


def without(offsets: Mapping[str, int], names: list[str]) -> dict[str, int]:
    """The offsets that are neither of these sources nor of a sink."""
    return {
        key: n
        for key, n in offsets.items()
        if key.partition(".")[0] not in names and not key.startswith("into ") and key != STATE
    }


def read_of(offsets: Mapping[str, int]) -> dict[str, int]:
    """The first number of each source's position, for people.

    The other numbers, the number of the state, and the steps of sinks concern only the pipeline.
    """
    if STATE not in offsets:
        return dict(offsets)
    parts = {name: name.rpartition(".") for name in offsets}
    return {
        name: offsets[name]
        for name, (source, _, part) in parts.items()
        if not (name == STATE or name.startswith("into ") or (part.isdigit() and source in offsets))
    }


RETRY = "check the table, and run again"
ANEW = "start with a new store, and remove the tables that it is to write"
REFRESHED = (
    "have its rows written anew: --evolve --refresh VIEW (in Python, evolve=True, refresh=[…])"
)
REMOVED = "remove the table and run with --evolve (in Python, evolve=True), which fills it"
OTHER_KIND = (
    "the state has the position of another kind of source, which was given for this input before; "
    f"give that one, or {ANEW}"
)
KEPT = "what was committed is kept: run again when this is corrected"


def same_path(path: str, filesystem: object = None) -> tuple[object, ...]:
    """A tuple that is equal for two spellings of the same path."""
    if filesystem is not None and not isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem, posixpath.normpath(path)
    scheme, place, address = path.partition("://")
    if not place:
        return ("file", os.path.realpath(path))
    if scheme == "file":
        return ("file", os.path.realpath(unquote(address)))
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return (scheme, posixpath.normpath(address))


def checked_path(path: str | os.PathLike[str], secrets: str) -> str:
    """The path as text; `InputError` if it has a user or a password: they go into `secrets`."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{user_line()}: expected a path or a URI, found {type(path).__name__}")
    text = os.fspath(path)
    uri = uri_of(text)
    wrong = wrong_with_files(text)
    if uri is not None and (uri.user or uri.more) and "://" in text:
        wrong = f"{uri}: the URI of a table has no user, password or parameters; give {secrets}"
    if wrong is not None:
        raise InputError(f"{user_line()}: {wrong}")
    return text


def flag_given(name: str, value: bool) -> bool:
    """An argument of a table that is True or False; `InputError` for another value."""
    if not isinstance(value, bool):
        raise _wrong_argument(name, value, "True or False")
    return value


def text_given(name: str, value: str) -> str:
    """An argument of a table that is a text; `InputError` for another value, and an empty one."""
    if not isinstance(value, str) or not value:
        raise _wrong_argument(name, value, "a text")
    return value


def one_given(name: str, value: str, choices: Iterable[str]) -> str:
    """An argument of a table that is one of these texts; `InputError` for another value."""
    if value not in list(choices):
        told = ", ".join(map(repr, choices))
        raise InputError(f"{user_line()}: {name}={cut_short(repr(value))}: expected one of {told}")
    return value


def names_given(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """An argument of a table that is a name or several; `InputError` for another value."""
    if not isinstance(value, Iterable):
        raise _wrong_argument(name, value, "a name, or a list of names")
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(n, str) for n in names):
        raise _wrong_argument(name, value, "a name, or a list of names")
    return names


def texts_given(name: str, value: Mapping[str, str] | None) -> dict[str, str]:
    """An argument of a table that has texts by name; `InputError` for another value."""
    texts = {} if value is None else value
    if not isinstance(texts, Mapping) or not all(
        isinstance(text, str) for pair in texts.items() for text in pair
    ):
        raise _wrong_argument(name, value, "texts by name, as {'name': 'text'}")
    return dict(texts)


def _wrong_argument(name: str, value: object, expected: str) -> InputError:
    """The error for an argument; it does not show the value, which may be a secret."""
    found = "an empty text" if value == "" else f"a value of type {type(value).__name__}"
    return InputError(f"{user_line()}: {name}=: expected {expected}, found {found}")
