"""Tests that every store must pass: subclass `StoreContract`, and define `create` for your store.

class TestMyStore(StoreContract):
    @pytest.fixture
    def create(self, tmp_path: Path) -> Create:
        return lambda registers: MyStore(registers, tmp_path / uuid4().hex)
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable

import pytest

from stepping_spark.base.errors import StoreError, StoreMismatch
from stepping_spark.base.signature import Signature
from stepping_spark.relations.store import EvolvingStore, Register, Store
from stepping_spark.rows.atoms import INT, STR, UUID, Atom, RowType
from stepping_spark.rows.schema import Schema, kind_of, type_of
from stepping_spark.rows.types import ListOf, Optional, tuple_of
from stores.contract.rows import Rows
from stores.contract.steps import Steps
from stores.contract.values import (
    BY_WORD,
    POINT,
    WHOLE,
    WORDS,
    Content,
    Create,
    Hold,
    Reopen,
    add,
    content,
    keys_relation,
    relation_of,
    row,
    summed,
)


class Mood(enum.Enum):
    """The values of an enum column of a register."""

    GOOD = "good"


class Humour(enum.Enum):
    """A later version of `Mood`, with another name and one more member."""

    GOOD = "good"
    BAD = "bad"


ROWS = [("a", 1, 1), ("b", 2, 2)]
KEPT: Content = {row("a", 1): (1,), row("b", 2): (2,)}
RENAMED = dataclasses.replace(BY_WORD, name="the words")
OTHER = Register("words", Schema((("number", INT), ("text", STR))), ("number",))
"""A new register with the name of a removed one."""


def evolving(store: Store) -> EvolvingStore:
    """The store, if it can evolve."""
    if not isinstance(store, EvolvingStore):
        pytest.skip("this store cannot change what it keeps")
    return store


class StoreContract(Rows, Steps):
    """Tests that each store passes; a subclass defines `create`, and further fixtures."""

    def test_a_closed_store_lets_another_writer_in(
        self, create: Create, hold: Hold, rival: Reopen
    ) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.commit(1, None)
        add(store, BY_WORD, hold, [("b", 1, 1)])
        store.close()
        store.close()
        again = rival(store, [BY_WORD])
        assert content(again, BY_WORD) == {row("a", 1): (1,)}
        again.commit(2, None)

    def test_a_closed_store_serves_nothing_more_and_says_so(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.commit(1, None)
        add(store, BY_WORD, hold, [("b", 1, 1)])
        store.close()
        keys = hold(keys_relation(BY_WORD, [("a",)]))
        uses: list[Callable[[], object]] = [
            lambda: store.open([BY_WORD]),
            store.last_step,
            store.last_now,
            store.last_offsets,
            store.last_outputs,
            lambda: store.read(BY_WORD.name),
            lambda: store.read(BY_WORD.name, keys),
            lambda: store.add(BY_WORD.name, relation_of(WORDS, [("b", 1, 1)])),
            lambda: store.commit(2, None),
            store.compact,
            lambda: store.batches(BY_WORD.name),
        ]
        for use in uses:
            with pytest.raises(StoreError, match=r"the store is closed.*; .* with .*from_graph"):
                use()
        store.abort()
        store.close()

    def test_what_was_committed_is_there_when_it_is_opened_again(
        self, create: Create, hold: Hold, reopen: Reopen
    ) -> None:
        store = create([BY_WORD, WHOLE])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        add(store, WHOLE, hold, [("b", 1, 1)])
        store.commit(1, 17)
        add(store, BY_WORD, hold, [("c", 1, 1)])
        again = reopen(store, [WHOLE, BY_WORD])
        assert (again.last_step(), again.last_now()) == (1, 17)
        assert content(again, BY_WORD) == {row("a", 1): (1,)}
        assert content(again, WHOLE) == {row("b", 1): (1,)}
        again.commit(2, 18)
        assert content(again, BY_WORD) == {row("a", 1): (1,)}

    def test_it_can_be_opened_twice_for_the_same_circuit(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.commit(1, None)
        store.open([WHOLE, BY_WORD])
        assert content(store, BY_WORD) == {row("a", 1): (1,)}

    @pytest.mark.parametrize(
        "others",
        [
            pytest.param([WHOLE, BY_WORD, Register("more", WORDS)], id="one more"),
            pytest.param([WHOLE], id="one less"),
            pytest.param([WHOLE, Register(BY_WORD.name, WORDS, ("length",))], id="another key"),
            pytest.param(
                [WHOLE, Register(BY_WORD.name, Schema((("word", INT),)), ("word",))],
                id="other columns",
            ),
            pytest.param(
                [WHOLE, dataclasses.replace(BY_WORD, sums=Signature("filter [x > 2]"))],
                id="another sum",
            ),
        ],
    )
    def test_the_state_of_another_circuit_is_refused_by_the_name_of_the_register(
        self, create: Create, others: list[Register]
    ) -> None:
        store = create([BY_WORD, WHOLE])
        store.commit(1, None)
        odd = "more" if len(others) == 3 else BY_WORD.name
        with pytest.raises(StoreMismatch, match=odd) as caught:
            store.open(others)
        assert "'words'" not in str(caught.value)

    @pytest.mark.parametrize(
        ("kept", "wanted"),
        [
            pytest.param(STR, UUID, id="UUID"),
            pytest.param(UUID, STR, id="str"),
            pytest.param(STR, Atom("Enum", Mood), id="Enum"),
            pytest.param(STR, Optional(STR), id="NULL"),
            pytest.param(ListOf(STR), ListOf(UUID), id="of a list"),
            pytest.param(POINT, tuple_of((INT, Optional(UUID))), id="in a row"),
        ],
    )
    def test_columns_that_only_python_tells_apart_are_of_another_circuit(
        self, create: Create, reopen_or_not: Reopen, kept: RowType, wanted: RowType
    ) -> None:
        of = [Register("r", Schema((("n", INT), ("x", t))), ("n",)) for t in (kept, wanted)]
        store = create(of[:1])
        store.commit(1, None)
        types = [re.escape(str(type_of(kind_of(t)))) for t in (kept, wanted)]
        with pytest.raises(StoreMismatch, match=rf"'r': column 'x' is {types[0]} .*, {types[1]} "):
            reopen_or_not(store, of[:1]).open(of[1:])

    def test_an_enum_may_get_another_name_and_other_members(
        self, create: Create, reopen_or_not: Reopen
    ) -> None:
        of = [Register("r", Schema((("x", Atom("Enum", t)),))) for t in (Mood, Humour)]
        store = create(of[:1])
        reopen_or_not(store, of[:1]).open(of[1:])

    def test_an_unknown_register_is_an_error_that_names_it(self, create: Create) -> None:
        store = create([BY_WORD])
        with pytest.raises(StoreError, match="nowhere"):
            store.read("nowhere")
        with pytest.raises(StoreError, match="nowhere"):
            store.add("nowhere", relation_of(WORDS, [("a", 1, 1)]))

    @staticmethod
    def evolved(create: Create, hold: Hold) -> Store:
        """A store after one step, which evolves in the step under way."""
        store = create([BY_WORD, WHOLE])
        for register in (BY_WORD, WHOLE):
            add(store, register, hold, ROWS)
        store.commit(1, None)
        evolving(store).evolve([RENAMED, OTHER], {RENAMED.name: BY_WORD.name})
        add(store, OTHER, hold, [(7, "x", 1)])
        return store

    def test_registers_stay_come_and_go_in_one_step(
        self, create: Create, hold: Hold, reopen_or_not: Reopen
    ) -> None:
        store = self.evolved(create, hold)
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
        store = self.evolved(create, hold)
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
