"""The tables of TPC-H as rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated

import stepping_spark as st

Money = Annotated[Decimal, st.Precision(15, 2)]  # what the specification calls a decimal


class Region(st.Data):
    r_regionkey: int
    r_name: str
    r_comment: str


class Nation(st.Data):
    n_nationkey: int
    n_name: str
    n_regionkey: int
    n_comment: str


class Supplier(st.Data):
    s_suppkey: int
    s_name: str
    s_address: str
    s_nationkey: int
    s_phone: str
    s_acctbal: Money
    s_comment: str


class Part(st.Data):
    p_partkey: int
    p_name: str
    p_mfgr: str
    p_brand: str
    p_type: str
    p_size: int
    p_container: str
    p_retailprice: Money
    p_comment: str


class PartSupp(st.Data):
    ps_partkey: int
    ps_suppkey: int
    ps_availqty: int
    ps_supplycost: Money
    ps_comment: str


class Customer(st.Data):
    c_custkey: int
    c_name: str
    c_address: str
    c_nationkey: int
    c_phone: str
    c_acctbal: Money
    c_mktsegment: str
    c_comment: str


class Order(st.Data):
    o_orderkey: int
    o_custkey: int
    o_orderstatus: str
    o_totalprice: Money
    o_orderdate: dt.date
    o_orderpriority: str
    o_clerk: str
    o_shippriority: int
    o_comment: str


class LineItem(st.Data):
    l_orderkey: int
    l_partkey: int
    l_suppkey: int
    l_linenumber: int
    l_quantity: Money
    l_extendedprice: Money
    l_discount: Money
    l_tax: Money
    l_returnflag: str
    l_linestatus: str
    l_shipdate: dt.date
    l_commitdate: dt.date
    l_receiptdate: dt.date
    l_shipinstruct: str
    l_shipmode: str
    l_comment: str


TABLES: dict[str, type[st.Data]] = {
    "region": Region,
    "nation": Nation,
    "supplier": Supplier,
    "part": Part,
    "partsupp": PartSupp,
    "customer": Customer,
    "orders": Order,
    "lineitem": LineItem,
}
