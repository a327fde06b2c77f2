"""Kernels of text: patterns, parts, hashes, and casts to numbers and days, as in Spark.

A pattern is computed here if Java and Python read it alike, see `pattern_of`. Text is cast to a
number or a day here if it has the usual form; Spark casts the other forms.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import string
import zlib
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute

from stepping_spark.rows.atoms import INT_MAX, INT_MIN

pc: Any = pyarrow.compute


def each(f: Callable[[str], Any], t: pa.DataType, x: Any) -> Any:
    """The results of a function for each text; NULL for NULL."""
    return pa.array([None if v is None else f(v) for v in x.to_pylist()], t)


# Patterns

_CLASS = r"\\[dDwWsS]"
_SIGN = r"\\[][.*+?^$(){}|\\/-]"
_IN_BRACKETS = (
    rf"[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _,;:=@#%!/.+*?'\"]|{_CLASS}|\\[].*+?^$(){{}}|/-]"
)
_PIECE = re.compile(
    r"[A-Za-z0-9 _,;:=@#%&~!<>/'\"-]"  # a letter that stands for itself
    rf"|\.|{_CLASS}|{_SIGN}|\\[tnr]"
    rf"|\[\^?(?:{_IN_BRACKETS})+\]"
    r"|\((?:\?:|(?!\?))|\)|\|"
    r"|[*+?](?!\+)|\{\d{1,3}(?:,\d{0,3})?\}"
)
_ENDS = "\n\r\u0085\u2028\u2029"
_IN_PYTHON = {
    ".": f"[^{_ENDS}]",
    "$": rf"(?=(?:\r\n|(?<!\r)\n|[{_ENDS[1:]}])?\Z)",
}
"""Java's meaning of a dot, and of the end of a text: it has more line ends than Python."""


@cache
def pattern_of(written: Any) -> re.Pattern[str] | None:
    """A Java pattern for Python, with the same matches; None for one whose matches may differ.

    It may have letters, digits, classes, groups, alternatives and quantifiers, `^` at its begin and
    `$` at its end.
    """
    if not isinstance(written, str) or not written:
        return None
    at, pieces = (1, ["^"]) if written[0] == "^" else (0, [])
    while at < len(written):
        piece = _PIECE.match(written, at)
        if piece is None:
            if written[at:] != "$":
                return None
            pieces.append(_IN_PYTHON["$"])
            break
        pieces.append(_IN_PYTHON.get(piece[0], piece[0]))
        at = piece.end()
    try:
        pattern = re.compile("".join(pieces), re.ASCII)
    except (re.error, OverflowError):
        return None
    # After an empty match, Java and Python continue differently
    return None if pattern.fullmatch("") else pattern


def matches(x: Any, written: str) -> Any:
    pattern = pattern_of(written)
    assert pattern is not None
    return each(lambda v: pattern.search(v) is not None, pa.bool_(), x)


def extracted(x: Any, written: str, group: int = 1) -> Any:
    """The group of the first match; empty if there is no match."""
    pattern = pattern_of(written)
    assert pattern is not None

    def first(v: str) -> str:
        match = pattern.search(v)
        return "" if match is None else match[group] or ""

    return each(first, pa.string(), x)


def is_group(*values: Any) -> bool:
    """Whether constants are a pattern, and the number of a group of it."""
    pattern = pattern_of(values[0]) if len(values) in (1, 2) else None
    group = values[1] if len(values) == 2 else 1
    return pattern is not None and type(group) is int and 0 <= group <= pattern.groups


def substituted(x: Any, written: str, by: str, _: int = 1) -> Any:
    pattern = pattern_of(written)
    assert pattern is not None
    template = re.sub(r"\$(\d)", r"\\g<\1>", by)
    return each(partial(pattern.sub, template), pa.string(), x)


def is_substitution(*values: Any) -> bool:
    """Whether constants are a pattern and a text for its matches, with groups that it has."""
    pattern = pattern_of(values[0]) if len(values) in (2, 3) else None
    if pattern is None or not isinstance(values[1], str) or values[2:] not in ((), (1,)):
        return False
    groups, rest = re.findall(r"\$(\d)(?!\d)", values[1]), re.sub(r"\$\d(?!\d)", "", values[1])
    return all(int(g) <= pattern.groups for g in groups) and not {"$", "\\"} & set(rest)


def letters_of(written: Any) -> str | None:
    """The text that a pattern matches, if it is plain text; otherwise None."""
    if not isinstance(written, str) or not written:
        return None
    plain = re.sub(r"\\([][.*+?^$(){}|/-])", "", written)
    if set(plain) & set(r"\.[]{}()*+?^$|"):
        return None
    return re.sub(r"\\(.)", r"\1", written)


# Parts


def split(x: Any, pattern: str, _: int = -1) -> Any:
    return pc.split_pattern(x, letters_of(pattern))


def is_separator(*values: Any) -> bool:
    return letters_of(values[0]) is not None and values[1:] in ((), (-1,)) if values else False


def part(x: Any, separator: str, n: int) -> Any:
    """The part of this number, counted from the end if it is negative; empty if there is none."""

    def at(v: str) -> str:
        parts = v.split(separator)
        i = n - 1 if n > 0 else len(parts) + n
        return parts[i] if 0 <= i < len(parts) else ""

    return each(at, pa.string(), x)


def is_part(*values: Any) -> bool:
    return len(values) == 2 and _is_some(values[0]) and type(values[1]) is int and values[1] != 0


def before(x: Any, separator: str, n: int) -> Any:
    """The text before the n-th separator, or after the n-th from the end."""

    def cut(v: str) -> str:
        parts = v.split(separator)
        return separator.join(
            parts[:n] if n > 0 else parts[len(parts) + n :] if -n < len(parts) else parts
        )

    return each(cut, pa.string(), x) if n else each(lambda _: "", pa.string(), x)


def is_index(*values: Any) -> bool:
    return len(values) == 2 and _is_some(values[0]) and type(values[1]) is int


def place(x: Any, *constants: Any) -> Any:
    """The position, from 1, of a text within another; 0 if it does not occur."""
    sought = next(c for c in constants if isinstance(c, str))
    return each(lambda v: v.find(sought) + 1, pa.int64(), x)


def is_sought(*values: Any) -> bool:
    return values[-1:] != () and isinstance(values[-1], str) and values[:-1] in ((), (1,))


def translated(x: Any, of: str, to: str) -> Any:
    table: dict[int, str | None] = {}
    for i, c in enumerate(of):
        table.setdefault(ord(c), to[i] if i < len(to) else None)
    return each(lambda v: v.translate(table), pa.string(), x)


def are_texts(*values: Any) -> bool:
    return len(values) == 2 and all(isinstance(v, str) for v in values)


def with_capitals(x: Any) -> Any:
    """Each word with a capital first letter; None beyond ASCII, where Java has its own rules."""
    if pc.all(pc.string_is_ascii(x)).as_py() is False:
        return None
    return each(
        lambda v: " ".join(w[:1].upper() + w[1:].lower() for w in v.split(" ")), pa.string(), x
    )


def hashed(name: str, x: Any) -> Any:
    """The hash of each text in UTF-8, as hexadecimal digits."""
    digest = partial(hashlib.new, name, usedforsecurity=False)
    return each(lambda v: digest(v.encode()).hexdigest(), pa.string(), x)


def crc32(x: Any) -> Any:
    return each(lambda v: zlib.crc32(v.encode()), pa.int64(), x)


_SOUNDS = dict(zip(string.ascii_letters, "01230127022455012623017202" * 2, strict=True))
"""The digits of letters: 0 is a vowel, and 7 is H and W, which do not separate equal digits."""


def _sound(text: str) -> str:
    """The first letter and three digits; unchanged if it does not begin with an ASCII letter."""
    if text[:1] not in _SOUNDS:
        return text
    first, *others = (_SOUNDS.get(c, "0") for c in text)
    pairs = pairwise([first, *(d for d in others if d != "7")])
    return (text[0].upper() + "".join(d for last, d in pairs if d not in ("0", last)))[:4].ljust(
        4, "0"
    )


def sounds(x: Any) -> Any:
    return each(_sound, pa.string(), x)


def joined(x: Any, separator: str) -> Any:
    """The items of lists that are not NULL, with a separator."""
    lists = x.to_pylist()
    texts = [None if v is None else separator.join(t for t in v if t is not None) for v in lists]
    return pa.array(texts, pa.string())


def _is_some(value: Any) -> bool:
    return isinstance(value, str) and value != ""


# Casts

_BLANK = "".join(map(chr, range(33))) + "\x7f"
"""The ASCII characters that Spark trims at both ends of a number."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_FRACTION = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{0,18})?")
_DATE = re.compile(
    r"([0-9]{4,7}|[+-][0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL
)
"""A year, a month of one or two digits, a day, and a time, which is ignored."""
_LETTERS = set(string.ascii_letters) - set("dDfFeEnNiI")


class _Asks(Exception):
    """Signal: Spark must cast the text, or raise an error."""


def _cast(of: Callable[[str], Any], is_try: bool, t: pa.DataType, x: Any) -> Any:
    """The values of texts. An invalid text is NULL if `is_try`; otherwise Spark raises an error."""

    def value(v: str) -> Any:
        result = of(v.strip(_BLANK)) if v.isascii() else _Asks
        if result is _Asks or (result is None and not is_try):
            raise _Asks
        return result

    try:
        return each(value, t, x)
    except _Asks:
        return None


def _parsed_int(v: str) -> Any:
    if not _WHOLE.fullmatch(v):
        return None
    return int(v) if INT_MIN <= int(v) <= INT_MAX else None


def _parsed_float(v: str) -> Any:
    if _FRACTION.fullmatch(v):
        return float(v)
    return None if not v or set(v) & _LETTERS else _Asks


def _digits(precision: int, scale: int, v: str) -> Any:
    if not _FRACTION.fullmatch(v):
        return None if not v or set(v) & _LETTERS else _Asks
    decimal = Decimal(v).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
    return decimal if abs(decimal) < Decimal(10) ** (precision - scale) else _Asks


def _day(v: str) -> Any:
    match = _DATE.fullmatch(v)
    if match is None:
        return None
    year, month, day = (1 if part is None else int(part) for part in match.groups())
    if not dt.MINYEAR <= year <= dt.MAXYEAR:  # Spark has more years than Python
        return _Asks
    try:
        return dt.date(year, month, day)
    except ValueError:
        return None


def day_of_text(text: str) -> dt.date | None:
    """The day of a text by Spark's CAST; None if it is invalid, or if only Spark can decide."""
    date = _day(text.strip(_BLANK)) if text.isascii() else None
    return None if date is _Asks else date


def int_of_text(x: Any, *, is_try: bool = False) -> Any:
    return _cast(_parsed_int, is_try, pa.int64(), x)


def float_of_text(x: Any, *, is_try: bool = False) -> Any:
    return _cast(_parsed_float, is_try, pa.float64(), x)


def day(x: Any, *, is_try: bool = False) -> Any:
    return _cast(_day, is_try, pa.date32(), x)


def decimals(x: Any, precision: int, scale: int, *, is_try: bool = False) -> Any:
    of = partial(_digits, precision, scale)
    return _cast(of, is_try, pa.decimal128(precision, scale), x)
