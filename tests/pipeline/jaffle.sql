-- Nine views of a chain of sandwich shops, in the shape of dbt's example project.
CREATE VIEW stg_customers AS
SELECT
    id AS customer_id,
    name AS customer_name
FROM raw_customers;

CREATE VIEW stg_locations AS
SELECT
    id AS location_id,
    name AS location_name,
    tax_rate,
    CAST(opened_at AS DATE) AS opened_date
FROM raw_stores;

CREATE VIEW stg_order_items AS
SELECT
    id AS order_item_id,
    order_id,
    sku AS product_id
FROM raw_items;

CREATE VIEW stg_orders AS
SELECT
    id AS order_id,
    store_id AS location_id,
    customer AS customer_id,
    subtotal AS subtotal_cents,
    tax_paid AS tax_paid_cents,
    order_total AS order_total_cents,
    CAST(ordered_at AS DATE) AS ordered_at
FROM raw_orders;

CREATE VIEW stg_products AS
SELECT
    sku AS product_id,
    name AS product_name,
    type AS product_type,
    price AS product_price,
    type = 'jaffle' AS is_food_item,
    type = 'beverage' AS is_drink_item
FROM raw_products;

CREATE VIEW stg_supplies AS
SELECT
    id AS supply_id,
    sku AS product_id,
    name AS supply_name,
    cost AS supply_cost,
    perishable AS is_perishable_supply
FROM raw_supplies;

CREATE VIEW order_items AS
WITH supply_costs AS (
    SELECT
        product_id,
        sum(supply_cost) AS supply_cost
    FROM stg_supplies
    GROUP BY product_id
)
SELECT
    order_items.*,
    orders.ordered_at,
    products.product_name,
    products.product_price,
    products.is_food_item,
    products.is_drink_item,
    supply_costs.supply_cost
FROM stg_order_items AS order_items
LEFT JOIN stg_orders AS orders
    ON order_items.order_id = orders.order_id
LEFT JOIN stg_products AS products
    ON order_items.product_id = products.product_id
LEFT JOIN supply_costs
    ON order_items.product_id = supply_costs.product_id;

CREATE VIEW orders AS
WITH order_items_summary AS (
    SELECT
        order_id,
        sum(supply_cost) AS order_cost,
        sum(product_price) AS order_items_subtotal,
        count(order_item_id) AS count_order_items,
        sum(CASE WHEN is_food_item THEN 1 ELSE 0 END) AS count_food_items,
        sum(CASE WHEN is_drink_item THEN 1 ELSE 0 END) AS count_drink_items
    FROM order_items
    GROUP BY order_id
),
compute_booleans AS (
    SELECT
        orders.*,
        summary.order_cost,
        summary.order_items_subtotal,
        summary.count_food_items,
        summary.count_drink_items,
        summary.count_order_items,
        summary.count_food_items > 0 AS is_food_order,
        summary.count_drink_items > 0 AS is_drink_order
    FROM stg_orders AS orders
    LEFT JOIN order_items_summary AS summary
        ON orders.order_id = summary.order_id
)
SELECT
    *,
    row_number() OVER (
        PARTITION BY customer_id
        ORDER BY ordered_at, order_id
    ) AS customer_order_number
FROM compute_booleans;

CREATE VIEW customers AS
WITH customer_orders_summary AS (
    SELECT
        customer_id,
        count(DISTINCT order_id) AS count_lifetime_orders,
        min(ordered_at) AS first_ordered_at,
        max(ordered_at) AS last_ordered_at,
        sum(subtotal_cents) AS lifetime_spend_pretax,
        sum(tax_paid_cents) AS lifetime_tax_paid,
        sum(order_total_cents) AS lifetime_spend
    FROM orders
    GROUP BY customer_id
)
SELECT
    customers.*,
    summary.count_lifetime_orders,
    summary.first_ordered_at,
    summary.last_ordered_at,
    summary.lifetime_spend_pretax,
    summary.lifetime_tax_paid,
    summary.lifetime_spend,
    CASE
        WHEN summary.count_lifetime_orders > 1 THEN 'returning'
        ELSE 'new'
    END AS customer_type
FROM stg_customers AS customers
LEFT JOIN customer_orders_summary AS summary
    ON customers.customer_id = summary.customer_id;
