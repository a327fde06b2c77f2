"""Pipelines: sources and sinks of plain Python, exactly once, stopped and started again."""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

import stepping_spark as st
from stepping_spark.base.errors import (
    CompileError,
    InputError,
    SinkError,
    SourceError,
    StepError,
    StoreMismatch,
)
from stepping_spark.pipeline import rounds
from stepping_spark.pipeline.reporting import serve
from stepping_spark.pipeline.rounds import seconds_of
from stepping_spark.rows.atoms import DATE
from tests.cases import Order, User, Z
from tests.pipeline.shop import Shop, Total, View, names, numbered, totals


def history(steps: int, seed: int = 1) -> tuple[Shop, list[Any], list[Any]]:
    """A shop, and the changes of its orders and of its users."""
    shop = Shop(seed)
    changes = [shop.change() for _ in range(steps)]
    return shop, numbered(o for o, _ in changes), numbered(u for _, u in changes)


def test_a_pipeline_gives_what_the_plain_query_gives_and_each_item_is_a_step() -> None:
    shop, orders, users = history(12)
    view = View()
    pipeline = st.Pipeline(
        totals, store="memory", orders=orders, users=users, into={"totals": view}
    )
    assert pipeline.run() == 12
    assert view.rows == Z(dict.fromkeys(shop.totals, 1))
    assert pipeline.run() == 0


def test_a_list_that_grows_gives_what_is_new() -> None:
    items = [(1, Z({1: 1}))]

    def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(numbers)

    view = View()
    pipeline = st.Pipeline(query, store="memory", numbers=items, into={"query": view})
    assert pipeline.run() == 1
    items.append((4, Z({2: 1})))
    assert (pipeline.lag(), pipeline.run(), pipeline.lag()) == ({"numbers": 1}, 1, {"numbers": 0})
    assert view.rows == Z({1: 1, 2: 1})


def test_several_queries_share_inputs_and_read_each_others_views() -> None:
    def large(totals: st.ZSet[Total]) -> st.ZSet[str]:
        return st.map(st.filter(totals, f=lambda t: t.total > 8), f=lambda t: t.name)

    shop, orders, users = history(10)
    views = {name: View() for name in ("large", "totals", "names")}
    pipeline = st.Pipeline(
        {"large": large, "totals": totals, "names": names},
        store="memory",
        orders=orders,
        users=users,
        into=views,
    )
    pipeline.run()
    assert views["totals"].rows == Z(dict.fromkeys(shop.totals, 1))
    assert views["large"].rows == Z(dict.fromkeys((t.name for t in shop.totals if t.total > 8), 1))
    assert views["names"].rows == Z(dict.fromkeys((u.name for u in shop.users.values()), 1))
    assert pipeline.views == ("large", "totals", "names")


def test_a_query_that_gives_several_views_names_them_by_its_variables() -> None:
    def both(orders: st.ZSet[Order]) -> tuple[st.ZSet[int], st.ZSet[int]]:
        ids = st.map(orders, f=lambda o: o.id)
        who = st.map(orders, f=lambda o: o.user)
        return ids, who

    view = View()
    st.Pipeline(
        both,
        store="memory",
        orders=[(1, Z({Order(id=1, user=7, amount=0): 1}))],
        into={"who": view},
    ).run()
    assert view.rows == Z({7: 1})


def test_arrow_tables_are_changes_too_and_columns_that_the_rows_do_not_have_are_left() -> None:
    table = pa.table({"name": ["a", "b"], "ID": [1, 2], "more": [0.0, 0.0], "_count_": [1, -1]})
    view = View()
    st.Pipeline(names, store="memory", users=[(1, table)], into={"names": view}).run()
    assert view.rows == Z({"a": 1})


# -- exactly once


class Broken(View):
    """A sink that fails once, before or after it has written."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when

    def write(self, step: int, change: st.ZSet[Any]) -> None:
        if self.when == "before" and step == 3:
            self.when = ""
            raise SinkError("the disk is full")
        super().write(step, change)
        if self.when == "after" and step == 3:
            self.when = ""
            raise SinkError("the answer was lost")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("again", ["the same object", "another process"])
def test_a_sink_that_failed_gets_the_step_once_when_the_pipeline_goes_on(
    tmp_path: Path, when: str, again: str
) -> None:
    shop, orders, users = history(6)
    broken, whole = Broken(when), View()

    def pipeline() -> st.Pipeline:
        into = {"totals": broken, "again": whole}
        queries = {"totals": totals, "again": totals}
        return st.Pipeline(
            queries, store=f"parquet:{tmp_path / 's'}", orders=orders, users=users, into=into
        )

    first = pipeline()
    with pytest.raises(SinkError):
        first.run()
    second = first
    if again == "another process":
        first.close()
        second = pipeline()
    with second:
        assert second.run() == 3
    for view in (broken, whole):
        assert view.rows == Z(dict.fromkeys(shop.totals, 1))
        assert len(set(view.steps)) == len(view.steps)


def test_a_step_that_fails_is_taken_again_when_it_is_mended(tmp_path: Path) -> None:
    items: list[Any] = [(1, Z({1: 1})), (2, Z({"text": 1})), (3, Z({3: 1}))]

    def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(numbers)

    view = View()
    with st.Pipeline(
        query, store=f"parquet:{tmp_path / 's'}", numbers=items, into={"query": view}
    ) as pipeline:
        with pytest.raises((InputError, StepError), match="numbers"):
            pipeline.run()
        items[1] = (2, Z({2: 1}))
        assert pipeline.run() == 2
    assert view.rows == Z({1: 1, 2: 1, 3: 1})


def test_a_function_is_given_the_last_step_again_and_no_other(tmp_path: Path) -> None:
    users = numbered(Z({User(id=i, name=f"n{i}"): 1}) for i in range(3))
    told: list[tuple[int, object]] = []
    for seen, given in (([1, 2], 2), ([2, 3], 3), ([3], 3)):
        told.clear()
        with st.Pipeline(
            names,
            store=f"parquet:{tmp_path / 's'}",
            users=users[:given],
            into={"names": lambda step, change: told.append((step, change))},
        ) as pipeline:
            pipeline.run()
            pipeline.run()
        assert told == [(n, Z({f"n{n - 1}": 1})) for n in seen]


def test_a_sink_of_another_state_or_of_an_older_copy_is_refused(tmp_path: Path) -> None:
    _, orders, users = history(6)

    def run(view: View, state: str, steps: int | None = None) -> None:
        with st.Pipeline(
            totals,
            store=f"parquet:{tmp_path / state}",
            orders=orders,
            users=users,
            into={"totals": view},
        ) as pipeline:
            pipeline.run(max_steps=steps)

    view = View()
    run(view, "a", 4)
    older = View()
    older.rows, older.steps = view.rows, view.steps[:-2]
    with pytest.raises(SinkError, match="one of the two is an older copy"):
        run(older, "a")
    with pytest.raises(
        SinkError,
        match=r"sink .*View.* has no step of this pipeline.*at step 4.*new store",
    ):
        run(View(), "a")
    run(view, "a")
    assert view.steps[-1] == 6


def test_a_view_may_go_into_several_sinks(tmp_path: Path) -> None:
    users = numbered(Z({User(id=i, name=f"n{i}"): 1}) for i in range(3))
    one, two = View(), View()
    for steps in (1, 2):
        with st.Pipeline(
            names, store=f"parquet:{tmp_path / 's'}", users=users, into={"names": [one, two]}
        ) as pipeline:
            pipeline.run(max_steps=steps)
    assert one.rows == two.rows == Z({"n0": 1, "n1": 1, "n2": 1})
    assert one.steps == two.steps == [1, 2, 3]


def test_a_single_view_needs_no_name_for_its_sinks() -> None:
    _, orders, users = history(2)
    one, other = View(), View()
    st.Pipeline(totals, store="memory", orders=orders, users=users, into=one).run()
    st.Pipeline(totals, store="memory", orders=orders, users=users, into=[other]).run()
    assert one.rows == other.rows != Z({})


def test_of_several_views_the_error_says_how_to_name_them() -> None:
    with pytest.raises(InputError, match=r"without the names.*views are a, b: write into=\{'a': …"):
        st.Pipeline({"a": totals, "b": totals}, store="memory", orders=[], users=[], into=print)


def test_a_sink_that_is_added_later_is_refused(tmp_path: Path) -> None:
    users = numbered(Z({User(id=i, name=f"n{i}"): 1}) for i in range(3))
    place = f"parquet:{tmp_path / 's'}"
    with st.Pipeline(names, store=place, users=users) as pipeline:
        pipeline.run(max_steps=1)
    with (
        pytest.raises(SinkError, match=r"none of them went to this sink, .*, which is new"),
        st.Pipeline(names, store=place, users=users, into={"names": View()}) as pipeline,
    ):
        pipeline.run()


def test_a_dry_run_looks_at_a_sink_of_ones_own_that_can_be_looked_at(tmp_path: Path) -> None:
    class Looked(View):
        def look(self, columns: object, owner: str) -> int:
            assert self.owner in (None, owner)
            return self.last_step()

    users = numbered(Z({User(id=i, name=f"n{i}"): 1}) for i in range(3))
    place = f"parquet:{tmp_path / 's'}"
    view = Looked()
    with st.Pipeline(names, store=place, users=users, into={"names": view}) as pipeline:
        pipeline.dry_run()
        assert view.owner is None
        pipeline.run()
    with st.Pipeline(names, store=place, users=users, into={"names": view}) as pipeline:
        assert pipeline.dry_run().step == 3
    with (
        pytest.raises(SinkError, match="has no step of this pipeline"),
        st.Pipeline(names, store=place, users=users, into={"names": Looked()}) as pipeline,
    ):
        pipeline.dry_run()


def test_a_store_that_was_stepped_by_hand_is_refused(tmp_path: Path) -> None:
    graph = st.compile(names)
    with st.StoreParquet.from_graph(graph, tmp_path / "s", create=True) as store:
        st.iteration(store, graph, (Z({User(id=1, name="a"): 1}),))
    with pytest.raises(StoreMismatch, match="no pipeline took"):
        st.Pipeline(names, store=f"parquet:{tmp_path / 's'}", users=[]).run()


def test_a_query_that_has_changed_is_refused_where_a_table_has_rows_of_the_old_one(
    tmp_path: Path,
) -> None:
    users = [(1, Z({User(id=1, name="a"): 1}))]
    view = View()
    place = f"parquet:{tmp_path / 's'}"
    with st.Pipeline(names, store=place, users=users, into={"names": view}) as pipeline:
        pipeline.run()

    def longer(users: st.ZSet[User]) -> st.ZSet[str]:
        return st.filter(st.distinct(st.map(users, f=lambda u: u.name)), f=lambda n: n != "a")

    with (
        pytest.raises(StoreMismatch, match="rows of another query"),
        st.Pipeline({"names": longer}, store=place, users=users, into={"names": view}) as pipeline,
    ):
        pipeline.run()


# -- stopping and following


def endless(pause: float = 0.0) -> Iterator[tuple[int, Any]]:
    for i in range(1, 10**9):
        time.sleep(pause)
        yield i, Z({User(id=i, name=f"n{i}"): 1})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_between_two_steps_within_a_second(number: int, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    view = View()
    with st.Pipeline(
        names, store=f"parquet:{tmp_path / 's'}", users=endless(), into={"names": view}
    ) as pipeline:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
        asked = time.monotonic() + 0.3
        timer.start()
        steps = pipeline.run(every="10s")
        assert time.monotonic() - asked < 1
        assert steps == len(view.steps) == pipeline.stepper.store.last_step()
        assert pipeline.stopped_by == number
    assert signal.getsignal(number) is before


def test_a_run_that_waits_for_the_next_round_is_stopped_at_once() -> None:
    pipeline = st.Pipeline(names, store="memory", users=[])
    threading.Timer(0.2, pipeline.stop).start()
    begun = time.monotonic()
    assert pipeline.run(every="1h") == 0
    assert time.monotonic() - begun < 2


def test_a_run_follows_what_comes_later() -> None:
    items: list[Any] = []

    def grow() -> None:
        for i in (1, 2, 3):
            time.sleep(0.05)
            items.append((i, Z({User(id=i, name=f"n{i}"): 1})))

    view = View()
    pipeline = st.Pipeline(names, store="memory", users=items, into={"names": view})
    thread = threading.Thread(target=grow)
    thread.start()
    assert pipeline.run(every="20ms", max_steps=3) == 3
    thread.join()
    assert view.rows == Z({"n1": 1, "n2": 1, "n3": 1})


def test_a_step_logs_a_line_with_versions_rows_and_milliseconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, orders, users = history(2)
    with caplog.at_level(logging.INFO, "stepping_spark.pipeline"):
        st.Pipeline(totals, store="memory", orders=orders, users=users).run()
    lines = [r.getMessage() for r in caplog.records if r.name == "stepping_spark.pipeline"]
    assert len(lines) == 2
    assert lines[1].startswith("step 2: orders 1 -> 2, users 1 -> 2; rows in ")
    assert ", no sinks; " in lines[1]
    assert lines[1].endswith(" ms")


@pytest.mark.parametrize("profile", [False, True])
def test_with_profile_a_pipelines_report_has_the_size_of_the_state_at_each_step(
    profile: bool,
) -> None:
    _, orders, users = history(2)
    pipeline = st.Pipeline(totals, store="memory", orders=orders, users=users, profile=profile)
    pipeline.run()
    sizes = pipeline.report().numbers["steps"]["bytes"]
    assert [size is not None for size in sizes] == [profile, profile]


def test_a_dry_run_says_for_each_view_what_a_step_reads() -> None:
    def reached(edges: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
        return st.transitive_closure(edges)

    made = st.Pipeline(
        {"totals": totals, "names": names, "reached": reached},
        store="memory",
        orders=[],
        users=[],
        edges=[],
    )
    told = dict(made.dry_run().views)
    assert told["totals"].startswith("reads the change of orders, users, and ")
    assert told["names"] == "reads the change of users, and 1 register"
    assert told["reached"] == "reads the change of edges, and 4 registers"


def test_rows_go_by_themselves_where_each_round_is_a_step_with_its_time() -> None:
    def recent(orders: st.ZSet[Order]) -> st.ZSet[Order]:
        return st.temporal_filter(orders, lower=lambda o: o.id, upper=lambda o: o.id + 2)

    clock = iter(range(1, 10))
    view = View()
    order = Order(id=1, user=0, amount=0)
    pipeline = st.Pipeline(
        recent,
        store="memory",
        now=lambda: next(clock),
        orders=[(1, Z({order: 1}))],
        into={"recent": view},
    )
    assert pipeline.run(max_steps=1) == 1
    assert view.rows == Z({order: 1})
    pipeline.run(every="1ms", max_steps=3)
    assert view.rows == Z({})


# -- messages


class Named:
    """A function of one argument with a name of any length."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __call__(self, change: object) -> None:
        """Lack the argument for the step."""


def test_a_source_that_no_view_reads_is_named() -> None:
    with pytest.raises(InputError, match="has no inputs, and sources are given for t; leave out t"):
        st.Pipeline(st.sql("SELECT 1 AS x"), store="memory", sources={"t": []})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"users": []}, InputError, "inputs orders, users"),
        ({"orders": [], "users": [], "other": []}, InputError, "sources are given for orders"),
        ({"orders": [], "users": 7}, InputError, "input 'users' has 7 .int. as its source"),
        ({"orders": [], "users": [], "into": {"no": print}}, InputError, "the views are totals"),
        (
            {"orders": [], "users": [], "into": {"totals": 7}},
            InputError,
            r"\['totals'\] is 7 .int.",
        ),
        (
            {"orders": [], "users": [], "into": {"totals": lambda change: None}},
            InputError,
            r"\['totals'\] is .*\(change\), which cannot be called with \(step, change\): too many",
        ),
        (
            {"orders": [], "users": [], "into": {"totals": Named("n" * 400)}},
            InputError,
            rf"\['totals'\] is {'n' * 300}…\(change.*\).*, which cannot",
        ),
        (
            {"orders": [], "users": [], "into": {"totals": Named("of\nmany lines")}},
            InputError,
            r"\['totals'\] is Named\(change.*\).*, which cannot",
        ),
        ({"orders": [], "users": [], "max_rows": 0}, InputError, "max_rows=0"),
        ({"orders": [], "users": [], "store": "postgres:x"}, InputError, "a store in Postgres is"),
        (
            {"orders": [], "users": [], "store": "parket:state"},
            InputError,
            "'parket' is not a kind",
        ),
        ({"orders": [], "users": [], "store": "Memory"}, InputError, "write memory, parquet:PATH"),
    ],
)
def test_what_cannot_be_is_refused_when_the_pipeline_is_made(
    given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        st.Pipeline(totals, **{"store": "memory", **given})


def test_items_without_a_position_and_times_that_are_none_are_refused() -> None:
    with pytest.raises(SourceError, match="number the changes"):
        st.Pipeline(names, store="memory", users=[Z({User(id=1, name="a"): 1})]).run()  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"write \"10s\""):
        st.Pipeline(names, store="memory", users=[]).run(every="soon")
    with pytest.raises(InputError, match="every='0s' is not a time above 0"):
        st.Pipeline(names, store="memory", users=[]).run(every="0s")


@pytest.mark.parametrize(
    ("every", "seconds"),
    [("10", 10), (10, 10), ("0.5", 0.5), ("5m", 300), ("5 min", 300), ("500ms", 0.5), ("1h", 3600)],
)
def test_a_time_to_wait_is_a_number_of_seconds_or_has_a_unit(
    every: str | float, seconds: float
) -> None:
    assert seconds_of(every) == seconds


@pytest.mark.parametrize("of", [list, iter], ids=["list", "iterator"])
def test_a_position_that_does_not_rise_is_an_error_and_loses_nothing(of: Any) -> None:
    users = [(at, Z({User(id=i, name=f"n{i}"): 1})) for i, at in enumerate((1, 2, 2, 3))]
    running = st.Pipeline(names, store="memory", users=of(users))
    with pytest.raises(SourceError, match="position 2 comes after position 2; each position is"):
        running.run()
    assert running.stepper.store.last_step() == 2


def test_views_that_read_each_other_and_inputs_of_two_types_are_refused() -> None:
    def a(b: st.ZSet[int]) -> st.ZSet[int]:
        return b

    def b(a: st.ZSet[int]) -> st.ZSet[int]:
        return a

    def other(users: st.ZSet[Order]) -> st.ZSet[Order]:
        return users

    with pytest.raises(CompileError, match="in a circle: a, b"):
        st.Pipeline({"a": a, "b": b}, store="memory")
    with pytest.raises(CompileError, match="share an input by its name"):
        st.Pipeline({"names": names, "other": other}, store="memory", users=[])


def test_a_parameter_that_is_neither_annotated_nor_a_view_is_said_at_the_users_line() -> None:
    def bare(orders) -> st.ZSet[Order]:  # type: ignore[no-untyped-def]
        return orders  # type: ignore[no-any-return]

    def misspelt(namse: st.ZSet[str]) -> st.ZSet[str]:
        return namse

    with pytest.raises(
        CompileError,
        match=r"^test_pipeline\.py:\d+, .*'orders' of query 'bare' has no annotation.*bare, names",
    ):
        st.Pipeline({"bare": bare, "names": names}, store="memory", users=[])
    with pytest.raises(InputError, match="where a view is meant, name one of misspelt, names"):
        st.Pipeline({"misspelt": misspelt, "names": names}, store="memory", users=[])


def test_inputs_of_several_queries_have_the_line_of_the_pipeline() -> None:
    made = st.Pipeline({"names": names}, store="memory", users=[])
    assert "views.py" not in str(st.explain(made.graph))


def test_a_view_that_is_a_number_needs_a_function() -> None:
    def total(numbers: st.ZSet[int]) -> int:
        return st.make_scalar(numbers)

    numbers = [(1, Z({7: 1}))]
    with pytest.raises(InputError, match="a table has rows"):
        st.Pipeline(total, store="memory", numbers=numbers, into={"total": View()})
    seen: list[object] = []
    into = {"total": lambda step, change: seen.append((step, change))}
    assert st.Pipeline(total, store="memory", numbers=numbers, into=into).run() == 1
    assert seen == [(1, 7)]


# -- metrics


def test_metrics_have_steps_rows_and_how_far_the_views_are_behind() -> None:
    users = numbered(Z({User(id=i, name=f"n{i}"): 1}) for i in range(5))
    pipeline = st.Pipeline(names, store="memory", users=users, into={"names": View()})
    registry = CollectorRegistry()
    registry.register(pipeline.collector())
    pipeline.run(max_steps=3)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"stepping_spark_{name}", {"pipeline": "names", **labels})

    assert [value(n) for n in ("steps_total", "rows_in_total", "rows_out_total")] == [3, 3, 3]
    assert (value("last_step"), value("lag", source="users")) == (3, 2)
    assert 'stepping_spark_lag{pipeline="names",source="users"} 2.0' in pipeline.metrics()


def test_a_progress_line_says_the_step_and_how_far_the_views_are_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    users = numbered(Z({User(id=i, name=f"n{i}"): 1}) for i in range(5))
    st.Pipeline(names, store="memory", users=users).run(max_steps=2, progress=True)
    assert "names: step 2, behind: users 3" in capsys.readouterr().out


def test_metrics_are_served_at_a_port_of_this_machine() -> None:
    users = [(1, Z({User(id=1, name="a"): 1}))]
    pipeline = st.Pipeline(names, store="memory", users=users)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    end = serve(pipeline.collector(), port)
    try:
        pipeline.run()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'stepping_spark_steps_total{pipeline="names"} 1.0' in answer.read()
    finally:
        end()


def test_a_view_of_the_time_is_stepped_when_the_time_of_the_machine_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    today = dt.date(2024, 3, 1)
    monkeypatch.setitem(rounds.CLOCKS, DATE, lambda: today)
    query = st.sql("SELECT id FROM orders WHERE day >= current_date", orders="id INT, day DATE")
    rows = query.rows["orders"]
    given = [(1, Z({rows(id=i, day=dt.date(2024, 3, i)): 1 for i in range(1, 4)}))]
    seen: list[tuple[int, Counter[int]]] = []

    def noted(step: int, change: Any) -> None:
        seen.append((step, Counter({row.id: n for row, n in change.iter()})))

    with st.Pipeline(query, store="memory", orders=given, into=noted) as pipeline:
        assert pipeline.run() == 1
        assert pipeline.run() == 0  # nothing is new, and it is the same day
        today = dt.date(2024, 3, 3)
        assert pipeline.run() == 1
        today = dt.date(2024, 3, 2)  # the clock of the machine has gone back
        assert pipeline.run() == 0
        today = dt.date(2024, 3, 9)
        assert pipeline.run() == 1
    assert seen == [
        (1, Counter({1: 1, 2: 1, 3: 1})),
        (2, Counter({1: -1, 2: -1})),
        (3, Counter({3: -1})),
    ]


@pytest.mark.parametrize(
    "option",
    [
        {"append_only": ["people"]},
        {"strict": True},
        {"lateness": {"people": (lambda p: p, 1)}},
        {"whole_rows": True},
    ],
    ids=lambda option: "".join(option),
)
def test_options_of_a_compiled_query_are_for_its_compilation(option: dict[str, Any]) -> None:
    def ages(people: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(people)

    changes: dict[str, Any] = {"people": [(1, Z({3: 1}))]}
    with pytest.raises(InputError, match=r"compiled already; .* to st\.compile"):
        st.Pipeline(st.compile(ages), store="memory", **changes, **option)
    seen: dict[Any, Any] = {}
    graph: Any = st.compile(ages, **option)
    with st.Pipeline(graph, store="memory", into={"ages": seen.setdefault}, **changes) as pipeline:
        pipeline.run()
    assert seen[1] == Z({3: 1})
