"""Pipelines whose query, or whose sinks, change: what the tables have, and what is read again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stepping_spark as st
from stepping_spark.pipeline import reporting


class Order(st.Data):
    id: int
    country: str
    cents: int


class Customer(st.Data):
    country: str
    name: str


def rows(*found: tuple[int, str, int]) -> pa.Table:
    names = ["id", "country", "cents"]
    return pa.table({n: [row[i] for row in found] for i, n in enumerate(names)})


def make(path: Path, table: pa.Table) -> None:
    deltalake.write_deltalake(
        str(path), table, configuration={"delta.enableChangeDataFeed": "true"}
    )


def content(path: Path) -> list[tuple[Any, ...]]:
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def by_country(lowest: int, more: str = "") -> Any:
    text = (
        f"SELECT country, sum(cents) AS cents{more} FROM orders WHERE cents > {lowest} GROUP BY 1"
    )
    return st.sql(text, orders=Order)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    make(tmp_path / "orders", rows((1, "de", 5), (2, "de", 10), (3, "fr", 7), (4, "fr", 1)))
    return tmp_path / "orders"


def pipeline_of(
    query: Any, orders: Path, *, evolve: bool = True, refresh: Sequence[str] = (), **into: Any
) -> st.Pipeline:
    place = orders.parent
    sinks = {view: st.DeltaTable(str(place / name), key=["country"]) for view, name in into.items()}
    return st.Pipeline(
        query,
        store=f"parquet:{place / 'state'}",
        orders=st.DeltaTable(str(orders)),
        into=sinks,
        evolve=evolve,
        refresh=refresh,
    )


def run(query: Any, orders: Path, **more: Any) -> st.Pipeline:
    with pipeline_of(query, orders, **more) as pipeline:
        pipeline.run()
    return pipeline


def test_a_changed_filter_changes_the_table(orders: Path) -> None:
    run({"sums": by_country(4)}, orders, sums="sums")
    assert content(orders.parent / "sums") == [("de", 15), ("fr", 7)]
    with pytest.raises(st.StoreMismatch):
        run({"sums": by_country(6)}, orders, evolve=False, sums="sums")
    run({"sums": by_country(6)}, orders, sums="sums")
    assert content(orders.parent / "sums") == [("de", 10), ("fr", 7)]
    run({"sums": by_country(6)}, orders, evolve=False, sums="sums")
    deltalake.write_deltalake(str(orders), rows((5, "it", 100)), mode="append")
    run({"sums": by_country(6)}, orders, evolve=False, sums="sums")
    assert content(orders.parent / "sums") == [("de", 10), ("fr", 7), ("it", 100)]


def of_country(*columns: str) -> dict[str, Any]:
    text = f"SELECT country, {', '.join(columns)} FROM orders GROUP BY country"
    return {"sums": st.sql(text, orders="id INT NOT NULL, country STRING, cents INT")}


def test_the_message_without_evolve_says_what_works(orders: Path) -> None:
    """Its flags, and what is to be done before."""
    run(of_country("sum(cents) AS n"), orders, sums="sums")
    number, more = of_country("count(*) AS n"), of_country("sum(cents) AS n", "max(cents) AS most")
    for evolve in (False, True):
        with pytest.raises(st.StoreMismatch, match=r"--evolve --refresh sums.*refresh=\['sums'\]"):
            run(number, orders, evolve=evolve, sums="sums")
    with pytest.raises(st.StoreMismatch, match=r"Give the view 'sums' another table"):
        run(more, orders, evolve=False, sums="sums")
    run(number, orders, refresh=["sums"], sums="sums")
    assert content(orders.parent / "sums") == [("de", 2), ("fr", 2)]
    run(more, orders, sums="others")
    assert content(orders.parent / "others") == [("de", 15, 10), ("fr", 8, 7)]


def test_what_is_refused_is_refused_before_an_input_is_read_again(
    orders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stepping_spark.pipeline")
    run(of_country("sum(cents) AS n"), orders, sums="sums")
    number = of_country("count(*) AS n")
    with pytest.raises(st.StoreMismatch, match="what view 'sums' was before is unknown"):
        run(number, orders, sums="sums")
    assert "read again: input orders" in caplog.text
    assert "input 'orders' is read again" not in caplog.text
    with pipeline_of(number, orders, sums="sums") as pipeline, pytest.raises(st.StoreMismatch) as e:
        pipeline.dry_run(count=True)
    assert "--refresh sums" in str(e.value)
    assert "The plan is:\npipeline, at step 1:" in str(e.value)
    run(number, orders, refresh=["sums"], sums="sums")
    assert "input 'orders' is read again" in caplog.text


def test_a_run_counts_the_steps_of_an_evolution(orders: Path) -> None:
    assert [run_again(orders, lowest) for lowest in (4, 6, 6)] == [1, 1, 0]


def run_again(orders: Path, lowest: int) -> int:
    with changed(orders, lowest) as pipeline:
        return pipeline.run()


def test_what_came_since_is_no_part_of_what_is_read_again(orders: Path) -> None:
    run({"sums": by_country(4)}, orders, sums="sums")
    deltalake.DeltaTable(str(orders)).delete("id = 2")
    deltalake.write_deltalake(str(orders), rows((5, "it", 100)), mode="append")
    run({"sums": by_country(0)}, orders, sums="sums")
    assert content(orders.parent / "sums") == [("de", 5), ("fr", 8), ("it", 100)]


def test_an_evolution_says_what_it_reads_and_fills_while_it_does(
    orders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run({"sums": by_country(4)}, orders, sums="sums")
    with caplog.at_level("INFO", logger="stepping_spark"):
        run({"sums": by_country(0)}, orders, sums="sums")
    said = [record.getMessage() for record in caplog.records]
    told = [
        "input 'orders' is read again: up to 0, 4 rows",
        "1 register to fill, and the changes of views",
        "filled: sum(cents) by country, 2 rows",
        "step 2: the state is that of the query",
        "step 2: 2 rows into",
    ]
    found = [next(i for i, line in enumerate(said) if line.startswith(part)) for part in told]
    assert found == sorted(found)


def test_the_line_of_progress_says_how_far_an_evolution_is(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run({"sums": by_country(4)}, orders, sums="sums")
    lines: list[str] = []

    class Line:
        def show(self, text: str, advance: int = 0) -> None:
            lines.append(text)

    monkeypatch.setattr(reporting, "bar_of", lambda *_, **__: nullcontext(Line()))
    with changed(orders, 0) as pipeline:
        pipeline.run(progress=True)
    assert lines == [
        "pipeline: input 'orders' is read again: up to 0, 4 rows",
        "pipeline: 1 register to fill, and the changes of views",
        "pipeline: step 2, behind: orders 0",
    ]


def test_a_sink_and_a_view_that_come_later_are_filled(orders: Path) -> None:
    run({"sums": by_country(0)}, orders, sums="sums")
    run({"sums": by_country(0), "large": by_country(6)}, orders, sums="sums", large="large")
    assert content(orders.parent / "large") == [("de", 10), ("fr", 7)]
    views = {"sums": by_country(0), "large": by_country(6)}
    place = orders.parent
    both = [st.DeltaTable(str(place / name), key=["country"]) for name in ("sums", "more")]
    deltalake.write_deltalake(str(orders), rows((5, "it", 100)), mode="append")
    with st.Pipeline(
        views,
        store=f"parquet:{place / 'state'}",
        orders=st.DeltaTable(str(orders)),
        into={"sums": both, "large": st.DeltaTable(str(place / "large"), key=["country"])},
        evolve=True,
    ) as pipeline:
        pipeline.run()
    assert content(place / "more") == content(place / "sums")
    assert content(place / "more") == [("de", 15), ("fr", 8), ("it", 100)]


def test_a_new_sink_without_evolve_says_what_would_fill_it(orders: Path) -> None:
    run({"sums": by_country(0)}, orders)
    with pytest.raises(st.SinkError, match="--evolve"):
        run({"sums": by_country(0)}, orders, evolve=False, sums="sums")
    run({"sums": by_country(0)}, orders, sums="sums")
    assert content(orders.parent / "sums") == [("de", 15), ("fr", 8)]


def test_a_view_with_other_columns_needs_another_table(orders: Path) -> None:
    run({"sums": by_country(0)}, orders, sums="sums")
    more = {"sums": by_country(0, ", count(*) AS n")}
    with pytest.raises(st.SteppingError, match="sums"):
        run(more, orders, sums="sums")
    run(more, orders, sums="sums 2")
    assert content(orders.parent / "sums 2") == [("de", 15, 2), ("fr", 8, 2)]


def test_a_table_that_was_removed_is_filled_again(orders: Path) -> None:
    run({"sums": by_country(0)}, orders, sums="sums")
    deltalake.write_deltalake(str(orders), rows((5, "it", 100)), mode="append")
    run({"sums": by_country(0)}, orders, evolve=False, sums="sums")
    shutil.rmtree(orders.parent / "sums")
    run({"sums": by_country(0)}, orders, sums="sums")
    assert content(orders.parent / "sums") == [("de", 15), ("fr", 8), ("it", 100)]


def test_the_dry_run_says_what_a_run_does(orders: Path) -> None:
    run({"sums": by_country(0)}, orders, sums="sums")
    place = orders.parent
    changed = st.Pipeline(
        {"sums": by_country(6)},
        store=f"parquet:{place / 'state'}",
        orders=st.DeltaTable(str(orders)),
        into={"sums": [st.DeltaTable(str(place / n), key=["country"]) for n in ("sums", "more")]},
        evolve=True,
    )
    found = changed.dry_run()
    assert found.evolution is not None
    assert found.evolution.read_again == ("orders",)
    assert found.evolution.views == {"sums": "changes"}
    assert [sink for _, sink in found.filled] == [repr(st.DeltaTable(str(place / "more")))]
    for said in ("read again: input orders", "view sums: changes", "all rows of sums go into"):
        assert said in str(found)
    assert content(place / "sums") == [("de", 15), ("fr", 8)]
    with changed:
        changed.run()
    assert content(place / "more") == content(place / "sums") == [("de", 10), ("fr", 7)]
    assert changed.dry_run().evolution is None


def changed(orders: Path, lowest: int) -> st.Pipeline:
    """A pipeline with another constant, which has not run."""
    return st.Pipeline(
        {"sums": by_country(lowest)},
        store=f"parquet:{orders.parent / 'state'}",
        orders=st.DeltaTable(str(orders)),
        into={"sums": st.DeltaTable(str(orders.parent / "sums"), key=["country"])},
        evolve=True,
    )


def test_a_dry_run_that_counts_says_how_many_rows_leave_and_come(orders: Path) -> None:
    run({"sums": by_country(4)}, orders, sums="sums")
    deltalake.write_deltalake(str(orders), rows((5, "it", 100)), mode="append")
    found = changed(orders, 0).dry_run(count=True)
    assert found.evolution is not None
    assert (found.evolution.rows_again, found.evolution.counts) == ({"orders": 4}, {"sums": (1, 1)})
    assert "read again: input orders, 4 rows" in str(found)
    assert "view sums: changes, 1 row leaves and 1 comes, from" in str(found)
    assert content(orders.parent / "sums") == [("de", 15), ("fr", 7)]
    assert changed(orders, 0).dry_run().evolution is not None  # nothing has happened
    with changed(orders, 0) as pipeline:
        pipeline.run()
    assert content(orders.parent / "sums") == [("de", 15), ("fr", 8), ("it", 100)]
    assert changed(orders, 0).dry_run(count=True).evolution is None


@pytest.mark.parametrize("where", ["memory", "postgres"])
def test_a_dry_run_counts_in_other_stores(request: pytest.FixtureRequest, where: str) -> None:
    kept: Any = where
    if where == "postgres":
        kept = f"{request.getfixturevalue('postgres').url}?schema=s{uuid4().hex}"

    def of(lowest: int) -> Any:
        def large(numbers: st.ZSet[int]) -> st.ZSet[int]:
            return st.filter(st.distinct(numbers), f=lambda n: n >= lowest)

        return large

    if where == "memory":
        kept = st.StoreMemory.from_graph(st.compile(of(2)))
    items = [(1, st.ZSetPython({1: 1, 2: 1, 3: 2}))]

    def pipeline(lowest: int, **more: Any) -> st.Pipeline:
        return st.Pipeline(of(lowest), store=kept, numbers=items, into=lambda *_: None, **more)

    with pipeline(2) as before:
        before.run()
    with pipeline(3, evolve=True) as after:
        found = after.dry_run(count=True)
        assert found.evolution is not None
        assert found.evolution.counts == {"large": (1, 0)}
        assert "view large: changes, 1 row leaves and 0 come, from" in str(found)
        with pytest.raises(st.InputError, match=r"write evolve=True"):
            pipeline(3).dry_run(count=True)


def test_a_changed_query_without_evolve_is_refused_with_the_plan(orders: Path) -> None:
    run({"sums": by_country(0)}, orders, sums="sums")
    with pytest.raises(
        st.StoreMismatch, match=r"(?s)^pipeline has changed\n.*view sums: changes"
    ) as e:
        run({"sums": by_country(6)}, orders, evolve=False, sums="sums")
    assert "register" not in str(e.value)


def people(people: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(people)


def persons(persons: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(persons)


def test_an_input_with_another_name_is_another_input(tmp_path: Path) -> None:
    """Its source is read from the beginning; without evolve, that would double its rows."""
    items = [(1, st.ZSetPython({"ann": 1})), (2, st.ZSetPython({"bob": 1}))]
    view: Any = st.ZSetPython()

    def seen(_: int, change: Any) -> None:
        nonlocal view
        view += change.to_python()

    def run(query: Any, *, evolve: bool, **sources: Any) -> None:
        place = f"parquet:{tmp_path / 'state'}"
        with st.Pipeline(
            {"v": query}, store=place, into={"v": seen}, evolve=evolve, **sources
        ) as p:
            p.run()

    run(people, evolve=False, people=items)
    assert view == st.ZSetPython({"ann": 1, "bob": 1})
    with pytest.raises(st.StoreMismatch, match="has read the input 'people'"):
        run(persons, evolve=False, persons=items[1:])
    run(persons, evolve=True, persons=items[1:])
    assert view == st.ZSetPython({"bob": 1})


def test_an_input_that_is_said_to_be_renamed_is_read_on(orders: Path) -> None:
    """Its rows are not read again, also those that another constant needs are."""

    def query(name: str, lowest: int) -> Any:
        text = f"SELECT country, sum(cents) AS cents FROM {name} WHERE cents > {lowest} GROUP BY 1"
        tables: dict[str, Any] = {name: Order}
        return {"sums": st.sql(text, **tables)}

    place = orders.parent

    def run_renamed(name: str, lowest: int, **more: Any) -> st.Pipeline:
        with st.Pipeline(
            query(name, lowest),
            store=f"parquet:{place / 'state'}",
            sources={name: st.DeltaTable(str(orders))},
            into=st.DeltaTable(str(place / "sums"), key=["country"]),
            **more,
        ) as pipeline:
            pipeline.run()
        return pipeline

    renamed = {"orders": "sales"}
    run_renamed("orders", 4)
    deltalake.write_deltalake(str(orders), rows((5, "it", 100)), mode="append")
    with pytest.raises(st.StoreMismatch, match="--renamed orders=sales"):
        run_renamed("sales", 4)
    with pytest.raises(st.InputError, match="write evolve=True"):
        run_renamed("sales", 4, renamed=renamed)
    with pytest.raises(st.InputError, match="'order' is 'sales' now, and the state has neither"):
        run_renamed("sales", 4, evolve=True, renamed={"order": "sales"})
    with pytest.raises(st.InputError, match="there is no input 'sold'"):
        run_renamed("sales", 4, evolve=True, renamed={"orders": "sold"})
    run_renamed("sales", 4, evolve=True, renamed=renamed)
    assert content(place / "sums") == [("de", 15), ("fr", 7), ("it", 100)]
    run_renamed("sales", 4)
    run_renamed("sales", 4, evolve=True, renamed=renamed)  # it is renamed already
    deltalake.write_deltalake(str(orders), rows((6, "it", 1), (7, "fr", 9)), mode="append")
    run_renamed("orders", 0, evolve=True, renamed={"sales": "orders"})  # two changes at once
    assert content(place / "sums") == [("de", 15), ("fr", 17), ("it", 101)]


def test_the_dry_run_says_that_an_input_is_renamed(orders: Path) -> None:
    run({"sums": by_country(0)}, orders, sums="sums")
    text = "SELECT country, sum(cents) AS cents FROM sales WHERE cents > 0 GROUP BY 1"
    with st.Pipeline(
        {"sums": st.sql(text, sales=Order)},
        store=f"parquet:{orders.parent / 'state'}",
        sales=st.DeltaTable(str(orders)),
        into={"sums": st.DeltaTable(str(orders.parent / "sums"), key=["country"])},
        evolve=True,
        renamed={"orders": "sales"},
    ) as pipeline:
        found = pipeline.dry_run()
    assert found.evolution is not None
    assert "renamed: input orders is sales now" in str(found)
    assert (found.evolution.read_again, found.evolution.filled) == ((), {})


def united(a: st.ZSet[str], b: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(st.add(a, b))


def alone(b: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(b)


@pytest.mark.parametrize(
    ("query", "renamed", "message"),
    [
        (alone, {"a": "b"}, "the state has both, each with rows of its own"),
        (united, {"a": "b", "b": "a"}, "'a' is an input of the query too"),
        (united, {"a": "b"}, "'a' is an input of the query too"),
        (alone, {"x": "b", "y": "b"}, "another input is said to be 'b' now, too"),
    ],
)
def test_a_rename_that_would_mix_inputs_is_refused(
    tmp_path: Path, query: Any, renamed: dict[str, str], message: str
) -> None:
    """Nothing is read, and the state goes on with the query that made it."""
    items = {
        "a": [(1, st.ZSetPython({"ann": 1}))],
        "b": [(1, st.ZSetPython({"bob": 1})), (2, st.ZSetPython({"bob": -1}))],
    }
    seen: list[Any] = []

    def run(query: Any, *names: str, **more: Any) -> None:
        with st.Pipeline(
            {"v": query},
            store=f"parquet:{tmp_path / 'state'}",
            sources={name: items[name] for name in names},
            into={"v": lambda _, change: seen.append(change.to_python())},
            **more,
        ) as pipeline:
            pipeline.run(max_steps=1)

    run(united, "a", "b")
    names = ("a", "b") if query is united else ("b",)
    with pytest.raises(st.InputError, match=message):
        run(query, *names, evolve=True, renamed=renamed)
    run(united, "a", "b")
    assert sum(seen[2:], seen[0]) == st.ZSetPython({"ann": 1})


def test_a_state_that_names_no_inputs_follows_no_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version before this one made it: nobody can tell which input is which."""
    graph = st.compile(people)
    store = st.StoreMemory.from_graph(graph)
    st.iteration(store, graph, (st.ZSetPython({"ann": 1}),))
    monkeypatch.setattr(st.StoreMemory, "last_circuit", lambda _: None)
    with pytest.raises(st.StoreMismatch, match="run the query before, with its own names"):
        st.Stepper(st.compile(persons), store, evolve=True, renamed={"people": "persons"})


def test_a_stepper_refuses_a_rename_that_would_mix_inputs() -> None:
    graph = st.compile(united)
    store = st.StoreMemory.from_graph(graph)
    st.iteration(store, graph, (st.ZSetPython({"ann": 1}), st.ZSetPython({"bob": 1})))
    with pytest.raises(st.InputError, match="the state has both"):
        st.Stepper(st.compile(alone), store, evolve=True, renamed={"a": "b"})


@pytest.mark.parametrize("by_class", [False, True], ids=["from the table", "by a class"])
def test_a_column_that_is_renamed_keeps_its_name_in_a_text(
    tmp_path: Path, *, by_class: bool
) -> None:
    """The source says what the column is called now, and the state is as it was."""

    class Person(st.Data):
        id: int
        age: int | None

    tables: dict[str, Any] = {"people": Person} if by_class else {}
    text = "SELECT age, count(*) AS n FROM people GROUP BY age"
    (tmp_path / "people").mkdir()

    def run_with(file: str, columns: dict[str, str], **people: list[int]) -> st.Pipeline:
        pq.write_table(pa.table(people), tmp_path / "people" / f"{file}.parquet")
        with st.Pipeline(
            {"ages": st.sql(text, **tables)},
            store=f"parquet:{tmp_path / 'state'}",
            people=st.Files(str(tmp_path / "people"), columns=columns),
            into={"ages": st.DeltaTable(str(tmp_path / "ages"), key="age")},
        ) as pipeline:
            assert pipeline.run() == 1
        return pipeline

    run_with("1", {}, id=[1, 2], age=[18, 19])
    run_with("2", {"age": "years"}, id=[3], years=[19])
    table = st.Files(str(tmp_path / "people"), columns={"years": "age"})
    assert list(st.row_class(table).__row_fields__()) == ["id", "years"]
    found = deltalake.DeltaTable(str(tmp_path / "ages")).to_pyarrow_table().to_pylist()
    assert sorted((row["age"], row["n"]) for row in found) == [(18, 1), (19, 2)]
