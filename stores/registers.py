"""Checks that kept state is a circuit's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepping_spark.errors import StoreMismatch
from stepping_spark.store import Register

Described = Mapping[str, Mapping[str, Any]]
"""For each register, by its name, what `Register.describe` says of it."""


def described(registers: Sequence[Register]) -> Described:
    """What a store writes of its registers, and compares with later."""
    return {r.name: r.describe() for r in registers}


def check_registers(kept: Sequence[Register], wanted: Sequence[Register]) -> None:
    """A `StoreMismatch` that names each register in which the state and the circuit differ."""
    check_described(described(kept), wanted)


def check_described(kept: Described, wanted: Sequence[Register]) -> None:
    """The same, where what is kept is known by its description only."""
    differences = list(_differences(kept, described(wanted)))
    if differences:
        raise StoreMismatch(
            "the state belongs to another circuit:\n"
            + "".join(f"  {d}\n" for d in differences)
            + "Use it with the circuit that it was made for, or make a new store for this one."
        )


def _differences(there: Described, asked: Described) -> Iterator[str]:
    for name in sorted(there.keys() | asked.keys()):
        if name not in there:
            yield f"register {name!r}: the circuit has it, the state has not"
        elif name not in asked:
            yield f"register {name!r}: the state has it, the circuit has not"
        else:
            yield from _changes(name, there[name], asked[name])


def _changes(name: str, kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    if kept["schema"] != wanted["schema"]:
        yield (
            f"register {name!r}: the state has the columns {kept['schema']}, the circuit "
            f"{wanted['schema']}"
        )
    if kept["key"] != wanted["key"]:
        yield (
            f"register {name!r}: the state has the key ({', '.join(kept['key'])}), the circuit "
            f"({', '.join(wanted['key'])})"
        )
    if kept["sums"] != wanted["sums"]:
        yield (
            f"register {name!r}: the state is the sum of {kept['sums']}, the circuit sums "
            f"{wanted['sums']}"
        )
