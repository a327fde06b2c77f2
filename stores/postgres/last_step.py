"""Parses the rows that describe the registers and the last step of a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from stepping_spark.store import now_from_text
from stores.base import LastStep
from stores.decoding import Natural, decoded
from stores.postgres.types import unescape

MADE_BY = "made_by"


@dataclass(frozen=True)
class State:
    """The last committed step, and the tables of its outputs."""

    last: LastStep
    outputs: Sequence[Mapping[str, Any]]  # of each, its schema, columns and computation
    outputs_kept: bool = False


def layout_of(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of an output, without its computation."""
    return {key: value for key, value in output.items() if key != MADE_BY}


@dataclass(frozen=True)
class Table:
    """The description of a register: its table, its view, its schema and its columns."""

    name: str
    view: str | None
    described: Mapping[str, Any]
    columns: list[list[str]]


class _Step(Struct, frozen=True):
    step: Natural
    now: str | None
    offsets: dict[str, int]
    outputs: list[dict[str, Any]]
    outputs_kept: bool
    settings: dict[str, str]


class _Register(Struct, frozen=True):
    register: str
    table: str
    view: str | None
    described: dict[str, Any]
    columns: list[tuple[str, str, str]]


def state_of(row: str) -> State:
    """The last step, from a row of `_store_` as JSON. Raises `ValueError` if it is not valid."""
    of = decoded(row, _Step)
    now = None if of.now is None else now_from_text(unescape(of.now))
    made_by = [output.get(MADE_BY) for output in of.outputs]
    known = None if None in made_by or not of.outputs_kept else tuple(map(str, made_by))
    return State(
        LastStep(of.step, now, of.offsets, of.settings, known), of.outputs, of.outputs_kept
    )


def table_of(row: str) -> tuple[str, Table]:
    """The name of a register, and its description, from a row of `_registers_` as JSON."""
    of = decoded(row, _Register)
    return unescape(of.register), Table(
        of.table, of.view, of.described, list(map(list, of.columns))
    )
