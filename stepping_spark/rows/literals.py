"""Values as typed Spark SQL literals, for small relations and constants in a query's text."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf

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
            rest = abs(value)
            seconds = f"{rest.seconds}.{rest.microseconds:06}BD"
            return f"make_dt_interval({sign}{rest.days}, 0, 0, {sign}{seconds})"
    return text(value)
