with guests as (

    select * from {{ ref('stg_guests') }}

),

visits as (

    select
        guest_id,
        count(*) as visits,
        min(closed_on) as first_visit,
        max(closed_on) as last_visit,
        sum(total_cents) as spent_cents
    from {{ ref('bills') }}
    where is_paid
    group by guest_id

)

select
    guests.guest_id,
    guests.guest_name,
    visits.first_visit,
    visits.last_visit,
    coalesce(visits.visits, 0) as visits,
    coalesce(visits.spent_cents, 0) as spent_cents,
    case when visits.visits > 1 then 'returning' else 'new' end as kind
from guests
left join visits on guests.guest_id = visits.guest_id
