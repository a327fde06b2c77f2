"""Meter readings to bills, while readings come late, are put right, and prices change.

A meter shows what has gone through it since it was made, so what was used in an hour is the reading
at its end less the one at its start: a join of the readings with themselves. Usage is priced by the
hour of the day, and added up by household. Each change touches the bills that it concerns.

    python examples/meters.py
"""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

import stepping_spark as st


class Reading(st.Data):
    meter: int
    hour: int  # since the first one
    watt_hours: int


class Price(st.Data):
    hour_of_day: int
    cents: int  # of a kilowatt-hour


class Household(st.Data):
    meter: int
    name: str


class Used(st.Data):
    meter: int
    hour_of_day: int
    watt_hours: int


class Bill(st.Data):
    name: str
    watt_hours: int
    cost: int  # in thousandths of a cent


def bills(
    readings: st.ZSet[Reading], prices: st.ZSet[Price], households: st.ZSet[Household]
) -> st.ZSet[Bill]:
    hours = st.join(
        readings,
        readings,
        on_left=lambda r: (r.meter, r.hour + 1),
        on_right=lambda r: (r.meter, r.hour),
    )
    used = st.map(
        hours,
        f=lambda p: Used(
            meter=p.left.meter,
            hour_of_day=p.left.hour % 24,
            watt_hours=p.right.watt_hours - p.left.watt_hours,
        ),
    )
    priced = st.delta_join(
        used,
        st.Lookup(prices, key=lambda p: p.hour_of_day, on=lambda row: row[0].hour_of_day),
        st.Lookup(households, key=lambda h: h.meter, on=lambda row: row[0].meter),
    )
    return st.aggregate(
        priced,
        by=lambda row: row[2].name,
        into=Bill,
        watt_hours=st.agg.sum(lambda row: row[0].watt_hours),
        cost=st.agg.sum(lambda row: row[0].watt_hours * row[1].cents),
    )


HOUSEHOLDS = {1: "Ash", 2: "Birch", 3: "Ash"}  # Ash has two meters
PRICES = [Price(hour_of_day=h, cents=20 if h < 7 else 35) for h in range(24)]


def readings(chance: random.Random) -> list[Reading]:
    """Two days of readings of each meter."""
    made: list[Reading] = []
    for meter in HOUSEHOLDS:
        shown = chance.randrange(10_000)
        for hour in range(49):
            made.append(Reading(meter=meter, hour=hour, watt_hours=shown))
            shown += chance.randrange(50, 900)
    return made


def plainly(readings: st.ZSetPython[Reading], prices: st.ZSetPython[Price]) -> st.ZSetPython[Bill]:
    """The bills, computed anew."""
    at = {(r.meter, r.hour): r.watt_hours for r, _ in readings.iter()}
    cents = {p.hour_of_day: p.cents for p, _ in prices.iter()}
    used, cost = Counter[str](), Counter[str]()
    for (meter, hour), start in at.items():
        if (meter, hour + 1) in at:
            n = at[meter, hour + 1] - start
            used[HOUSEHOLDS[meter]] += n
            cost[HOUSEHOLDS[meter]] += n * cents[hour % 24]
    return st.ZSetPython([(Bill(name=n, watt_hours=used[n], cost=cost[n]), 1) for n in used])


T = TypeVar("T")
Z = st.ZSetPython


def all_of(rows: Iterable[T]) -> st.ZSetPython[T]:
    return Z([(row, 1) for row in rows])


def main() -> None:
    graph = st.compile(bills)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    every = readings(random.Random(1))
    late, wrong = every[30], every[100]
    right = Reading(meter=wrong.meter, hour=wrong.hour, watt_hours=wrong.watt_hours - 40)
    dearer = Price(hour_of_day=18, cents=50)
    households = all_of(Household(meter=m, name=n) for m, n in HOUSEHOLDS.items())
    known, price = all_of(every) - Z({late: 1}), all_of(PRICES)
    steps: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("all readings but one", (known, price, households)),
        ("the late one", (Z({late: 1}), None, None)),
        ("one is put right", (Z({wrong: -1, right: 1}), None, None)),
        ("six in the evening becomes dearer", (None, Z({PRICES[18]: -1, dearer: 1}), None)),
    )
    known, price, view = Z[Reading](), Z[Price](), Z[Bill]()
    for what, (new_readings, new_prices, new_households) in steps:
        (out,) = stepper.step((new_readings, new_prices, new_households))
        print(f"{what}:\n{out}")
        known, price = known + (new_readings or Z()), price + (new_prices or Z())
        view = view + out.to_python()
        if view != plainly(known, price):
            raise SystemExit(f"the maintained bills differ: {view}")
    print(f"After each of {len(steps)} steps the bills were what all readings add up to.")


if __name__ == "__main__":
    main()
