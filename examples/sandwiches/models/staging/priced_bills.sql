{{ config(materialized='ephemeral') }}

select
    bill_id,
    count(*) as items,
    sum(price_cents) as total_cents
from {{ ref('stg_items') }}
group by bill_id
