"""The runnable examples of the document "How it works", with the output that it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.language import linear
from tests.cases import A, B, WithLen, measured, upper


class Result(st.Data):
    x: int
    y: int


@pytest.fixture(
    params=[
        pytest.param(st.Limits.local_rows, id="driver"),
        pytest.param(0, id="spark", marks=pytest.mark.spark),
    ]
)
def step(request: pytest.FixtureRequest) -> Any:
    """Steps a fresh store of a query: on the driver, and with every stage as a Spark job."""
    if request.param == 0:
        request.getfixturevalue("spark")

    def start(query: Any, *, optimize: bool = True) -> Any:
        graph = st.compile(query, optimize=optimize)
        store = st.StoreMemory.from_graph(graph)
        stepper = st.Stepper(graph, store, local_rows=request.param)
        return lambda *inputs: stepper.step(inputs)

    return start


def text(box: str) -> str:
    return box.strip("\n")


def test_a_zset_is_shown_as_a_table() -> None:
    z = st.ZSetPython({A(x=24, name="Bob"): 2, A(x=12, name="Sue"): 1, A(x=3, name="Bob"): 1})
    assert repr(z) == text(
        """
<ZSetPython>
╭───────────┬─────┬────────╮
│   _count_ │   x │ name   │
├───────────┼─────┼────────┤
│         2 │  24 │ Bob    │
│         1 │   3 │ Bob    │
│         1 │  12 │ Sue    │
╰───────────┴─────┴────────╯
"""
    )


def test_zsets_are_added_and_multiplied() -> None:
    a = st.ZSetPython({A(x=24, name="Bob"): 1})
    b = st.ZSetPython({A(x=24, name="Bob"): 3, A(x=4, name="Steve"): -1})
    assert repr(a + b) == text(
        """
<ZSetPython>
╭───────────┬─────┬────────╮
│   _count_ │   x │ name   │
├───────────┼─────┼────────┤
│         4 │  24 │ Bob    │
│        -1 │   4 │ Steve  │
╰───────────┴─────┴────────╯
"""
    )
    assert b * 3 == st.ZSetPython({A(x=24, name="Bob"): 9, A(x=4, name="Steve"): -3})
    assert repr(b * 3) == text(
        """
<ZSetPython>
╭───────────┬─────┬────────╮
│   _count_ │   x │ name   │
├───────────┼─────┼────────┤
│         9 │  24 │ Bob    │
│        -3 │   4 │ Steve  │
╰───────────┴─────┴────────╯
"""
    )


def query_delay(a: st.ZSet[str]) -> st.ZSet[str]:
    delayed = st.delay(a)
    return delayed


def test_delay_gives_the_value_of_the_step_before(step: Any) -> None:
    run = step(query_delay)
    assert run(st.ZSetPython({"first": 1})) == (st.ZSetPython(),)
    assert run(st.ZSetPython({"second": 1})) == (st.ZSetPython({"first": 1}),)


def test_a_delay_is_stepped_as_the_document_does_it() -> None:
    graph = st.compile(query_delay)
    store = st.StoreMemory.from_graph(graph)
    assert st.iteration(store, graph, (st.ZSetPython({"first": 1}),)) == (st.ZSetPython(),)
    (out,) = st.iteration(store, graph, (st.ZSetPython({"second": 1}),))
    assert out == st.ZSetPython({"first": 1})


def test_a_graph_has_vertices_inputs_edges_and_outputs() -> None:
    graph = st.compile(query_delay)
    assert [str(p) for p in graph.vertices] == ["query_delay.a", "query_delay.delayed"]
    a, delayed = graph.vertices
    assert graph.input == [(a, 0)]
    assert graph.internal == {(a, (delayed, 0))}
    assert graph.output == [delayed]
    assert graph.run_no_output == []
    assert repr(graph.vertices[delayed]) == "<Vertex delay (ZSet[str]) -> ZSet[str]>"


def query_graph(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    a_uppered = st.map(a, f=st.python(upper))
    joined = linear.join(
        a_uppered,
        b,
        on_left=st.Index.pick(A, lambda a: a.name),
        on_right=st.Index.pick(B, lambda b: b.name),
    )
    integrated = st.integrate(joined)
    return integrated


def test_a_graph_is_drawn(tmp_path: Path) -> None:
    st.write_png(st.compile(query_graph), tmp_path / "my-graph.png")
    assert (tmp_path / "my-graph.png").read_bytes().startswith(b"\x89PNG")


def test_the_query_of_the_drawn_graph_runs(step: Any) -> None:
    run = step(query_graph)
    (first,) = run(st.ZSetPython({A(x=1, name="bob"): 1}), st.ZSetPython({B(y=2, name="BOB"): 1}))
    pair = st.Pair(left=A(x=1, name="BOB"), right=B(y=2, name="BOB"))
    assert first == st.ZSetPython({pair: 1})
    assert run(None, None) == (first,)


def query_integrate(a: st.ZSet[str]) -> st.ZSet[str]:
    integrated = st.integrate(a)
    return integrated


def by_hand(a: st.ZSet[str]) -> st.ZSet[str]:
    """The document's definition of integrate, as a loop."""
    with st.feedback(st.ZSet[str]) as delayed:
        added = st.add(delayed, a)
        delayed.connect(st.delay(added))
    return added


@pytest.mark.parametrize("query", [query_integrate, by_hand])
@pytest.mark.parametrize("optimize", [True, False])
def test_integrate_adds_up(step: Any, query: Any, optimize: bool) -> None:
    run = step(query, optimize=optimize)
    assert run(st.ZSetPython({"a": 1})) == (st.ZSetPython({"a": 1}),)
    assert run(st.ZSetPython({"b": -1})) == (st.ZSetPython({"a": 1, "b": -1}),)
    assert run(st.ZSetPython({"a": 4})) == (st.ZSetPython({"a": 5, "b": -1}),)


@pytest.mark.parametrize("query", [query_integrate, by_hand])
def test_an_integral_is_stepped_as_the_document_does_it(query: Any) -> None:
    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    for change, total in (({"a": 1}, {"a": 1}), ({"b": -1}, {"a": 1, "b": -1})):
        (out,) = st.iteration(store, graph, (st.ZSetPython(change),))
        assert out == st.ZSetPython(total)
    (out,) = st.iteration(store, graph, (st.ZSetPython({"a": 4}),))
    assert out == st.ZSetPython({"a": 5, "b": -1})


def query_differentiate(a: st.ZSet[str]) -> st.ZSet[str]:
    differentiated = st.differentiate(a)
    return differentiated


def differentiate_by_hand(a: st.ZSet[str]) -> st.ZSet[str]:
    """The document's definition of differentiate."""
    delayed = st.delay(a)
    negged = st.neg(delayed)
    added = st.add(negged, a)
    return added


def test_differentiate_by_hand_becomes_the_librarys() -> None:
    library = st.compile(query_differentiate)
    assert st.compile(differentiate_by_hand) == library
    assert st.compile(differentiate_by_hand, optimize=False) != library


@pytest.mark.parametrize("query", [query_differentiate, differentiate_by_hand])
@pytest.mark.parametrize("optimize", [True, False])
def test_differentiate_takes_the_difference(step: Any, query: Any, optimize: bool) -> None:
    run = step(query, optimize=optimize)
    assert run(st.ZSetPython({"a": 1})) == (st.ZSetPython({"a": 1}),)
    assert run(st.ZSetPython({"a": 1, "b": -1})) == (st.ZSetPython({"b": -1}),)
    assert run(st.ZSetPython({"a": 5, "b": -1})) == (st.ZSetPython({"a": 4}),)


def query_dumb(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    a_integrated = st.integrate(a)
    b_integrated = st.integrate(b)
    joined = linear.join(
        a_integrated,
        b_integrated,
        on_left=st.Index.pick(A, lambda a: a.name),
        on_right=st.Index.pick(B, lambda b: b.name),
    )
    differentiated = st.differentiate(joined)
    return differentiated


def query_on_tables(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    joined = linear.join(
        a,
        b,
        on_left=st.Index.pick(A, lambda a: a.name),
        on_right=st.Index.pick(B, lambda b: b.name),
    )
    return joined


def query_efficient(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    return st.join(
        a,
        b,
        on_left=st.Index.pick(A, lambda a: a.name),
        on_right=st.Index.pick(B, lambda b: b.name),
    )


def join_lifted(
    l: st.ZSet[A],  # noqa: E741
    r: st.ZSet[B],
    *,
    on_left: st.Index[A, str],
    on_right: st.Index[B, str],
) -> st.ZSet[st.Pair[A, B]]:
    """The document's definition of the join that is incremental: Theorem 5.5."""
    l_integrated = linear.integrate_indexed(l, indexes=(on_left,))
    r_integrated = linear.integrate_delay_indexed(r, indexes=(on_right,))
    joined_1 = linear.join(l_integrated, r, on_left=on_left, on_right=on_right)
    joined_2 = linear.join(l, r_integrated, on_left=on_left, on_right=on_right)
    added = linear.add(joined_1, joined_2)
    return added


def query_by_hand(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    return join_lifted(
        a,
        b,
        on_left=st.Index.pick(A, lambda a: a.name),
        on_right=st.Index.pick(B, lambda b: b.name),
    )


@pytest.mark.parametrize(
    ("query", "optimize"),
    [
        (query_by_hand, False),
        (query_by_hand, True),
        (query_dumb, False),
        (query_dumb, True),
        (st.incrementalize(query_on_tables), False),
        (st.incrementalize(query_on_tables), True),
        (query_efficient, False),
        (query_efficient, True),
    ],
)
def test_the_join_gives_the_changes_of_its_result(step: Any, query: Any, optimize: bool) -> None:
    run = step(query, optimize=optimize)
    bob, jeff = A(x=1, name="Bob"), A(x=2, name="Jeff")
    three, four = B(y=3, name="Bob"), B(y=4, name="Bob")
    (out,) = run(st.ZSetPython({bob: 1, jeff: 1}), st.ZSetPython({three: 1}))
    assert out == st.ZSetPython({st.Pair(left=bob, right=three): 1})
    assert repr(out.to_python()) == text(
        """
<ZSetPython>
╒═══════════╤════════════════════╤════════════════════╕
│   _count_ │ left               │ right              │
╞═══════════╪════════════════════╪════════════════════╡
│         1 │ A(x=1, name='Bob') │ B(y=3, name='Bob') │
╘═══════════╧════════════════════╧════════════════════╛
"""
    )
    (out,) = run(st.ZSetPython(), st.ZSetPython({four: 2}))
    assert out == st.ZSetPython({st.Pair(left=bob, right=four): 2})
    assert repr(out.to_python()) == text(
        """
<ZSetPython>
╒═══════════╤════════════════════╤════════════════════╕
│   _count_ │ left               │ right              │
╞═══════════╪════════════════════╪════════════════════╡
│         2 │ A(x=1, name='Bob') │ B(y=4, name='Bob') │
╘═══════════╧════════════════════╧════════════════════╛
"""
    )
    (out,) = run(st.ZSetPython({bob: -1}), st.ZSetPython())
    assert out == st.ZSetPython(
        {st.Pair(left=bob, right=three): -1, st.Pair(left=bob, right=four): -2}
    )
    assert repr(out.to_python()) == text(
        """
<ZSetPython>
╒═══════════╤════════════════════╤════════════════════╕
│   _count_ │ left               │ right              │
╞═══════════╪════════════════════╪════════════════════╡
│        -1 │ A(x=1, name='Bob') │ B(y=3, name='Bob') │
├───────────┼────────────────────┼────────────────────┤
│        -2 │ A(x=1, name='Bob') │ B(y=4, name='Bob') │
╘═══════════╧════════════════════╧════════════════════╛
"""
    )


def test_the_dumb_join_becomes_the_efficient_one() -> None:
    efficient = st.compile(query_efficient)
    assert st.compile(query_dumb) == efficient
    assert st.compile(query_by_hand) == efficient
    assert st.compile(st.incrementalize(query_on_tables)) == efficient
    assert st.compile(query_dumb, optimize=False) != efficient


date_cache = st.Cache[A](name="people")


def query_cached(a: st.ZSet[A]) -> st.ZSet[A]:
    filtered = st.filter(a, f=lambda a: a.x > 1)
    _ = date_cache[filtered](lambda f: st.integrate_indexed(f, indexes=(lambda a: a.name,)))
    return filtered


@pytest.mark.usefixtures("spark")
def test_a_cache_is_read_from_the_store() -> None:
    graph = st.compile(query_cached)
    store = st.StoreMemory.from_graph(graph)
    assert date_cache.zset(store).empty()
    st.iteration(store, graph, (st.ZSetPython({A(x=1, name="a"): 1, A(x=2, name="b"): 3}),))
    st.iteration(store, graph, (st.ZSetPython({A(x=2, name="b"): -1}),))
    assert date_cache.zset(store) == st.ZSetPython({A(x=2, name="b"): 2})


def _zero_zset() -> st.ZSetPython[str]:
    return st.ZSetPython()


def _pick_zset(w: WithLen) -> st.ZSetPython[str]:
    return st.ZSetPython({w.value: 1})


def sum_by_length(a: st.ZSet[str]) -> st.ZSet[st.Pair[st.ZSetPython[str], int]]:
    with_len = st.map(a, f=st.python(measured))
    grouped = st.group_reduce_flatten(
        with_len,
        by=st.Index.pick(WithLen, lambda w: w.length),
        zero=_zero_zset,
        pick_value=st.python(_pick_zset),
    )
    return grouped


def sum_by_length_collected(a: st.ZSet[str]) -> st.ZSet[st.Pair[st.ZSetPython[str], int]]:
    with_len = st.map(a, f=st.python(measured))
    return st.group_reduce_flatten(
        with_len,
        by=lambda w: w.length,
        zero=_zero_zset,
        pick_value=st.agg.collect(lambda w: w.value),
    )


def sum_by_length_per_group(a: st.ZSet[str]) -> st.ZSet[st.Pair[st.ZSetPython[str], int]]:
    """As the document says that group_reduce_flatten is made."""
    with_len = st.map(a, f=st.python(measured))
    grouped = st.group(with_len, by=st.Index.pick(WithLen, lambda w: w.length))
    reduced = st.per_group[grouped](
        lambda g: st.reduce(g, zero=_zero_zset, pick_value=st.python(_pick_zset))
    )
    flattened = st.flatten(reduced)
    return flattened


INSERTED = """
<ZSetPython>
╒═══════════╤═══════════════════════════╤═════════╕
│   _count_ │ left                      │   right │
╞═══════════╪═══════════════════════════╪═════════╡
│         1 │ <ZSetPython>              │       3 │
│           │ ╒═══════════╤═══════════╕ │         │
│           │ │   _count_ │ _value_   │ │         │
│           │ ╞═══════════╪═══════════╡ │         │
│           │ │         1 │ bar       │ │         │
│           │ ├───────────┼───────────┤ │         │
│           │ │         1 │ foo       │ │         │
│           │ ╘═══════════╧═══════════╛ │         │
├───────────┼───────────────────────────┼─────────┤
│         1 │ <ZSetPython>              │       5 │
│           │ ╒═══════════╤═══════════╕ │         │
│           │ │   _count_ │ _value_   │ │         │
│           │ ╞═══════════╪═══════════╡ │         │
│           │ │         1 │ hullo     │ │         │
│           │ ╘═══════════╧═══════════╛ │         │
╘═══════════╧═══════════════════════════╧═════════╛
"""
REMOVED = """
<ZSetPython>
╒═══════════╤═══════════════════════════╤═════════╕
│   _count_ │ left                      │   right │
╞═══════════╪═══════════════════════════╪═════════╡
│         1 │ <ZSetPython>              │       3 │
│           │ ╒═══════════╤═══════════╕ │         │
│           │ │   _count_ │ _value_   │ │         │
│           │ ╞═══════════╪═══════════╡ │         │
│           │ │         1 │ bar       │ │         │
│           │ ╘═══════════╧═══════════╛ │         │
├───────────┼───────────────────────────┼─────────┤
│        -1 │ <ZSetPython>              │       3 │
│           │ ╒═══════════╤═══════════╕ │         │
│           │ │   _count_ │ _value_   │ │         │
│           │ ╞═══════════╪═══════════╡ │         │
│           │ │         1 │ bar       │ │         │
│           │ ├───────────┼───────────┤ │         │
│           │ │         1 │ foo       │ │         │
│           │ ╘═══════════╧═══════════╛ │         │
╘═══════════╧═══════════════════════════╧═════════╛
"""


by_length = pytest.mark.parametrize(
    "query", [sum_by_length, sum_by_length_collected, sum_by_length_per_group]
)


@by_length
def test_strings_are_grouped_by_their_length(query: Any) -> None:
    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    (action,) = st.actions(store, graph)
    out = action.insert("foo", "bar", "hullo")
    three, five = st.ZSetPython({"foo": 1, "bar": 1}), st.ZSetPython({"hullo": 1})
    assert out == st.ZSetPython({st.Pair(left=three, right=3): 1, st.Pair(left=five, right=5): 1})
    assert repr(out.to_python()) == text(INSERTED)
    out = action.remove("foo")
    assert out == st.ZSetPython(
        {st.Pair(left=three, right=3): -1, st.Pair(left=st.ZSetPython({"bar": 1}), right=3): 1}
    )
    assert repr(out.to_python()) == text(REMOVED)
    assert action.insert() == st.ZSetPython()


@by_length
def test_strings_are_grouped_also_as_spark_jobs(step: Any, query: Any) -> None:
    run = step(query)
    (out,) = run(st.ZSetPython({"foo": 1, "bar": 1, "hullo": 1}))
    assert repr(out.to_python()) == text(INSERTED)
    (out,) = run(st.ZSetPython({"foo": -1}))
    assert repr(out.to_python()) == text(REMOVED)


def test_python_functions_run_in_sparks_workers_too(spark: SparkSession) -> None:
    words = spark.createDataFrame([(w,) for w in ("foo", "bar", "hullo")], "_value_ string")
    graph = st.compile(sum_by_length)
    store = st.StoreMemory.from_graph(graph)
    (out,) = st.iteration(store, graph, (st.ZSetSpark.from_dataframe(words, str),))
    assert {p.right: len(p.left) for p, _ in out.iter()} == {3: 2, 5: 1}
