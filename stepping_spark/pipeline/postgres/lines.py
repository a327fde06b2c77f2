"""Converts lines of a log to rows: lines that cancel out are left out, others may be misfits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stepping_spark.pipeline.postgres.types import DECODER, PostgresKind, array_of, is_exact
from stepping_spark.pipeline.protocols import MISFITS
from stepping_spark.rows.schema import COUNT

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_ABSENT = object()  # the line was written when its table had no column of that name


class OtherNameError(LookupError):
    """A line was written while a column had another name; the argument is the column."""


class LinesOfShape:
    """The lines of one shape: its columns by field, as (name in the table, kind, Arrow type).

    A line up to the number `mended` with another name for a column is a misfit, unless other lines
    cancel it. Such a line after `mended` raises `OtherNameError`.
    """

    def __init__(
        self,
        columns: Mapping[str, tuple[str, PostgresKind, pa.DataType]],
        key: Sequence[str],
        mended: int = 0,
    ) -> None:
        self._columns = columns
        self._names = [name for name, _, _ in columns.values()]
        self._exact = {name for name, kind, _ in columns.values() if is_exact(kind)}
        self._key = key
        self._mended = mended

    def rows_of(self, lines: Iterable[tuple[int, int, str]]) -> tuple[pa.Table, pa.Table]:
        """The rows of lines (number, count, text) with their counts added up, and misfits."""
        by_text: Counter[str] = Counter()
        last: dict[str, int] = {}
        for number, count, text in lines:
            by_text[text] += count
            last[text] = number
        counts: Counter[tuple[Any, ...]] = Counter()
        texts: dict[tuple[Any, ...], str] = {}
        for text, count in by_text.items():
            if count:
                values = self._values(text)
                if _ABSENT in values and last[text] > self._mended:
                    raise OtherNameError(self._names[values.index(_ABSENT)])
                counts[values] += count
                texts[values] = text
        left = {values: n for values, n in counts.items() if n}
        return self._converted(left, texts)

    def _converted(
        self, counts: Mapping[tuple[Any, ...], int], texts: Mapping[tuple[Any, ...], str]
    ) -> tuple[pa.Table, pa.Table]:
        rows = list(counts)
        arrays: list[pa.Array[Any]] = []
        reasons: dict[int, list[str]] = {}
        by_column = zip(*rows, strict=True) if rows else ([] for _ in self._names)
        for values, (name, _, t) in zip(by_column, self._columns.values(), strict=True):
            array, wrong = _array(list(values), t)
            arrays.append(array)
            for i, reason in wrong.items():
                reasons.setdefault(i, []).append(f"column {name}: {reason}")
        arrays.append(pa.array(list(counts.values()), pa.int64()))
        table = pa.Table.from_arrays(arrays, names=[*self._columns, COUNT])
        misfits = [
            {
                "row": texts[rows[i]],
                "reason": self._keyed(texts[rows[i]], of_row),
                COUNT: counts[rows[i]],
            }
            for i, of_row in sorted(reasons.items())
        ]
        fits = pa.array([i not in reasons for i in range(len(rows))], pa.bool_())
        return table.filter(fits) if reasons else table, pa.Table.from_pylist(misfits, MISFITS)

    def _keyed(self, text: str, reasons: Iterable[str]) -> str:
        """The key of a row and the reasons why it does not fit."""
        fields = _fields(text)
        key = ", ".join(f"{name} = {fields.get(name)}" for name in self._key)
        return f"{key}: {'; '.join(reasons)}" if key else "; ".join(reasons)

    def _values(self, text: str) -> tuple[Any, ...]:
        """The values of the columns; lists and objects as text, so that they are hashable."""
        if not self._exact:
            try:
                fields, _ = DECODER.raw_decode(text)
            except RecursionError:
                fields = {}
            values = tuple([fields.get(name, _ABSENT) for name in self._names])
            if fields and not any(isinstance(value, list | dict) for value in values):
                return values
        fields = _fields(text, self._exact)
        return tuple([fields.get(name, _ABSENT) for name in self._names])


def _fields(text: str, exact: Container[str] = ()) -> dict[str, Any]:
    """The values of a row; lists, objects and `exact` columns as their JSON text."""
    fields: dict[str, Any] = {}
    at = 1
    while text[at : at + 1] == '"':
        name, at = DECODER.raw_decode(text, at)
        start = at + 1
        at = _SPACE.match(text, start).end()  # type: ignore[union-attr]
        if text[at] in "[{":
            at = end = _end_of(text, at)
            value: Any = text[start:end]
        else:
            value, end = DECODER.raw_decode(text, at)
        at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        fields[name] = text[start:at] if name in exact and value is not None else value
        at += 1
    return fields


def _end_of(text: str, at: int) -> int:
    """The end of a list or an object, at any depth."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if not depth:
                return token.end()
    raise ValueError(f"a line of the log is no JSON: {text[:100]}")


def _array(values: list[Any], t: pa.DataType) -> tuple[pa.Array[Any], Mapping[int, str]]:
    absent = {
        i: "the row was logged while the column had another name"
        for i, value in enumerate(values)
        if value is _ABSENT
    }
    array, wrong = array_of([None if v is _ABSENT else v for v in values], t)
    return array, {**wrong, **absent}
