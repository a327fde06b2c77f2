"""Boxed tables: the drawing of Z-sets in a terminal and in a notebook.

There are two styles, the same as in this project's documentation. A box of plain values has round
corners and no lines between its rows. A box with boxes or rows in its cells, or a box in a cell, is
a grid with a double line around it and a line between any two rows.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import html
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from stepping_spark.rows.atoms import ATOMS, Atom, RowType
from stepping_spark.rows.schema import COUNT, VALUE, columns_of
from stepping_spark.rows.types import ZSET_CLASS, Optional, Struct

_NUMBERS = ("int", "float", "Decimal")
MOST_ROWS = 20  # the most rows that one box shows; the rest are only counted

# Of each line: left, filling, between columns, right. Top, below the header, between rows, bottom.
_ROUND = ("╭─┬╮", "├─┼┤", "", "╰─┴╯")
_GRID = ("╒═╤╕", "╞═╪╡", "├─┼┤", "╘═╧╛")


@dataclass(frozen=True)
class Box:
    """A table to draw: a title, columns, and rows whose cells are text or boxes."""

    title: str
    headers: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str | Box, ...], ...]
    more: int = 0  # the number of rows that are not among `rows`
    grid: bool = False

    def text(self) -> str:
        """The table as text, with box-drawing characters."""
        if not self.rows:
            return f"<{self.title}: empty>"
        cells = [[_lines(cell) for cell in row] for row in self.rows]
        widths = [
            max(cell_len(h) + 2, *(cell_len(line) for row in cells for line in row[i]))
            for i, h in enumerate(self.headers)
        ]
        top, under, between, bottom = _GRID if self.grid else _ROUND
        drawn = [f"<{self.title}>", _rule(top, widths)]
        drawn += self._drawn([[h] for h in self.headers], widths)
        drawn.append(_rule(under, widths))
        for i, row in enumerate(cells):
            if i and between:
                drawn.append(_rule(between, widths))
            drawn += self._drawn(row, widths)
        drawn.append(_rule(bottom, widths))
        if self.more:
            drawn.append(_more(self.more))
        return "\n".join(drawn)

    def _drawn(self, row: Sequence[Sequence[str]], widths: list[int]) -> Iterable[str]:
        for i in range(max(map(len, row))):
            parts = []
            for lines, width, numeric in zip(row, widths, self.numeric, strict=True):
                line = lines[i] if i < len(lines) else ""
                space = " " * (width - cell_len(line))
                parts.append(space + line if numeric else line + space)
            yield f"│ {' │ '.join(parts)} │"

    def html(self) -> str:
        """The table as HTML for a notebook. Every value is escaped."""
        title = html.escape(f"<{self.title}>")
        if not self.rows:
            return f"<div><code>{title}</code> empty</div>"
        more = f"<p>{_more(self.more)}</p>" if self.more else ""
        table = html_table(self.headers, self.numeric, self.rows)
        return f"<div><code>{title}</code>{table}{more}</div>"


def html_table(
    headers: Sequence[str], numeric: Sequence[bool], rows: Iterable[Sequence[str | Box]]
) -> str:
    """A table as HTML for a notebook. Every text is escaped."""
    heads = "".join(f"<th>{html.escape(h)}</th>" for h in headers)
    body = "".join(f"<tr>{_html_row(row, numeric)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(row: Sequence[str | Box], numeric: Sequence[bool]) -> str:
    cells = []
    for cell, is_number in zip(row, numeric, strict=True):
        inner = cell.html() if isinstance(cell, Box) else html.escape(cell)
        align = "right" if is_number else "left"
        cells.append(f'<td style="text-align: {align}; white-space: pre">{inner}</td>')
    return "".join(cells)


def box_of(
    title: str,
    t: RowType | None,
    pairs: Iterable[tuple[Any, int]],
    more: int,
    nested: bool = False,
) -> Box:
    """The table of rows and counts. `t` is the type of the rows, if they have a common one."""
    columns = ((VALUE, None),) if t is None else columns_of(t)
    bare = [t.inner if isinstance(t, Optional) else t for _, t in columns]
    parts = t.parts if isinstance(t, Struct) else lambda row, where: [row]
    return Box(
        title,
        (COUNT, *(name for name, _ in columns)),
        (True, *(isinstance(b, Atom) and b.name in _NUMBERS for b in bare)),
        tuple((str(n), *map(_cell, parts(row, title), bare)) for row, n in pairs),
        more,
        grid=nested or not all(b is None or isinstance(b, Atom) for b in bare),
    )


def _cell(value: Any, t: RowType | None) -> str | Box:
    if isinstance(value, decimal.Decimal) and isinstance(t, Atom) and t != ATOMS[decimal.Decimal]:
        return with_scale(value, t.scale)
    if type(value) in ZSET_CLASS:
        inner: Box = value.box(nested=True)
        return inner
    return plain(value)


def plain(value: object) -> str:
    """A value as the text of a cell."""
    match value:
        case enum.Enum():
            return printable(str(value.value))
        case str():
            return printable(value)
        case decimal.Decimal():
            digits = f"{value:f}"  # 1.50 and 1.5 are equal, so both print as 1.5
            return digits.rstrip("0").rstrip(".") if "." in digits else digits
        case dt.datetime() if value.tzinfo is not None:
            return str(value.astimezone(dt.UTC))
        case dt.date() | dt.timedelta() | uuid.UUID():
            return str(value)
    return repr(value)


def with_scale(value: decimal.Decimal, scale: int) -> str:
    """A Decimal with the scale of its field, or its own if that is larger."""
    exponent = value.as_tuple().exponent
    own_scale = -exponent if isinstance(exponent, int) else 0
    return f"{value:.{max(own_scale, scale)}f}"


def printable(value: str) -> str:
    """The text on one line. Characters that would break the box are shown as their escapes."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def _lines(cell: str | Box) -> list[str]:
    return (cell.text() if isinstance(cell, Box) else cell).split("\n")


def _rule(style: str, widths: list[int]) -> str:
    left, filling, between, right = tuple(style)
    return left + between.join(filling * (width + 2) for width in widths) + right


def _more(n: int) -> str:
    return f"… {n:,} more row{'s' if n > 1 else ''}"
