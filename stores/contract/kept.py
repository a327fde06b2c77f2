"""What is committed with a step: outputs, offsets, settings and the time."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from stepping_spark.errors import StoreError
from stepping_spark.store import Now
from stores.contract.fixtures import StoreFixtures
from stores.contract.values import (
    BY_WORD,
    NUMBER,
    WORDS,
    Create,
    Hold,
    Reopen,
    add,
    relation_of,
    row,
    summed,
)


class KeptWithSteps(StoreFixtures):
    """What the last step gave, and how far its sources were read."""

    def test_the_outputs_of_the_last_step_are_kept(
        self, create: Create, hold: Hold, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        store.open([BY_WORD], [WORDS, NUMBER])
        assert store.last_outputs() is None
        for step, word in enumerate("ab", 1):
            given = hold(relation_of(WORDS, [(word, 1, 1), (None, 2, -1)]))
            number = hold(relation_of(NUMBER, [(Decimal(step),)]))
            add(store, BY_WORD, hold, [(word, 1, 1)])
            store.commit(step, None, [given, number])
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
        told = ("filter [x > 2] 0123", 'it\'s "é" \\ \n 4567')
        store.commit(1, None, given, made_by=told)
        again = reopen_or_not(store, [BY_WORD])
        again.open([BY_WORD], [NUMBER])
        assert again.last_made_by() == told
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
