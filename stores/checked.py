"""Reads JSON that somebody may have edited: checks its size and depth, and then each part.

    body = parsed(data)["manifest"]
    step = body["step"].number(least=0)
    names = [name.text() for name in body["names"].items()]

A part that is not as requested raises a ValueError with its path: `manifest.names[3] is null, and
must be a text`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from stores.parquet.directory import Directory

MOST_BYTES = 1 << 24
"""The largest text that is read, enough for a manifest of some hundred thousand files."""

MOST_PARTS = 1 << 21
"""The most commas and brackets; they bound the memory of the parsed values."""

MOST_LEVELS = 200
"""The deepest nesting of lists and objects: each row within a row takes three levels."""

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
SHOWN = 60  # characters of a value in messages

T = TypeVar("T")


def small_file(directory: Directory, name: str) -> bytes:
    """The bytes of a JSON file, or a ValueError if it is too large."""
    with directory.input(name) as source:
        size = source.size()
        if size > MOST_BYTES:
            raise ValueError(f"it has {size:,} bytes, and must have no more than {MOST_BYTES:,}")
        return source.read()


def parsed(data: bytes | str, path: str = "") -> Part:
    """The JSON in a text, or a ValueError if it is invalid, too large, or nested too deeply."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, and must have no more than {MOST_BYTES:,}")
    text = data.decode() if isinstance(data, bytes) else data
    if sum(map(text.count, ",[{")) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS:,} values")
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    _check_parts(found)
    return Part(found, path)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        check_distinct([name for name, _ in pairs], "in an object, the entry")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has the number {name}, which JSON has not")


def _too_deep() -> ValueError:
    return ValueError(f"its lists and objects are nested more than {MOST_LEVELS} levels deep")


def _check_parts(whole: object) -> None:
    """Raise a ValueError for deep nesting, and for text that no encoding can write."""
    level: list[object] = [whole]
    for _ in range(MOST_LEVELS + 1):
        inner: list[object] = []
        for part in level:
            if isinstance(part, dict):
                inner += part
                inner += part.values()
            elif isinstance(part, list):
                inner += part
            elif isinstance(part, str):
                part.encode()  # a UnicodeEncodeError is a ValueError
        if not inner:
            return
        level = inner
    raise _too_deep()


@dataclass(frozen=True)
class Part:
    """A part of a JSON document, and its path."""

    found: Any
    path: str

    def __getitem__(self, name: str) -> Part:
        """An entry of an object."""
        if not isinstance(self.found, dict):
            raise self.wrong("an object")
        if name not in self.found:
            raise ValueError(f"{self._shown_path} has no entry {name!r}")
        return Part(self.found[name], f"{self.path}.{name}".lstrip("."))

    def maybe(self, name: str) -> Part:
        """An entry of an object; null if an earlier version did not write it."""
        if isinstance(self.found, dict) and name not in self.found:
            return Part(None, f"{self.path}.{name}".lstrip("."))
        return self[name]

    def entries(self) -> dict[str, Part]:
        """All entries of an object."""
        if not isinstance(self.found, dict):
            raise self.wrong("an object")
        return {n: Part(v, f"{self.path}[{_cut(repr(n))}]") for n, v in self.found.items()}

    def items(self, number: int | None = None) -> list[Part]:
        """The items of a list; of this length, if one is given."""
        if not isinstance(self.found, list) or number not in (None, len(self.found)):
            raise self.wrong("a list" if number is None else f"a list of {number}")
        return [Part(v, f"{self.path}[{i}]") for i, v in enumerate(self.found)]

    def number(self, least: int = INT_MIN, most: int = INT_MAX) -> int:
        """A whole number within these bounds."""
        if type(self.found) is not int or not least <= self.found <= most:
            raise self.wrong(f"a whole number from {least} to {most}")
        return self.found

    def text(self, form: re.Pattern[str] | None = None, shown: str = "") -> str:
        """A text; of this form, if one is given. A message shows the form."""
        if not isinstance(self.found, str):
            raise self.wrong("a text")
        if form is not None and not form.fullmatch(self.found):
            raise self.wrong(f"a text of the form {shown or form.pattern}")
        return self.found

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.found, bool):
            raise self.wrong("true or false")
        return self.found

    def or_none(self, read: Callable[[Part], T]) -> T | None:
        """The result of a function of the part; None if the part is null."""
        return None if self.found is None else read(self)

    def read_as(self, read: Callable[[Any], T]) -> T:
        """The result of a function of the value. Its ValueErrors get the path of the part."""
        try:
            return read(self.found)
        except ValueError as e:
            raise ValueError(f"{self._shown_path}: {_cut(str(e), 4 * SHOWN)}") from None

    def wrong(self, wanted: str) -> ValueError:
        """The error for a part that is not what was expected."""
        return ValueError(f"{self._shown_path} is {_shown(self.found)}, and must be {wanted}")

    @property
    def _shown_path(self) -> str:
        return self.path or "it"


def _shown(found: object) -> str:
    """A value, for a message."""
    match found:
        case dict():
            return f"an object of {len(found)} entries"
        case list():
            return f"a list of {len(found)} items"
        case None | bool():
            return json.dumps(found)
        case int() if abs(found) > INT_MAX * 1000:
            return "a number of too many digits"
    return _cut(repr(found))


def _cut(text: str, most: int = SHOWN) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def check_distinct(names: Sequence[str], what: str) -> None:
    """Raise a ValueError if a name occurs twice."""
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{what} {_cut(repr(name))} is there {times} times")
