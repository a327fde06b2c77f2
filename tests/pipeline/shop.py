"""What the tests of pipelines share: a view of orders and users, in tables that change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import stepping_spark as st
from tests.cases import Order, User, Z


class Total(st.Data):
    name: str
    orders: int
    total: int


class Note(st.Data):
    id: int
    text: str | None


def totals(orders: st.ZSet[Order], users: st.ZSet[User]) -> st.ZSet[Total]:
    """What each user has ordered."""
    lines = st.join(orders, users, on_left=lambda o: o.user, on_right=lambda u: u.id)
    return st.aggregate(
        lines,
        by=lambda p: p.right.name,
        into=Total,
        orders=st.agg.count(),
        total=st.agg.sum(lambda p: p.left.amount),
    )


def amounts(orders: st.ZSet[Order]) -> st.ZSet[int]:
    """The amounts, as often as they come: a view without a key."""
    return st.map(orders, f=lambda o: o.amount)


def names(users: st.ZSet[User]) -> st.ZSet[str]:
    """Which names there are."""
    return st.distinct(st.map(users, f=lambda u: u.name))


def plain_totals(orders: Iterable[Order], users: Iterable[User]) -> set[Total]:
    """The same as `totals`, in plain Python."""
    found: dict[str, list[int]] = {}
    for user in users:
        for order in orders:
            if order.user == user.id:
                found.setdefault(user.name, []).append(order.amount)
    return {Total(name=n, orders=len(a), total=sum(a)) for n, a in found.items()}


class Shop:
    """Orders and users at random, and how they change."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.orders: dict[int, Order] = {}
        self.users: dict[int, User] = {}

    def change(self) -> tuple[Z[Order], Z[User]]:
        """Some rows come, some go, some are replaced."""
        orders, users = dict(self.orders), dict(self.users)
        for _ in range(self.rng.randrange(1, 5)):
            i = self.rng.randrange(12)
            if self.rng.random() < 0.3:
                orders.pop(i, None)
            else:
                orders[i] = Order(id=i, user=self.rng.randrange(5), amount=self.rng.randrange(9))
        for _ in range(self.rng.randrange(3)):
            i = self.rng.randrange(5)
            if self.rng.random() < 0.3:
                users.pop(i, None)
            else:
                users[i] = User(id=i, name=f"n{self.rng.randrange(3)}")
        made = difference(self.orders, orders), difference(self.users, users)
        self.orders, self.users = orders, users
        return made

    @property
    def totals(self) -> set[Total]:
        """What the view is."""
        return plain_totals(self.orders.values(), self.users.values())

    @property
    def amounts(self) -> Counter[int]:
        """What the view without a key is."""
        return Counter(o.amount for o in self.orders.values())


def difference(old: dict[int, Any], new: dict[int, Any]) -> Z[Any]:
    return Z([*((row, -1) for row in old.values()), *((row, 1) for row in new.values())])


class View:
    """A sink in memory: what the view is by what it was given, and in which steps."""

    def __init__(self) -> None:
        self.rows: st.ZSet[Any] = Z({})
        self.steps: list[int] = []
        self.owner: str | None = None

    def open(self, columns: object, owner: str) -> None:
        assert self.owner in (None, owner)
        self.owner = owner

    def last_step(self) -> int:
        return self.steps[-1] if self.steps else 0

    def write(self, step: int, change: st.ZSet[Any]) -> None:
        self.rows = self.rows + change.to_python()
        self.steps.append(step)

    def close(self) -> None:
        pass


def numbered(changes: Iterable[Any]) -> list[tuple[int, Any]]:
    return list(enumerate(changes, 1))


def as_it_is(of: Any) -> Any:
    """A query that gives its input."""

    def view(rows: Any) -> Any:
        return rows

    view.__annotations__ = {"rows": st.ZSet[of], "return": st.ZSet[of]}
    return view


def pipeline(of: Any, items: Any, table: Any, **given: Any) -> st.Pipeline:
    """What comes in goes into a table."""
    more = {"store": "memory", **given}
    return st.Pipeline(as_it_is(of), rows=items, into={"view": table}, **more)


def read(table: Any, of: Any) -> Any:
    """What a pipeline reads of a table."""
    view = View()
    st.Pipeline(as_it_is(of), store="memory", rows=table, into={"view": view}).run()
    return view.rows
