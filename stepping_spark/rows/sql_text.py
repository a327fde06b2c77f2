"""SQL text that keeps its meaning within other SQL text, and values as typed literals.

`a AND b` as an operand of `=` would be read as `a AND (b = …)`, without an error. So every text of
a value is `Sql`, and only the functions of this module create it: a name, a literal, a call, a CASE
… END, or text in parentheses.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NewType

from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf

Sql = NewType("Sql", str)

_QUOTED = r"`(?:[^`]|``)*`"
_NAME = rf"(?:{_QUOTED}|[A-Za-z_]\w*)"
_ATOM = re.compile(rf"{_NAME}(?:\.{_NAME})*|\d[\w.]*|\w*'[^']*'")
_CALL = re.compile(r"(?!(?:CASE|NOT|AND|OR|IS|IN)\b)[A-Za-z_]\w*\(|\(|CASE\b")
_BRACKETS = re.compile(rf"{_QUOTED}|'[^']*'|(?P<begin>[(\[]|\bCASE\b)|(?P<end>[)\]]|\bEND\b)")


def closed(text: str) -> Sql:
    """The text of a value, in parentheses unless it is a name, a literal, a call or a CASE.

    The text may contain anything that `literals` and `types.quote` write. They leave no quote open.
    """
    if _ATOM.fullmatch(text) or _is_one(text):
        return Sql(text)
    return Sql(f"({text})")


def _is_one(text: str) -> bool:
    """Whether the whole text is one call, one CASE, or one pair of parentheses."""
    if not _CALL.match(text):
        return False
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        if bracket["begin"]:
            depth += 1
        elif bracket["end"]:
            depth -= 1
            if not depth:
                return bracket.end() == len(text)
    return False


def all_of(conditions: Iterable[str]) -> Sql:
    """The condition that all of these are true."""
    return closed(" AND ".join(map(closed, conditions)))


def any_of(conditions: Iterable[str]) -> Sql:
    """The condition that one of these is true."""
    return closed(" OR ".join(map(closed, conditions)))


def let(name: str, value: str, body: str) -> Sql:
    """SQL of a body in which a name stands for a value that is computed once."""
    return closed(f"element_at(transform(array({value}), {name} -> {body}), 1)")


def let_all(name: str, values: Mapping[str, str], body: str) -> Sql:
    """A body in which `name.field` stands for each value, computed once.

    Nested names are costly: Spark analyzes a text once more for each level, and at most 100 times.
    """
    fields = ", ".join(f"'{field}', {value}" for field, value in values.items())
    return let(name, f"named_struct({fields})", body)


_PLAIN = re.compile(r"(?:[^\x00-\x1f\x7f\\'$/]|/(?!\*))*")
"""Text that reads the same everywhere in a query, with any settings of the session.

It excludes backslashes and quotes (`escapedStringLiterals`), `${...}` (which Spark replaces by a
setting, even within a literal), and the beginning of a comment (comments mark places in a query
where text is inserted).
"""


def text(value: str) -> str:
    """A string literal, for any string."""
    if _PLAIN.fullmatch(value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def literal(value: Any, t: RowType) -> str:
    """An encoded value (from `RowType.encode`) as a Spark SQL literal of its type."""
    if isinstance(t, Optional):
        t = t.inner
    if value is None:
        return f"CAST(NULL AS {t.ddl})"
    if isinstance(t, Struct):
        parts = (f"{text(n)}, {literal(value[n], ft)}" for n, ft in t.fields)
        return f"named_struct({', '.join(parts)})"
    if isinstance(t, ListOf | ZSetOf):
        item = t.inner if isinstance(t, ListOf) else t.item
        inner = ", ".join(literal(v, item) for v in value)
        return f"CAST(array({inner}) AS {t.ddl})"
    assert isinstance(t, Atom)
    return _atom(value, t)


def _atom(value: Any, t: Atom) -> str:
    match t.name:
        case "bool":
            return "true" if value else "false"
        case "int":  # the smallest one has no literal of its own
            return f"{value}L" if value != -(2**63) else "(-9223372036854775807L - 1L)"
        case "float" if math.isfinite(value):
            return f"{value!r}D"
        case "float":
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"CAST('{name}' AS DOUBLE)"
        case "Decimal":
            return f"CAST('{value:f}' AS {t.ddl})"
        case "bytes":
            return f"X'{value.hex()}'"
        case "date":
            return f"DATE'{value.isoformat()}'"
        case "datetime":
            return f"TIMESTAMP'{value.astimezone(dt.UTC).isoformat(sep=' ')}'"
        case "LocalDateTime":
            return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'"
        case "timedelta":
            sign = "-" if value < dt.timedelta(0) else ""
            magnitude = abs(value)
            seconds = f"{magnitude.seconds}.{magnitude.microseconds:06}BD"
            return f"make_dt_interval({sign}{magnitude.days}, 0, 0, {sign}{seconds})"
    return text(value)
