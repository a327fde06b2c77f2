with bills as (

    select * from {{ ref('stg_bills') }}

),

totals as (

    select * from {{ ref('priced_bills') }}

)

select
    bills.*,
    coalesce(totals.items, 0) as items,
    coalesce(totals.total_cents, 0) as total_cents,
    row_number() over (
        partition by bills.guest_id
        order by bills.closed_on, bills.bill_id
    ) as visit
from bills
left join totals on bills.bill_id = totals.bill_id
