"""Checks that kept state is a circuit's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepping_spark.errors import StoreMismatch
from stepping_spark.store import Register


def check_registers(kept: Sequence[Register], wanted: Sequence[Register]) -> None:
    """A `StoreMismatch` that names each register in which the state and the circuit differ."""
    differences = list(_differences(kept, wanted))
    if differences:
        raise StoreMismatch(
            "the state belongs to another circuit:\n"
            + "".join(f"  {d}\n" for d in differences)
            + "Use it with the circuit that it was made for, or make a new store for this one."
        )


def _differences(kept: Sequence[Register], wanted: Sequence[Register]) -> Iterator[str]:
    there = {r.name: r for r in kept}
    asked = {r.name: r for r in wanted}
    for name in sorted(there.keys() | asked.keys()):
        if name not in there:
            yield f"register {name!r}: the circuit has it, the state has not"
        elif name not in asked:
            yield f"register {name!r}: the state has it, the circuit has not"
        else:
            yield from _changes(there[name], asked[name])


def _changes(kept: Register, wanted: Register) -> Iterator[str]:
    if kept.schema.ddl != wanted.schema.ddl:
        yield (
            f"register {kept.name!r}: the state has the columns {kept.schema.ddl}, the circuit "
            f"{wanted.schema.ddl}"
        )
    if kept.key != wanted.key:
        yield (
            f"register {kept.name!r}: the state has the key ({', '.join(kept.key)}), the circuit "
            f"({', '.join(wanted.key)})"
        )
    if kept.sums != wanted.sums:
        yield (
            f"register {kept.name!r}: the state is the sum of {kept.sums}, the circuit sums "
            f"{wanted.sums}"
        )
