"""SQL text that keeps its meaning within other SQL text.

`a AND b` as an operand of `=` would be read as `a AND (b = …)`, without an error. So every text of
a value is `Sql`, and only the functions of this module create it: a name, a literal, a call, a CASE
… END, or text in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NewType

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
    for found in _BRACKETS.finditer(text):
        if found["begin"]:
            depth += 1
        elif found["end"]:
            depth -= 1
            if not depth:
                return found.end() == len(text)
    return False


def all_of(conditions: Iterable[str]) -> Sql:
    """The condition that all of these are true."""
    return closed(" AND ".join(map(closed, conditions)))


def any_of(conditions: Iterable[str]) -> Sql:
    """The condition that one of these is true."""
    return closed(" OR ".join(map(closed, conditions)))


def let(name: str, value: str, body: str) -> Sql:
    """A body in which a name stands for a value that is computed once."""
    return closed(f"element_at(transform(array({value}), {name} -> {body}), 1)")


def let_all(name: str, values: Mapping[str, str], body: str) -> Sql:
    """A body in which `name.field` stands for each value, computed once.

    Nested names are costly: Spark analyzes a text once more for each level, and at most 100 times.
    """
    fields = ", ".join(f"'{field}', {value}" for field, value in values.items())
    return let(name, f"named_struct({fields})", body)
