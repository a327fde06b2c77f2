"""Parses the rows that describe the registers and the last step of a state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepping_spark.rows.schema import Schema
from stepping_spark.store import Now, now_from_text
from stores.checked import Part, parsed
from stores.postgres.types import unescape

MADE_BY = "made_by"


@dataclass(frozen=True)
class LastStep:
    """The last committed step, without the registers."""

    step: int = 0
    now: Now = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    outputs: Sequence[object] = ()  # of each, its schema, columns and computation
    outputs_kept: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def made_by_of(state: LastStep) -> tuple[str, ...] | None:
    """The computation of each output of the last step; None if it was not recorded."""
    if not state.outputs_kept:
        return None
    said = [o.get(MADE_BY) if isinstance(o, dict) else None for o in state.outputs]
    return None if None in said else tuple(map(str, said))


def layout_of(output: object) -> object:
    """The description of an output, without its computation."""
    if not isinstance(output, dict):
        return output
    return {key: value for key, value in output.items() if key != MADE_BY}


@dataclass(frozen=True)
class Table:
    """The description of a register: its table, its view, its schema and its columns."""

    name: str
    view: str | None
    described: Mapping[str, Any]
    columns: list[list[str]]


def state_of(row: tuple[Any, ...]) -> LastStep:
    """The last step, from a row of `_store_`. Raises `ValueError` if it is not valid."""
    step, now, offsets, outputs, kept, settings = row
    listed = _json(outputs, "outputs").items()
    for output in listed:
        _columns(output["table"])
        output["schema"].read_as(Schema.of_kinds)
    return LastStep(
        Part(step, "step").number(0),
        Part(now, "now").or_none(lambda said: said.read_as(_now)),
        {n: at.number() for n, at in _json(offsets, "offsets").entries().items()},
        [output.found for output in listed],
        Part(kept, "outputs_kept").truth(),
        {n: s.text() for n, s in _json(settings, "settings").entries().items()},
    )


def only(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The only row of a table. Raises `ValueError` for none or several."""
    if len(rows) != 1:
        raise ValueError(f"it has {'more rows' if rows else 'no row'}, and must have one")
    return rows[0]


def table_of(row: tuple[Any, ...]) -> tuple[str, Table]:
    """The name of a register, and its description."""
    name, table, view, described, columns = row
    register = unescape(Part(name, "register").text())
    path = f"of register {register!r}: "
    said = _json(described, f"{path}described")
    said.entries()
    return register, Table(
        Part(table, f"{path}table").text(),
        Part(view, f"{path}view").or_none(Part.text),
        said.found,
        _columns(_json(columns, f"{path}columns")),
    )


def _columns(said: Part) -> list[list[str]]:
    return [[part.text() for part in column.items(3)] for column in said.items()]


def _json(text: object, path: str) -> Part:
    try:
        return parsed(Part(text, path).text(), path)
    except json.JSONDecodeError as e:
        raise ValueError(f"{path} is not JSON: {e}") from None


def _now(text: str) -> Now:
    return now_from_text(unescape(text))
