"""Orders, given as users of PySpark write them, in each operator that takes an order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st


class Named(st.Data):
    id: int
    name: str | None


class Numbered(st.Data):
    id: int
    n: int


class Listed(st.Data):
    ids: list[int]


class Joined(st.Data):
    text: str | None


ROWS = [Named(id=1, name="b"), Named(id=2, name=None), Named(id=3, name="a"), Named(id=4, name="b")]
CHANGES = [st.ZSetPython({row: 1}) for row in ROWS]

Order = Callable[[Named], Any]
ORDERS: list[Any] = [
    pytest.param(lambda a: a.id.desc(), [4, 3, 2, 1], id="desc"),
    pytest.param(lambda a: (-a.id).asc(), [4, 3, 2, 1], id="asc of an expression"),
    pytest.param(lambda a: (a.name.asc(), a.id.desc()), [2, 3, 4, 1], id="a tuple"),
    pytest.param(lambda a: (a.name.asc_nulls_last(), a.id), [3, 1, 4, 2], id="asc_nulls_last"),
    pytest.param(lambda a: (a.name.desc_nulls_first(), a.id), [2, 1, 4, 3], id="desc_nulls_first"),
    pytest.param(lambda a: (a.name.desc(), a.id.asc()), [1, 4, 3, 2], id="desc puts NULL last"),
]
OF_WIN: list[Any] = [
    pytest.param(st.win.desc(lambda a: a.id), [4, 3, 2, 1], id="st.win.desc"),
    pytest.param(
        (st.win.asc(lambda a: a.name, nulls="last"), st.win.desc(lambda a: a.id)),
        [3, 4, 1, 2],
        id="nulls last",
    ),
    pytest.param(
        [st.win.desc(lambda a: a.name, nulls="first"), lambda a: a.id], [2, 1, 4, 3], id="a list"
    ),
]
OF_SPARK: list[Any] = [
    pytest.param(lambda a: F.desc(a.id), [4, 3, 2, 1], id="F.desc"),
    pytest.param(
        lambda a: (F.upper(a.name).asc_nulls_last(), F.desc(a.id)), [3, 4, 1, 2], id="of a function"
    ),
]


def numbered(a: st.ZSet[Named], order: Any) -> st.ZSet[Numbered]:
    return st.window(a, order=order, into=Numbered, n=st.win.row_number())


def listed(a: st.ZSet[Named], order: Any) -> st.ZSet[Listed]:
    return st.aggregate(a, None, Listed, ids=st.agg.collect_list(lambda a: a.id, order=order))


def first_listed(a: st.ZSet[Named], order: Any) -> st.ZSet[Listed]:
    return st.aggregate(a, None, Listed, ids=st.agg.first_n(order, 3, lambda a: a.id))


def joined(a: st.ZSet[Named], order: Any) -> st.ZSet[Joined]:
    return st.aggregate(a, None, Joined, text=st.agg.string_agg(lambda a: a.name, ",", order=order))


def first(a: st.ZSet[Named], order: Any) -> st.ZSet[Named]:
    return st.first_n(a, order, 2)


def ids_of(query: Any, out: dict[Any, int]) -> list[int]:
    """The ids that a query on all rows gives, in the order that it has them in."""
    if query is numbered:
        return [row.id for row in sorted(out, key=lambda row: row.n)]
    (row,) = out
    return list(row.ids)


def total(step: Callable[[Any], Any]) -> dict[Any, int]:
    found: st.ZSetPython[Any] = st.ZSetPython()
    for change in CHANGES:
        (out,) = step((change,))
        found = found + out.to_python()
    return dict(found.iter())


def driver(graph: st.Graph[Any, Any]) -> Any:
    return st.Stepper(graph, st.StoreMemory.from_graph(graph))


def compiled(query: Any, order: Any) -> st.Graph[Any, Any]:
    def asked(a: st.ZSet[Named]) -> Any:
        return query(a, order)

    return st.compile(asked)


@pytest.mark.parametrize(("order", "ids"), [*ORDERS, *OF_WIN])
def test_every_operator_takes_the_same_orders(order: Any, ids: list[int]) -> None:
    for query in (numbered, listed, first_listed):
        wanted = ids[:3] if query is first_listed else ids
        graph = compiled(query, order)
        assert ids_of(query, total(st.reference(graph).step)) == wanted
        assert ids_of(query, total(driver(graph).step)) == wanted
    found = total(driver(compiled(first, order)).step)
    assert {row.id for row in found} == set(ids[:2])
    names = {row.id: row.name for row in ROWS}
    text = ",".join(name for name in map(names.__getitem__, ids) if name is not None)
    assert total(driver(compiled(joined, order)).step) == {Joined(text=text): 1}


@pytest.mark.parametrize(("order", "ids"), OF_SPARK)
def test_orders_of_columns_that_spark_makes(
    order: Any, ids: list[int], spark: SparkSession
) -> None:
    for query in (numbered, listed):
        assert ids_of(query, total(driver(compiled(query, order)).step)) == ids
    found = total(driver(compiled(first, order)).step)
    assert {row.id for row in found} == set(ids[:2])


def within(order: Callable[[Any], Any]) -> Callable[..., Any]:
    def query(a: Any) -> Any:
        return st.map(a, f=lambda row: order(F.upper(row.name)), to=tuple[str | None])

    query.__annotations__ = {"a": st.ZSet[Named]}
    return query


@pytest.mark.parametrize(
    "order",
    [
        lambda name: F.struct(name.desc()),
        lambda name: F.struct(F.struct(name, F.asc_nulls_last(name)), name),
        lambda name: F.when(name == "x", F.struct(name.asc())),
        lambda name: F.array_sort(F.array(name.desc())),
    ],
)
def test_an_order_inside_of_a_value_is_refused_when_the_query_is_compiled(
    spark: SparkSession, order: Callable[[Any], Any]
) -> None:
    with pytest.raises(st.CompileError, match=r"test_orders.py.* an order .* is inside of .*upper"):
        st.compile(within(order))


def test_a_text_inside_of_a_value_may_read_like_an_order(spark: SparkSession) -> None:
    def query(a: Any) -> Any:
        said = F.concat(F.upper(a_text), F.lit(" DESC NULLS LAST, of old"))
        return st.map(a, f=lambda row: F.concat(F.upper(row.name), said), to=str)

    query.__annotations__ = {"a": st.ZSet[Named]}
    a_text = F.lit("x ASC NULLS FIRST")
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (out,) = stepper.step((st.ZSetPython({Named(id=1, name="b"): 1}),))
    assert out == st.ZSetPython({"BX ASC NULLS FIRST DESC NULLS LAST, of old": 1})


def test_a_constant_that_reads_like_an_order_is_a_value(spark: SparkSession) -> None:
    def query(a: st.ZSet[Named]) -> st.ZSet[str]:
        return st.map(a, f=lambda a: F.lit("x DESC NULLS LAST"), to=str)

    st.compile(query)


REFUSED: list[Any] = [
    pytest.param(
        lambda a: st.map(a, f=lambda a: a.id.desc()),
        "id.desc() is an order, and a value is expected here; leave out .desc()",
        id="map",
    ),
    pytest.param(
        lambda a: st.filter(a, lambda a: a.id.desc() > 1), "id.desc() is an order", id="an operand"
    ),
    pytest.param(
        lambda a: st.group_reduce_flatten(
            a, by=lambda a: a.id.asc_nulls_last(), zero=int, pick_value=lambda a: 1
        ),
        "id.asc_nulls_last() is an order",
        id="a key",
    ),
    pytest.param(
        lambda a: numbered(a, st.win.desc(lambda a: a.id.desc())),
        "`order` of window: id.desc() in st.win.desc(…) has two directions; leave one out",
        id="twice",
    ),
    pytest.param(
        lambda a: numbered(a, st.Index(lambda a: a.id.desc(), ascending=False)),
        "in an Index with ascending=False has two directions",
        id="twice in an index",
    ),
    pytest.param(
        lambda a: numbered(a, st.win.desc),
        "found st.win.desc itself; write st.win.desc(lambda row: …)",
        id="not called",
    ),
    pytest.param(
        lambda a: st.filter(a, cast(Any, st.win.desc(lambda a: a.id))),
        "expected a function of the row, found the order st.win.desc(…); write the function alone",
        id="an order as a function",
    ),
    pytest.param(
        lambda a: st.first_n(a, (), 1),
        "expected an order, found (); write lambda row: row.field, or st.win.desc(",
        id="no order",
    ),
]


@pytest.mark.parametrize(("query", "said"), REFUSED)
def test_an_order_that_cannot_be_taken_is_refused_with_the_remedy(query: Any, said: str) -> None:
    def asked(a: st.ZSet[Named]) -> Any:
        return query(a)

    with pytest.raises(st.CompileError) as caught:
        st.compile(asked)
    assert "test_orders.py:" in str(caught.value)
    assert said in str(caught.value)
