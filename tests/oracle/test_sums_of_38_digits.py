"""Sums of Decimals of 38 digits: of values that fit, though their difference does not."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Annotated, Any

import pytest

import stepping_spark as st
from stepping_spark.base.errors import StepError
from tests.cases import everywhere
from tests.every_store import MakeStore

LARGEST = 10**38 - 1
EXACT = Context(prec=100)
Z = st.ZSetPython
Whole = Annotated[Decimal, st.Precision(38, 0)]
Tiny = Annotated[Decimal, st.Precision(38, 38)]


class Row(st.Data):
    key: int
    at: int
    whole: Whole
    half: Decimal | None  # of 18 digits after the point
    tiny: Tiny


class Total(st.Data):
    key: int
    whole: Whole
    half: Decimal | None
    tiny: Tiny
    mean: Tiny
    rows: int


class Running(st.Data):
    key: int
    at: int
    whole: Whole
    half: Decimal | None
    around: Whole


def decimal_of(units: int, scale: int) -> Decimal:
    return Decimal(units).scaleb(-scale, EXACT)


def totals(rows: st.ZSet[Row]) -> st.ZSet[Total]:
    return st.aggregate(
        rows,
        lambda r: r.key,
        Total,
        whole=st.agg.sum(lambda r: r.whole),
        half=st.agg.sum(lambda r: r.half),
        tiny=st.agg.sum(lambda r: r.tiny),
        mean=st.agg.avg(lambda r: r.tiny),
        rows=st.agg.count(),
    )


def running(rows: st.ZSet[Row]) -> st.ZSet[Running]:
    return st.window(
        rows,
        by=lambda r: r.key,
        order=lambda r: r.at,
        into=Running,
        key=lambda r: r.key,
        at=lambda r: r.at,
        whole=st.win.sum(lambda r: r.whole),
        half=st.win.sum(lambda r: r.half),
        around=st.win.sum(lambda r: r.whole, rows=(-9, 9)),
    )


def reduced(rows: st.ZSet[Row]) -> st.ZSet[Whole]:
    return st.reduce(rows, zero=Decimal, pick_value=lambda r: r.whole)


class Walk:
    """Steps of random changes whose sums stay within 38 digits, and jump from end to end."""

    def __init__(self, seed: int, keys: int) -> None:
        self.random = random.Random(seed)
        self.keys = range(keys)
        self.rows: Counter[Row] = Counter()
        self.at = 0

    def _units(self, now: int) -> int:
        """A number that takes a sum from one value to another, both of 38 digits."""
        wanted = self.random.choice((1, -1)) * (LARGEST - self.random.choice((0, 6, 2**40, 10**37)))
        to = self.random.choice((wanted, wanted, self.random.randint(-LARGEST, LARGEST)))
        return max(-LARGEST, min(LARGEST, to - now))

    def _sum(self, key: int, number: int) -> int:
        scale = (0, 18, 38)[number]
        values = (
            ((r.whole, r.half, r.tiny)[number], n) for r, n in self.rows.items() if r.key == key
        )
        return sum(int(Fraction(v or 0) * 10**scale) * n for v, n in values)

    def step(self) -> Z[Row]:
        """A change: some rows go, and for each key come rows that make its sums what is wanted."""
        change: Counter[Row] = Counter()
        for row in list(self.rows):
            if self.random.random() < 0.5:
                change[row] -= 1
                self.rows[row] -= 1
        self.rows += Counter()
        for key in self.keys:
            # Two rows: one of them may not reach, from one end, to the other one.
            for _ in range(self.random.choice((2, 2, 3))):
                units = [self._units(self._sum(key, number)) for number in range(3)]
                self.at += 1
                row = Row(
                    key=key,
                    at=self.at,
                    whole=Decimal(units[0]),
                    half=decimal_of(units[1], 18) if self.random.random() < 0.9 else None,
                    tiny=decimal_of(units[2], 38),
                )
                change[row] += 1
                self.rows[row] += 1
            self._back(key, change)
        return Z(change)

    def _back(self, key: int, change: Counter[Row]) -> None:
        """A row that brings the sums back, where they are beyond 38 digits."""
        while any(abs(self._sum(key, number)) > LARGEST for number in range(3)):
            self.at += 1
            units = [max(-LARGEST, min(LARGEST, -self._sum(key, n))) for n in range(3)]
            row = Row(
                key=key,
                at=self.at,
                whole=Decimal(units[0]),
                half=decimal_of(units[1], 18),
                tiny=decimal_of(units[2], 38),
            )
            change[row] += 1
            self.rows[row] += 1


def wanted(rows: Counter[Row]) -> Counter[Total]:
    """The view of whole tables, with Python's ints."""
    found: Counter[Total] = Counter()
    for key in {r.key for r in rows}:
        own = [(r, n) for r, n in rows.items() if r.key == key]
        half = [(int(Fraction(r.half) * 10**18), n) for r, n in own if r.half is not None]
        tiny = sum(int(Fraction(r.tiny) * 10**38) * n for r, n in own)
        count = sum(n for _, n in own)
        with localcontext(EXACT):
            exact = decimal_of(tiny, 38) / count
            mean = exact.quantize(Decimal(1).scaleb(-38), rounding="ROUND_HALF_UP")
        found[
            Total(
                key=key,
                whole=Decimal(sum(int(r.whole) * n for r, n in own)),
                half=decimal_of(sum(x * n for x, n in half), 18) if half else None,
                tiny=decimal_of(tiny, 38),
                mean=mean,
                rows=count,
            )
        ] = 1
    return found


@pytest.mark.turn(3)
@pytest.mark.spark
@everywhere
@pytest.mark.parametrize("optimize", [True, False], ids=["rules", "no rules"])
@pytest.mark.parametrize("seed", range(2))
def test_sums_are_those_of_python(
    seed: int, optimize: bool, local_rows: int, make_store: MakeStore
) -> None:
    """The changes of a sum may not fit 38 digits, though the old and the new value do."""
    graph = st.compile(totals, optimize=optimize)
    limits = st.Limits(local_rows=local_rows)
    store = make_store(graph, limits=limits)
    walk = Walk(seed, keys=3)
    so_far: Counter[Total] = Counter()
    for _ in range(4):
        (out,) = st.Stepper(graph, store, limits=limits).step((walk.step(),))
        so_far.update(dict(out.iter()))
        assert {r: n for r, n in so_far.items() if n} == wanted(walk.rows)
        store = make_store.reopen(store, graph)


@everywhere
@pytest.mark.turn(2)
@pytest.mark.spark
def test_engines_take_turns(local_rows: int) -> None:
    """What Spark has added is taken out by the driver, and the other way round."""
    graph = st.compile(totals)
    store = st.StoreMemory.from_graph(graph)
    walk = Walk(7, keys=2)
    so_far: Counter[Total] = Counter()
    for n in range(5):
        limits = st.Limits(local_rows=local_rows if n % 2 else st.Limits.local_rows - local_rows)
        (out,) = st.Stepper(graph, store, limits=limits).step((walk.step(),))
        so_far.update(dict(out.iter()))
        assert {r: n for r, n in so_far.items() if n} == wanted(walk.rows)


def row_of(at: int, whole: int, half: int) -> Row:
    return Row(key=1, at=at, whole=Decimal(whole), half=decimal_of(half, 18), tiny=Decimal(0))


@pytest.mark.turn(6)
@pytest.mark.spark
@everywhere
@pytest.mark.parametrize("query", [totals, running, reduced])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_goes_from_one_end_to_the_other(query: Any, sign: int, local_rows: int) -> None:
    """Finding 19, also if the sum of some rows of a step, or of a frame, has over 38 digits."""
    end = sign * LARGEST
    up, down, less = (row_of(1, n, n) for n in (end, 6 * sign - end, -end))
    graph = st.compile(query)
    limits = st.Limits(local_rows=local_rows)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    reference = st.reference(graph)
    for change in (
        {up: 1},
        {up: -1, down: 1},  # from one end to the other
        {up: 1, down: -1},
        {less: 1},
        {up: 2, less: 1},
        {up: -2},
        {up: -1, less: -1},
        {less: -1},
    ):
        assert stepper.step((Z(change),)) == reference.step((Z(change),))


@pytest.mark.spark
@everywhere
def test_a_number_as_an_output_changes_by_more_than_38_digits(local_rows: int) -> None:
    def query(rows: st.ZSet[Row]) -> Whole:
        return st.linear.total(rows, zero=Decimal, pick_value=lambda r: r.whole)

    graph = st.compile(query)
    limits = st.Limits(local_rows=local_rows)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    reference = st.reference(graph)
    up, down = row_of(1, LARGEST, 0), row_of(2, 6 - LARGEST, 0)
    for change, much in (({up: 1}, LARGEST), ({up: -1, down: 1}, 6 - 2 * LARGEST)):
        assert stepper.step((Z(change),)) == reference.step((Z(change),)) == (Decimal(much),)


@pytest.mark.turn(3)
@pytest.mark.spark
@everywhere
@pytest.mark.parametrize("query", [totals, running, reduced])
def test_a_sum_beyond_38_digits_is_an_error(query: Any, local_rows: int) -> None:
    graph = st.compile(query)
    limits = st.Limits(local_rows=local_rows)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    first, second = row_of(1, LARGEST, LARGEST), row_of(2, 1, 1)
    stepper.step((Z({first: 1}),))
    with pytest.raises(StepError, match=r"beyond Decimal.*add up floats, or Decimals with fewer"):
        stepper.step((Z({second: 1}),))
    with pytest.raises(StepError, match="does not fit Decimal"):
        st.reference(graph).step((Z({first: 1, second: 1}),))
    stepper.step((Z({first: -1, second: 1}),))
