"""A filter on a bounded rank: the first rows of each partition, and the same answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import stepping_spark as st


class Sale(st.Data):
    shop: str | None
    amount: int | None
    id: int


class Row(st.Data):
    shop: str | None
    amount: int | None
    id: int
    n: int
    more: int | None


def ranked(
    condition: Callable[[Any], Any], n: Any, order: Any = lambda s: s.amount, **more: Any
) -> Callable[..., Any]:
    def query(sales: st.ZSet[Sale]) -> Any:
        given = more or {"more": st.win.lag(lambda s: s.id)}
        rows = st.window(sales, by=lambda s: s.shop, order=order, into=Row, n=n, **given)
        return st.filter(rows, f=condition)

    return query


NUMBER, RANK = st.win.row_number(), st.win.rank()
SUM: Any = st.win.sum
BOUNDED: dict[str, tuple[Callable[..., Any], str]] = {
    "row_number": (ranked(lambda r: r.n <= 2, NUMBER), "top 2 by amount of each (shop)"),
    "less": (ranked(lambda r: r.n < 3, NUMBER), "top 2 by"),
    "from the left": (ranked(lambda r: 2 >= r.n, NUMBER), "top 2 by"),  # noqa: SIM300
    "the first": (ranked(lambda r: r.n == 1, NUMBER), "top 1 by"),
    "the third": (ranked(lambda r: r.n == 3, NUMBER), "top 3 by"),
    "and more": (ranked(lambda r: (r.id > 1) & (r.n <= 2), NUMBER), "top 2 by"),
    "rank": (ranked(lambda r: r.n <= 2, RANK), "top 2 with ties by"),
    "descending": (
        ranked(lambda r: r.n <= 2, NUMBER, st.win.desc(lambda s: s.amount, nulls="first")),
        "top 2 by",
    ),
    "sum so far": (
        ranked(lambda r: r.n <= 3, NUMBER, more=SUM(lambda s: s.amount, rows=(None, 0))),
        "top 3 by",
    ),
    "sum of ties": (ranked(lambda r: r.n <= 2, RANK, more=SUM(lambda s: s.amount)), "top 2 with"),
}
UNBOUNDED: dict[str, Callable[..., Any]] = {
    "looks forward": ranked(lambda r: r.n <= 2, NUMBER, more=st.win.lead(lambda s: s.id)),
    "ties after it": ranked(lambda r: r.n <= 2, NUMBER, more=SUM(lambda s: s.amount)),
    "all rows": ranked(lambda r: r.n <= 2, NUMBER, more=SUM(lambda s: s.amount, rows=(0, None))),
    "or": ranked(lambda r: (r.n <= 2) | (r.id > 3), NUMBER),
    "from below": ranked(lambda r: r.n >= 2, NUMBER),
    "dense": ranked(lambda r: r.n <= 2, st.win.dense_rank()),
    "none": ranked(lambda r: r.n <= 0, NUMBER),
}


def changes(seed: int) -> list[st.ZSetPython[Sale]]:
    draw, there = random.Random(seed), list[Sale]()
    found = []
    for _ in range(8):
        gone = [there.pop(draw.randrange(len(there))) for _ in range(len(there) // 3)]
        came = [
            Sale(
                shop=draw.choice(("a", "b", None)),
                amount=draw.choice((None, 1, 2, 3)),
                id=draw.randrange(6),
            )
            for _ in range(6)
        ]
        there += came
        found.append(st.ZSetPython([(s, 1) for s in came] + [(s, -1) for s in gone]))
    return [*found, st.ZSetPython([(s, -1) for s in there])]


def agrees(query: Callable[..., Any]) -> Any:
    """The circuit of a query, whose answers are those of the circuit as it is written."""
    graph, whole = st.compile(query), st.reference(st.compile(query, optimize=False))
    stepper, plain = st.Stepper(graph, st.StoreMemory.from_graph(graph)), st.reference(graph)
    for change in changes(7):
        wanted = whole.step((change,))
        assert stepper.step((change,)) == wanted
        assert plain.step((change,)) == wanted
    return graph


@pytest.mark.parametrize("name", BOUNDED)
def test_a_window_of_which_a_filter_keeps_the_first_rows_is_over_those(name: str) -> None:
    query, top = BOUNDED[name]
    assert top in str(agrees(query))


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_window_whose_answer_needs_other_rows_is_over_all(name: str) -> None:
    assert "top" not in str(agrees(UNBOUNDED[name]))


def test_a_window_that_others_read_is_over_all() -> None:
    def query(sales: st.ZSet[Sale]) -> Any:
        rows = st.window(
            sales,
            by=lambda s: s.shop,
            order=lambda s: s.amount,
            into=Row,
            n=NUMBER,
            more=lambda s: s.id,
        )
        return rows, st.filter(rows, f=lambda r: r.n <= 2)

    assert "top" not in str(st.compile(query))


def test_only_the_first_rows_are_kept_of_an_input_that_only_grows() -> None:
    query, _ = BOUNDED["row_number"]
    graph = st.compile(query, append_only="sales")
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    for i in range(50):
        stepper.step((st.ZSetPython({Sale(shop="a", amount=i, id=i): 1}),))
    stepper.store.compact()
    kept = (stepper.store.size(name).rows for name, _ in st.explain(graph).arrangements)
    assert sum(kept) <= 4
