"""The orders of the last 30 days, by customer: rows that go although nobody deletes them.

A temporal filter says from when until when a row is there, and each step says what `now` is. An
order comes on its day, or when it is known if that is later, and goes 30 days after. Nothing is
computed anew: a step costs the orders that come, and those that go.

    python examples/recent.py
"""

import datetime as dt

import stepping_spark as st

DAYS = 30


class Order(st.Data):
    day: dt.date
    customer: str
    cents: int


class Recent(st.Data):
    customer: str
    orders: int
    cents: int


def recent(orders: st.ZSet[Order]) -> st.ZSet[Recent]:
    present = st.temporal_filter(
        orders, lower=lambda o: o.day, upper=lambda o: o.day + dt.timedelta(days=DAYS)
    )
    return st.aggregate(
        present,
        by=lambda o: o.customer,
        into=Recent,
        orders=st.agg.count(),
        cents=st.agg.sum(lambda o: o.cents),
    )


ANN = Order(day=dt.date(2024, 2, 20), customer="Ann", cents=1200)
LATER = Order(day=dt.date(2024, 3, 10), customer="Ann", cents=500)
AHEAD = Order(day=dt.date(2024, 3, 15), customer="Bob", cents=900)
STEPS: tuple[tuple[dt.date, str, dict[Order, int]], ...] = (
    (dt.date(2024, 3, 1), "Ann's first order is known", {ANN: 1}),
    (dt.date(2024, 3, 10), "she orders again, and Bob for the 15th", {LATER: 1, AHEAD: 1}),
    (dt.date(2024, 3, 14), "nothing happens", {}),
    (dt.date(2024, 3, 15), "Bob's day has come", {}),
    (dt.date(2024, 3, 21), "Ann's first order is 30 days old", {}),
    (dt.date(2024, 3, 22), "her second one is cancelled", {LATER: -1}),
    (dt.date(2024, 5, 1), "all are old", {}),
)


def plainly(orders: st.ZSetPython[Order], now: dt.date) -> st.ZSetPython[Recent]:
    """The view of one day, computed anew."""
    by_customer: dict[str, list[Order]] = {}
    for order, _ in orders.iter():
        if order.day <= now < order.day + dt.timedelta(days=DAYS):
            by_customer.setdefault(order.customer, []).append(order)
    return st.ZSetPython(
        {
            Recent(customer=name, orders=len(theirs), cents=sum(o.cents for o in theirs)): 1
            for name, theirs in by_customer.items()
        }
    )


def main() -> None:
    graph = st.compile(recent)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    orders, view = st.ZSetPython[Order](), st.ZSetPython[Recent]()
    for now, what, given in STEPS:
        change = st.ZSetPython(given)
        (out,) = stepper.step((change,), now=now)
        print(f"{now}: {what}\n{out}")
        orders, view = orders + change, view + out.to_python()
        if view != plainly(orders, now):
            raise SystemExit(f"the maintained view differs on {now}: {view}")
    print(f"On each of {len(STEPS)} days it was what the orders of the last {DAYS} days add up to.")


if __name__ == "__main__":
    main()
