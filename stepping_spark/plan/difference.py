"""The difference between the registers of a state and of a circuit.

A register is identified by its stream, its key and its columns. Its name depends on the variables
of a query, and may change. A cache is identified by its name too, because others read it by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from stepping_spark.base.errors import StoreMismatch
from stepping_spark.base.signature import Signature
from stepping_spark.relations.store import Ordering, Register, register_name

_WITHOUT_STRICT = (
    " A state that was made without strict=… does not know which rows are there: go on with it by "
    "compiling without strict=…, or load the tables into a new store."
)


class OtherRegisters(StoreMismatch):
    """The error for registers of a state that a circuit does not have; lists the differences."""


Described = Mapping[str, Mapping[str, Any]]
"""The result of `Register.describe` for each register, by its name."""


def described(registers: Sequence[Register]) -> Described:
    """The description of registers that a store writes, and later compares."""
    return {r.name: r.describe() for r in registers}


@dataclass(frozen=True)
class Difference:
    """The common registers of a state and a circuit, and the other ones of each.

    `names` has, for the name of a register of the circuit, its name in the state. `new` registers
    are in the circuit only, and `dropped` ones, by their names, in the state only.
    """

    names: Mapping[str, str]
    new: tuple[str, ...]
    dropped: tuple[str, ...]


def difference(stored: Described, wanted: Described, *, numbered: bool = False) -> Difference:
    """Match registers by name if the same-named ones agree, otherwise by their identity.

    Only registers whose identity is unique in the state and in the circuit are matched by it.
    Identities contain the numbers of inputs, and two inputs may have changed places: so a register
    is not matched with another one if both sides have its name. With `numbered`, the numbers of
    inputs follow from their names, and it is matched.
    """
    names = {n: n for n in wanted if n in stored and _is(stored[n]) == _is(wanted[n])}
    of_state, of_circuit = (Counter(map(_is, side.values())) for side in (stored, wanted))
    taken = set(names.values()) if numbered else wanted.keys()
    renamed = {
        _is(description): name
        for name, description in stored.items()
        if name not in taken and of_state[_is(description)] == 1 and not is_cache(name)
    }
    for name, description in wanted.items():
        free = name not in names if numbered else name not in stored
        if free and of_circuit[_is(description)] == 1 and not is_cache(name):
            name_kept = renamed.get(_is(description))
            if name_kept is not None:
                names[name] = name_kept
    used = set(names.values())
    return Difference(
        names,
        tuple(name for name in wanted if name not in names),
        tuple(name for name in stored if name not in used),
    )


def matched(stored: Described, wanted: Sequence[Register]) -> dict[str, str]:
    """For the name of each register of a circuit, its name in the state.

    Raises `StoreMismatch` with the registers that differ, if any does.
    """
    registers = difference(stored, described(wanted))
    _check_alike(
        {name: stored[name] for name in registers.dropped},
        [register for register in wanted if register.name in registers.new],
    )
    return dict(registers.names)


def names_in(stored: Described, wanted: Sequence[Register], *, evolves: bool) -> Mapping[str, str]:
    """`matched`; with `evolves`, registers may differ, and only the common ones are returned."""
    return difference(stored, described(wanted)).names if evolves else matched(stored, wanted)


def is_cache(register: str) -> bool:
    """Whether a register belongs to a cache."""
    return register.startswith(register_name(""))


def _is(description: Mapping[str, Any]) -> str:
    """The identity of a register, without its name and the names of row classes.

    The words of its stream name classes, too.
    """
    sums = Signature.of_text(str(description.get("sums", "")))  # it may be edited
    return json.dumps({**description, "sums": str(sums.identity)}, sort_keys=True)


def _check_alike(stored: Described, wanted: Sequence[Register]) -> None:
    asked = described(wanted)
    why = {r.name: r.why for r in wanted if r.why}
    differences = list(_differences(stored, asked, why))
    others = [
        name for name in asked if name in stored and _is_of_other_streams(stored, asked, name)
    ]
    if others and not differences:
        # In the plan's order, a register comes after the registers that it is computed from.
        first = next((n for n in others if not is_cache(n)), others[0])
        others.remove(first)
        both = Signature.of_text(asked[first]["sums"]).shown
        differences.append(
            f"register {first!r}: the state and the circuit both sum {both}, of other streams or "
            "with another function"
        )
    if others:
        differences.append(
            f"{len(others)} more registers differ in what they are computed from"
            if len(others) > 1
            else "1 more register differs in what it is computed from"
        )
    if differences:
        raise OtherRegisters(
            "the state belongs to another circuit:\n"
            + "".join(f"  {d}\n" for d in differences)
            + "Make it the state of this circuit (evolve=True), use it with the circuit that "
            "it was made for, or make a new store."
            + (_WITHOUT_STRICT if why.keys() - stored.keys() else "")
        )


def _differences(
    in_state: Described, asked: Described, why: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    for name in sorted(in_state.keys() | asked.keys()):
        if name not in in_state:
            of = f" ({why[name]})" if name in why else ""
            yield f"register {name!r}{of}: it is in the circuit, and not in the state"
        elif name not in asked:
            yield f"register {name!r}: it is in the state, and not in the circuit"
        else:
            try:
                stored = Register.described(name, in_state[name])
            except ValueError as e:
                yield (
                    f"register {name!r}: what the state says of it cannot be read: {e} (it was "
                    "written by another version of stepping_spark)"
                )
            else:
                yield from _changes(name, stored, Register.described(name, asked[name]))


def _changes(name: str, stored: Register, wanted: Register) -> Iterator[str]:
    have, want = (
        [[(n, str(t)) for n, t in part] for part in (r.schema.columns, r.schema.diffs)]
        for r in (stored, wanted)
    )
    more = [n for n, _ in want[0] if n not in dict(have[0])]
    fewer = [n for n, _ in have[0] if n not in dict(want[0])]
    same = stored.sums.shown == wanted.sums.shown and have[1] == want[1]
    if more and same and [(n, t) for n, t in want[0] if n not in more] == have[0]:
        yield (
            f"register {name!r}: the circuit keeps a column that the state has not: "
            f"{', '.join(map(repr, more))}. If whole_rows=True is new, leave it out; if the column "
            "is new in the row class, take it off before: st.map(rows, f=lambda row: …), to a "
            "class without it"
        )
    elif fewer and same and [(n, t) for n, t in have[0] if n not in fewer] == want[0]:
        yield (
            f"register {name!r}: the state has a column that the query does not read: "
            f"{', '.join(map(repr, fewer))}. If the state was made with whole_rows=True, compile "
            "the query so, too"
        )
    elif [[n for n, _ in part] for part in have] != [[n for n, _ in part] for part in want]:
        yield (
            f"register {name!r}: the state has the columns {_columns_text(have)}, the circuit "
            f"{_columns_text(want)}"
        )
    else:
        for (n, old), (_, new) in zip(chain(*have), chain(*want), strict=True):
            if old != new:
                yield f"register {name!r}: column {n!r} is {old} in the state, {new} in the circuit"
    if stored.key != wanted.key:
        yield (
            f"register {name!r}: the state has the key ({', '.join(stored.key)}), the circuit "
            f"({', '.join(wanted.key)})"
        )
    if stored.order != wanted.order:
        have_order, want_order = (_shown_order(r.order) for r in (stored, wanted))
        yield f"register {name!r}: the state has {have_order}, the circuit {want_order}"
    if stored.sums.shown != wanted.sums.shown:
        yield (
            f"register {name!r}: the state is the sum of {stored.sums.shown}, the circuit sums "
            f"{wanted.sums.shown}"
        )


def _shown_order(order: Ordering | None) -> str:
    if order is None:
        return "no order"
    direction = "ascending" if order.ascending else "descending"
    nulls = "first" if order.nulls_first else "last"
    return f"the order {direction} by {order.column}, NULL {nulls}"


def _is_of_other_streams(in_state: Described, asked: Described, name: str) -> bool:
    """Whether two registers differ only in the inputs of their operator."""
    have, want = in_state[name], asked[name]
    return not list(_differences({name: have}, {name: want})) and have["sums"] != want["sums"]


def _columns_text(parts: Sequence[Sequence[tuple[str, str]]]) -> str:
    return ", ".join(f"{name}: {t}" for part in parts for name, t in part)
