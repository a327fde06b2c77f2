with bills as (

    select * from {{ ref('raw_bills') }}

)

select
    id as bill_id,
    shop as shop_id,
    guest as guest_id,
    paid as is_paid,
    cast(closed_at as date) as closed_on
from bills
where not cancelled
