"""A state becomes that of another circuit within one step, or stays as it is."""

from __future__ import annotations

import dataclasses

import pytest

from stepping_spark.rows.atoms import INT, STR
from stepping_spark.rows.schema import Schema
from stepping_spark.store import EvolvingStore, Register, Store
from stores.contract.fixtures import StoreFixtures
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    Content,
    Create,
    Hold,
    Reopen,
    add,
    content,
    row,
    summed,
)

ROWS = [("a", 1, 1), ("b", 2, 2)]
KEPT: Content = {row("a", 1): (1,), row("b", 2): (2,)}
RENAMED = dataclasses.replace(BY_WORD, name="the words")
OTHER = Register("words", Schema((("number", INT), ("text", STR))), ("number",))
"""A register with the name of one that goes."""


def evolving(store: Store) -> EvolvingStore:
    """The store, if it can evolve."""
    if not isinstance(store, EvolvingStore):
        pytest.skip("this store cannot change what it keeps")
    return store


class Evolving(StoreFixtures):
    """Registers stay, come and go, all at once."""

    def test_registers_stay_come_and_go_in_one_step(
        self, create: Create, hold: Hold, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD, WHOLE])
        for register in (BY_WORD, WHOLE):
            add(store, register, hold, ROWS)
        store.commit(1, None)
        evolving(store).evolve([RENAMED, OTHER], {RENAMED.name: BY_WORD.name})
        add(store, OTHER, hold, [(7, "x", 1)])
        store.commit(2, None)
        assert (content(store, OTHER), content(store, RENAMED)) == ({row(7, "x"): (1,)}, KEPT)
        assert set(evolving(store).described()) == {RENAMED.name, OTHER.name}
        assert summed(evolving(store).read_kept(RENAMED.name), RENAMED.schema) == KEPT
        assert evolving(store).size_kept(OTHER.name).rows == 1
        store = reopen_or_not(store, [RENAMED, OTHER])
        add(store, OTHER, hold, [(8, "x", 1)])
        add(store, RENAMED, hold, [("a", 1, -1)])
        store.commit(3, None)
        store.compact()
        assert content(store, OTHER) == {row(n, "x"): (1,) for n in (7, 8)}
        assert content(store, RENAMED) == {row("b", 2): (2,)}

    def test_what_is_aborted_leaves_the_registers_as_they_are(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD, WHOLE])
        for register in (BY_WORD, WHOLE):
            add(store, register, hold, ROWS)
        store.commit(1, None)
        evolving(store).evolve([RENAMED, OTHER], {RENAMED.name: BY_WORD.name})
        add(store, OTHER, hold, [(7, "x", 1)])
        store.abort()
        assert (content(store, BY_WORD), content(store, WHOLE)) == (KEPT, KEPT)
        assert set(evolving(store).described()) == {BY_WORD.name, WHOLE.name}
        add(store, WHOLE, hold, [("c", 3, 1)])
        store.commit(2, None)
        assert content(store, WHOLE) == {**KEPT, row("c", 3): (1,)}

    def test_the_text_of_a_circuit_is_kept_until_there_is_another(
        self, create: Create, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        assert evolving(store).last_circuit() is None
        store.commit(1, None, circuit="one, with 'quotes' and é")  # type: ignore[call-arg]
        store.commit(2, None)
        assert evolving(store).last_circuit() == "one, with 'quotes' and é"
        store = reopen_or_not(store, [BY_WORD])
        assert evolving(store).last_circuit() == "one, with 'quotes' and é"
        store.commit(3, None, circuit="two")  # type: ignore[call-arg]
        assert evolving(store).last_circuit() == "two"
