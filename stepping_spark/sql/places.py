"""Places in a text of SQL, and errors that show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from stepping_spark.base.callsite import Line, SqlText
from stepping_spark.base.errors import CompileError

SHOWN = 200
"""The most characters of a line that an error shows before its place, and after it."""


class SqlError(CompileError):
    """A text of SQL cannot become a query. The message shows the place in the text."""


def failure(text: str, node: exp.Expr | None, reason: str, remedy: str = "") -> CompileError:
    """The error for a node of the tree: place, line with a caret, reason and remedy.

    The place of a node is the first place within it, or else within its parent. `text` is the text
    of the current query; a node of another view has its own text.
    """
    at = node
    while at is not None:
        if places := list(places_of(at)):
            start, of = min(places, key=lambda place: place[0])
            return failure_at(of, start, reason, remedy)
        at = at.parent
    return failure_at(text, None, reason, remedy)


def line_of(nodes: Iterable[exp.Expr], view: str) -> Line | None:
    """The first line of a view's nodes; None if their text is not from a file."""
    for node in nodes:
        for start, text in sorted(places_of(node), key=lambda place: place[0])[:1]:
            if isinstance(text, SqlText) and text.file:
                return Line(text.file, text.count("\n", 0, start) + 1, view)
    return None


def place_of(node: exp.Expr) -> int | None:
    """The place of the first part of a node that has one, or None."""
    return next((start for start, _ in places_of(node)), None)


def places_of(node: exp.Expr) -> Iterator[tuple[int, str]]:
    """The places where the parts of a node begin, with their texts."""
    for part in node.walk():
        start = part.meta.get("start") if part._meta else None
        if isinstance(start, int):
            yield start, part.meta["text"]


def failure_at(text: str, start: int | None, reason: str, remedy: str = "") -> SqlError:
    """The error at a place in the text, with its line and a caret."""
    message = f"{reason}; {remedy}" if remedy else reason
    title = text.called if isinstance(text, SqlText) else "SQL"
    if start is None or not 0 <= start < len(text):
        return SqlError(f"{title}: {message}")
    line = text.count("\n", 0, start) + 1
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    first = max(begin, start - SHOWN)
    excerpt = text[first : min(end if end >= 0 else len(text), start + SHOWN)]
    caret = "".join("\t" if c == "\t" else " " for c in text[first:start]) + "^"
    return SqlError(
        f"{title}, line {line}, column {start - begin + 1}: {message}\n  {excerpt}\n  {caret}"
    )
