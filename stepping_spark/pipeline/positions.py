"""Positions of sources and sinks as the whole numbers that a store keeps by name.

A source's are under the name of its input, the second number of a position under `name.1`, and so
on. What a sink had before the step is under `into name`. A state has a number of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

from stepping_spark.errors import StoreMismatch
from stepping_spark.pipeline.protocols import Position

STATE = "pipeline"
"""What a state's own number is under; an input cannot be called so."""


def state_of(step: int, offsets: Mapping[str, int]) -> int:
    """The number of the state that is at a step; a new one before the first step."""
    number = offsets.get(STATE)
    if number is not None:
        return number
    if step:
        raise StoreMismatch(
            f"the store has {step} steps that no pipeline took, so nobody knows how far its "
            "sources were read; give the pipeline a store of its own"
        )
    return secrets.randbits(48) | 1


def numbers_of(position: Position) -> tuple[int, ...]:
    """A position as a tuple."""
    return position if isinstance(position, tuple) else (position,)


def number_of(identity: str | bytes) -> int:
    """A whole number for the identity of a table, or for a content: another has another."""
    data = identity.encode() if isinstance(identity, str) else identity
    return int.from_bytes(hashlib.sha256(data).digest()[:6], "big")


def offsets_of(name: str, position: Position) -> dict[str, int]:
    """What a store keeps of a position."""
    first, *rest = numbers_of(position)
    return {name: first, **{f"{name}.{i}": n for i, n in enumerate(rest, 1)}}


def position_of(name: str, offsets: Mapping[str, int]) -> Position | None:
    """The position that a store has kept; None: none."""
    if name not in offsets:
        return None
    found = [offsets[name]]
    while (key := f"{name}.{len(found)}") in offsets:
        found.append(offsets[key])
    return tuple(found) if len(found) > 1 else found[0]


def sink_key(view: str, place: int) -> str:
    """What the step that a sink had is under; a view may have several, in an order."""
    return f"into {view}" if place == 0 else f"into {view}.{place}"


def without(offsets: Mapping[str, int], names: list[str]) -> dict[str, int]:
    """What a store keeps that is neither of these sources nor of any sink."""
    return {
        key: n
        for key, n in offsets.items()
        if key.partition(".")[0] not in names and not key.startswith("into ") and key != STATE
    }


def read_of(offsets: Mapping[str, int]) -> dict[str, int]:
    """How far each source was read, for people: the first number of each position.

    The others, the number of the state, and what sinks had mean something to a pipeline only.
    """
    if STATE not in offsets:
        return dict(offsets)
    parts = {name: name.rpartition(".") for name in offsets}
    return {
        name: offsets[name]
        for name, (source, _, part) in parts.items()
        if not (name == STATE or name.startswith("into ") or (part.isdigit() and source in offsets))
    }
