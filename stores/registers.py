"""Checks that a state belongs to a circuit."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import pyarrow as pa

from stepping_spark.callsite import user_line
from stepping_spark.errors import StoreCorrupt, StoreError, StoreMismatch
from stepping_spark.relations.codec import conform
from stepping_spark.spark.relation import Relation
from stepping_spark.store import Ordering, Register, register_name
from stores.steps import NOT_OPEN

T = TypeVar("T")

_WITHOUT_STRICT = (
    " A state that was made without strict=… does not know which rows are there: go on with it by "
    "compiling without strict=…, or load the tables into a new store."
)
_DIGEST = re.compile(r" [0-9a-f]{16}\b")

Described = Mapping[str, Mapping[str, Any]]
"""The result of `Register.describe` for each register, by its name."""


def described(registers: Sequence[Register]) -> Described:
    """The description of registers that a store writes, and compares later."""
    return {r.name: r.describe() for r in registers}


def check_are_registers(given: object, remedy: str) -> None:
    """Raise an error for anything but registers, such as their graph."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        given = (given,)
    for odd in given:
        if not isinstance(odd, Register):
            raise StoreError(
                f"{user_line()}: expected registers, found {type(odd).__name__}; write {remedy}"
            )


def no_key(register: Register) -> StoreError:
    """The error for a read by key of a register without a key."""
    return StoreError(
        f"register {register.name!r} was read by key and has none; read it whole, or make it "
        "with the key that it is read by"
    )


def checked_since(register: Register, keys: Relation) -> tuple[Ordering, pa.Table]:
    """The order of a register, and the checked keys, for a read from a position on."""
    if not register.key:
        raise no_key(register)
    if register.order is None:
        raise StoreError(
            f"register {register.name!r} was read from a place in its order on, and has no order; "
            "read it by key, or make it with the order"
        )
    if keys.table is None:
        raise StoreError(
            f"register {register.name!r} was read from a place in its order on, by keys that Spark "
            "has; fetch the keys, or read it by key"
        )
    return register.order, conform(keys.table, register.keys)


def matched(kept: Described, wanted: Sequence[Register]) -> dict[str, str]:
    """For the name of each register of a circuit, its name in the state.

    The identity of a register is its stream, its key and its columns. Its name depends on the
    variables of a query, and may change. If the state has no register of a name, the register is
    matched by its identity, if that is unique in the state and in the circuit. A cache is matched
    by its name. Raises `StoreMismatch` with the registers that differ.
    """
    asked = described(wanted)
    names = {name: name for name in asked if name in kept and _is(kept[name]) == _is(asked[name])}
    of_state, of_circuit = (Counter(map(_is, side.values())) for side in (kept, asked))
    renamed = {
        _is(said): name
        for name, said in kept.items()
        if name not in asked and of_state[_is(said)] == 1 and not is_cache(name)
    }
    for name, said in asked.items():
        if name not in kept and of_circuit[_is(said)] == 1 and not is_cache(name):
            found = renamed.get(_is(said))
            if found is not None:
                names[name] = found
    there = set(names.values())
    _check_alike(
        {name: said for name, said in kept.items() if name not in there},
        [register for register in wanted if register.name not in names],
    )
    return names


def is_cache(register: str) -> bool:
    """Whether a register is that of a cache."""
    return register.startswith(register_name(""))


def _is(said: Mapping[str, Any]) -> str:
    """The identity of a register, without its name and the names of row classes.

    From the description of its stream it uses the digests and the key only; the words before them
    name classes.
    """
    sums = str(said.get("sums", ""))  # it may be edited
    digest = _DIGEST.search(sums)
    told = sums[digest.start() :] if digest else sums
    return json.dumps({**said, "sums": told}, sort_keys=True)


def _check_alike(kept: Described, wanted: Sequence[Register]) -> None:
    asked = described(wanted)
    why = {r.name: r.why for r in wanted if r.why}
    differences = list(_differences(kept, asked, why))
    others = [name for name in asked if name in kept and _is_of_other_streams(kept, asked, name)]
    if others and not differences:
        # In the plan's order, a register comes after the registers that it is computed from.
        first = next((n for n in others if not is_cache(n)), others[0])
        others.remove(first)
        both = in_words(asked[first]["sums"])
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
        raise StoreMismatch(
            "the state belongs to another circuit:\n"
            + "".join(f"  {d}\n" for d in differences)
            + "Use it with the circuit that it was made for, or make a new store for this one."
            + (_WITHOUT_STRICT if why.keys() - kept.keys() else "")
        )


class Served(Generic[T]):
    """The entries of a store's registers, by their names in a circuit.

    It can serve several circuits, each with its own names.
    """

    def __init__(self) -> None:
        self.is_open = False
        """Whether a store is open: it is not before it was opened, and after it was closed."""
        self.all: dict[str, T] = {}
        """By the name that the state has for a register; none where the store is not open."""
        self.by_name: dict[str, T] = {}
        """The entry of a register, by its name in a circuit."""
        self._names: dict[str, str] = {}

    def open(self, found: Mapping[str, T]) -> None:
        """Open the store with these entries."""
        self.is_open, self.all = True, dict(found)
        self._find()

    def close(self) -> None:
        """Forget all entries."""
        self.is_open, self.all = False, {}
        self._find()

    def serve(self, names: Mapping[str, str]) -> None:
        """Serve one more circuit; `names` maps its names to those of the state (see `matched`)."""
        self._names |= names
        self._find()

    def _find(self) -> None:
        there = ((name, self.all.get(found)) for name, found in self._names.items())
        self.by_name = {name: found for name, found in there if found is not None}

    def check_open(self) -> None:
        """Raise `StoreError` if the store is not open."""
        if not self.is_open:
            raise StoreError(NOT_OPEN)

    def of(self, register: str) -> T:
        """The entry of a register, by its name in a circuit.

        Raises `StoreError` if the store is not open, and `StoreMismatch` for an unknown name.
        """
        self.check_open()
        if register not in self.by_name:
            raise StoreMismatch(
                f"there is no register {register!r}; there are: {', '.join(self.all) or 'none'}"
            )
        return self.by_name[register]


def read_registers(kept: Described, where: str) -> list[Register]:
    """The registers of a state, from its description, or a `StoreCorrupt` if that is unreadable.

    Their rows have no classes; this is enough to inspect a state without its circuit.
    """
    try:
        return [Register.described(name, said) for name, said in kept.items()]
    except ValueError as e:
        raise StoreCorrupt(
            f"{where}: the description of its registers cannot be read: {e}; it is damaged, or of "
            "another version of stepping_spark: restore it, or use that version"
        ) from e


def _differences(
    there: Described, asked: Described, why: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    for name in sorted(there.keys() | asked.keys()):
        if name not in there:
            of = f" ({why[name]})" if name in why else ""
            yield f"register {name!r}{of}: it is in the circuit, and not in the state"
        elif name not in asked:
            yield f"register {name!r}: it is in the state, and not in the circuit"
        else:
            try:
                kept = Register.described(name, there[name])
            except ValueError as e:
                yield (
                    f"register {name!r}: what the state says of it cannot be read: {e} (it was "
                    "written by another version of stepping_spark)"
                )
            else:
                yield from _changes(name, kept, Register.described(name, asked[name]))


def _changes(name: str, kept: Register, wanted: Register) -> Iterator[str]:
    have, want = (
        [[(n, str(t)) for n, t in part] for part in (r.schema.columns, r.schema.diffs)]
        for r in (kept, wanted)
    )
    more = [n for n, _ in want[0] if n not in dict(have[0])]
    if more and [(n, t) for n, t in want[0] if n not in more] == have[0] and have[1] == want[1]:
        yield (
            f"register {name!r} keeps whole rows, and the circuit has a column of them that the "
            f"state has not: {', '.join(map(repr, more))}. To go on with the state, take it off "
            "before: st.map(rows, f=lambda row: …), to the class that the rows had"
        )
    elif [[n for n, _ in part] for part in have] != [[n for n, _ in part] for part in want]:
        yield (
            f"register {name!r}: the state has the columns {_listed(have)}, the circuit "
            f"{_listed(want)}"
        )
    else:
        for (n, old), (_, new) in zip(chain(*have), chain(*want), strict=True):
            if old != new:
                yield f"register {name!r}: column {n!r} is {old} in the state, {new} in the circuit"
    if kept.key != wanted.key:
        yield (
            f"register {name!r}: the state has the key ({', '.join(kept.key)}), the circuit "
            f"({', '.join(wanted.key)})"
        )
    if kept.order != wanted.order:
        have_order, want_order = (_shown_order(r.order) for r in (kept, wanted))
        yield f"register {name!r}: the state has {have_order}, the circuit {want_order}"
    if in_words(kept.sums) != in_words(wanted.sums):
        yield (
            f"register {name!r}: the state is the sum of {in_words(kept.sums)}, the circuit sums "
            f"{in_words(wanted.sums)}"
        )


def _shown_order(order: Ordering | None) -> str:
    if order is None:
        return "no order"
    direction = "ascending" if order.ascending else "descending"
    nulls = "first" if order.nulls_first else "last"
    return f"the order {direction} by {order.column}, NULL {nulls}"


def _is_of_other_streams(there: Described, asked: Described, name: str) -> bool:
    """Whether two registers differ only in the inputs of their operator."""
    have, want = there[name], asked[name]
    return not list(_differences({name: have}, {name: want})) and have["sums"] != want["sums"]


def in_words(sums: str) -> str:
    """The part of `Register.sums` about the operator itself, without its inputs."""
    told = _DIGEST.sub("", sums)
    if told.endswith(" of") and told != sums:
        return f"{told.removesuffix(' of')}, in a recursion"
    return told


def _listed(parts: Sequence[Sequence[tuple[str, str]]]) -> str:
    return ", ".join(f"{name}: {t}" for part in parts for name, t in part)
