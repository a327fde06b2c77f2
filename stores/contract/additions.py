"""What is added to registers is read from them once it is committed, and not before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from stepping_spark.errors import SteppingError
from stepping_spark.store import SizedStore, Store
from stores.contract.fixtures import StoreFixtures
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    WORDS,
    Create,
    Hold,
    add,
    content,
    keys_relation,
    row,
    summed,
)


class Additions(StoreFixtures):
    """Rows that are added, read and forgotten; batches that are merged."""

    def test_an_unwritten_register_reads_empty(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        assert content(store, BY_WORD) == content(store, WHOLE) == {}
        keys = hold(keys_relation(BY_WORD, [("a",)]))
        assert content(store, BY_WORD, keys) == {}
        assert store.last_step() == 0
        assert store.last_now() is None

    def test_additions_show_after_the_commit_and_not_before(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1), ("b", 1, 2)])
        assert content(store, BY_WORD) == {}
        store.commit(1, "now")
        assert content(store, BY_WORD) == {row("a", 1): (1,), row("b", 1): (2,)}
        assert (store.last_step(), store.last_now()) == (1, "now")

    def test_equal_rows_are_added_up_within_a_change_and_across_changes(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1), ("a", 1, 2), (None, 0, 1)])
        add(store, BY_WORD, hold, [("a", 1, 4), (None, 0, 1)])
        store.commit(1, None)
        add(store, BY_WORD, hold, [("a", 1, 8)])
        store.commit(2, None)
        assert content(store, BY_WORD) == {row("a", 1): (15,), row(None, 0): (2,)}

    def test_a_weight_beyond_64_bits_among_many_rows_ends_the_step_and_loses_nothing(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD, WHOLE])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.commit(1, None)
        many = [(f"word {i}", i, 1) for i in range(20_000)]
        with pytest.raises(SteppingError):
            self._commit(store, hold, [("a", 1, 2**62), *many, ("a", 1, 2**62)])
        store.abort()
        assert store.last_step() == 1
        self._commit(store, hold, [("a", 1, -1), *many, ("a", 1, 1)])
        found = content(store, BY_WORD)
        assert (len(found), found[row("a", 1)]) == (20_001, (1,))
        assert content(store, WHOLE) == {row("b", 2): (1,)}

    @staticmethod
    def _commit(store: Store, hold: Hold, rows: Sequence[tuple[Any, ...]]) -> None:
        """Take step 2 with these rows, and one of another register."""
        add(store, BY_WORD, hold, rows)
        add(store, WHOLE, hold, [("b", 2, 1)])
        store.commit(2, None)

    def test_what_cancels_to_zero_is_gone(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        for step, weight in enumerate((1, 1, -2), 1):
            for register in (BY_WORD, WHOLE):
                add(store, register, hold, [("a", 1, weight), (None, 2, weight)])
            store.commit(step, None)
        assert content(store, BY_WORD) == content(store, WHOLE) == {}

    def test_a_step_may_be_empty(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        store.commit(1, None)
        add(store, BY_WORD, hold, [])
        store.commit(2, None)
        assert content(store, BY_WORD) == {}
        assert store.last_step() == 2

    def test_a_read_while_adding_gives_what_was_committed(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.commit(1, None)
        add(store, BY_WORD, hold, [("a", 1, 1), ("b", 1, 1)])
        keys = hold(keys_relation(BY_WORD, [("a",), ("b",)]))
        assert content(store, BY_WORD) == content(store, BY_WORD, keys) == {row("a", 1): (1,)}

    def test_abort_forgets_the_additions(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.abort()
        store.abort()
        add(store, BY_WORD, hold, [("b", 1, 1)])
        store.commit(1, None)
        assert content(store, BY_WORD) == {row("b", 1): (1,)}

    def test_compaction_changes_nothing_that_can_be_read(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        for step in range(1, 13):
            for register in (BY_WORD, WHOLE):
                add(store, register, hold, [(f"w{step % 7}", 1, 1), (f"w{step}", 2, (-1) ** step)])
            store.commit(step, step)
        asked = hold(keys_relation(BY_WORD, [("w3",), ("w12",)]))
        before = content(store, BY_WORD), content(store, WHOLE), content(store, BY_WORD, asked)
        parts = store.read(BY_WORD.name)
        store.compact()
        after = content(store, BY_WORD), content(store, WHOLE), content(store, BY_WORD, asked)
        assert after == before
        assert summed(parts, WORDS) == before[0]
        assert store.last_step() == 12
        assert store.batches(BY_WORD.name) == 1

    def test_a_store_says_how_large_its_registers_are(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        if not isinstance(store, SizedStore):
            pytest.skip("this store does not say so; reports of its circuits leave sizes out")
        assert store.size(BY_WORD.name).rows == 0
        rows = [(f"w{i}", i, 1) for i in range(10)]
        add(store, BY_WORD, hold, rows)
        assert store.size(BY_WORD.name).rows == 0, "what is not committed does not count"
        store.commit(1, 1)
        found = store.size(BY_WORD.name)
        assert (found.batches, found.rows) == (store.batches(BY_WORD.name), len(rows))
        assert found.nbytes > 0
        assert store.size(WHOLE.name).rows == 0

    def test_many_small_commits_leave_a_logarithmic_number_of_batches(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        for step in range(1, self.commits + 1):
            add(store, BY_WORD, hold, [(f"w{step}", 1, 1), ("w", 1, 1), (f"v{step}", 2, 1)])
            store.commit(step, None)
        assert len(content(store, BY_WORD)) == 2 * self.commits + 1
        assert store.batches(BY_WORD.name) <= 2 * math.log2(3 * self.commits) + 4
