"""Changes of a query that people make: what is kept, what is read again, and that all is right."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.pipeline.views import input_names
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.register_words import words_of
from stepping_spark.relations.relation import each_once, on_driver
from stepping_spark.stepper.evolve.evolution import WHOLE
from tests.cases import Z
from tests.every_store import InMemory, MakeStore
from tests.evolve.queries_by_hand import CASES, Case, Customer, Order, above, below
from tests.tasks_in_process import LIMITS, tasks_in_process

Row = tuple[tuple[str, Any], ...]
Tables = dict[str, Counter[Row]]


def row(**columns: Any) -> Row:
    return tuple(columns.items())


class Life:
    """Tables that random changes are made to."""

    def __init__(self) -> None:
        self._random = random.Random(47)
        self._ids = 0
        self.tables: Tables = {"orders": Counter(), "customers": Counter(), "returns": Counter()}
        self.change({"orders": 14, "customers": 5, "returns": 3}, gone=0)

    def _row(self, table: str) -> Row:
        self._ids += 1
        if table == "customers":
            country = self._random.choice(["cl", "gh", "nz"])
            return row(id=self._random.randrange(6), country=country)
        customer, cents = self._random.randrange(6), self._random.randrange(40)
        note = self._random.choice([None, "a"])
        return row(id=self._ids % 12, customer=customer, cents=cents, note=note)

    def change(self, more: Mapping[str, int] | None = None, gone: int = 2) -> Tables:
        """The change of each table in a random step."""
        changes: Tables = {}
        for table, rows in self.tables.items():
            change: Counter[Row] = Counter()
            for _ in range(self._random.randint(0, gone)):
                if +rows:
                    change[self._random.choice(list((+rows).elements()))] = -1
            new = self._random.randint(0, 2) if more is None else more[table]
            change.update(self._row(table) for _ in range(new))
            rows.update(change)
            changes[table] = change
        return changes


def given(graph: Any, tables: Tables, case: Case) -> dict[str, Any]:
    """Rows for each input of a circuit, of the class that it has there."""
    found = {}
    for name, v in zip(input_names(graph), graph.inputs, strict=True):
        build, columns = v.type.row.build, [n for n, _ in v.type.schema.columns]
        rows = tables[case.inputs.get(name, name)].items()
        found[name] = Z([(build([dict(r)[c] for c in columns]), n) for r, n in rows if n])
    return found


class Running:
    """A query with its state, and the sums of its outputs."""

    def __init__(self, case: Case, graph: Any, store: Any, **options: Any) -> None:
        self.case, self.graph, self.store = case, graph, store
        self.stepper: Any = st.Stepper(graph, store, **options)
        self.views: dict[int, Any] = dict.fromkeys(range(len(graph.outputs)), Z())

    def step(self, tables: Tables) -> None:
        """Take a step of changes."""
        self.add(self.stepper.step(tuple(given(self.graph, tables, self.case).values())))

    def add(self, outputs: Any) -> None:
        """Add changes to the views."""
        for i, out in enumerate(outputs):
            self.views[i] += out.to_python()

    def views_of(self, graph: Any) -> dict[int, Any]:
        """What the outputs of another circuit were: by their names, or else their places."""
        before, names = self.graph.called, graph.called
        found = {}
        for i in range(len(graph.outputs)):
            name = names[i] if names else ""
            if name in before:
                found[i] = self.views[before.index(name)]
            elif i < len(self.views) and (not before or before[i] not in names):
                found[i] = self.views[i]
        return found

    def registers(self) -> dict[str, Any]:
        """The rows of each register of the circuit."""
        found = {}
        kept = {register.name: register for register in plan_of(self.graph).registers}
        for name, there in st.evolution(self.graph, self.store).names.items():
            schema = kept[name].schema
            rows = on_driver(self.store.read_kept(there), schema)
            found[name] = sorted(map(str, each_once(rows, schema).to_pylist()))
        return found


SAID = re.compile(r" \([\w<>.]+\.py:[^)]*\)|,? \(?[\d,]+ rows?\)?")  # lines of the query, and sizes
PLANS = dict(
    part.split("\n", 1)
    for part in Path(__file__).with_name("plans.txt").read_text().strip().split("\n\n")
)


def shown(plan: st.Evolution) -> str:
    """A plan without its first line, the lines of the query, and sizes."""
    return SAID.sub("", str(plan)).partition("\n")[2]


@pytest.mark.turn(2)
@pytest.mark.parametrize("name", CASES)
def test_a_query_that_somebody_changed(make_store: MakeStore, name: str) -> None:
    """All is as if the query had been so for ever, in ten random steps, and after going back."""
    case, life = CASES[name], Life()
    graph = st.compile(case.before)
    running = Running(case, graph, make_store(graph))
    running.step(life.tables)
    running.step(life.change())
    plan, running = evolved(make_store, running, st.compile(case.after), life)
    assert shown(plan) == PLANS[name]
    evolved(make_store, running, graph, life)


@pytest.mark.driver
@pytest.mark.turn(3)
@pytest.mark.usefixtures("spark")  # asked for its time zone
@pytest.mark.parametrize("name", CASES)
def test_tasks_make_a_state_that_of_a_query_that_somebody_changed(name: str) -> None:
    case, life = CASES[name], Life()
    graph = st.compile(case.before)
    running = Running(case, graph, st.StoreMemory.from_graph(graph))
    running.step(life.tables)
    running.step(life.change())
    with tasks_in_process(from_a_file=True):
        plan, running = evolved(InMemory(), running, st.compile(case.after), life, limits=LIMITS)
    if plan.is_needed and plan.step:
        (metrics,) = [m for m in running.stepper.metrics if m.step == plan.step + 1]
        fills_a_loop = name == "a recursion of other edges"
        assert bool(metrics.not_in_tasks) == fills_a_loop


def evolved(
    make_store: MakeStore, before: Running, graph: Any, life: Life, **options: Any
) -> tuple[st.Evolution, Running]:
    """Evolve to a query, and compare it with a state that it makes from the beginning."""
    store: Any = make_store.reopen(before.store, graph, evolve=True)
    plan = st.evolution(graph, store)
    whole = [view for view, said in plan.views.items() if said in WHOLE]
    now = Running(before.case, graph, store, evolve=True, **options)
    had = before.views_of(graph)
    now.views |= {i: had.get(i, Z()) for i, view in enumerate(plan.views) if view not in whole}
    rows = given(graph, life.tables, before.case)
    sizes = {name: store.size_kept(name).rows for name in store.described()}
    if plan.is_needed:
        with pytest.raises(st.StepError, match="call evolve"):
            now.stepper.step(tuple(Z() for _ in rows))
    again = {name: rows[name] for name in plan.read_again}
    now.add(now.stepper.evolve(whole=whole, **again))
    check_metrics(plan, now, again, sizes)
    anew = Running(before.case, graph, st.StoreMemory.from_graph(graph))
    anew.step(life.tables)
    assert now.views == anew.views
    assert now.registers() == anew.registers()
    assert not any(out.to_python() for out in now.stepper.evolve())
    for _ in range(10):
        change = life.change()
        now.step(change)
        anew.step(change)
        assert now.views == anew.views
    assert now.registers() == anew.registers()
    return plan, now


def check_metrics(
    plan: st.Evolution, now: Running, again: Mapping[str, Any], sizes: Mapping[str, int]
) -> None:
    """What the plan says is read is what was read, each once; what stays is not touched."""
    if not plan.is_needed:
        assert not now.stepper.metrics
        return
    (metrics,) = now.stepper.metrics
    told = {n for given in (*plan.filled.values(), *plan.changed.values()) for n in given}
    assert metrics.read == {name: sizes[name] for name in sizes.keys() & told}
    assert metrics.inputs == {
        f"{now.graph.name}.{name}": len(list(rows.iter())) for name, rows in again.items()
    }
    assert {f"input {name}" for name in again} == told - sizes.keys()
    assert metrics.kept.keys() <= plan.filled.keys()


ORDERS = [Order(id=i, customer=i % 4, cents=7 * i % 40) for i in range(12)]
CUSTOMERS = [Customer(id=i, country="cl" if i % 2 else "gh") for i in range(4)]


@pytest.mark.driver
def test_a_constant_above_a_join_reads_what_the_join_has() -> None:
    graph = st.compile(above(10))
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store).step((Z(dict.fromkeys(ORDERS, 1)), Z(dict.fromkeys(CUSTOMERS, 1))))
    stepper: Any = st.Stepper(st.compile(above(25)), store, evolve=True)
    assert stepper.needed_again() == ()
    stepper.evolve()
    (metrics,) = stepper.metrics
    assert metrics.read == {
        "query.orders by customer": len(ORDERS),
        "query.customers by id": len(CUSTOMERS),
    }
    assert (metrics.jobs, metrics.inputs, metrics.kept) == (0, {}, {})


def test_an_input_that_is_missing_or_not_needed_is_told() -> None:
    graph = st.compile(below(10))
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store).step((Z(dict.fromkeys(ORDERS, 1)), Z(dict.fromkeys(CUSTOMERS, 1))))
    stepper: Any = st.Stepper(st.compile(below(5)), store, evolve=True)
    with pytest.raises(st.InputError, match="orders=…"):
        stepper.evolve()
    with pytest.raises(st.InputError, match="orders=…"):
        stepper.evolve(orders=Z(), customers=Z())
    stepper.evolve(orders=Z(dict.fromkeys(ORDERS, 1)))


def test_a_name_that_is_none_and_a_query_that_is_not_compiled_are_told() -> None:
    graph = st.compile(below(10))
    store = st.StoreMemory.from_graph(graph)
    with pytest.raises(st.InputError, match=r"'nope', and the outputs are 'query'"):
        st.evolution(graph, store, whole=["nope"])
    query: Any = below(10)
    with pytest.raises(st.CompileError, match="expected a Graph"):
        st.evolution(query, store)


def test_what_depends_on_the_order_of_steps_is_refused_by_name() -> None:
    def plain(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(a)

    def delayed(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(st.delay(a))

    graph = st.compile(plain)
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store).step((Z({1: 1}),))
    with pytest.raises(st.StoreMismatch, match="the order of the steps"):
        st.Stepper(st.compile(delayed), store, evolve=True)
    assert st.Stepper(graph, store).step((Z({1: 1}),))[0].to_python() == Z()


@pytest.mark.usefixtures("spark")  # asked whether one is running
def test_an_evolution_without_spark_keeps_the_settings_of_the_state(make_store: MakeStore) -> None:
    """The session's settings that functions of rows depend on are those of the steps before."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    graph = st.compile(above(10))
    store = make_store(graph)
    store.commit(1, 1, None, {}, settings)
    graph = st.compile(above(25))
    store = make_store.reopen(store, graph, evolve=True)
    stepper: Any = st.Stepper(graph, store, evolve=True)
    stepper.evolve(whole=[name for name, said in stepper.evolution.views.items() if said in WHOLE])
    assert (store.last_step(), store.last_settings()) == (2, settings)


class Best(st.Data):
    customer: int
    cents: int


def test_the_plan_says_what_goes_and_what_is_read_in_words_of_the_query_before() -> None:
    def totals(of: Any) -> Any:
        def query(orders: st.ZSet[Order]) -> st.ZSet[Best]:
            cents = of(lambda o: o.cents)
            return st.aggregate(orders, by=lambda o: o.customer, into=Best, cents=cents)

        return st.compile(query)

    before, after = totals(st.agg.max), totals(st.agg.sum)
    store = st.StoreMemory.from_graph(before)
    st.iteration(store, before, (Z({Order(id=1, customer=2, cents=3): 1}),))
    assert str(st.evolution(after, store)).splitlines() == [
        "query, at step 1:",
        "  filled: cents = sum(cents) by customer, from the old rows for cents = max(cents) by "
        "customer (1 row)",
        "  dropped: rows for cents = max(cents) by customer",
        "  dropped: first rows for cents = max(cents) by customer",
        "  view query: changes, from the old first rows for cents = max(cents) by customer (1 "
        "row) and the old rows for cents = max(cents) by customer (1 row)",
    ]


def test_two_aggregations_in_one_line_have_words_of_their_own() -> None:
    text = (
        "SELECT t.customer, t.total, b.most FROM "
        "(SELECT customer, sum(cents) AS total FROM orders GROUP BY customer) t JOIN "
        "(SELECT customer, max(cents) AS most FROM orders GROUP BY customer) b USING (customer)"
    )
    total, most = "sum(cents) by customer", "max(cents) by customer"
    plan = plan_of(st.compile(st.sql(text, orders=Order)))
    assert set(words_of(plan, lines=False).values()) == {
        "orders (customer, cents) by customer",
        total,
        f"first rows for {most}",
        f"results of {total}, by customer",
        f"results of {most}, by customer",
    }


@pytest.mark.parametrize("n", [8, 9])
def test_a_plan_of_many_views_counts_those_that_stay(n: int) -> None:
    views = [f"CREATE VIEW v{i} AS SELECT DISTINCT k + {i} AS k FROM t" for i in range(n)]
    before, after = (
        st.compile(st.sql("; ".join(texts), t="k INT"))
        for texts in (views, [*views, "CREATE VIEW w AS SELECT max(k) AS k FROM v1"])
    )
    store = st.StoreMemory.from_graph(before)
    st.Stepper(before, store).step((st.ZSetPython(),))
    said = str(st.evolution(after, store)).splitlines()
    assert sum("kept: " in line for line in said) == (n if n == 8 else 1)
    assert (f"  kept: {n} registers" in said, f"  {n} views: as before" in said) == (n > 8, n > 8)
    assert "  view w: new, from v1.map by k" in " ".join(said)
