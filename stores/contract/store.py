"""What every store must do, as tests: subclass `StoreContract` and give it your store.

class TestMyStore(StoreContract):
    @pytest.fixture
    def create(self, tmp_path: Path) -> Create:
        return lambda registers: MyStore(registers, tmp_path / uuid4().hex)
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from stepping_spark.errors import StoreError, StoreLocked, StoreMismatch
from stepping_spark.rows.atoms import INT, STR, UUID, Atom, RowType
from stepping_spark.rows.schema import BIG_INT, Schema
from stepping_spark.rows.type_json import kind_of, type_of
from stepping_spark.rows.types import ListOf, Optional, tuple_of
from stepping_spark.store import Now, Register
from stores.contract.values import (
    BY_WORD,
    MIXED,
    NUMBER,
    POINT,
    VALUES,
    WHOLE,
    WORDS,
    Create,
    Hold,
    Reopen,
    add,
    as_it_is,
    as_table,
    content,
    keys_table,
    mixed_row,
    row,
    summed,
    table_of,
)


class Mood(enum.Enum):
    """What the odd field of a register may be."""

    GOOD = "good"


class Humour(enum.Enum):
    """The same, at a later time."""

    GOOD = "good"
    BAD = "bad"


class StoreContract:
    """Tests that each store passes; a subclass gives `create`, and what else applies to it."""

    commits = 500
    """How many small steps are taken to see that batches do not pile up."""

    @pytest.fixture(autouse=True)
    def nothing_is_logged(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        """Merges that fail, and files that may not last, are logged: here none may."""
        yield
        # A server of S3 that a test has started may log what is its own affair.
        ours = [r for r in caplog.get_records("call") if r.name.startswith("stepping_spark")]
        assert not ours

    @pytest.fixture
    def create(self) -> Create:
        """A function that makes a new, empty store for the registers, and opens it."""
        raise NotImplementedError("give a fixture `create`: see StoreContract")

    @pytest.fixture
    def reopen(self) -> Reopen:
        """A function that gives up a store, and opens what it has kept with another one."""
        pytest.skip("this store does not outlive its process")

    @pytest.fixture
    def reopen_or_not(self, request: pytest.FixtureRequest) -> Reopen:
        """`reopen`, where a store outlives its process; else the store goes on."""
        # Not by comparing `type(self).reopen`: some versions of pytest make it anew at each look.
        if next(c for c in type(self).__mro__ if "reopen" in vars(c)) is StoreContract:
            return lambda store, _: store
        found: Reopen = request.getfixturevalue("reopen")
        return found

    @pytest.fixture
    def rival(self) -> Reopen:
        """A function that opens what a store keeps a second time, while it is in use."""
        pytest.skip("what this store keeps cannot be opened twice")

    @pytest.fixture
    def hold(self) -> Hold:
        """How changes and keys are given to the store: as they are, or as DataFrames."""
        return as_it_is

    # -- what is added is read

    def test_an_unwritten_register_reads_empty(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        assert content(store, BY_WORD) == content(store, WHOLE) == {}
        keys = hold(*keys_table(BY_WORD, [("a",)]))
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
        keys = hold(*keys_table(BY_WORD, [("a",), ("b",)]))
        assert content(store, BY_WORD) == content(store, BY_WORD, keys) == {row("a", 1): (1,)}

    def test_abort_forgets_the_additions(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1)])
        store.abort()
        store.abort()
        add(store, BY_WORD, hold, [("b", 1, 1)])
        store.commit(1, None)
        assert content(store, BY_WORD) == {row("b", 1): (1,)}

    # -- steps

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
                store.add(BY_WORD.name, table_of(WORDS, [("b", 1, 1)]))
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

    # -- snapshots

    def test_what_is_read_within_a_snapshot_is_of_one_step(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD, WHOLE])

        def step(number: int) -> None:
            for register in (BY_WORD, WHOLE):
                add(store, register, hold, [("a", 1, 1), (f"b{number}", 2, 1)])
            store.commit(number, number, None, {"orders": number})

        def elsewhere(first: int, last: int) -> None:
            """In another thread, which is none of the snapshot's."""
            with ThreadPoolExecutor(1) as other:
                for number in range(first, last + 1):
                    other.submit(step, number).result()
                other.submit(store.compact).result()

        def seen() -> object:
            keys = hold(*keys_table(BY_WORD, [("a",), ("b1",), ("b7",)]))
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

    # -- what a step gave, and how far its sources were read

    def test_the_outputs_of_the_last_step_are_kept(
        self, create: Create, hold: Hold, reopen_or_not: Reopen
    ) -> None:
        store = create([BY_WORD])
        store.open([BY_WORD], [WORDS, NUMBER])
        assert store.last_outputs() is None
        for step, word in enumerate("ab", 1):
            given = hold(table_of(WORDS, [(word, 1, 1), (None, 2, -1)]), WORDS)
            number = hold(table_of(NUMBER, [(Decimal(step),)]), NUMBER)
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
        store.commit(1, None, [hold(table_of(WORDS, []), WORDS)])
        outputs = store.last_outputs()
        assert outputs is not None
        assert summed(outputs, WORDS) == {}
        store.open([BY_WORD], [NUMBER])
        assert store.last_outputs() is None
        store.commit(2, None, [hold(table_of(NUMBER, [(Decimal(7),)]), NUMBER)])
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
        given = [table_of(WORDS, [("a", 1, 1)]), table_of(NUMBER, [(Decimal(7),)])]
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
        keys = hold(*keys_table(BY_WORD, [("a",)]))
        uses: list[Callable[[], object]] = [
            lambda: store.open([BY_WORD]),
            store.last_step,
            store.last_now,
            store.last_offsets,
            store.last_outputs,
            lambda: store.read(BY_WORD.name),
            lambda: store.read(BY_WORD.name, keys),
            lambda: store.add(BY_WORD.name, table_of(WORDS, [("b", 1, 1)])),
            lambda: store.commit(2, None),
            store.compact,
            lambda: store.batches(BY_WORD.name),
        ]
        for use in uses:
            with pytest.raises(StoreError, match=r"the store is closed.*; .* with .*from_graph"):
                use()
        store.abort()
        store.close()

    # -- opening

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
                [WHOLE, dataclasses.replace(BY_WORD, sums="filter [x > 2]")], id="another sum"
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
        said = [re.escape(str(type_of(kind_of(t)))) for t in (kept, wanted)]
        with pytest.raises(StoreMismatch, match=rf"'r': column 'x' is {said[0]} .*, {said[1]} "):
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
            store.add("nowhere", table_of(WORDS, [("a", 1, 1)]))

    # -- reading by key

    @pytest.mark.parametrize("wanted", [1, 10_000])
    @pytest.mark.parametrize(
        "key", [("i",), ("s",), ("f",), ("i", "s"), ("d", "f", "n"), ("p",), ("l", "i")]
    )
    def test_a_read_by_key_has_the_rows_that_a_full_read_has_for_it(
        self, create: Create, hold: Hold, key: tuple[str, ...], wanted: int
    ) -> None:
        register = Register("r", MIXED, key)
        store = create([register])
        rows = [mixed_row(i) for i in range(12_000)]
        for step, part in enumerate((rows[:10_500], rows[10_500:], rows[:100]), 1):
            add(store, register, hold, [(*r, 1) for r in part])
            store.commit(step, None)
        places = [[n for n, _ in MIXED.columns].index(k) for k in key]
        keys = {row(*(r[p] for p in places)): tuple(r[p] for p in places) for r in rows}
        chosen = dict(list(keys.items())[:: max(len(keys) // wanted, 1)][:wanted])
        whole = content(store, register)
        by_key = content(store, register, hold(*keys_table(register, chosen.values())))
        assert by_key.items() <= whole.items()
        expected = {r for r in whole if (1, *(r[1:][p] for p in places)) in chosen}
        assert expected
        assert expected <= by_key.keys()

    def test_a_read_of_few_keys_gives_few_rows(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [(f"w{i}", i, 1) for i in range(20_000)])
        store.commit(1, None)
        keys = hold(*keys_table(BY_WORD, [("w7",), ("w70",), ("nothing",)]))
        parts = [as_table(p, WORDS) for p in store.read(BY_WORD.name, keys)]
        assert 2 <= sum(p.num_rows for p in parts) < 2_000

    def test_null_in_a_key_equals_null(self, create: Create, hold: Hold) -> None:
        register = Register("r", WORDS, ("word", "length"))
        store = create([register])
        add(store, register, hold, [(None, 1, 1), (None, 2, 1), ("", 1, 1), ("a", 1, 1)])
        store.commit(1, None)
        asked = hold(*keys_table(register, [(None, 1), ("a", 1)]))
        assert {row(None, 1): (1,), row("a", 1): (1,)}.items() <= content(
            store, register, asked
        ).items()

    def test_no_keys_select_nothing(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1), (None, 1, 1)])
        store.commit(1, None)
        assert content(store, BY_WORD, hold(*keys_table(BY_WORD, []))) == {}

    # -- what can be stored

    @pytest.mark.parametrize(("t", "values"), VALUES, ids=[str(t) for t, _ in VALUES])
    def test_every_field_type_comes_back_as_it_was(
        self, create: Create, hold: Hold, t: RowType, values: Sequence[Any]
    ) -> None:
        schema = Schema((("n", INT), ("value", Optional(t))))
        registers = [Register("whole", schema), Register("keyed", schema, ("value",))]
        store = create(registers)
        given = [(i, v, 1) for i, v in enumerate([*values, None])]
        for register in registers:
            add(store, register, hold, given[:1])
        store.commit(1, None)
        for register in registers:
            add(store, register, hold, given[1:])
        store.commit(2, None)
        expected = {row(i, v): (n,) for i, v, n in given}
        assert [content(store, r) for r in registers] == [expected, expected]
        asked = hold(*keys_table(registers[1], [(v,) for v in [*values, None]]))
        assert content(store, registers[1], asked) == expected

    def test_diffs_of_several_columns_are_added_column_by_column(
        self, create: Create, hold: Hold
    ) -> None:
        sums = Schema((("_key_", STR),), (("_rows_", INT), ("_sum_x_", BIG_INT)))
        register = Register("sums", sums, ("_key_",))
        store = create([register])
        large = Decimal(10**37)
        add(store, register, hold, [("a", 2, large), ("b", 1, Decimal(5)), ("c", 1, Decimal(-1))])
        store.commit(1, None)
        add(store, register, hold, [("a", -1, large), ("b", -1, Decimal(0)), ("c", -1, Decimal(1))])
        store.commit(2, None)
        assert content(store, register) == {row("a"): (1, 2 * large), row("b"): (0, Decimal(5))}

    def test_a_number_is_a_register_without_columns(self, create: Create, hold: Hold) -> None:
        register = Register("total", Schema((), (("_value_", BIG_INT),)))
        store = create([register])
        for step, value in enumerate((5, 7, -12, 3), 1):
            add(store, register, hold, [(Decimal(value),)])
            store.commit(step, None)
        assert content(store, register) == {row(): (Decimal(3),)}

    def test_names_may_hold_any_character(self, create: Create, hold: Hold) -> None:
        schema = Schema((("a b`c.d", STR), ("Ω\"'", INT), ("select", INT)))
        registers = [
            Register("q.join (2) by left.x, right.'y' desc", schema, ("a b`c.d", "select")),
            Register("q.join (2) by Ω/..\\%", schema, ("Ω\"'",)),
        ]
        store = create(registers)
        for register in registers:
            add(store, register, hold, [("x", 1, 2, 1)])
        store.commit(1, None)
        for register, key in zip(registers, [("x", 2), (1,)], strict=True):
            asked = hold(*keys_table(register, [key]))
            assert content(store, register, asked) == {row("x", 1, 2): (1,)}

    # -- batches

    def test_compaction_changes_nothing_that_can_be_read(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD, WHOLE])
        for step in range(1, 13):
            for register in (BY_WORD, WHOLE):
                add(store, register, hold, [(f"w{step % 7}", 1, 1), (f"w{step}", 2, (-1) ** step)])
            store.commit(step, step)
        asked = hold(*keys_table(BY_WORD, [("w3",), ("w12",)]))
        before = content(store, BY_WORD), content(store, WHOLE), content(store, BY_WORD, asked)
        parts = store.read(BY_WORD.name)
        store.compact()
        after = content(store, BY_WORD), content(store, WHOLE), content(store, BY_WORD, asked)
        assert after == before
        assert summed(parts, WORDS) == before[0]
        assert store.last_step() == 12
        assert store.batches(BY_WORD.name) == 1

    def test_many_small_commits_leave_a_logarithmic_number_of_batches(
        self, create: Create, hold: Hold
    ) -> None:
        store = create([BY_WORD])
        for step in range(1, self.commits + 1):
            add(store, BY_WORD, hold, [(f"w{step}", 1, 1), ("w", 1, 1), (f"v{step}", 2, 1)])
            store.commit(step, None)
        assert len(content(store, BY_WORD)) == 2 * self.commits + 1
        assert store.batches(BY_WORD.name) <= 2 * math.log2(3 * self.commits) + 4
