select
    id as guest_id,
    coalesce(name, 'unknown') as guest_name
from {{ ref('raw_guests') }}
