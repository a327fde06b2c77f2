{{ config(materialized='incremental', unique_key=['shop_name', 'closed_on']) }}

select
    shops.shop_name,
    bills.closed_on,
    count(distinct bills.guest_id) as guests,
    sum(bills.total_cents) as total_cents
from {{ ref('bills') }} as bills
inner join {{ ref('stg_shops') }} as shops on bills.shop_id = shops.shop_id

{% if is_incremental() %}
where bills.closed_on >= (select max(closed_on) from {{ this }})
{% endif %}

group by 1, 2
