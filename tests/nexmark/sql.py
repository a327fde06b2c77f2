"""The queries of Nexmark, as Spark SQL has them.

https://github.com/nexmark/nexmark, nexmark-flink/src/main/resources/queries. Where an order there
leaves open which row comes first, it is said here: by bidder and extra. Q10 and Q13 read and write
files, and Q21 is of Flink's own functions.
"""

from __future__ import annotations

RANKS = """
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids
"""
BIDDERS = """
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
"""
DAY = "date_format(dateTime, 'yyyy-MM-dd')"
VALID = "A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"
HOP = """
    SELECT auction, count(*) AS num, w.start AS starttime
    FROM (SELECT auction, window(dateTime, '10 seconds', '2 seconds') AS w FROM bid)
    GROUP BY auction, w
"""

QUERIES: dict[int, str] = {
    0: "SELECT auction, bidder, price, dateTime, extra FROM bid",
    1: """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra
        FROM bid
    """,
    2: "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    3: """
        SELECT P.name, P.city, P.state, A.id
        FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
    """,
    4: f"""
        SELECT category AS id, avg(final) AS final FROM (
            SELECT max(B.price) AS final, A.category FROM auction A, bid B
            WHERE {VALID} GROUP BY A.id, A.category)
        GROUP BY category
    """,
    5: f"""
        SELECT AuctionBids.auction, AuctionBids.num FROM ({HOP}) AS AuctionBids
        JOIN (SELECT max(num) AS maxn, starttime FROM ({HOP}) GROUP BY starttime) AS MaxBids
        ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.num >= MaxBids.maxn
    """,
    6: f"""
        SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY dateTime, id
            ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg_price
        FROM (SELECT *, row_number() OVER (PARTITION BY id, seller
                ORDER BY price DESC, dateTime, bidder, extra) AS rownum
            FROM (SELECT A.id, A.seller, B.price, B.dateTime, B.bidder, B.extra
                FROM auction AS A, bid AS B WHERE {VALID}))
        WHERE rownum <= 1
    """,
    7: """
        SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B
        JOIN (SELECT max(price) AS maxprice, w.end AS dateTime
            FROM (SELECT price, window(dateTime, '10 seconds') AS w FROM bid) GROUP BY w) B1
        ON B.price = B1.maxprice
        WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime
    """,
    8: """
        SELECT P.id, P.name, P.starttime FROM
            (SELECT DISTINCT id, name, window(dateTime, '10 seconds').start AS starttime
            FROM person) P
        JOIN (SELECT DISTINCT seller, window(dateTime, '10 seconds').start AS starttime
            FROM auction) A
        ON P.id = A.seller AND P.starttime = A.starttime
    """,
    9: f"""
        SELECT id, itemName, seller, category, auction, bidder, price, bid_dateTime, bid_extra
        FROM (SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime,
                B.extra AS bid_extra, row_number() OVER (
                    PARTITION BY A.id ORDER BY B.price DESC, B.dateTime, B.bidder, B.extra
                ) AS rownum
            FROM auction A, bid B WHERE {VALID})
        WHERE rownum <= 1
    """,
    11: """
        SELECT bidder, count(*) AS bid_count, w.start AS starttime, w.end AS endtime
        FROM (SELECT bidder, session_window(dateTime, '10 seconds') AS w FROM bid)
        GROUP BY bidder, w
    """,
    12: """
        SELECT bidder, count(*) AS bid_count, w.start AS starttime, w.end AS endtime
        FROM (SELECT bidder, window(p_time, '10 seconds') AS w FROM bid) GROUP BY bidder, w
    """,
    14: """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    15: f"SELECT {DAY} AS day, {RANKS}, {BIDDERS} FROM bid GROUP BY {DAY}",
    16: f"""
        SELECT channel, {DAY} AS day, max(date_format(dateTime, 'HH:mm')) AS minute,
            {RANKS}, {BIDDERS} FROM bid GROUP BY channel, {DAY}
    """,
    17: f"""
        SELECT auction, {DAY} AS day, {RANKS}, min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, {DAY}
    """,
    18: """
        SELECT auction, bidder, price, channel, dateTime, extra FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction
                ORDER BY dateTime DESC, price, extra) AS rank_number FROM bid)
        WHERE rank_number <= 1
    """,
    19: """
        SELECT auction, bidder, price, dateTime, extra, rank_number FROM (
            SELECT *, row_number() OVER (PARTITION BY auction
                ORDER BY price DESC, dateTime, bidder, extra) AS rank_number FROM bid)
        WHERE rank_number <= 10
    """,
    20: """
        SELECT auction, bidder, price, channel, B.dateTime, itemName, A.dateTime, expires, seller,
            A.extra FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
        WHERE A.category = 10
    """,
    22: """
        SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1,
            split(url, '/')[4] AS dir2, split(url, '/')[5] AS dir3 FROM bid
    """,
}
