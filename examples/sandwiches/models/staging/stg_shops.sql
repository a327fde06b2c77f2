select
    id as shop_id,
    name as shop_name,
    opened as opened_on
from {{ ref('raw_shops') }}
