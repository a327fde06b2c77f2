"""The queries of Nexmark, by hand: from the changes of three streams of events to those of a view.

Each takes the streams that it names: persons, auctions, bids.
"""

# ruff: noqa: N815 - columns have the names that Nexmark gives them
from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any

from pyspark.sql import functions as F

import stepping_spark as st
from tests.nexmark.events import Auction, Bid, Person

Z = st.ZSet
agg = st.agg
Euros = Annotated[Decimal, st.Precision(23, 3)]
Time = dt.datetime
Offered = st.Pair[Auction, Bid]


def in_euros(price: Any) -> Any:
    return (F.lit(Decimal("0.908")) * price).cast("decimal(23, 3)")


def begin(at: Any, seconds: int = 10) -> Any:
    """When the window of so many seconds begins that a time is in."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(at) / seconds) * seconds)


def seconds(n: int) -> dt.timedelta:
    return dt.timedelta(seconds=n)


def day(row: Any) -> Any:
    return F.date_format(row.dateTime, "yyyy-MM-dd")


def offers(auctions: Z[Auction], bids: Z[Bid]) -> Z[Offered]:
    """The auctions, each with the bids that came while it was open."""
    return st.join(
        auctions,
        bids,
        on_left=lambda a: a.id,
        on_right=lambda b: b.auction,
        where=lambda p: (
            (p.right.dateTime >= p.left.dateTime) & (p.right.dateTime <= p.left.expires)
        ),
    )


HIGHEST: st.Index[Offered, Any] = st.Index.pick(
    Offered,
    lambda p: (p.right.price, p.right.dateTime, p.right.bidder, p.right.extra),
    ascending=(False, True, True, True),
)


def winners(auctions: Z[Auction], bids: Z[Bid]) -> Z[Offered]:
    """The auctions, each with its highest bid."""
    return st.first_n(offers(auctions, bids), HIGHEST, 1, by=lambda p: p.left.id)


def q0(bids: Z[Bid]) -> Z[tuple[int, int, int, Time, str]]:
    return st.map(bids, f=lambda b: (b.auction, b.bidder, b.price, b.dateTime, b.extra))


class Q1(st.Data):
    auction: int
    bidder: int
    price: Euros
    dateTime: Time
    extra: str


def q1(bids: Z[Bid]) -> Z[Q1]:
    return st.map(
        bids,
        f=lambda b: Q1(
            auction=b.auction,
            bidder=b.bidder,
            price=in_euros(b.price),
            dateTime=b.dateTime,
            extra=b.extra,
        ),
    )


def q2(bids: Z[Bid]) -> Z[tuple[int, int]]:
    kept = st.filter(bids, f=lambda b: b.auction % 123 == 0)
    return st.map(kept, f=lambda b: (b.auction, b.price))


def q3(persons: Z[Person], auctions: Z[Auction]) -> Z[tuple[str, str, str, int]]:
    of_ten = st.filter(auctions, f=lambda a: a.category == 10)
    near: Any = st.filter(persons, f=lambda p: p.state.isin("OR", "ID", "CA"))
    pairs = st.join(of_ten, near, on_left=lambda a: a.seller, on_right=lambda p: p.id)
    return st.map(pairs, f=lambda p: (p.right.name, p.right.city, p.right.state, p.left.id))


class Final(st.Data):
    id: int
    category: int
    final: int


class Q4(st.Data):
    id: int
    final: float


def q4(auctions: Z[Auction], bids: Z[Bid]) -> Z[Q4]:
    finals = st.aggregate(
        offers(auctions, bids),
        by=lambda p: (p.left.id, p.left.category),
        into=Final,
        final=agg.max(lambda p: p.right.price),
    )
    return st.aggregate(finals, by=lambda f: f.category, into=Q4, final=agg.avg(lambda f: f.final))


class Hop(st.Data):
    auction: int
    start: Time


class Hopped(st.Data):
    auction: int
    start: Time
    num: int


class Most(st.Data):
    start: Time
    num: int


def q5(bids: Z[Bid]) -> Z[tuple[int, int]]:
    hops: Z[Hop] = st.map_many(
        bids,
        f=lambda b: F.transform(
            F.sequence(F.lit(0), F.lit(4)),
            lambda i: F.struct(
                b.auction.alias("auction"),  # type: ignore[attr-defined]
                (
                    begin(b.dateTime, 2) - F.make_dt_interval(secs=(i * 2).cast("decimal(18, 6)"))
                ).alias("start"),
            ),
        ),
        to=Hop,
    )
    counted = st.aggregate(hops, by=lambda h: (h.auction, h.start), into=Hopped, num=agg.count())
    most = st.aggregate(counted, by=lambda h: h.start, into=Most, num=agg.max(lambda h: h.num))
    pairs = st.join(
        counted,
        most,
        on_left=lambda h: h.start,
        on_right=lambda m: m.start,
        where=lambda p: p.left.num >= p.right.num,
    )
    return st.map(pairs, f=lambda p: (p.left.auction, p.left.num))


class Sold(st.Data):
    id: int
    seller: int
    price: int
    dateTime: Time


class Q6(st.Data):
    seller: int
    avg_price: float
    id: int


def q6(auctions: Z[Auction], bids: Z[Bid]) -> Z[tuple[int, float]]:
    sold = st.map(
        winners(auctions, bids),
        f=lambda p: Sold(
            id=p.left.id, seller=p.left.seller, price=p.right.price, dateTime=p.right.dateTime
        ),
    )
    means = st.window(
        sold,
        by=lambda s: s.seller,
        order=lambda s: (s.dateTime, s.id),
        into=Q6,
        avg_price=st.win.avg(lambda s: s.price, rows=(-10, 0)),
    )
    return st.map(means, f=lambda m: (m.seller, m.avg_price))


class Highest(st.Data):
    start: Time
    price: int


def q7(bids: Z[Bid]) -> Z[tuple[int, int, int, Time, str]]:
    highest = st.aggregate(
        bids, by=lambda b: begin(b.dateTime), into=Highest, price=agg.max(lambda b: b.price)
    )
    pairs = st.join(
        bids,
        highest,
        on_left=lambda b: b.price,
        on_right=lambda h: h.price,
        where=lambda p: (
            (p.left.dateTime >= p.right.start) & (p.left.dateTime <= p.right.start + seconds(10))
        ),
    )
    return st.map(
        pairs,
        f=lambda p: (
            p.left.auction,
            p.left.price,
            p.left.bidder,
            p.left.dateTime,
            p.left.extra,
        ),
    )


def q8(persons: Z[Person], auctions: Z[Auction]) -> Z[tuple[int, str, Time]]:
    new: Z[tuple[int, str, Time]] = st.map(persons, f=lambda p: (p.id, p.name, begin(p.dateTime)))
    selling: Z[tuple[int, Time]] = st.map(auctions, f=lambda a: (a.seller, begin(a.dateTime)))
    return st.semijoin(
        st.distinct(new),
        selling,
        on_left=lambda p: (p[0], p[2]),
        on_right=lambda a: (a[0], a[1]),
    )


class Q9(st.Data):
    id: int
    itemName: str
    seller: int
    category: int
    auction: int
    bidder: int
    price: int
    bid_dateTime: Time
    bid_extra: str


def q9(auctions: Z[Auction], bids: Z[Bid]) -> Z[Q9]:
    return st.map(
        winners(auctions, bids),
        f=lambda p: Q9(
            id=p.left.id,
            itemName=p.left.itemName,
            seller=p.left.seller,
            category=p.left.category,
            auction=p.right.auction,
            bidder=p.right.bidder,
            price=p.right.price,
            bid_dateTime=p.right.dateTime,
            bid_extra=p.right.extra,
        ),
    )


class Windowed(st.Data):
    bidder: int
    start: Time
    end: Time
    bid_count: int


def counted(w: Z[Windowed], after: int) -> Z[tuple[int, int, Time, Time]]:
    return st.map(w, f=lambda w: (w.bidder, w.bid_count, w.start, w.end + seconds(after)))


def q11(bids: Z[Bid]) -> Z[tuple[int, int, Time, Time]]:
    # A gap of exactly ten seconds begins a new session in Spark.
    gap = seconds(10) - dt.timedelta(microseconds=1)
    rows = st.sessions(bids, by=lambda b: b.bidder, at=lambda b: b.dateTime, gap=gap)
    sessions = st.aggregate(
        rows, by=lambda s: (s.row.bidder, s.start, s.end), into=Windowed, bid_count=agg.count()
    )
    return counted(sessions, after=10)


def q12(bids: Z[Bid]) -> Z[tuple[int, int, Time, Time]]:
    windows = st.aggregate(
        bids,
        by=lambda b: (b.bidder, begin(b.p_time), begin(b.p_time)),
        into=Windowed,
        bid_count=agg.count(),
    )
    return counted(windows, after=10)


class Q14(st.Data):
    auction: int
    bidder: int
    price: Euros
    bidTimeType: str
    dateTime: Time
    extra: str
    c_counts: int


def q14(bids: Z[Bid]) -> Z[Q14]:
    def row(b: Any) -> Q14:
        hour = F.hour(b.dateTime)
        kind: Any = (
            F.when((hour >= 8) & (hour <= 18), "dayTime")
            .when((hour <= 6) | (hour >= 20), "nightTime")
            .otherwise("otherTime")
        )
        cs: Any = F.length(b.extra) - F.length(F.replace(b.extra, F.lit("c"), F.lit("")))
        return Q14(
            auction=b.auction,
            bidder=b.bidder,
            price=in_euros(b.price),
            bidTimeType=kind,
            dateTime=b.dateTime,
            extra=b.extra,
            c_counts=cs.cast("bigint"),
        )

    low, high = Decimal(1_000_000), Decimal(50_000_000)
    kept = st.filter(bids, f=lambda b: (in_euros(b.price) > low) & (in_euros(b.price) < high))
    return st.map(kept, f=row)


def of_ranks(name: str, value: Any, aggregate: Any) -> dict[str, Any]:
    """An aggregate of all bids, and of those of three ranks of prices."""
    ranks = (
        lambda b: b.price < 10000,
        lambda b: (b.price >= 10000) & (b.price < 1000000),
        lambda b: b.price >= 1000000,
    )
    found = {f"total_{name}": aggregate(value)}
    for i, rank in enumerate(ranks, 1):
        found[f"rank{i}_{name}"] = aggregate(lambda b, rank=rank: F.when(rank(b), value(b)))
    return found


BIDS = of_ranks("bids", lambda b: F.lit(1), agg.count)
BIDDERS = of_ranks("bidders", lambda b: b.bidder, agg.count_distinct)
AUCTIONS = of_ranks("auctions", lambda b: b.auction, agg.count_distinct)


class Counts(st.Data):
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int


class Both(Counts):
    total_bidders: int
    rank1_bidders: int
    rank2_bidders: int
    rank3_bidders: int
    total_auctions: int
    rank1_auctions: int
    rank2_auctions: int
    rank3_auctions: int


class Q15(Both):
    day: str


class Q16(Both):
    channel: str
    day: str
    minute: str


def q15(bids: Z[Bid]) -> Z[Q15]:
    return st.aggregate(bids, by=day, into=Q15, fields={**BIDS, **BIDDERS, **AUCTIONS})


def q16(bids: Z[Bid]) -> Z[Q16]:
    minute: Any = agg.max(lambda b: F.date_format(b.dateTime, "HH:mm"))
    fields = {"minute": minute, **BIDS, **BIDDERS, **AUCTIONS}
    return st.aggregate(bids, by=lambda b: (b.channel, day(b)), into=Q16, fields=fields)


class Q17(Counts):
    auction: int
    day: str
    min_price: int
    max_price: int
    avg_price: float
    sum_price: int


def q17(bids: Z[Bid]) -> Z[Q17]:
    return st.aggregate(
        bids,
        by=lambda b: (b.auction, day(b)),
        into=Q17,
        fields=BIDS,
        min_price=agg.min(lambda b: b.price),
        max_price=agg.max(lambda b: b.price),
        avg_price=agg.avg(lambda b: b.price),
        sum_price=agg.sum(lambda b: b.price),
    )


class Q18(st.Data):
    auction: int
    bidder: int
    price: int
    channel: str
    dateTime: Time
    extra: str


def q18(bids: Z[Bid]) -> Z[Q18]:
    last = st.Index.pick(
        Bid, lambda b: (b.dateTime, b.price, b.extra), ascending=(False, True, True)
    )
    lasts = st.first_n(bids, last, 1, by=lambda b: (b.bidder, b.auction))
    return st.map(
        lasts,
        f=lambda b: Q18(
            auction=b.auction,
            bidder=b.bidder,
            price=b.price,
            channel=b.channel,
            dateTime=b.dateTime,
            extra=b.extra,
        ),
    )


class Q19(st.Data):
    auction: int
    bidder: int
    price: int
    dateTime: Time
    extra: str
    rank_number: int


def q19(bids: Z[Bid]) -> Z[Q19]:
    def order(b: Any) -> Any:
        return b.price, b.dateTime, b.bidder, b.extra

    highest = st.Index.pick(Bid, order, ascending=(False, True, True, True))
    ten = st.first_n(bids, highest, 10, by=lambda b: b.auction)
    return st.window(
        ten,
        by=lambda b: b.auction,
        order=highest,
        into=Q19,
        rank_number=st.win.row_number(),
    )


class Q20(st.Data):
    auction: int
    bidder: int
    price: int
    channel: str
    bid_dateTime: Time
    itemName: str
    auction_dateTime: Time
    expires: Time
    seller: int
    auction_extra: str


def q20(auctions: Z[Auction], bids: Z[Bid]) -> Z[Q20]:
    of_ten = st.filter(auctions, f=lambda a: a.category == 10)
    pairs = st.join(bids, of_ten, on_left=lambda b: b.auction, on_right=lambda a: a.id)
    return st.map(
        pairs,
        f=lambda p: Q20(
            auction=p.left.auction,
            bidder=p.left.bidder,
            price=p.left.price,
            channel=p.left.channel,
            bid_dateTime=p.left.dateTime,
            itemName=p.right.itemName,
            auction_dateTime=p.right.dateTime,
            expires=p.right.expires,
            seller=p.right.seller,
            auction_extra=p.right.extra,
        ),
    )


class Q22(st.Data):
    auction: int
    bidder: int
    price: int
    channel: str
    dir1: str | None
    dir2: str | None
    dir3: str | None


def q22(bids: Z[Bid]) -> Z[Q22]:
    def row(b: Any) -> Q22:
        parts = F.split(b.url, "/")
        dirs: Any = [F.get(parts, F.lit(i)) for i in (3, 4, 5)]
        return Q22(
            auction=b.auction,
            bidder=b.bidder,
            price=b.price,
            channel=b.channel,
            dir1=dirs[0],
            dir2=dirs[1],
            dir3=dirs[2],
        )

    return st.map(bids, f=row)
