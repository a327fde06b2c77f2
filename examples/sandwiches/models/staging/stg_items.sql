select
    id as item_id,
    bill as bill_id,
    upper(product) as product,
    price as price_cents
from {{ ref('raw_items') }}
