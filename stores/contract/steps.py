"""Tests that a step is committed whole or not at all: its rows, outputs, offsets and settings."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from stepping_spark.base.errors import StoreError, StoreLocked, StoreMismatch
from stepping_spark.relations.store import Now, Register
from stores.contract.values import (
    BY_WORD,
    NUMBER,
    WHOLE,
    WORDS,
    Create,
    Hold,
    Reopen,
    StoreFixtures,
    add,
    content,
    keys_relation,
    relation_of,
    row,
    summed,
)


class Steps(StoreFixtures):
    """Tests of commits, aborts and merges; of outputs, offsets, settings and the time."""

    @pytest.mark.parametrize(("step", "last"), [(4, 2), (2, 2), (1, 2), (0, 2)])
    def test_a_gap_and_a_repeat_of_a_step_number_are_refused_and_change_nothing(
        self, create: Create, hold: Hold, step: int, last: int
    ) -> None:
        store = create([BY_WORD])
        for n in (1, 2):
            add(store, BY_WORD, hold, [("a", 1, 1)])
            store.commit(n, n)
        add(store, BY_WORD, hold, [("b", 1, 1)])
        with pytest.raises(StoreError, match=rf"\b{step}\b.*\b{last}\b"):
            store.commit(step, 7)
        assert (store.last_step(), store.last_now()) == (last, 2)
        add(store, BY_WORD, hold, [("c", 1, 1)])
        store.commit(3, 3)
        assert content(store, BY_WORD) == {row("a", 1): (2,), row("c", 1): (1,)}

    def test_many_registers_are_committed_at_once(self, create: Create, hold: Hold) -> None:
        registers = [Register(f"register {i}", WORDS, ("word",)) for i in range(10)]
        store = create(registers)
        for i, register in enumerate(registers):
            add(store, register, hold, [("a", i, 1)])
        assert [content(store, r) for r in registers] == [{}] * 10
        store.commit(1, None)
        assert [content(store, r) for r in registers] == [{row("a", i): (1,)} for i in range(10)]

    def test_another_thread_cannot_write_into_a_step_under_way(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        refused: list[bool] = []

        def intrude() -> None:
            with pytest.raises(StoreLocked):
                store.add(BY_WORD.name, relation_of(WORDS, [("b", 1, 1)]))
            with pytest.raises(StoreLocked):
                store.commit(1, None)
            refused.append(True)

        intruder = threading.Thread(target=intrude)
        intruder.start()
        intruder.join()
        store.commit(1, None)
        assert refused
        assert content(store, BY_WORD) == {row("a", 1): (1,)}

    def test_the_same_process_takes_over_what_it_opens_again_and_the_first_store_says_so(
        self, create: Create, hold: Hold, rival: Reopen
    ) -> None:
        first = create([BY_WORD])
        add(first, BY_WORD, hold, [("a", 1, 1)])
        first.commit(1, None)
        add(first, BY_WORD, hold, [("never", 1, 1)])
        second = rival(first, [BY_WORD])
        uses: list[Callable[[], object]] = [
            first.last_step,
            lambda: content(first, BY_WORD),
            lambda: add(first, BY_WORD, hold, [("never", 1, 1)]),
            lambda: first.commit(2, None),
        ]
        for use in uses:
            with pytest.raises(StoreLocked, match=r"opened this state again, at .*; .*: use it"):
                use()
        first.abort()
        first.close()
        assert content(second, BY_WORD) == {row("a", 1): (1,)}
        second.commit(2, None)

    def test_a_store_that_is_refused_takes_over_nothing(
        self, create: Create, rival: Reopen
    ) -> None:
        store = create([BY_WORD])
        with pytest.raises(StoreMismatch):
            rival(store, [WHOLE])
        store.commit(1, None)

    def test_what_is_read_within_a_snapshot_is_of_one_step(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD, WHOLE])

        def step(number: int) -> None:
            for register in (BY_WORD, WHOLE):
                add(store, register, hold, [("a", 1, 1), (f"b{number}", 2, 1)])
            store.commit(number, number, None, {"orders": number})

        def elsewhere(first: int, last: int) -> None:
            """Reads in another thread, which the snapshot does not affect."""
            with ThreadPoolExecutor(1) as other:
                for number in range(first, last + 1):
                    other.submit(step, number).result()
                other.submit(store.compact).result()

        def seen() -> object:
            keys = hold(keys_relation(BY_WORD, [("a",), ("b1",), ("b7",)]))
            parts = content(store, BY_WORD, keys), content(store, BY_WORD), content(store, WHOLE)
            return store.last_step(), store.last_now(), dict(store.last_offsets()), parts

        elsewhere(1, 2)
        with store.snapshot():
            before = seen()
            for first in (3, 6):
                elsewhere(first, first + 2)
                assert seen() == before
            with store.snapshot():
                assert seen() == before
            assert seen() == before
        assert store.last_step() == 8
        assert content(store, WHOLE)[row("a", 1)] == (8,)
        elsewhere(9, 9)
        assert store.last_step() == 9

    def test_a_step_cannot_be_taken_within_a_snapshot(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        with store.snapshot():
            with pytest.raises(StoreError, match="leave the block first"):
                add(store, BY_WORD, hold, [("a", 1, 1)])
            with pytest.raises(StoreError, match="leave the block first"):
                store.commit(1, None)
            with pytest.raises(StoreError, match="leave the block first"):
                store.compact()
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.commit(1, None)

    def test_the_outputs_of_the_last_step_are_kept(
        self, create: Create, hold: Hold, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        store.open([BY_WORD], [WORDS, NUMBER])
        assert store.last_outputs() is None
        for step, word in enumerate("ab", 1):
            output = hold(relation_of(WORDS, [(word, 1, 1), (None, 2, -1)]))
            number = hold(relation_of(NUMBER, [(Decimal(step),)]))
            add(store, BY_WORD, hold, [(word, 1, 1)])
            store.commit(step, None, [output, number])
        again = reopen_or_not(store, [BY_WORD])
        again.open([BY_WORD], [WORDS, NUMBER])
        outputs = again.last_outputs()
        assert outputs is not None
        assert [summed([o], s) for o, s in zip(outputs, [WORDS, NUMBER], strict=True)] == [
            {row("b", 1): (1,), row(None, 2): (-1,)},
            {row(): (Decimal(2),)},
        ]
        again.commit(3, None)
        assert again.last_outputs() is None

    def test_outputs_without_rows_are_kept_and_those_of_other_schemas_are_not(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        store.open([BY_WORD], [WORDS])
        store.commit(1, None, [hold(relation_of(WORDS, []))])
        outputs = store.last_outputs()
        assert outputs is not None
        assert summed(outputs, WORDS) == {}
        store.open([BY_WORD], [NUMBER])
        assert store.last_outputs() is None
        store.commit(2, None, [hold(relation_of(NUMBER, [(Decimal(7),)]))])
        store.open([BY_WORD], [])
        assert store.last_outputs() is None
        store.commit(3, None, [])
        assert store.last_outputs() == ()

    def test_what_computed_the_outputs_is_kept_with_them_and_does_not_keep_them_from_others(
        self, create: Create, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        store.open([BY_WORD], [WORDS, NUMBER])
        assert store.last_made_by() is None
        given = [relation_of(WORDS, [("a", 1, 1)]), relation_of(NUMBER, [(Decimal(7),)])]
        signatures = ("filter [x > 2] 0123", 'it\'s "é" \\ \n 4567')
        store.commit(1, None, given, made_by=signatures)
        again = reopen_or_not(store, [BY_WORD])
        again.open([BY_WORD], [NUMBER])
        assert again.last_made_by() == signatures
        again.open([BY_WORD], [WORDS, NUMBER])
        outputs = again.last_outputs()
        assert outputs is None or summed(outputs[:1], WORDS) == {row("a", 1): (1,)}
        again.commit(2, None, given)
        assert again.last_made_by() is None
        assert again.last_outputs() is not None

    def test_offsets_are_committed_with_a_step_and_stay_until_they_are_given_anew(
        self, create: Create, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        assert store.last_offsets() == {}
        store.commit(1, None, None, {"orders": 7, "users, by name": 0})
        store.commit(2, None)
        with pytest.raises(StoreError):
            store.commit(2, None, None, {"orders": 8})
        again = reopen_or_not(store, [BY_WORD])
        assert again.last_offsets() == {"orders": 7, "users, by name": 0}
        again.commit(3, None, None, {"orders": 8})
        assert again.last_offsets() == {"orders": 8}

    def test_settings_are_committed_with_a_step_and_stay_until_they_are_given_anew(
        self, create: Create, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        assert store.last_settings() == {}
        store.commit(1, None, settings={"zone": "UTC", "é": "'\\"})
        store.commit(2, None)
        again = reopen_or_not(store, [BY_WORD])
        assert again.last_settings() == {"zone": "UTC", "é": "'\\"}
        again.commit(3, None, settings={"zone": "CET"})
        assert again.last_settings() == {"zone": "CET"}

    @pytest.mark.parametrize(
        "now",
        [
            3,
            0.1,
            "2013-01-01",
            dt.date(2013, 1, 1),
            dt.datetime(2013, 1, 1, 1, 2, 3, 4),
            dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
        ],
        ids=repr,
    )
    def test_now_comes_back_as_it_was(
        self, create: Create, reopen_or_not: Reopen, now: Now
    ) -> None:
        store = create([BY_WORD])
        store.commit(1, now)
        again = reopen_or_not(store, [BY_WORD])
        assert (again.last_now(), type(again.last_now())) == (now, type(now))
