"""The nine views of `jaffle.sql`, with row classes from the tables."""

# mypy: ignore-errors
# The classes are made, and what a query without annotations gives is known to `st.compile` only.
from typing import Any

from pyspark.sql import functions as F

import stepping_spark as st
from tests.pipeline.jaffle_tables import TABLES

RawCustomer = st.row_class(TABLES["raw_customers"], name="RawCustomer")
RawStore = st.row_class(TABLES["raw_stores"], name="RawStore")
RawItem = st.row_class(TABLES["raw_items"], name="RawItem")
RawOrder = st.row_class(TABLES["raw_orders"], name="RawOrder")
RawProduct = st.row_class(TABLES["raw_products"], name="RawProduct")
RawSupply = st.row_class(TABLES["raw_supplies"], name="RawSupply")


def stg_customers(raw_customers: st.ZSet[RawCustomer]) -> Any:
    return st.map(raw_customers, f=lambda c: st.row(customer_id=c.id, customer_name=c.name))


def stg_locations(raw_stores: st.ZSet[RawStore]) -> Any:
    return st.map(
        raw_stores,
        f=lambda s: st.row(
            location_id=s.id,
            location_name=s.name,
            tax_rate=s.tax_rate,
            opened_date=F.to_date(s.opened_at),
        ),
    )


def stg_order_items(raw_items: st.ZSet[RawItem]) -> Any:
    return st.map(
        raw_items,
        f=lambda i: st.row(order_item_id=i.id, order_id=i.order_id, product_id=i.sku),
    )


def stg_orders(raw_orders: st.ZSet[RawOrder]) -> Any:
    return st.map(
        raw_orders,
        f=lambda o: st.row(
            order_id=o.id,
            location_id=o.store_id,
            customer_id=o.customer,
            subtotal_cents=o.subtotal,
            tax_paid_cents=o.tax_paid,
            order_total_cents=o.order_total,
            ordered_at=F.to_date(o.ordered_at),
        ),
    )


def stg_products(raw_products: st.ZSet[RawProduct]) -> Any:
    return st.map(
        raw_products,
        f=lambda p: st.row(
            product_id=p.sku,
            product_name=p.name,
            product_type=p.type,
            product_price=p.price,
            is_food_item=p.type == "jaffle",
            is_drink_item=p.type == "beverage",
        ),
    )


def stg_supplies(raw_supplies: st.ZSet[RawSupply]) -> Any:
    return st.map(
        raw_supplies,
        f=lambda s: st.row(
            supply_id=s.id,
            product_id=s.sku,
            supply_name=s.name,
            supply_cost=s.cost,
            is_perishable_supply=s.perishable,
        ),
    )


def order_items(stg_order_items, stg_orders, stg_products, stg_supplies) -> Any:
    cost = st.agg.sum(lambda s: s.supply_cost)
    costs = st.aggregate(stg_supplies, by=lambda s: s.product_id, supply_cost=cost)
    of_order = {"key": lambda o: o.order_id, "on": lambda r: r[0].order_id, "how": "left"}
    of_product = {"key": lambda p: p.product_id, "on": lambda r: r[0].product_id, "how": "left"}
    joined = st.delta_join(
        stg_order_items,
        st.Lookup(stg_orders, **of_order),
        st.Lookup(stg_products, **of_product),
        st.Lookup(costs, **of_product),
    )
    return st.map(
        joined,
        f=lambda r: st.row(
            r[0],
            ordered_at=r[1].ordered_at,
            product_name=r[2].product_name,
            product_price=r[2].product_price,
            is_food_item=r[2].is_food_item,
            is_drink_item=r[2].is_drink_item,
            supply_cost=r[3].supply_cost,
        ),
    )


def orders(stg_orders, order_items) -> Any:
    summary = st.aggregate(
        order_items,
        by=lambda i: i.order_id,
        order_cost=st.agg.sum(lambda i: i.supply_cost),
        order_items_subtotal=st.agg.sum(lambda i: i.product_price),
        count_order_items=st.agg.count(),
        count_food_items=st.agg.sum(lambda i: F.when(i.is_food_item, 1).otherwise(0)),
        count_drink_items=st.agg.sum(lambda i: F.when(i.is_drink_item, 1).otherwise(0)),
    )
    by_id = {"on_left": lambda o: o.order_id, "on_right": lambda s: s.order_id}
    summed = st.map(
        st.outer_join(stg_orders, summary, **by_id),
        f=lambda p: st.row(
            p,
            order_id=p.left.order_id,
            is_food_order=p.right.count_food_items > 0,
            is_drink_order=p.right.count_drink_items > 0,
        ),
    )
    return st.window(
        summed,
        by=lambda o: o.customer_id,
        order=lambda o: (o.ordered_at, o.order_id),
        customer_order_number=st.win.row_number(),
    )


def customers(stg_customers, orders) -> Any:
    spent = st.aggregate(
        orders,
        by=lambda o: o.customer_id,
        count_lifetime_orders=st.agg.count_distinct(lambda o: o.order_id),
        first_ordered_at=st.agg.min(lambda o: o.ordered_at),
        last_ordered_at=st.agg.max(lambda o: o.ordered_at),
        lifetime_spend_pretax=st.agg.sum(lambda o: o.subtotal_cents),
        lifetime_tax_paid=st.agg.sum(lambda o: o.tax_paid_cents),
        lifetime_spend=st.agg.sum(lambda o: o.order_total_cents),
    )
    by_id = {"on_left": lambda c: c.customer_id, "on_right": lambda s: s.customer_id}
    return st.map(
        st.outer_join(stg_customers, spent, **by_id),
        f=lambda p: st.row(
            p,
            customer_id=p.left.customer_id,
            customer_type=F.when(p.right.count_lifetime_orders > 1, "returning").otherwise("new"),
        ),
    )
