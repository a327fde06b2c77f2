"""Orders and customers in Delta tables, revenue by country in a Delta table and in Postgres.

A shop writes two Delta tables, and knows nothing of views. A pipeline follows them in a process of
its own. It is stopped, killed in the middle of its work, and started again, while the shop goes on.
In the end both views are what one plain SQL query gives on the shop's tables. No Spark is needed.

    python examples/revenue.py [postgresql://user@host/database]
"""

import logging
import random
import signal
import subprocess
import sys
import tempfile

import deltalake
import psycopg
import pyarrow as pa
from psycopg.rows import dict_row

import stepping_spark as st


class Customer(st.Data):
    id: int
    country: str


class Order(st.Data):
    id: int
    customer: int
    cents: int


class Revenue(st.Data):
    country: str
    orders: int
    cents: int


def revenue(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> st.ZSet[Revenue]:
    sold = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    return st.aggregate(
        sold,
        by=lambda p: p.right.country,
        into=Revenue,
        orders=st.agg.count(),
        cents=st.agg.sum(lambda p: p.left.cents),
    )


PLAIN = """
SELECT country, count(*) AS orders, sum(cents) AS cents
FROM orders JOIN customers ON orders.customer = customers.id GROUP BY country
"""


def pipeline_of(lake: str, url: str | None) -> st.Pipeline:
    """The pipeline: tables in, tables out."""
    views = [st.DeltaTable(f"{lake}/revenue", key="country")]
    in_postgres = [st.Postgres(url, table="revenue", key="country")] if url else []
    return st.Pipeline(
        revenue,
        store=f"parquet:{lake}/state",
        orders=st.DeltaTable(f"{lake}/orders"),
        customers=st.DeltaTable(f"{lake}/customers"),
        into={"revenue": [*views, *in_postgres]},
    )


class Shop:
    """What others do: write tables, with the means that they have."""

    def __init__(self, lake: str) -> None:
        self.rng = random.Random(7)
        self.orders, self.customers = f"{lake}/orders", f"{lake}/customers"
        self.sold = 0
        countries = [self.country() for _ in range(20)]
        people = pa.table({"id": list(range(20)), "country": countries})
        feed = {"delta.enableChangeDataFeed": "true"}
        deltalake.write_deltalake(self.customers, people, configuration=feed)
        deltalake.write_deltalake(self.orders, self.new_orders(50), configuration=feed)

    def country(self) -> str:
        return self.rng.choice(["Chile", "Ghana", "Japan", "Norway"])

    def new_orders(self, n: int) -> pa.Table:
        ids = range(self.sold, self.sold + n)
        self.sold += n
        who = [self.rng.randrange(20) for _ in ids]
        return pa.table(
            {"id": ids, "customer": who, "cents": [self.rng.randrange(9999) for _ in ids]}
        )

    def works(self) -> None:
        """Orders come, one is cancelled, one corrected, a customer moves; then files are merged."""
        orders = deltalake.DeltaTable(self.orders)
        for _ in range(5):
            deltalake.write_deltalake(self.orders, self.new_orders(5), mode="append")
            orders.update_incremental()
            orders.delete(f"id = {self.rng.randrange(self.sold)}")
            orders.update(
                {"cents": "cents + 100"}, predicate=f"id = {self.rng.randrange(self.sold)}"
            )
            customers = deltalake.DeltaTable(self.customers)
            moved = {"country": f"'{self.country()}'"}
            customers.update(moved, predicate=f"id = {self.rng.randrange(20)}")
        orders.optimize.compact()

    def plain(self) -> list[dict[str, object]]:
        """The view, by one plain query."""
        query = deltalake.QueryBuilder()
        query.register("orders", deltalake.DeltaTable(self.orders))
        query.register("customers", deltalake.DeltaTable(self.customers))
        return in_order(pa.table(query.execute(PLAIN)).to_pylist())


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: str(row["country"]))


def main(lake: str, url: str | None) -> None:
    shop = Shop(lake)
    for number in (signal.SIGTERM, signal.SIGKILL):
        arguments = [sys.executable, __file__, "follow", lake, *([url] if url else [])]
        follower = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert follower.stdout is not None
        print(follower.stdout.readline(), end="")  # it has taken a step
        shop.works()
        follower.send_signal(number)
        steps = 1 + len(follower.stdout.readlines())
        print(f"{steps} steps, ended by {number.name} with {follower.wait()}; the shop goes on")
        shop.works()
    with pipeline_of(lake, url) as pipeline:
        print(f"The views are behind by so many versions: {pipeline.lag()}")
        pipeline.run()
    plain = shop.plain()
    views = {"Delta": deltalake.DeltaTable(f"{lake}/revenue").to_pyarrow_table().to_pylist()}
    if url:
        views["Postgres"] = in_postgres(url)
    for row in plain:
        print(f"{row['country']:8} {row['orders']:6} orders {row['cents']:10} cents")
    for name, rows in views.items():
        if in_order(rows) != plain:
            raise SystemExit(f"the view in {name} differs: {rows}")
        print(f"The view in {name} is what one plain query gives.")


def in_postgres(url: str) -> list[dict[str, object]]:
    """The rows of the view in Postgres."""
    with psycopg.connect(url) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT country, orders, cents FROM revenue").fetchall()


def follow(lake: str, url: str | None) -> None:
    """The process that follows the tables, until it is ended."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    with pipeline_of(lake, url) as pipeline:
        pipeline.run(every="100ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(sys.argv[2], sys.argv[3] if sys.argv[3:] else None)
    else:
        with tempfile.TemporaryDirectory(prefix="revenue-") as folder:
            main(folder, sys.argv[1] if sys.argv[1:] else None)
