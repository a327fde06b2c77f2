"""The events of Nexmark, an auction house: persons, auctions and bids, made small."""

# ruff: noqa: N815 - columns have the names that Nexmark gives them
from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import stepping_spark as st

START = dt.datetime(2024, 2, 29, 23, 59, tzinfo=dt.UTC)
FIRST_ID = 1100  # 1107, which is 9 · 123, comes soon
OF_FIFTY = (1, 3)  # of fifty events so many are persons and auctions; the others bids
CITIES = (
    ("Portland", "OR"),
    ("Boise", "ID"),
    ("Palo Alto", "CA"),
    ("Phoenix", "AZ"),
    ("Kent", "WA"),
)
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


class Person(st.Data):
    id: int
    name: str
    emailAddress: str
    creditCard: str
    city: str
    state: str
    dateTime: dt.datetime
    extra: str


class Auction(st.Data):
    id: int
    itemName: str
    description: str
    initialBid: int
    reserve: int
    dateTime: dt.datetime
    expires: dt.datetime
    seller: int
    category: int
    extra: str


class Bid(st.Data):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: dt.datetime
    extra: str
    p_time: dt.datetime
    """When the bid was read: Nexmark's PROCTIME(), which its source writes down here."""


TABLES: dict[str, type[st.Data]] = {"person": Person, "auction": Auction, "bid": Bid}


class Events:
    """Makes events, each some time after the one before."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.number = 0
        self.now = START
        self.persons = self.auctions = FIRST_ID

    def next(self) -> Person | Auction | Bid:
        """The next event."""
        persons, auctions = OF_FIFTY
        place = self.number % 50
        self.number += 1
        self.now += dt.timedelta(milliseconds=self.source.randrange(200))
        if place < persons:
            return self._person()
        return self._auction() if place < persons + auctions else self._bid()

    def steps(self, *sizes: int) -> Iterator[tuple[st.ZSetPython[Any], ...]]:
        """Steps of so many events; then one in which a tenth of them is withdrawn."""
        seen: list[Any] = []
        for size in sizes:
            came = [self.next() for _ in range(size)]
            seen += came
            yield self._step(came, 1)
        yield self._step([e for e in seen if self.source.random() < 0.1], -1)

    def _step(self, events: list[Any], n: int) -> tuple[st.ZSetPython[Any], ...]:
        return tuple(
            st.ZSetPython([(e, n) for e in events if isinstance(e, row)]) for row in TABLES.values()
        )

    def _text(self) -> str:
        return "".join(self.source.choices("abc ", k=self.source.randrange(12)))

    def _person(self) -> Person:
        self.persons += 1
        city, state = self.source.choice(CITIES)
        name = f"person {self.source.randrange(9)}"
        return Person(
            id=self.persons - 1,
            name=name,
            emailAddress=f"{name.replace(' ', '.')}@example.org",
            creditCard=f"{self.source.randrange(10**16):016}",
            city=city,
            state=state,
            dateTime=self.now,
            extra=self._text(),
        )

    def _auction(self) -> Auction:
        self.auctions += 1
        first = self._price()
        return Auction(
            id=self.auctions - 1,
            itemName=f"item {self.source.randrange(20)}",
            description=self._text(),
            initialBid=first,
            reserve=first + self._price(),
            dateTime=self.now,
            expires=self.now + dt.timedelta(seconds=self.source.randrange(1, 60)),
            seller=self._recent(self.persons, 20),
            category=self.source.randrange(10, 15),
            extra=self._text(),
        )

    def _bid(self) -> Bid:
        channel = self.source.choice(CHANNELS)
        return Bid(
            auction=self._recent(self.auctions, 12),
            bidder=self._recent(self.persons, 20),
            price=self._price(),
            channel=channel,
            url=f"https://www.nexmark.com/{channel.lower()}/{self._text()}/item.htm?query=1",
            dateTime=self.now,
            extra=self._text(),
            p_time=START + dt.timedelta(seconds=self.number // 100),
        )

    def _recent(self, end: int, many: int) -> int:
        """One of the newest that there are; the very newest are hot."""
        back = self.source.choice((1, 1, self.source.randrange(1, many)))
        return max(FIRST_ID, end - back)

    def _price(self) -> int:
        return round(10 ** (2 + self.source.random() * 6))
