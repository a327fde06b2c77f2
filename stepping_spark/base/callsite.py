"""Places in the user's program, for paths, clusters and error messages."""

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
    """Whether a source file belongs to `stepping_spark`, and not to a query or `circuits`."""
    return file.startswith(ENGINE)


def user_frame() -> FrameType | None:
    """The innermost frame outside of this library.

    Skips contextlib, which calls our context managers, and PySpark, which calls our Columns.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith((*FOLDERS, PYSPARK))
        or frame.f_code.co_filename == contextlib.__file__
    ):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType | None) -> Line:
    """The current line of a frame."""
    if frame is None:
        return Line("<unknown>", 0, "<unknown>")
    code = frame.f_code
    return Line(code.co_filename, frame.f_lineno, code.co_qualname)


def user_line() -> Line:
    """The user's line that led here: of a program, or of a text that is being translated."""
    return _PLACE.get() or line_of(user_frame())


@contextlib.contextmanager
def standing_at(line: Line | None) -> Iterator[None]:
    """Use this as the user's line within the block; None leaves it unchanged."""
    token = _PLACE.set(line or _PLACE.get())
    try:
        yield
    finally:
        _PLACE.reset(token)


_PLACE: ContextVar[Line | None] = ContextVar("place", default=None)


class SqlText(str):
    """A text of SQL, with its name in errors, and its file if it has one.

    With `quoted_names`, `"x"` is a name in it, as in standard SQL; otherwise it is a string, as in
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
