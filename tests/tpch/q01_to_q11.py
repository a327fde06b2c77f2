"""Queries 1 to 11 of TPC-H, with the parameters of its validation run.

A name of a table is a parameter; rows are called as the specification's columns are. What SQL says
by a correlated subquery is a join with an aggregate, EXISTS a semijoin, LIMIT `first_n`.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any

import stepping_spark as st
from stepping_spark import functions as F
from tests.tpch.tables import (
    Customer,
    LineItem,
    Money,
    Nation,
    Order,
    Part,
    PartSupp,
    Region,
    Supplier,
)

ONE = Decimal(1)
Sum = Annotated[Decimal, st.Precision(25, 2)]  # of money
Revenue = Annotated[Decimal, st.Precision(38, 4)]
Charge = Annotated[Decimal, st.Precision(38, 6)]
Mean = Annotated[Decimal, st.Precision(19, 6)]
Share = Annotated[Decimal, st.Precision(38, 6)]


def revenue(line: LineItem) -> Decimal:
    return line.l_extendedprice * (ONE - line.l_discount)


def within(day: dt.date, first: dt.date, end: dt.date) -> bool:
    return (day >= first) & (day < end)


# -- 1: pricing summary


class Q1(st.Data):
    l_returnflag: str
    l_linestatus: str
    sum_qty: Sum
    sum_base_price: Sum
    sum_disc_price: Revenue
    sum_charge: Charge
    avg_qty: Mean
    avg_price: Mean
    avg_disc: Mean
    count_order: int


def q1(lineitem: st.ZSet[LineItem]) -> st.ZSet[Q1]:
    shipped = st.filter(lineitem, f=lambda line: line.l_shipdate <= dt.date(1998, 9, 2))
    return st.aggregate(
        shipped,
        by=lambda line: (line.l_returnflag, line.l_linestatus),
        into=Q1,
        sum_qty=st.agg.sum(lambda line: line.l_quantity),
        sum_base_price=st.agg.sum(lambda line: line.l_extendedprice),
        sum_disc_price=st.agg.sum(revenue),
        sum_charge=st.agg.sum(lambda line: revenue(line) * (ONE + line.l_tax)),
        avg_qty=st.agg.avg(lambda line: line.l_quantity),
        avg_price=st.agg.avg(lambda line: line.l_extendedprice),
        avg_disc=st.agg.avg(lambda line: line.l_discount),
        count_order=st.agg.count(),
    )


# -- 2: minimum cost supplier


class Q2(st.Data):
    s_acctbal: Money
    s_name: str
    n_name: str
    p_partkey: int
    p_mfgr: str
    s_address: str
    s_phone: str
    s_comment: str


class Cheapest(st.Data):
    ps_partkey: int
    ps_supplycost: Money


BY_BALANCE = st.Index.pick(
    Q2,
    lambda x: (x.s_acctbal, x.n_name, x.s_name, x.p_partkey),
    ascending=(False, True, True, True),
)


def q2(
    part: st.ZSet[Part],
    supplier: st.ZSet[Supplier],
    partsupp: st.ZSet[PartSupp],
    nation: st.ZSet[Nation],
    region: st.ZSet[Region],
) -> st.ZSet[Q2]:
    brass = st.filter(part, f=lambda p: (p.p_size == 15) & F.like(p.p_type, F.lit("%BRASS")))
    offers = st.delta_join(
        partsupp,
        st.Lookup(brass, key=lambda p: p.p_partkey, on=lambda row: row[0].ps_partkey),
        st.Lookup(supplier, key=lambda s: s.s_suppkey, on=lambda row: row[0].ps_suppkey),
        st.Lookup(nation, key=lambda n: n.n_nationkey, on=lambda row: row[2].s_nationkey),
        st.Lookup(
            st.filter(region, f=lambda r: r.r_name == "EUROPE"),
            key=lambda r: r.r_regionkey,
            on=lambda row: row[3].n_regionkey,
        ),
    )
    cheapest = st.aggregate(
        offers,
        by=lambda row: row[0].ps_partkey,
        into=Cheapest,
        ps_supplycost=st.agg.min(lambda row: row[0].ps_supplycost),
    )
    best = st.semijoin(
        offers,
        cheapest,
        on_left=lambda row: (row[0].ps_partkey, row[0].ps_supplycost),
        on_right=lambda c: (c.ps_partkey, c.ps_supplycost),
    )
    shown = st.map(
        best,
        f=lambda row: Q2(
            s_acctbal=row[2].s_acctbal,
            s_name=row[2].s_name,
            n_name=row[3].n_name,
            p_partkey=row[1].p_partkey,
            p_mfgr=row[1].p_mfgr,
            s_address=row[2].s_address,
            s_phone=row[2].s_phone,
            s_comment=row[2].s_comment,
        ),
    )
    return st.first_n(shown, BY_BALANCE, 100)


# -- 3: shipping priority


class Q3(st.Data):
    l_orderkey: int
    revenue: Revenue
    o_orderdate: dt.date
    o_shippriority: int


BY_REVENUE = st.Index.pick(
    Q3, lambda x: (x.revenue, x.o_orderdate, x.l_orderkey), ascending=(False, True, True)
)


def q3(
    customer: st.ZSet[Customer], orders: st.ZSet[Order], lineitem: st.ZSet[LineItem]
) -> st.ZSet[Q3]:
    day = dt.date(1995, 3, 15)
    building = st.filter(customer, f=lambda c: c.c_mktsegment == "BUILDING")
    early = st.filter(orders, f=lambda o: o.o_orderdate < day)
    late = st.filter(lineitem, f=lambda line: line.l_shipdate > day)
    theirs = st.join(building, early, on_left=lambda c: c.c_custkey, on_right=lambda o: o.o_custkey)
    lines = st.join(
        theirs, late, on_left=lambda p: p.right.o_orderkey, on_right=lambda line: line.l_orderkey
    )
    unshipped = st.aggregate(
        lines,
        by=lambda p: (p.right.l_orderkey, p.left.right.o_orderdate, p.left.right.o_shippriority),
        into=Q3,
        revenue=st.agg.sum(lambda p: revenue(p.right)),
    )
    return st.first_n(unshipped, BY_REVENUE, 10)


# -- 4: order priority checking


class Q4(st.Data):
    o_orderpriority: str
    order_count: int


def q4(orders: st.ZSet[Order], lineitem: st.ZSet[LineItem]) -> st.ZSet[Q4]:
    quarter = st.filter(
        orders,
        f=lambda o: within(o.o_orderdate, dt.date(1993, 7, 1), dt.date(1993, 10, 1)),
    )
    late = st.filter(lineitem, f=lambda line: line.l_commitdate < line.l_receiptdate)
    with_late = st.semijoin(
        quarter, late, on_left=lambda o: o.o_orderkey, on_right=lambda line: line.l_orderkey
    )
    return st.aggregate(
        with_late, by=lambda o: o.o_orderpriority, into=Q4, order_count=st.agg.count()
    )


# -- 5: local supplier volume


class Q5(st.Data):
    n_name: str
    revenue: Revenue


def q5(
    customer: st.ZSet[Customer],
    orders: st.ZSet[Order],
    lineitem: st.ZSet[LineItem],
    supplier: st.ZSet[Supplier],
    nation: st.ZSet[Nation],
    region: st.ZSet[Region],
) -> st.ZSet[Q5]:
    year = st.filter(
        orders,
        f=lambda o: within(o.o_orderdate, dt.date(1994, 1, 1), dt.date(1995, 1, 1)),
    )
    local = st.delta_join(
        lineitem,
        st.Lookup(year, key=lambda o: o.o_orderkey, on=lambda row: row[0].l_orderkey),
        st.Lookup(customer, key=lambda c: c.c_custkey, on=lambda row: row[1].o_custkey),
        st.Lookup(
            supplier,
            key=lambda s: (s.s_suppkey, s.s_nationkey),
            on=lambda row: (row[0].l_suppkey, row[2].c_nationkey),
        ),
        st.Lookup(nation, key=lambda n: n.n_nationkey, on=lambda row: row[3].s_nationkey),
        st.Lookup(
            st.filter(region, f=lambda r: r.r_name == "ASIA"),
            key=lambda r: r.r_regionkey,
            on=lambda row: row[4].n_regionkey,
        ),
    )
    return st.aggregate(
        local,
        by=lambda row: row[4].n_name,
        into=Q5,
        revenue=st.agg.sum(lambda row: revenue(row[0])),
    )


# -- 6: forecasting revenue change


class Q6(st.Data):
    revenue: Revenue | None


def q6(lineitem: st.ZSet[LineItem]) -> st.ZSet[Q6]:
    some = st.filter(
        lineitem,
        f=lambda line: (
            within(line.l_shipdate, dt.date(1994, 1, 1), dt.date(1995, 1, 1))
            & (line.l_discount >= Decimal("0.05"))
            & (line.l_discount <= Decimal("0.07"))
            & (line.l_quantity < 24)
        ),
    )
    return st.aggregate(
        some, None, into=Q6, revenue=st.agg.sum(lambda line: line.l_extendedprice * line.l_discount)
    )


# -- 7: volume shipping


class Q7(st.Data):
    supp_nation: str
    cust_nation: str
    l_year: int
    revenue: Revenue


def q7(
    supplier: st.ZSet[Supplier],
    lineitem: st.ZSet[LineItem],
    orders: st.ZSet[Order],
    customer: st.ZSet[Customer],
    nation: st.ZSet[Nation],
) -> st.ZSet[Q7]:
    shipped = st.filter(
        lineitem,
        f=lambda line: within(line.l_shipdate, dt.date(1995, 1, 1), dt.date(1997, 1, 1)),
    )
    both = st.filter(nation, f=lambda n: (n.n_name == "FRANCE") | (n.n_name == "GERMANY"))
    shipping = st.delta_join(
        shipped,
        st.Lookup(supplier, key=lambda s: s.s_suppkey, on=lambda row: row[0].l_suppkey),
        st.Lookup(orders, key=lambda o: o.o_orderkey, on=lambda row: row[0].l_orderkey),
        st.Lookup(customer, key=lambda c: c.c_custkey, on=lambda row: row[2].o_custkey),
        st.Lookup(both, key=lambda n: n.n_nationkey, on=lambda row: row[1].s_nationkey),
        st.Lookup(both, key=lambda n: n.n_nationkey, on=lambda row: row[3].c_nationkey),
    )
    between = st.filter(shipping, f=lambda row: row[4].n_name != row[5].n_name)
    return st.aggregate(
        between,
        by=lambda row: (row[4].n_name, row[5].n_name, F.year(row[0].l_shipdate)),
        into=Q7,
        revenue=st.agg.sum(lambda row: revenue(row[0])),
    )


# -- 8: national market share


class Q8(st.Data):
    o_year: int
    mkt_share: Share


class Volumes(st.Data):
    o_year: int
    brazil: Revenue
    total: Revenue


def q8(
    part: st.ZSet[Part],
    supplier: st.ZSet[Supplier],
    lineitem: st.ZSet[LineItem],
    orders: st.ZSet[Order],
    customer: st.ZSet[Customer],
    nation: st.ZSet[Nation],
    region: st.ZSet[Region],
) -> st.ZSet[Q8]:
    steel = st.filter(part, f=lambda p: p.p_type == "ECONOMY ANODIZED STEEL")
    years = st.filter(
        orders,
        f=lambda o: within(o.o_orderdate, dt.date(1995, 1, 1), dt.date(1997, 1, 1)),
    )
    sold = st.delta_join(
        lineitem,
        st.Lookup(steel, key=lambda p: p.p_partkey, on=lambda row: row[0].l_partkey),
        st.Lookup(supplier, key=lambda s: s.s_suppkey, on=lambda row: row[0].l_suppkey),
        st.Lookup(years, key=lambda o: o.o_orderkey, on=lambda row: row[0].l_orderkey),
        st.Lookup(customer, key=lambda c: c.c_custkey, on=lambda row: row[3].o_custkey),
        st.Lookup(nation, key=lambda n: n.n_nationkey, on=lambda row: row[4].c_nationkey),
        st.Lookup(
            st.filter(region, f=lambda r: r.r_name == "AMERICA"),
            key=lambda r: r.r_regionkey,
            on=lambda row: row[5].n_regionkey,
        ),
        st.Lookup(nation, key=lambda n: n.n_nationkey, on=lambda row: row[2].s_nationkey),
    )
    volumes = st.aggregate(
        sold,
        by=lambda row: F.year(row[3].o_orderdate),
        into=Volumes,
        brazil=st.agg.sum(
            lambda row: F.when(row[7].n_name == "BRAZIL", revenue(row[0])).otherwise(0)
        ),
        total=st.agg.sum(lambda row: revenue(row[0])),
    )
    return st.map(volumes, f=lambda v: Q8(o_year=v.o_year, mkt_share=v.brazil / v.total))


# -- 9: product type profit


class Q9(st.Data):
    nation: str
    o_year: int
    sum_profit: Revenue


def q9(
    part: st.ZSet[Part],
    supplier: st.ZSet[Supplier],
    lineitem: st.ZSet[LineItem],
    partsupp: st.ZSet[PartSupp],
    orders: st.ZSet[Order],
    nation: st.ZSet[Nation],
) -> st.ZSet[Q9]:
    green = st.filter(part, f=lambda p: F.like(p.p_name, F.lit("%green%")))
    sold = st.delta_join(
        lineitem,
        st.Lookup(green, key=lambda p: p.p_partkey, on=lambda row: row[0].l_partkey),
        st.Lookup(supplier, key=lambda s: s.s_suppkey, on=lambda row: row[0].l_suppkey),
        st.Lookup(
            partsupp,
            key=lambda ps: (ps.ps_partkey, ps.ps_suppkey),
            on=lambda row: (row[0].l_partkey, row[0].l_suppkey),
        ),
        st.Lookup(orders, key=lambda o: o.o_orderkey, on=lambda row: row[0].l_orderkey),
        st.Lookup(nation, key=lambda n: n.n_nationkey, on=lambda row: row[2].s_nationkey),
    )
    return st.aggregate(
        sold,
        by=lambda row: (row[5].n_name, F.year(row[4].o_orderdate)),
        into=Q9,
        sum_profit=st.agg.sum(
            lambda row: revenue(row[0]) - row[3].ps_supplycost * row[0].l_quantity
        ),
    )


# -- 10: returned items


class Q10(st.Data):
    c_custkey: int
    c_name: str
    revenue: Revenue
    c_acctbal: Money
    n_name: str
    c_address: str
    c_phone: str
    c_comment: str


def q10(
    customer: st.ZSet[Customer],
    orders: st.ZSet[Order],
    lineitem: st.ZSet[LineItem],
    nation: st.ZSet[Nation],
) -> st.ZSet[Q10]:
    quarter = st.filter(
        orders,
        f=lambda o: within(o.o_orderdate, dt.date(1993, 10, 1), dt.date(1994, 1, 1)),
    )
    returned = st.filter(lineitem, f=lambda line: line.l_returnflag == "R")
    lines = st.delta_join(
        returned,
        st.Lookup(quarter, key=lambda o: o.o_orderkey, on=lambda row: row[0].l_orderkey),
        st.Lookup(customer, key=lambda c: c.c_custkey, on=lambda row: row[1].o_custkey),
        st.Lookup(nation, key=lambda n: n.n_nationkey, on=lambda row: row[2].c_nationkey),
    )

    def by(row: Any) -> Any:
        c = row[2]
        return (
            *(c.c_custkey, c.c_name, c.c_acctbal, row[3].n_name),
            *(c.c_address, c.c_phone, c.c_comment),
        )

    lost = st.aggregate(lines, by=by, into=Q10, revenue=st.agg.sum(lambda row: revenue(row[0])))
    order = st.Index.pick(Q10, lambda x: (x.revenue, x.c_custkey), ascending=(False, True))
    return st.first_n(lost, order, 20)


# -- 11: important stock


class Value(st.Data):
    value: Annotated[Decimal, st.Precision(38, 2)]


class Q11(st.Data):
    ps_partkey: int
    value: Annotated[Decimal, st.Precision(38, 2)]


def q11(
    partsupp: st.ZSet[PartSupp], supplier: st.ZSet[Supplier], nation: st.ZSet[Nation]
) -> st.ZSet[Q11]:
    german = st.delta_join(
        partsupp,
        st.Lookup(supplier, key=lambda s: s.s_suppkey, on=lambda row: row[0].ps_suppkey),
        st.Lookup(
            st.filter(nation, f=lambda n: n.n_name == "GERMANY"),
            key=lambda n: n.n_nationkey,
            on=lambda row: row[1].s_nationkey,
        ),
    )

    def value(row: Any) -> Any:
        return row[0].ps_supplycost * row[0].ps_availqty

    by_part = st.aggregate(
        german, by=lambda row: row[0].ps_partkey, into=Q11, value=st.agg.sum(value)
    )
    total = st.reduce(by_part, zero=Decimal, pick_value=lambda x: x.value)
    beside = st.join(by_part, total, on_left=lambda x: 0, on_right=lambda x: 0)
    important = st.filter(beside, f=lambda p: p.left.value > p.right * Decimal("0.0001"))
    return st.map(important, f=lambda p: p.left)
