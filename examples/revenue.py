"""Revenue by country, of orders and customers in Delta tables: in a Delta table and in Postgres.

A shop writes two Delta tables, and knows nothing of views. A pipeline follows them in a process of
its own. It is stopped, killed and started again, while the shop goes on. In the end both views are
what one plain SQL query gives on the shop's tables. No Spark is needed.

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


def pipeline_of(lake: str, url: str | None) -> st.Pipeline:
    """Tables in, tables out."""
    into: list[st.DeltaTable | st.Postgres] = [st.DeltaTable(f"{lake}/revenue", key="country")]
    if url:
        into.append(st.Postgres(url, table="revenue", key="country"))
    orders, customers = st.DeltaTable(f"{lake}/orders"), st.DeltaTable(f"{lake}/customers")
    state = f"parquet:{lake}/state"
    return st.Pipeline(revenue, store=state, orders=orders, customers=customers, into=into)


CHANCE = random.Random(7)


def some_orders(n: int) -> pa.Table:
    ids, cents = (CHANCE.sample(range(10**9), n) for _ in range(2))
    return pa.table({"id": ids, "customer": CHANCE.choices(range(20), k=n), "cents": cents})


def found_shop(lake: str) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    countries = CHANCE.choices(["Chile", "Ghana", "Japan", "Norway"], k=20)
    people = pa.table({"id": range(20), "country": countries})
    deltalake.write_deltalake(f"{lake}/customers", people, configuration=feed)
    deltalake.write_deltalake(f"{lake}/orders", some_orders(50), configuration=feed)


def sell(lake: str) -> None:
    """Orders come, one is cancelled, one corrected, a customer moves; then files are merged."""
    orders = deltalake.DeltaTable(f"{lake}/orders")
    for _ in range(5):
        deltalake.write_deltalake(orders, some_orders(5), mode="append")
        cancelled, corrected = CHANCE.sample(orders.to_pyarrow_table()["id"].to_pylist(), 2)
        orders.delete(f"id = {cancelled}")
        orders.update({"cents": "cents + 100"}, predicate=f"id = {corrected}")
        customers = deltalake.DeltaTable(f"{lake}/customers")
        customers.update({"country": "'Peru'"}, predicate=f"id = {CHANCE.randrange(20)}")
    orders.optimize.compact()


def plain(lake: str) -> list[tuple[str, int, int]]:
    """The view, by one plain query."""
    query = deltalake.QueryBuilder()
    for name in ("orders", "customers"):
        query.register(name, deltalake.DeltaTable(f"{lake}/{name}"))
    text = "SELECT country, count(*) AS orders, sum(cents) AS cents FROM orders"
    text += " JOIN customers ON orders.customer = customers.id GROUP BY country"
    return in_order(pa.table(query.execute(text)))


def in_order(table: pa.Table) -> list[tuple[str, int, int]]:
    return sorted((row["country"], row["orders"], row["cents"]) for row in table.to_pylist())


def main(lake: str, url: str | None) -> None:
    found_shop(lake)
    for number in (signal.SIGTERM, signal.SIGKILL):
        arguments = [sys.executable, __file__, "follow", lake, *([url] if url else [])]
        follower = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert follower.stdout is not None
        print(follower.stdout.readline(), end="")  # it has taken a step
        sell(lake)
        follower.send_signal(number)
        steps = 1 + len(follower.stdout.readlines())
        print(f"{steps} steps, ended by {number.name} with {follower.wait()}; the shop goes on")
        sell(lake)
    with pipeline_of(lake, url) as pipeline:
        print(f"The views are behind by so many versions: {pipeline.lag()}")
        pipeline.run()
    wanted = plain(lake)
    views = {"Delta": in_order(deltalake.DeltaTable(f"{lake}/revenue").to_pyarrow_table())}
    if url:
        with psycopg.connect(url) as connection:
            views["Postgres"] = sorted(connection.execute("SELECT * FROM revenue").fetchall())
    for country, orders, cents in wanted:
        print(f"{country:8} {orders:6} orders {cents:14,} cents")
    for name, rows in views.items():
        if rows != wanted:
            raise SystemExit(f"the view in {name} differs: {rows}")
        print(f"The view in {name} is what one plain query gives.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
        with pipeline_of(sys.argv[2], sys.argv[3] if sys.argv[3:] else None) as followed:
            followed.run(every="100ms")  # until it is ended
    else:
        with tempfile.TemporaryDirectory(prefix="revenue-") as folder:
            main(folder, sys.argv[1] if sys.argv[1:] else None)
