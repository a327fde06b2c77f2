"""Rows of every type are kept as they are, and read by key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from stepping_spark.rows.atoms import DATE, INT, STR, RowType
from stepping_spark.rows.schema import BIG_INT, Schema
from stepping_spark.rows.types import Optional
from stepping_spark.store import OrderedStore, Ordering, Register
from stores.contract.fixtures import StoreFixtures
from stores.contract.values import (
    BY_WORD,
    MIXED,
    VALUES,
    WORDS,
    Create,
    Hold,
    add,
    as_table,
    content,
    keys_relation,
    mixed_row,
    row,
    summed,
)


class Rows(StoreFixtures):
    """Reading by key, and what can be stored."""

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
        given = [(i, v, 1) for i, v in enumerate([*values, None])]
        for register in registers:
            add(store, register, hold, given[:1])
        store.commit(1, None)
        for register in registers:
            add(store, register, hold, given[1:])
        store.commit(2, None)
        expected = {row(i, v): (n,) for i, v, n in given}
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
        """Of a store that can: dates in descending order, with NULL at the end."""
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
        found = store.read_since("r", keys, since)
        expected = {
            row(*r): (1,) for r in rows if (r[1] is None or r[1] <= wanted[r[0]]) and r != rows[3]
        }
        assert expected.items() <= summed(found, schema).items()
        assert sum(p.rows or 0 for p in found) <= 2 * len(expected)
