with sold as (

    select
        bills.guest_id,
        items.product,
        count(*) as n
    from {{ ref('stg_items') }} as items
    inner join {{ ref('stg_bills') }} as bills using (bill_id)
    group by bills.guest_id, items.product

),

ranked as (

    select
        *,
        row_number() over (partition by guest_id order by n desc, product) as place
    from sold

)

select guest_id, product, n
from ranked
where place = 1
