"""Tests that rows of every type are stored unchanged, read by key, and added up."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from stepping_spark.base.errors import SteppingError
from stepping_spark.relations.hashing import bucket_numbers
from stepping_spark.relations.store import (
    BucketStore,
    OrderedStore,
    Ordering,
    Register,
    SizedStore,
    Store,
)
from stepping_spark.rows.atoms import DATE, INT, STR, RowType
from stepping_spark.rows.schema import BIG_INT, Schema
from stepping_spark.rows.types import Optional
from stores.contract.values import (
    BY_WORD,
    MIXED,
    VALUES,
    WHOLE,
    WORDS,
    Create,
    Hold,
    StoreFixtures,
    add,
    as_table,
    content,
    keys_relation,
    mixed_row,
    relation_of,
    row,
    summed,
)


class Rows(StoreFixtures):
    """Tests of the values that a store can hold, of changes, and of reads."""

    @pytest.mark.parametrize(
        "key", [("i",), ("s",), ("f",), ("i", "s"), ("d", "f", "n"), ("p",), ("l", "i")]
    )
    def test_a_read_by_key_has_the_rows_that_a_full_read_has_for_it(
        self, create: Create, hold: Hold, key: tuple[str, ...]
    ) -> None:
        register = Register("r", MIXED, key)
        store = create([register])
        rows = [mixed_row(i) for i in range(12_000)]
        for step, part in enumerate((rows[:10_500], rows[10_500:], rows[:100]), 1):
            add(store, register, hold, [(*r, 1) for r in part])
            store.commit(step, None)
        places = [[n for n, _ in MIXED.columns].index(k) for k in key]
        keys = {row(*(r[p] for p in places)): tuple(r[p] for p in places) for r in rows}
        whole = content(store, register)
        for wanted in (1, 10_000):
            chosen = dict(list(keys.items())[:: max(len(keys) // wanted, 1)][:wanted])
            by_key = content(store, register, hold(keys_relation(register, chosen.values())))
            assert by_key.items() <= whole.items()
            expected = {r for r in whole if (1, *(r[1:][p] for p in places)) in chosen}
            assert expected
            assert expected <= by_key.keys()

    def test_a_read_of_few_keys_gives_few_rows(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [(f"w{i}", i, 1) for i in range(20_000)])
        store.commit(1, None)
        keys = hold(keys_relation(BY_WORD, [("w7",), ("w70",), ("nothing",)]))
        parts = [as_table(p) for p in store.read(BY_WORD.name, keys)]
        assert 2 <= sum(p.num_rows for p in parts) < 2_000

    def test_null_in_a_key_equals_null(self, create: Create, hold: Hold) -> None:
        register = Register("r", WORDS, ("word", "length"))
        store = create([register])
        add(store, register, hold, [(None, 1, 1), (None, 2, 1), ("", 1, 1), ("a", 1, 1)])
        store.commit(1, None)
        asked = hold(keys_relation(register, [(None, 1), ("a", 1)]))
        assert {row(None, 1): (1,), row("a", 1): (1,)}.items() <= content(
            store, register, asked
        ).items()

    def test_no_keys_select_nothing(self, create: Create, hold: Hold) -> None:
        store = create([BY_WORD])
        add(store, BY_WORD, hold, [("a", 1, 1), (None, 1, 1)])
        store.commit(1, None)
        assert content(store, BY_WORD, hold(keys_relation(BY_WORD, []))) == {}

    @pytest.mark.parametrize(("t", "values"), VALUES, ids=[str(t) for t, _ in VALUES])
    def test_every_field_type_comes_back_as_it_was(
        self, create: Create, hold: Hold, t: RowType, values: Sequence[Any]
    ) -> None:
        schema = Schema((("n", INT), ("value", Optional(t))))
        registers = [Register("whole", schema), Register("keyed", schema, ("value",))]
        store = create(registers)
        rows_added = [(i, v, 1) for i, v in enumerate([*values, None])]
        for register in registers:
            add(store, register, hold, rows_added[:1])
        store.commit(1, None)
        for register in registers:
            add(store, register, hold, rows_added[1:])
        store.commit(2, None)
        expected = {row(i, v): (n,) for i, v, n in rows_added}
        assert [content(store, r) for r in registers] == [expected, expected]
        asked = hold(keys_relation(registers[1], [(v,) for v in [*values, None]]))
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
            asked = hold(keys_relation(register, [key]))
            assert content(store, register, asked) == {row("x", 1, 2): (1,)}

    def test_the_last_rows_of_keys_are_read_from_a_place_in_their_order_on(
        self, create: Create, hold: Hold
    ) -> None:
        """For stores that can read so: dates in descending order, with NULL at the end."""
        schema = Schema((("s", STR), ("d", Optional(DATE)), ("i", INT)))
        register = Register("r", schema, ("s",), order=Ordering("d", False, False))
        store = create([register])
        if not isinstance(store, OrderedStore):
            pytest.skip("this store reads keys whole")
        first = dt.date(2000, 1, 1)
        rows = [
            ("ab"[i % 2], None if i % 50 == 0 else first + dt.timedelta(days=i % 700), i)
            for i in range(6_000)
        ]
        for step, part in enumerate((rows[:5_000], rows[5_000:]), 1):
            add(store, register, hold, [(*r, 1) for r in part])
            store.commit(step, None)
        add(store, register, hold, [(*rows[3], -1)])
        store.commit(3, None)
        wanted = {"a": first + dt.timedelta(days=30), "b": first + dt.timedelta(days=3)}
        since = [~(day - dt.date(1970, 1, 1)).days for day in wanted.values()]
        keys = keys_relation(register, [(k,) for k in wanted])
        parts = store.read_since("r", keys, since)
        expected = {
            row(*r): (1,) for r in rows if (r[1] is None or r[1] <= wanted[r[0]]) and r != rows[3]
        }
        assert expected.items() <= summed(parts, schema).items()
        assert sum(p.rows or 0 for p in parts) <= 2 * len(expected)

    def test_the_rows_of_some_buckets_of_keys_are_read(self, create: Create, hold: Hold) -> None:
        """For stores that can read so: by a hash of the columns outside of the key."""
        schema = Schema((("s", Optional(STR)), ("d", Optional(DATE)), ("i", INT)))
        register = Register("r", schema, ("s",))
        store = create([register])
        if not isinstance(store, BucketStore):
            pytest.skip("this store reads keys whole")
        first = dt.date(2000, 1, 1)
        rows = [
            (("a", "b", None)[i % 3], None if i % 50 == 0 else first + dt.timedelta(days=i % 70), i)
            for i in range(6_000)
        ]
        for step, part in enumerate((rows[:5_000], rows[5_000:]), 1):
            add(store, register, hold, [(*r, 1) for r in part])
            store.commit(step, None)
        add(store, register, hold, [(*rows[3], -1)])
        store.commit(3, None)
        chosen = (0, 3, 5, 5_500)
        some = relation_of(schema, [(*rows[i], 1) for i in chosen])
        table = relation_of(schema, [(*r, 1) for r in rows]).table
        of_keys = store.read("r", hold(keys_relation(register, {rows[i][:1] for i in chosen})))
        for buckets in (2, 16, 256):
            numbers = bucket_numbers(table, ("d", "i"), buckets).tolist()
            wanted = {(rows[i][0], numbers[i]) for i in chosen}
            both = zip(rows, numbers, strict=True)
            expected = {row(*r): (1,) for r, n in both if (r[0], n) in wanted and r != rows[3]}
            parts = store.read_beside("r", some, buckets)
            assert expected.items() <= summed(parts, schema).items()
            assert sum(p.rows or 0 for p in parts) <= sum(p.rows or 0 for p in of_keys)

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
        counts = content(store, BY_WORD)
        assert (len(counts), counts[row("a", 1)]) == (20_001, (1,))
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
        size = store.size(BY_WORD.name)
        assert (size.batches, size.rows) == (store.batches(BY_WORD.name), len(rows))
        assert size.nbytes > 0
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
