"""What benchmarks share: orders that join customers, a large state of them, and small changes."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

import stepping_spark as st


class Order(st.Data):
    id: int
    customer: int
    amount: int


class Customer(st.Data):
    id: int
    region: int


def query(
    orders: st.ZSet[Order], customers: st.ZSet[Customer]
) -> st.ZSet[st.Pair[Order, Customer]]:
    joined = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    return joined


PER_CUSTOMER = 10


@dataclass(frozen=True)
class Tables:
    """So many orders, and the customers for them."""

    rows: int

    @property
    def customers(self) -> int:
        """How many customers there are."""
        return max(self.rows // PER_CUSTOMER, 10)

    @property
    def orders_in_sql(self) -> str:
        """The orders, as a query."""
        return (
            f"SELECT id, id % {self.customers} AS customer, id % 97 AS amount "
            f"FROM range({self.rows})"
        )

    @property
    def customers_in_sql(self) -> str:
        """The customers, as a query."""
        return f"SELECT id, id % 5 AS region FROM range({self.customers})"

    def load(self, spark: SparkSession, stepper: st.Stepper) -> None:
        """Feed all of them, in one step."""
        stepper.step(
            (
                st.ZSetSpark.from_dataframe(spark.sql(self.orders_in_sql), Order),
                st.ZSetSpark.from_dataframe(spark.sql(self.customers_in_sql), Customer),
            )
        )
