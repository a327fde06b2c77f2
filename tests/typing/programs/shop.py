"""The tables of a shop, for the programs beside this one."""

from __future__ import annotations

import datetime as dt

import stepping_spark as st


class Customer(st.Data):
    id: int
    name: str
    country: str


class Order(st.Data):
    id: int
    customer: int
    placed: dt.date
    note: str | None


class Line(st.Data):
    order: int
    no: int
    product: str
    qty: int
    price: float
    tags: list[str]


class Return(st.Data):
    order: int
    no: int
    qty: int
    day: dt.date


class Click(st.Data):
    user: int
    at: dt.datetime


class Shown(st.Data):
    name: str
    month: int
    spread: int
    kind: str
    text: str


class Revenue(st.Data):
    country: str
    month: int
    total: float


class Sold(st.Data):
    name: str
    qty: int
    returned: int | None
