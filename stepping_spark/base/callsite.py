"""Where in the user's program something was written: for paths, clusters and error messages."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType

from stepping_spark.base.packages import folder_of

# The folders of this library's source files, the engine's first.
FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), name)
    + os.sep
    for name in ("stepping_spark", "circuits", "stores")
)
ENGINE = FOLDERS[0]
PYSPARK = str(folder_of("pyspark") or "pyspark") + os.sep


@dataclass(frozen=True)
class Line:
    """A line of the user's program."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}, in {self.function}"


def is_ours(file: str) -> bool:
    """Whether a source file belongs to this library."""
    return file.startswith(FOLDERS)


def is_engine(file: str) -> bool:
    """Whether a source file belongs to `stepping_spark`, so is neither a query nor a circuit."""
    return file.startswith(ENGINE)


def user_frame() -> FrameType | None:
    """The innermost frame that is not this library's.

    A `with` of ours calls us by contextlib, and PySpark where it is given a Column of ours.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith((*FOLDERS, PYSPARK))
        or frame.f_code.co_filename == contextlib.__file__
    ):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType | None) -> Line:
    """The line that a frame stands at."""
    if frame is None:
        return Line("<unknown>", 0, "<unknown>")
    code = frame.f_code
    return Line(code.co_filename, frame.f_lineno, code.co_qualname)


def user_line() -> Line:
    """The user's line that led here: of a program, or of a text that is being translated."""
    return _PLACE.get() or line_of(user_frame())


@contextlib.contextmanager
def standing_at(line: Line | None) -> Iterator[None]:
    """Take this for the user's line; None: leave it as it is."""
    token = _PLACE.set(line or _PLACE.get())
    try:
        yield
    finally:
        _PLACE.reset(token)


_PLACE: ContextVar[Line | None] = ContextVar("place", default=None)


class SqlText(str):
    """A text of SQL, what errors call it, and the file that it stands in, if it does.

    With `quoted_names`, `"x"` is a name in it, as in standard SQL, and otherwise a string, as in
    Spark.
    """

    called: str
    file: str
    quoted_names: bool

    def __new__(
        cls, text: str, called: str = "SQL", *, file: str = "", quoted_names: bool = False
    ) -> SqlText:
        sql_text = super().__new__(cls, text)
        sql_text.called, sql_text.file, sql_text.quoted_names = called, file, quoted_names
        return sql_text

    def __deepcopy__(self, memo: object) -> SqlText:
        return self  # copies of nodes share their text
