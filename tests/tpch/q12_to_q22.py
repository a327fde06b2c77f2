"""Queries 12 to 22 of TPC-H, with the parameters of its validation run: see `q01_to_q11`."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any

from pyspark.sql import functions as F

import stepping_spark as st
from tests.tpch.q01_to_q11 import Mean, Revenue, Sum, revenue, within
from tests.tpch.tables import (
    Customer,
    LineItem,
    Money,
    Nation,
    Order,
    Part,
    PartSupp,
    Supplier,
)

# -- 12: shipping modes and order priority


class Q12(st.Data):
    l_shipmode: str
    high_line_count: int
    low_line_count: int


def q12(orders: st.ZSet[Order], lineitem: st.ZSet[LineItem]) -> st.ZSet[Q12]:
    late = st.filter(
        lineitem,
        f=lambda line: (
            ((line.l_shipmode == "MAIL") | (line.l_shipmode == "SHIP"))
            & (line.l_commitdate < line.l_receiptdate)
            & (line.l_shipdate < line.l_commitdate)
            & within(line.l_receiptdate, dt.date(1994, 1, 1), dt.date(1995, 1, 1))
        ),
    )
    lines = st.join(
        late, orders, on_left=lambda line: line.l_orderkey, on_right=lambda o: o.o_orderkey
    )

    def high(p: Any) -> Any:
        return p.right.o_orderpriority.isin("1-URGENT", "2-HIGH")

    return st.aggregate(
        lines,
        by=lambda p: p.left.l_shipmode,
        into=Q12,
        high_line_count=st.agg.sum(lambda p: F.when(high(p), 1).otherwise(0)),
        low_line_count=st.agg.sum(lambda p: F.when(high(p), 0).otherwise(1)),
    )


# -- 13: customer distribution


class Orders(st.Data):
    c_custkey: int
    c_count: int


class Q13(st.Data):
    c_count: int
    custdist: int


def q13(customer: st.ZSet[Customer], orders: st.ZSet[Order]) -> st.ZSet[Q13]:
    usual = st.filter(orders, f=lambda o: ~F.like(o.o_comment, F.lit("%special%requests%")))
    theirs = st.outer_join(
        customer, usual, on_left=lambda c: c.c_custkey, on_right=lambda o: o.o_custkey
    )
    counts = st.aggregate(
        theirs,
        by=lambda p: p.left.c_custkey,
        into=Orders,
        c_count=st.agg.count(lambda p: p.right.o_orderkey),
    )
    return st.aggregate(counts, by=lambda x: x.c_count, into=Q13, custdist=st.agg.count())


# -- 14: promotion effect


class Promotion(st.Data):
    promo: Revenue | None
    total: Revenue | None


class Q14(st.Data):
    promo_revenue: Annotated[Decimal, st.Precision(38, 6)] | None


def q14(lineitem: st.ZSet[LineItem], part: st.ZSet[Part]) -> st.ZSet[Q14]:
    month = st.filter(
        lineitem,
        f=lambda line: within(line.l_shipdate, dt.date(1995, 9, 1), dt.date(1995, 10, 1)),
    )
    sold = st.join(month, part, on_left=lambda line: line.l_partkey, on_right=lambda p: p.p_partkey)

    def promoted(p: st.Pair[LineItem, Part]) -> Any:
        promo = F.like(p.right.p_type, F.lit("PROMO%"))
        return F.when(promo, revenue(p.left)).otherwise(0)

    sums = st.aggregate(
        sold,
        None,
        into=Promotion,
        promo=st.agg.sum(promoted),
        total=st.agg.sum(lambda p: revenue(p.left)),
    )

    def share(x: Any) -> Q14:
        return Q14(promo_revenue=Decimal("100.00") * x.promo / x.total)

    return st.map(sums, f=share)


# -- 15: top supplier


class Supplied(st.Data):
    supplier_no: int
    total_revenue: Revenue


class Most(st.Data):
    most: Revenue | None


class Q15(st.Data):
    s_suppkey: int
    s_name: str
    s_address: str
    s_phone: str
    total_revenue: Revenue


def q15(supplier: st.ZSet[Supplier], lineitem: st.ZSet[LineItem]) -> st.ZSet[Q15]:
    quarter = st.filter(
        lineitem,
        f=lambda line: within(line.l_shipdate, dt.date(1996, 1, 1), dt.date(1996, 4, 1)),
    )
    supplied = st.aggregate(
        quarter,
        by=lambda line: line.l_suppkey,
        into=Supplied,
        total_revenue=st.agg.sum(revenue),
    )
    most = st.aggregate(supplied, None, into=Most, most=st.agg.max(lambda x: x.total_revenue))
    top = st.semijoin(supplied, most, on_left=lambda x: x.total_revenue, on_right=lambda m: m.most)
    known = st.join(supplier, top, on_left=lambda s: s.s_suppkey, on_right=lambda x: x.supplier_no)
    return st.map(
        known,
        f=lambda p: Q15(
            s_suppkey=p.left.s_suppkey,
            s_name=p.left.s_name,
            s_address=p.left.s_address,
            s_phone=p.left.s_phone,
            total_revenue=p.right.total_revenue,
        ),
    )


# -- 16: parts/supplier relationship


class Q16(st.Data):
    p_brand: str
    p_type: str
    p_size: int
    supplier_cnt: int


SIZES = (49, 14, 23, 45, 19, 3, 36, 9)


def q16(
    partsupp: st.ZSet[PartSupp], part: st.ZSet[Part], supplier: st.ZSet[Supplier]
) -> st.ZSet[Q16]:
    def wanted(p: Any) -> Any:
        return (p.p_brand != "Brand#45") & ~p.p_type.like("MEDIUM POLISHED%") & p.p_size.isin(SIZES)

    complained = st.filter(
        supplier, f=lambda s: F.like(s.s_comment, F.lit("%Customer%Complaints%"))
    )
    offers = st.antijoin(
        partsupp, complained, on_left=lambda x: x.ps_suppkey, on_right=lambda s: s.s_suppkey
    )
    parts = st.join(
        offers,
        st.filter(part, f=wanted),
        on_left=lambda x: x.ps_partkey,
        on_right=lambda p: p.p_partkey,
    )
    return st.aggregate(
        parts,
        by=lambda p: (p.right.p_brand, p.right.p_type, p.right.p_size),
        into=Q16,
        supplier_cnt=st.agg.count_distinct(lambda p: p.left.ps_suppkey),
    )


# -- 17: small-quantity-order revenue


class Usual(st.Data):
    l_partkey: int
    avg_qty: Mean


class Lost(st.Data):
    total: Sum | None


class Q17(st.Data):
    avg_yearly: Annotated[Decimal, st.Precision(38, 6)] | None


def q17(lineitem: st.ZSet[LineItem], part: st.ZSet[Part]) -> st.ZSet[Q17]:
    boxes = st.filter(part, f=lambda p: (p.p_brand == "Brand#23") & (p.p_container == "MED BOX"))
    lines = st.semijoin(
        lineitem, boxes, on_left=lambda line: line.l_partkey, on_right=lambda p: p.p_partkey
    )
    usual = st.aggregate(
        lines,
        by=lambda line: line.l_partkey,
        into=Usual,
        avg_qty=st.agg.avg(lambda line: line.l_quantity),
    )
    beside = st.join(
        lines, usual, on_left=lambda line: line.l_partkey, on_right=lambda u: u.l_partkey
    )
    small = st.filter(beside, f=lambda p: p.left.l_quantity < p.right.avg_qty * Decimal("0.2"))
    lost = st.aggregate(small, None, into=Lost, total=st.agg.sum(lambda p: p.left.l_extendedprice))

    def yearly(x: Any) -> Q17:
        return Q17(avg_yearly=x.total / Decimal("7.0"))

    return st.map(lost, f=yearly)


# -- 18: large volume customer


class Q18(st.Data):
    c_name: str
    c_custkey: int
    o_orderkey: int
    o_orderdate: dt.date
    o_totalprice: Money
    sum_qty: Sum


class Volume(st.Data):
    l_orderkey: int
    quantity: Sum


def q18(
    customer: st.ZSet[Customer], orders: st.ZSet[Order], lineitem: st.ZSet[LineItem]
) -> st.ZSet[Q18]:
    volumes = st.aggregate(
        lineitem,
        by=lambda line: line.l_orderkey,
        into=Volume,
        quantity=st.agg.sum(lambda line: line.l_quantity),
    )
    large = st.filter(volumes, f=lambda v: v.quantity > 300)
    known = st.delta_join(
        orders,
        st.Lookup(large, key=lambda v: v.l_orderkey, on=lambda row: row[0].o_orderkey),
        st.Lookup(customer, key=lambda c: c.c_custkey, on=lambda row: row[0].o_custkey),
    )
    shown = st.map(
        known,
        f=lambda row: Q18(
            c_name=row[2].c_name,
            c_custkey=row[2].c_custkey,
            o_orderkey=row[0].o_orderkey,
            o_orderdate=row[0].o_orderdate,
            o_totalprice=row[0].o_totalprice,
            sum_qty=row[1].quantity,
        ),
    )
    order = st.Index.pick(
        Q18,
        lambda x: (x.o_totalprice, x.o_orderdate, x.o_orderkey),
        ascending=(False, True, True),
    )
    return st.first_n(shown, order, 100)


# -- 19: discounted revenue


class Q19(st.Data):
    revenue: Revenue | None


def q19(lineitem: st.ZSet[LineItem], part: st.ZSet[Part]) -> st.ZSet[Q19]:
    by_air = st.filter(
        lineitem,
        f=lambda line: (
            ((line.l_shipmode == "AIR") | (line.l_shipmode == "AIR REG"))
            & (line.l_shipinstruct == "DELIVER IN PERSON")
        ),
    )
    lines = st.join(
        by_air, part, on_left=lambda line: line.l_partkey, on_right=lambda p: p.p_partkey
    )

    def wanted(pair: Any) -> Any:
        line, p = pair.left, pair.right

        def of(brand: str, size: str, kinds: str, least: int, largest: int) -> Any:
            return (
                (p.p_brand == brand)
                & p.p_container.isin([f"{size} {kind}" for kind in kinds.split()])
                & line.l_quantity.between(least, least + 10)
                & p.p_size.between(1, largest)
            )

        return (
            of("Brand#12", "SM", "CASE BOX PACK PKG", 1, 5)
            | of("Brand#23", "MED", "BAG BOX PKG PACK", 10, 10)
            | of("Brand#34", "LG", "CASE BOX PACK PKG", 20, 15)
        )

    return st.aggregate(
        st.filter(lines, f=wanted),
        None,
        into=Q19,
        revenue=st.agg.sum(lambda p: revenue(p.left)),
    )


# -- 20: potential part promotion


class Q20(st.Data):
    s_name: str
    s_address: str


class Shipped(st.Data):
    l_partkey: int
    l_suppkey: int
    quantity: Sum


def q20(
    supplier: st.ZSet[Supplier],
    nation: st.ZSet[Nation],
    partsupp: st.ZSet[PartSupp],
    part: st.ZSet[Part],
    lineitem: st.ZSet[LineItem],
) -> st.ZSet[Q20]:
    forest = st.filter(part, f=lambda p: F.like(p.p_name, F.lit("forest%")))
    offers = st.semijoin(
        partsupp, forest, on_left=lambda x: x.ps_partkey, on_right=lambda p: p.p_partkey
    )
    year = st.filter(
        lineitem,
        f=lambda line: within(line.l_shipdate, dt.date(1994, 1, 1), dt.date(1995, 1, 1)),
    )
    shipped = st.aggregate(
        year,
        by=lambda line: (line.l_partkey, line.l_suppkey),
        into=Shipped,
        quantity=st.agg.sum(lambda line: line.l_quantity),
    )
    beside = st.join(
        offers,
        shipped,
        on_left=lambda x: (x.ps_partkey, x.ps_suppkey),
        on_right=lambda s: (s.l_partkey, s.l_suppkey),
    )
    spare = st.filter(beside, f=lambda p: p.left.ps_availqty > p.right.quantity * Decimal("0.5"))
    canadian = st.join(
        supplier,
        st.filter(nation, f=lambda n: n.n_name == "CANADA"),
        on_left=lambda s: s.s_nationkey,
        on_right=lambda n: n.n_nationkey,
    )
    suppliers = st.semijoin(
        canadian, spare, on_left=lambda p: p.left.s_suppkey, on_right=lambda p: p.left.ps_suppkey
    )
    return st.map(suppliers, f=lambda p: Q20(s_name=p.left.s_name, s_address=p.left.s_address))


# -- 21: suppliers who kept orders waiting


class Suppliers(st.Data):
    l_orderkey: int
    n: int


class Q21(st.Data):
    s_name: str
    numwait: int


def q21(
    supplier: st.ZSet[Supplier],
    lineitem: st.ZSet[LineItem],
    orders: st.ZSet[Order],
    nation: st.ZSet[Nation],
) -> st.ZSet[Q21]:
    late = st.filter(lineitem, f=lambda line: line.l_receiptdate > line.l_commitdate)

    def suppliers(lines: st.ZSet[LineItem]) -> st.ZSet[Suppliers]:
        return st.aggregate(
            lines,
            by=lambda line: line.l_orderkey,
            into=Suppliers,
            n=st.agg.count_distinct(lambda line: line.l_suppkey),
        )

    waiting = st.delta_join(
        late,
        st.Lookup(supplier, key=lambda s: s.s_suppkey, on=lambda row: row[0].l_suppkey),
        st.Lookup(
            st.filter(orders, f=lambda o: o.o_orderstatus == "F"),
            key=lambda o: o.o_orderkey,
            on=lambda row: row[0].l_orderkey,
        ),
        st.Lookup(
            st.filter(nation, f=lambda n: n.n_name == "SAUDI ARABIA"),
            key=lambda n: n.n_nationkey,
            on=lambda row: row[1].s_nationkey,
        ),
        # Another supplier is in the order, and none that is late but this one.
        st.Lookup(
            st.filter(suppliers(lineitem), f=lambda x: x.n > 1),
            key=lambda x: x.l_orderkey,
            on=lambda row: row[0].l_orderkey,
        ),
        st.Lookup(
            st.filter(suppliers(late), f=lambda x: x.n == 1),
            key=lambda x: x.l_orderkey,
            on=lambda row: row[0].l_orderkey,
        ),
    )
    waits = st.aggregate(waiting, by=lambda row: row[1].s_name, into=Q21, numwait=st.agg.count())
    order = st.Index.pick(Q21, lambda x: (x.numwait, x.s_name), ascending=(False, True))
    return st.first_n(waits, order, 100)


# -- 22: global sales opportunity


class Balance(st.Data):
    avg_acctbal: Mean | None


class Q22(st.Data):
    cntrycode: str
    numcust: int
    totacctbal: Sum


CODES = ("13", "31", "23", "29", "30", "18", "17")


def q22(customer: st.ZSet[Customer], orders: st.ZSet[Order]) -> st.ZSet[Q22]:
    there = st.filter(customer, f=lambda c: F.substring(c.c_phone, 1, 2).isin(*CODES))
    usual = st.aggregate(
        st.filter(there, f=lambda c: c.c_acctbal > 0),
        None,
        into=Balance,
        avg_acctbal=st.agg.avg(lambda c: c.c_acctbal),
    )
    idle = st.antijoin(there, orders, on_left=lambda c: c.c_custkey, on_right=lambda o: o.o_custkey)
    beside = st.join(idle, usual, on_left=lambda c: 0, on_right=lambda b: 0)

    def rich(p: Any) -> Any:
        return p.left.c_acctbal > p.right.avg_acctbal

    return st.aggregate(
        st.filter(beside, f=rich),
        by=lambda p: F.substring(p.left.c_phone, 1, 2),
        into=Q22,
        numcust=st.agg.count(),
        totacctbal=st.agg.sum(lambda p: p.left.c_acctbal),
    )
