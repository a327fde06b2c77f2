"""The view *orders* maintained by hand in PySpark, as well as an expert can, for this view alone.

State is in Spark's cache, sorted by key: the three tables, and how much each customer bought on
each day, from which a customer's row of the view follows also after a deletion. What has changed
since is an overlay of weighted rows on the driver, which is folded into the cache once it is half
as large.

A step asks Spark once, in one SQL text: for the orders of the changed lines, the lines of the
changed orders, and what is known of their customers. Few keys stand in the text, more are broadcast
as a local relation. The rest is Arrow on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame

from stepping_spark.spark.session import JobCounter
from tests.benchmarks.peers.peer import COLUMNS, TABLES, WEIGHT, CannotDo, Tables, Way
from tests.benchmarks.peers.spark import KEY, session

pc: Any = pyarrow.compute
KEYS_IN_TEXT = 1_500
FOLDED_AT = 0.5
COLUMNS_OF = {
    "customers": ("custkey", "segment"),
    "orders": ("orderkey", "custkey", "orderdate", WEIGHT),
    "lines": ("orderkey", "linenumber", "price", "discount", WEIGHT),
    "days": ("custkey", "orderdate", "n_lines", "revenue"),
}
# All in one relation: the table's number, and columns that serve each as they can.
SHARED = {"i": "BIGINT", "j": "BIGINT", "k": "BIGINT", "l": "BIGINT", "m": "BIGINT",
          "d": "DATE", "s": "STRING"}  # fmt: skip
PLACES = {"customers": "is", "orders": "ijdm", "lines": "ijklm", "days": "idjk"}


class Peer(Way):
    """State in Spark's cache, and what has been added to it."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        if view != "orders":
            raise CannotDo("it is written by hand for the view orders only")
        # So that a scan for few keys passes over batches that have none of them.
        self._spark = session(directory, **{"optimizer.inSetConversionThreshold": "100"})
        self._state: dict[str, DataFrame] = {}
        self._rows: dict[str, int] = {}
        self._over: dict[str, pa.Table] = {}
        self.change = pa.table({})

    def load(self, tables: Tables) -> None:
        for name in TABLES:
            frame = self._spark.createDataFrame(tables[name])
            weighted = frame if name == "customers" else frame.selectExpr("*", f"1L AS {WEIGHT}")
            self._cache(name, weighted)
        days = self._spark.sql(
            "SELECT custkey, orderdate, count(*) AS n_lines, "
            "sum(price * (100 - discount)) AS revenue "
            "FROM orders JOIN lines USING (orderkey) GROUP BY custkey, orderdate"
        )
        self._cache("days", days)
        self._view_of(self._whole("days"), self._state["customers"].toArrow())

    def step(self, change: Tables) -> int | None:
        with JobCounter(self._spark) as jobs:
            self._step(_wide(change["orders"]), _wide(change["lines"]))
        return jobs.count

    def result(self) -> pa.Table:
        return self._view_of(self._whole("days"), self._state["customers"].toArrow())

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._spark.stop()

    def _step(self, orders: pa.Table, lines: pa.Table) -> None:
        order_keys, line_keys = (_distinct(t, "orderkey") for t in (orders, lines))
        # Most orders come and go with their lines, so that their customers are all there are.
        customers = _distinct(orders, "custkey")
        known = self._look_up(
            {"orders": line_keys, "lines": order_keys, "days": customers, "customers": customers}
        )
        new_orders = pa.concat_tables([known["orders"], orders])
        sold = [_joined(orders, known["lines"]), _joined(new_orders, lines)]
        days = _summed(pa.concat_tables(sold))
        more = pc.filter(
            _distinct(days, "custkey"),
            pc.invert(pc.is_in(_distinct(days, "custkey"), value_set=customers)),
        )
        if len(more):
            others = self._look_up({"days": more, "customers": more})
            known = {n: pa.concat_tables([t, others[n]]) if n in others else t
                     for n, t in known.items()}  # fmt: skip
        touched = _distinct(days, "custkey")
        before = known["days"].filter(pc.is_in(known["days"]["custkey"], value_set=touched))
        after = _summed(pa.concat_tables([before, days]))
        old, new = (self._view_of(t, known["customers"]) for t in (_summed(before), after))
        self.change = pa.concat_tables(
            [
                old.append_column(WEIGHT, pa.array([-1] * old.num_rows)),
                new.append_column(WEIGHT, pa.array([1] * new.num_rows)),
            ]
        )
        for name, table in (("orders", orders), ("lines", lines), ("days", days)):
            added = table.select(COLUMNS_OF[name])
            self._over[name] = (
                pa.concat_tables([self._over[name], added]) if name in self._over else added
            )
        for name in list(self._over):
            if self._over[name].num_rows > FOLDED_AT * self._rows[name]:
                self._fold(name)

    def _look_up(self, keys: Mapping[str, Any]) -> dict[str, pa.Table]:
        """The rows of tables that have these keys, in one query."""
        texts = []
        broadcast: list[Any] = []
        for name, wanted in keys.items():
            cells = dict(zip(PLACES[name], COLUMNS_OF[name], strict=True))
            row = ", ".join(
                f"{cells.get(c, f'CAST(NULL AS {t})')} AS {c}" for c, t in SHARED.items()
            )
            chosen = f"{KEY[name]} IN ({', '.join(map(str, wanted.to_pylist()))})"
            if not len(wanted):
                chosen = "false"
            elif len(wanted) > KEYS_IN_TEXT:
                if not any(wanted.equals(b) for b in broadcast):
                    broadcast.append(wanted)
                    frame = self._spark.createDataFrame(pa.table({"k": wanted}))
                    frame.createOrReplaceTempView(f"keys{len(broadcast)}")
                at = next(i for i, b in enumerate(broadcast, 1) if wanted.equals(b))
                chosen = f"{KEY[name]} IN (SELECT /*+ BROADCAST(keys{at}) */ k FROM keys{at})"
            texts.append(f"SELECT '{name}' AS t, {row} FROM {name} WHERE {chosen}")
        found = self._spark.sql(" UNION ALL ".join(texts)).toArrow()
        made = {}
        for name, wanted in keys.items():
            rows = found.filter(pc.equal(found["t"], name)).select(list(PLACES[name]))
            table = _plain(rows.rename_columns(list(COLUMNS_OF[name])))
            if name in self._over:
                over = self._over[name]
                near = over.filter(pc.is_in(over[KEY[name]], value_set=wanted))
                table = pa.concat_tables([table, near])
            made[name] = table
        return made

    def _cache(self, name: str, frame: DataFrame) -> None:
        key = KEY[name]
        sorted_by_key = frame.repartitionByRange(2, key).sortWithinPartitions(key)
        cached = sorted_by_key.localCheckpoint().cache()  # without what it was made from
        self._rows[name] = cached.count()
        if name in self._state:
            self._state[name].unpersist()
        self._state[name] = cached
        cached.createOrReplaceTempView(name)

    def _fold(self, name: str) -> None:
        added = self._spark.createDataFrame(self._over.pop(name))
        columns = COLUMNS_OF[name]
        summed = 2 if name == "days" else 1
        keys = ", ".join(columns[:-summed])
        sums = ", ".join(f"sum({c}) AS {c}" for c in columns[-summed:])
        self._state[name].unionAll(added).createOrReplaceTempView("both")
        text = f"SELECT {keys}, {sums} FROM both GROUP BY {keys} HAVING {columns[-summed]} <> 0"
        self._cache(name, self._spark.sql(text))

    def _whole(self, name: str) -> pa.Table:
        tables = [_plain(self._state[name].select(*COLUMNS_OF[name]).toArrow())]
        return _summed(
            pa.concat_tables([*tables, *([self._over[name]] if name in self._over else [])])
        )

    @staticmethod
    def _view_of(days: pa.Table, customers: pa.Table) -> pa.Table:
        """The rows of the view, from all that its customers bought."""
        found = days.group_by("custkey").aggregate(
            [("n_lines", "sum"), ("revenue", "sum"), ("orderdate", "max")]
        )
        named = found.rename_columns(
            {"n_lines_sum": "n_lines", "revenue_sum": "revenue", "orderdate_max": "last_order"}
        )
        return named.join(_plain(customers), "custkey", join_type="inner").select(COLUMNS["orders"])


def _plain(table: pa.Table) -> pa.Table:
    """The table without the marks of what can be NULL, so that tables can be put together."""
    fields = [f.with_nullable(True).remove_metadata() for f in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def _wide(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index(WEIGHT)
    return _plain(table.set_column(at, WEIGHT, table.column(WEIGHT).cast(pa.int64())))


def _distinct(table: pa.Table, name: str) -> Any:
    return pc.unique(table.column(name).combine_chunks())


def _joined(orders: pa.Table, lines: pa.Table) -> pa.Table:
    """What was sold: customer, day, number of lines and revenue, weights multiplied."""
    named = lines.select(["orderkey", "price", "discount", WEIGHT]).rename_columns(
        ["orderkey", "price", "discount", "n"]
    )
    both = orders.join(named, "orderkey", join_type="inner")
    weights = pc.multiply(both[WEIGHT], both["n"])
    paid = pc.multiply(both["price"], pc.subtract(100, both["discount"]))
    columns: dict[str, Any] = {
        "custkey": both["custkey"],
        "orderdate": both["orderdate"],
        "n_lines": weights,
        "revenue": pc.multiply(weights, paid),
    }
    return pa.table(columns)


def _summed(days: pa.Table) -> pa.Table:
    sums: Sequence[Any] = [("n_lines", "sum"), ("revenue", "sum")]
    found = days.group_by(["custkey", "orderdate"]).aggregate(sums)
    named = found.rename_columns({"n_lines_sum": "n_lines", "revenue_sum": "revenue"})
    # A line may come where another goes: a change of the price alone.
    some = pc.or_(pc.not_equal(named["n_lines"], 0), pc.not_equal(named["revenue"], 0))
    return named.filter(some).select(COLUMNS_OF["days"])
