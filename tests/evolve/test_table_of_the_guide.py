"""The table of changed-query.md says what happens: each of its rows has a test, which does it."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import stepping_spark as st
from tests.documents import GUIDE

PAGE = GUIDE / "how-to" / "changed-query.md"


class Order(st.Data):
    id: int
    country: str
    cents: int


class Bought(st.Data):
    id: int
    country: str
    cents: int


class Perhaps(st.Data):
    id: int
    country: str
    cents: int | None


class Noted(st.Data):
    id: int
    country: str
    cents: int
    note: str


class Customer(st.Data):
    country: str
    name: str


class Total(st.Data):
    country: str
    cents: int


SUMS = "SELECT country, sum(cents) AS cents FROM orders GROUP BY country"
DEARER = "SELECT country, sum(cents) AS cents FROM orders WHERE cents > 6 GROUP BY country"
LARGE = "SELECT country, cents FROM sums WHERE cents > 10"
Rows = list[tuple[Any, ...]]


def table_rows() -> list[list[str]]:
    """The cells of the table."""
    lines = [x for x in PAGE.read_text(encoding="utf-8").splitlines() if x.startswith("| ")]
    return [[c.strip() for c in x.replace(r"\|", "∣").strip("|").split("|")] for x in lines[1:]]


class Shop:
    """Tables with a pipeline, which is run with one query after the other."""

    def __init__(self, place: Path) -> None:
        self.place = place
        rows = [(1, "de", 5), (2, "de", 10), (3, "fr", 7)]
        self.make("orders", id=[r[0] for r in rows], country=[r[1] for r in rows],
                  cents=[r[2] for r in rows])  # fmt: skip
        self.make("customers", country=["de", "fr"], name=["ann", "bob"])

    def make(self, table: str, /, **columns: list[Any]) -> None:
        """Add rows to a table of the application."""
        deltalake.write_deltalake(
            str(self.place / table),
            pa.table(columns),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def pipeline(
        self,
        views: Mapping[str, Any],
        tables: Mapping[str, Any] | None = None,
        *,
        sources: Mapping[str, Any] | None = None,
        evolve: bool = True,
        types: Mapping[str, type] | None = None,
        **more: Any,
    ) -> st.Pipeline:
        """A pipeline of views, in SQL or as functions; each has a table of its name."""
        into = {name: name for name in views} if tables is None else tables
        found: dict[str, Any] = {**(types or {"orders": Order})}
        made: dict[str, Any] = {}
        for name, view in views.items():
            of = {n: t for n, t in found.items() if isinstance(view, str) and n in view}
            of |= {n: Total for n in views if isinstance(view, str) and f" {n}" in view}
            made[name] = st.sql(view, **of) if isinstance(view, str) else view
        given = sources or {"orders": "orders"}
        return st.Pipeline(
            made,
            store=f"parquet:{self.place / 'state'}",
            sources={n: st.DeltaTable(str(self.place / t)) for n, t in given.items()},
            into={n: self.sink(t) for n, t in into.items()},
            evolve=evolve,
            **more,
        )

    def sink(self, table: Any) -> Any:
        """The sink of a table's name; others are themselves."""
        if not isinstance(table, str):
            return table
        return st.DeltaTable(str(self.place / table), key=["country"])

    def run(self, views: Mapping[str, Any], *tables: Any, **more: Any) -> st.Prospect:
        """Run it; gives what it said before."""
        with self.pipeline(views, *tables, **more) as pipeline:
            found = pipeline.dry_run()
            pipeline.run()
        return found

    def plan(self, views: Mapping[str, Any], *tables: Any, **more: Any) -> st.Evolution:
        """Run it; gives the plan of its evolution."""
        found = self.run(views, *tables, **more).evolution
        assert found is not None
        return found

    def rows(self, name: str) -> Rows:
        """The rows of a table."""
        table = deltalake.DeltaTable(str(self.place / name)).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())


OLD, NEW = [("de", 15), ("fr", 7)], [("de", 10), ("fr", 7)]
ROWS: dict[str, Callable[[Shop], None]] = {}


def row(text: str) -> Callable[[Callable[[Shop], None]], Callable[[Shop], None]]:
    """The test of a row, by its first cell."""
    return lambda f: ROWS.setdefault(text, f)


def totals(orders: st.ZSet[Order]) -> st.ZSet[Total]:
    cents: Any = st.agg.sum(lambda o: o.cents)
    return st.aggregate(orders, by=lambda o: o.country, into=Total, cents=cents)


@row("rename variables or row classes; comments; another way to write the same")
def _(shop: Shop) -> None:
    def totals_again(orders: st.ZSet[Bought]) -> st.ZSet[Total]:
        # of each country
        paid: Any = st.agg.sum(lambda bought: bought.cents)
        return st.aggregate(orders, by=lambda bought: bought.country, into=Total, cents=paid)

    shop.run({"sums": totals})
    assert shop.run({"sums": totals_again}).evolution is None
    shop.make("orders", id=[4], country=["it"], cents=[1])
    shop.run({"sums": totals}, evolve=False)
    assert shop.rows("sums") == [*OLD, ("it", 1)]


@row("rename an input of a pipeline")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    shop.make("orders", id=[4], country=["it"], cents=[1])
    shop.make("other", id=[5], country=["no"], cents=[2])
    sales = {"sums": SUMS.replace("orders", "sales")}
    types = {"sales": Order}
    found = shop.plan(sales, sources={"sales": "orders"}, types=types, renamed={"orders": "sales"})
    assert (found.read_again, found.filled) == ((), {})
    assert shop.rows("sums") == [*OLD, ("it", 1)]
    shop.run({"sums": SUMS.replace("orders", "bought")}, sources={"bought": "other"},
             types={"bought": Order})  # fmt: skip
    assert shop.rows("sums") == [("no", 2)]


@row("rename a view of a pipeline (a single query function is a view of its own name)")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    with pytest.raises(st.SinkError):
        shop.run({"totals": SUMS}, {"totals": "sums"})
    found = shop.plan({"totals": SUMS})
    assert (found.views, found.read_again) == ({"totals": "new"}, ())
    assert shop.rows("totals") == shop.rows("sums") == OLD


@row("another constant or condition in a filter")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS, "large": LARGE}, {"large": "large"})
    assert shop.rows("large") == [("de", 15)]
    found = shop.plan({"sums": SUMS, "large": LARGE.replace("> 10", "< 10")}, {"large": "large"})
    assert (found.read_again, found.filled, len(found.kept)) == ((), {}, 1)
    assert shop.rows("large") == [("fr", 7)]
    dear = "SELECT DISTINCT country, cents FROM orders WHERE cents > {}"
    into = {"dear": st.DeltaTable(str(shop.place / "dear"))}
    shop.run({"dear": dear.format(4)}, into)
    for lowest, read, rows in (
        (6, (), [("de", 10, 1), ("fr", 7, 1)]),
        (9, (), [("de", 10, 1)]),
        (6, ("orders",), [("de", 10, 1), ("fr", 7, 1)]),
    ):
        assert shop.plan({"dear": dear.format(lowest)}, into).read_again == read
        assert shop.rows("dear") == rows


@row("one more aggregate, join, window, `distinct`; another key")
def _(shop: Shop) -> None:
    joined = "SELECT o.country, o.cents, c.name FROM orders o JOIN customers c USING (country)"
    more: dict[str, Any] = {
        "types": {"orders": Order, "customers": Customer},
        "sources": {"orders": "orders", "customers": "customers"},
    }
    for query in (
        f"SELECT country, sum(cents) AS cents FROM ({joined}) GROUP BY country",
        f"SELECT country, sum(cents) AS cents, max(cents) AS best FROM ({joined}) GROUP BY country",
        f"SELECT name AS country, sum(cents) AS cents FROM ({joined}) GROUP BY name",
        f"SELECT DISTINCT country FROM ({joined})",
        "SELECT country, cents FROM (SELECT country, cents, row_number() OVER (PARTITION BY "
        f"country ORDER BY cents) AS n FROM ({joined})) WHERE n = 1",
    ):
        shop.run({"v": joined}, {}, **more)
        found = shop.plan({"v": query}, {}, **more)
        assert found.read_again == (), f"{query}: {found}"


@row("an operator less")
def _(shop: Shop) -> None:
    def largest(orders: st.ZSet[Order]) -> st.ZSet[Total]:
        return st.first_n(totals(orders), lambda t: t.cents, 1)

    shop.run({"sums": largest})
    assert shop.rows("sums") == [("fr", 7)]
    found = shop.plan({"sums": totals})
    assert (found.filled, bool(found.dropped), len(found.kept)) == ({}, True, 1)
    assert shop.rows("sums") == OLD


@row("one more view, or a view of views")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    found = shop.plan({"sums": SUMS, "large": LARGE})
    assert (found.read_again, found.views) == ((), {"sums": "as before", "large": "new"})
    assert shop.rows("large") == [("de", 15)]


@row("a view less")
def _(shop: Shop) -> None:
    best = "SELECT country, max(cents) AS cents FROM orders GROUP BY country"
    shop.run({"sums": SUMS, "best": best})
    found = shop.plan({"sums": SUMS})
    assert found.dropped
    shop.make("orders", id=[4], country=["it"], cents=[1])
    shop.run({"sums": SUMS})
    assert shop.rows("best") == [("de", 10), ("fr", 7)]


@row("a new sink for a view, or another table for it")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    shop.make("orders", id=[4], country=["it"], cents=[1])
    shop.run({"sums": SUMS})
    found = shop.run({"sums": SUMS}, {"sums": "others"})
    assert [view for view, _ in found.filled] == ["sums"]
    assert shop.rows("others") == shop.rows("sums") == [*OLD, ("it", 1)]


@row("a sink less")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS, "large": LARGE})
    shop.run({"sums": SUMS, "large": LARGE}, {"sums": "sums"})
    shop.make("orders", id=[4], country=["it"], cents=[11])
    shop.run({"sums": SUMS, "large": LARGE}, {"sums": "sums"})
    assert shop.rows("large") == [("de", 15)]
    with pytest.raises(st.SinkError):
        shop.run({"sums": SUMS, "large": LARGE})
    shop.run({"sums": SUMS, "large": LARGE}, {"sums": "sums", "large": "more"})
    assert shop.rows("more") == [("de", 15), ("it", 11)]


@row("a table of a sink was removed")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    shutil.rmtree(shop.place / "sums")
    shop.run({"sums": SUMS})
    assert shop.rows("sums") == OLD


@row("a table of a sink was renamed, and the pipeline has its new name")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    (shop.place / "sums").rename(shop.place / "totals")
    shop.make("orders", id=[4], country=["it"], cents=[1])
    found = shop.run({"sums": SUMS}, {"sums": "totals"}, evolve=False)
    assert (list(found.filled), shop.rows("totals")) == ([], [*OLD, ("it", 1)])


@row("`--refresh VIEW`")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    deltalake.DeltaTable(str(shop.place / "sums")).delete()
    found = shop.run({"sums": SUMS}, refresh=["sums"])
    assert [view for view, _ in found.filled] == ["sums"]
    assert shop.rows("sums") == OLD


@row("a new `st.Check` on a new view")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    for lowest, fails in ((10, False), (5, True)):
        views = {"sums": SUMS, "wrong": f"SELECT id FROM orders WHERE cents > {lowest}"}
        with shop.pipeline(views, {"sums": "sums", "wrong": st.Check()}) as pipeline:
            if fails:
                with pytest.raises(st.StepError, match="the check wrong fails"):
                    pipeline.run()
            else:
                pipeline.run()
    assert shop.run({"sums": SUMS}).step == 2


@row("a column of an input that the old query did not keep (the plan says so)")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    query = "SELECT country, sum(id) AS cents FROM orders GROUP BY country"
    found = shop.plan({"sums": query})
    assert found.read_again == ("orders",)
    assert shop.rows("sums") == [("de", 3), ("fr", 3)]
    texts = [
        f"SELECT country, {c} AS cents FROM orders JOIN customers USING (country) GROUP BY country"
        for c in ("count(*)", "sum(id)")
    ]
    types = {"orders": Order, "customers": Customer}
    views = [{"met": st.sql(text, **types)} for text in texts]
    sources = {"orders": "orders", "customers": "customers"}
    shutil.rmtree(shop.place / "state")
    shop.run(views[0], sources=sources, whole_rows=True)
    assert shop.plan(views[1], sources=sources, whole_rows=True).read_again == ()
    assert shop.rows("met") == [("de", 3), ("fr", 3)]


BOTH = f"{SUMS.replace('FROM', 'FROM customers JOIN')} USING (country)".replace(
    "GROUP BY country USING (country)", "USING (country) GROUP BY country"
)
WITH_CUSTOMERS: dict[str, Any] = {
    "types": {"orders": Order, "customers": Customer},
    "sources": {"orders": "orders", "customers": "customers"},
}


@row("an input more")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    path = str(shop.place / "sums")
    before = deltalake.DeltaTable(path).version()
    assert "customers" in shop.plan({"sums": BOTH}, **WITH_CUSTOMERS).read_again
    assert shop.rows("sums") == OLD
    assert deltalake.DeltaTable(path).version() == before, "no reader saw fewer rows"
    shop.make("customers", country=["fr"], name=["eve"])
    shop.run({"sums": BOTH}, evolve=False, **WITH_CUSTOMERS)
    assert shop.rows("sums") == [("de", 15), ("fr", 14)]


@row("an input less")
def _(shop: Shop) -> None:
    shop.run({"sums": BOTH}, **WITH_CUSTOMERS)
    plan = shop.plan({"sums": SUMS})
    assert (bool(plan.dropped), shop.rows("sums")) == (True, OLD)


@row("a text mentions its tables in another order, or the types of one more are stated")
def _(shop: Shop) -> None:
    shop.run({"sums": BOTH}, **WITH_CUSTOMERS)
    types = dict(reversed(WITH_CUSTOMERS["types"].items()))
    anew = shop.plan({"sums": BOTH}, **{**WITH_CUSTOMERS, "types": types})
    assert (anew.reordered, anew.filled) == (("customers", "orders"), {})
    other = BOTH.replace("customers JOIN orders", "orders JOIN customers")
    assert other != BOTH
    assert shop.plan({"sums": other}, **WITH_CUSTOMERS).read_again == ()
    assert shop.rows("sums") == OLD


def kept_whole(t: Any) -> Any:
    def query(orders: Any) -> Any:
        pairs: Any = st.join(orders, orders, on_left=lambda o: o.id, on_right=lambda o: o.id)
        return st.map(pairs, f=lambda p: Total(country=p.left.country, cents=p.left.id))

    query.__annotations__ = {"orders": st.ZSet[t], "return": st.ZSet[Total]}
    return query


@row("`int` becomes `int ∣ None` in a row class that is kept whole")
def _(shop: Shop) -> None:
    shop.make("orders", id=[4], country=["it"], cents=[1])
    deltalake.DeltaTable(str(shop.place / "orders")).delete("id = 1")
    shop.run({"v": kept_whole(Order)}, whole_rows=True)
    assert shop.plan({"v": kept_whole(Perhaps)}, whole_rows=True).read_again == ("orders",)
    shop.make("orders", id=[5], country=["no"], cents=[None])
    shop.run({"v": kept_whole(Perhaps)}, whole_rows=True)
    assert shop.rows("v") == [("de", 2), ("fr", 3), ("it", 4), ("no", 5)]


COUNTS = "SELECT country, count(*) AS cents FROM orders GROUP BY country"


@row("a column of a view cannot be NULL any more")
def _(shop: Shop) -> None:
    types = {"orders": Perhaps}
    shop.run({"sums": SUMS}, types=types)
    with pytest.raises(st.StoreMismatch, match="--refresh sums"):
        shop.run({"sums": COUNTS}, types=types)
    shop.run({"sums": COUNTS}, types=types, refresh=["sums"])
    assert shop.rows("sums") == [("de", 2), ("fr", 1)]


@row("a column of a view may be NULL now")
def _(shop: Shop) -> None:
    types = {"orders": Perhaps}
    shop.run({"sums": SUMS}, types=types)
    shop.run({"sums": COUNTS}, types=types, refresh=["sums"])
    shop.run({"sums": SUMS}, types=types)
    assert shop.rows("sums") == OLD
    shop.run({"sums": SUMS, "counts": COUNTS}, types=types)
    with pytest.raises(st.SinkError, match="int64 NOT NULL in the table"):
        shop.run({"sums": SUMS, "counts": SUMS}, types=types)
    shutil.rmtree(shop.place / "counts")
    shop.run({"sums": SUMS, "counts": SUMS}, types=types)
    assert shop.rows("counts") == OLD


@row("a view has other columns")
def _(shop: Shop) -> None:
    shop.run({"sums": SUMS})
    counted = {"sums": SUMS.replace(" FROM", ", count(*) AS n FROM")}
    with pytest.raises(st.SteppingError, match="sums"):
        shop.run(counted)
    shop.run(counted, {"sums": "counted"})
    assert shop.rows("counted") == [("de", 15, 2), ("fr", 7, 1)]


class Placed(st.Data):
    country: str
    day: dt.date
    at: dt.datetime


@row("`current_date` becomes `now()`, or another kind of time")
def _(shop: Shop) -> None:
    now = dt.datetime.now(dt.UTC)
    at = [now - dt.timedelta(days=days) for days in (1, 8, 40)]
    shop.make("placed", country=["de", "fr", "it"], day=[t.date() for t in at], at=at)
    given: Any = {"types": {"placed": Placed}, "sources": {"placed": "placed"}}
    shop.run({"v": "SELECT country FROM placed WHERE day >= current_date - 30"}, **given)
    assert shop.rows("v") == [("de",), ("fr",)]
    shop.run({"v": "SELECT country FROM placed WHERE at >= now() - INTERVAL 7 DAYS"}, **given)
    assert shop.rows("v") == [("de",)]
    shop.run({"v": "SELECT country FROM placed WHERE day >= current_date - 90"}, **given)
    assert shop.rows("v") == [("de",), ("fr",), ("it",)]


def of_tens(f: Callable[[Order], int]) -> Any:
    def query(orders: st.ZSet[Order]) -> st.ZSet[Total]:
        tens = st.map(orders, f=st.python(lambda o: Total(country=o.country, cents=f(o)), to=Total))
        cents: Any = st.agg.sum(lambda t: t.cents)
        return st.aggregate(tens, by=lambda t: t.country, into=Total, cents=cents)

    return query


@row("another body of an `st.python` function")
def _(shop: Shop) -> None:
    shop.run({"v": of_tens(lambda o: o.cents // 10)})
    found = shop.plan({"v": of_tens(lambda o: o.cents // 5)})
    assert found.read_again == ("orders",)
    assert shop.rows("v") == [("de", 3), ("fr", 1)]


@row(
    "a part that depends on the order of steps changes or is new: `st.delay`, any view of an "
    "input with a lateness"
)
def _(shop: Shop) -> None:
    def delayed(orders: st.ZSet[Order]) -> st.ZSet[Total]:
        return totals(st.delay(orders))

    shop.run({"sums": totals})
    with pytest.raises(st.StoreMismatch, match="a store and tables of its own"):
        shop.run({"sums": delayed})
    with pytest.raises(st.StoreMismatch, match="a store and tables of its own"):
        shop.run({"sums": totals, "late": delayed})
    shop.run({"sums": totals}, evolve=False)
    assert shop.rows("sums") == OLD


@pytest.mark.usefixtures("spark")  # days before now() are those of the session's zone
@pytest.mark.parametrize(("change", "happens"), table_rows())
def test_what_a_row_of_the_table_says_happens(tmp_path: Path, change: str, happens: str) -> None:
    assert happens
    ROWS[change](Shop(tmp_path))


def test_each_test_has_its_row() -> None:
    assert [change for change, _ in table_rows()] == list(ROWS)
