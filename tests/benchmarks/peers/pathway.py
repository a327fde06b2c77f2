"""Pathway, which keeps the view by differential dataflow; it has a Python of its own.

All tables come through one connector, so that a change is one commit. A step is over when pathway
says that the time of its commit is: it says so where the output changes, and each commit moves a
row of its own there.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pathway as pw
import pyarrow as pa

from tests.benchmarks.peers.peer import COLUMNS, TABLES, WEIGHT, CannotDo, Tables, Way

MARK = "mark"  # the kind of the row that each commit moves
SECONDS = 500.0


class Line(pw.Schema):  # type: ignore[misc]
    """A row of any table: which one, and its columns."""

    kind: str
    a: int
    b: int
    c: int
    d: int
    text: str


class Source(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Passes on the changes that stand in a queue, each as one commit."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: queue.Queue[list[tuple[dict[str, Any], int]] | None] = queue.Queue()

    def run(self) -> None:
        self._disable_commits()
        while (change := self.changes.get()) is not None:
            for row, weight in change:
                # Pathway reads this code, to see whether there are deletions.
                if weight > 0:
                    self.next(**row)
                else:
                    self.delete(**row)
            self.commit()
            self._disable_commits()


def tables_of(given: Any) -> tuple[Any, Any, Any]:
    """The three tables in the one that comes in."""
    customers, orders, lines = (given.filter(given.kind == name) for name in TABLES)
    return (
        customers.select(custkey=customers.a, segment=customers.text),
        orders.select(orderkey=orders.a, custkey=orders.b, orderdate=orders.c),
        lines.select(orderkey=lines.a, linenumber=lines.b, price=lines.c, discount=lines.d),
    )


def orders_view(given: Any) -> Any:
    customers, orders, lines = tables_of(given)
    of_customers = customers.join(orders, customers.custkey == orders.custkey).select(
        customers.custkey, customers.segment, orders.orderkey, orders.orderdate
    )
    sold = of_customers.join(lines, of_customers.orderkey == lines.orderkey).select(
        of_customers.custkey, of_customers.segment, of_customers.orderdate,
        revenue=lines.price * (100 - lines.discount),
    )  # fmt: skip
    return sold.groupby(sold.custkey, sold.segment).reduce(
        sold.custkey, sold.segment, n_lines=pw.reducers.count(),
        revenue=pw.reducers.sum(sold.revenue), last_order=pw.reducers.max(sold.orderdate),
    )  # fmt: skip


def left_view(given: Any) -> Any:
    customers, orders, lines = tables_of(given)
    of_customers = customers.join_left(orders, customers.custkey == orders.custkey).select(
        customers.custkey, customers.segment, orders.orderkey, orders.orderdate
    )
    return of_customers.join_left(lines, of_customers.orderkey == lines.orderkey).select(
        of_customers.custkey, of_customers.segment, of_customers.orderkey, of_customers.orderdate,
        lines.linenumber, lines.price,
    )  # fmt: skip


VIEWS = {"orders": orders_view, "left": left_view}
DATES = ("orderdate", "last_order")


class Peer(Way):
    """A dataflow in a thread; the view is the sum of the changes that it gives."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        if view not in VIEWS:
            raise CannotDo(f"there is no view {view!r}")
        self._columns = COLUMNS[view]
        self._source = Source()
        self._ends: queue.Queue[int] = queue.Queue()
        self._out: list[tuple[tuple[Any, ...], int]] = []
        self._rows: Counter[tuple[Any, ...]] = Counter()
        self._mark = 0
        given = pw.io.python.read(self._source, schema=Line, autocommit_duration_ms=None)
        viewed = VIEWS[view](given.filter(given.kind != MARK))
        mark = given.filter(given.kind == MARK)
        cells = {c: mark.text if c == "segment" else mark.a for c in self._columns}
        both = pw.Table.concat_reindex(viewed, mark.select(**cells))
        pw.io.subscribe(both, on_change=self._changed, on_time_end=self._ends.put)
        level = pw.MonitoringLevel.NONE
        run = threading.Thread(target=pw.run, kwargs={"monitoring_level": level}, daemon=True)
        run.start()

    def load(self, tables: Tables) -> None:
        self._feed(tables)
        self.keep()

    def step(self, change: Tables) -> int | None:
        self._feed(change)
        return None

    def keep(self) -> None:
        for row, n in self._out:
            self._rows[row] += n

    def result(self) -> pa.Table:
        rows = [row for row, n in self._rows.items() for _ in range(n)]
        columns = dict(zip(self._columns, zip(*rows, strict=True), strict=True))
        return pa.table(
            {
                n: pa.array(c, pa.int32()).cast(pa.date32()) if n in DATES else pa.array(c)
                for n, c in columns.items()
            }
        )

    def empty_job(self) -> None:
        pass

    def close(self) -> None:
        self._source.changes.put(None)

    def _changed(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if row["custkey"] >= 0:
            self._out.append((tuple(row.values()), 1 if is_addition else -1))

    def _feed(self, tables: Tables) -> None:
        self._out = []
        change = [line for name in tables for line in _lines(name, tables[name])]
        change.append((_line(MARK, [-self._mark - 1], ""), 1))
        if self._mark:
            change.append((_line(MARK, [-self._mark], ""), -1))
        self._mark += 1
        self._source.changes.put(change)
        self._ends.get(timeout=SECONDS)


def _line(kind: str, numbers: list[int], text: str) -> dict[str, Any]:
    cells = [*numbers, *[0] * (4 - len(numbers))]
    return {"kind": kind, **dict(zip("abcd", cells, strict=True)), "text": text}


def _lines(name: str, table: pa.Table) -> list[tuple[dict[str, Any], int]]:
    weights: Any = [1] * table.num_rows
    if WEIGHT in table.column_names:
        weights = table.column(WEIGHT).to_pylist()
        table = table.drop_columns([WEIGHT])
    if name == "customers":
        keys: Any = table.column("custkey").to_pylist()
        texts: Any = table.column("segment").to_pylist()
        return [(_line(name, [k], s), n) for k, s, n in zip(keys, texts, weights, strict=True)]
    numbers = [
        (c.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date(c.type) else c).to_pylist()
        for c in table.columns
    ]
    rows = zip(*numbers, strict=True)
    return [(_line(name, list(r), ""), n) for r, n in zip(rows, weights, strict=True)]
