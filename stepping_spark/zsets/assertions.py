"""`st.assert_equal`: for tests, with the rows that are missing and those that are unexpected."""

from __future__ import annotations

from typing import Any

from stepping_spark.zsets.protocol import ZSet
from stepping_spark.zsets.python import ZSetPython
from stepping_spark.zsets.spark import ZSetSpark

ZSETS = (ZSetPython, ZSetSpark)


def assert_equal(actual: object, expected: object) -> None:
    """Raise an AssertionError that shows which rows differ, unless both are equal.

    Takes Z-sets, whatever they are held in, and what else a step gives: numbers, dicts of sums by
    key, and tuples of all these, such as the result of `stepper.step`. A row whose weight differs
    is shown with the difference.

    >>> st.assert_equal(st.ZSetPython({"ann": 1}), st.ZSetPython({"ann": 1}))
    >>> st.assert_equal(st.ZSetPython({"ann": 1}), st.ZSetPython({"bob": 2}))
    Traceback (most recent call last):
    AssertionError: the Z-sets differ
    <missing>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         2 │ bob       │
    ╰───────────┴───────────╯
    <unexpected>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         1 │ ann       │
    ╰───────────┴───────────╯
    """
    __tracebackhide__ = True  # for pytest
    told = _difference(actual, expected, "")
    if told:
        raise AssertionError(told)


def _difference(actual: Any, expected: Any, where: str) -> str:
    """What differs; an empty text: nothing."""
    if isinstance(actual, ZSETS) and isinstance(expected, ZSETS):
        return _of_zsets(actual, expected, where)
    if isinstance(actual, tuple) and isinstance(expected, tuple) and len(actual) == len(expected):
        pairs = enumerate(zip(actual, expected, strict=True))
        told = (_difference(a, e, f"{where}[{i}]") for i, (a, e) in pairs)
        return "\n".join(filter(None, told))
    return "" if actual == expected else f"{where or 'the values'}: {actual!r} is not {expected!r}"


def _of_zsets(actual: ZSet[Any], expected: ZSet[Any], where: str) -> str:
    counts: dict[Any, int] = dict(expected.iter())
    for row, n in actual.iter():
        counts[row] = counts.get(row, 0) - n
    sides = {
        "missing": {row: n for row, n in counts.items() if n > 0},
        "unexpected": {row: -n for row, n in counts.items() if n < 0},
    }
    shown = [ZSetPython(rows).box(title).text() for title, rows in sides.items() if rows]
    head = f"{where} differs" if where else "the Z-sets differ"
    return "\n".join([head, *shown]) if shown else ""
