"""Ten views of a shop, as a newcomer to a data team writes them, kept up to date by one circuit.

Ranks, a running total, a moving average, sessions of clicks, the last price before an order and a
median are window functions, as-of joins and aggregates; none is a Python function, and none joins a
table with itself. After some days of changes, corrections and returns, each view is compared with
plain Spark SQL on the tables; where there is no Spark, with what plain Python says.

    python examples/shop.py
"""

import datetime as dt
import random
from collections import Counter
from typing import Any

import stepping_spark as st
from stepping_spark import functions as F

HALF_AN_HOUR, WEEK, MONTH = dt.timedelta(minutes=30), dt.timedelta(days=6), dt.timedelta(days=30)


class Customer(st.Data):
    id: int
    country: str


class Product(st.Data):
    id: int
    category: str


class Price(st.Data):
    product: int
    since: dt.date
    cents: int


class Order(st.Data):
    id: int
    customer: int
    placed: dt.date


class Line(st.Data):
    order: int
    no: int
    product: int
    qty: int
    cents: int


class Return(st.Data):
    order: int
    no: int
    qty: int
    day: dt.date


class Click(st.Data):
    user: int
    at: dt.datetime


class Sold(st.Data):
    """A line of an order, with what its order, customer and product say."""

    line: Line
    day: dt.date
    month: str
    country: str
    category: str


def month(day: dt.date) -> str:
    return F.date_format(day, "yyyy-MM")


def cents(s: Sold) -> int:
    return s.line.qty * s.line.cents


def sold(
    lines: st.ZSet[Line],
    orders: st.ZSet[Order],
    customers: st.ZSet[Customer],
    products: st.ZSet[Product],
) -> st.ZSet[Sold]:
    found = st.delta_join(
        lines,
        st.Lookup(orders, key=lambda o: o.id, on=lambda t: t[0].order),
        st.Lookup(customers, key=lambda c: c.id, on=lambda t: t[1].customer),
        st.Lookup(products, key=lambda p: p.id, on=lambda t: t[0].product),
    )
    return st.map(
        found,
        f=lambda t: Sold(
            line=t[0],
            day=t[1].placed,
            month=month(t[1].placed),
            country=t[2].country,
            category=t[3].category,
        ),
    )


class Revenue(st.Data):
    month: str
    country: str
    category: str
    cents: int


def where(s: Sold) -> tuple[str, str, str]:
    return s.month, s.country, s.category


def revenue(sales: st.ZSet[Sold]) -> st.ZSet[Revenue]:
    return st.aggregate(sales, by=where, into=Revenue, cents=st.agg.sum(cents))


def net_revenue(sales: st.ZSet[Sold], returns: st.ZSet[Return]) -> st.ZSet[Revenue]:
    back = st.join(
        sales,
        returns,
        on_left=lambda s: (s.line.order, s.line.no),
        on_right=lambda r: (r.order, r.no),
    )
    came = st.map(sales, f=lambda s: (*where(s), cents(s)))
    went = st.map(back, f=lambda p: (*where(p.left), p.right.qty * p.left.line.cents * -1))
    return st.aggregate(
        came + went, by=lambda t: (t[0], t[1], t[2]), into=Revenue, cents=st.agg.sum(lambda t: t[3])
    )


class Share(st.Data):
    month: str
    share: float


def returned_share(orders: st.ZSet[Order], returns: st.ZSet[Return]) -> st.ZSet[Share]:
    back = st.semijoin(orders, returns, on_left=lambda o: o.id, on_right=lambda r: r.order)
    kept = st.antijoin(orders, returns, on_left=lambda o: o.id, on_right=lambda r: r.order)
    with_one = st.map(back, f=lambda o: (month(o.placed), 1))
    without = st.map(kept, f=lambda o: (month(o.placed), 0))
    both = with_one + without
    return st.aggregate(both, lambda t: t[0], into=Share, share=st.agg.avg(lambda t: t[1]))


class Bought(st.Data):
    category: str
    product: int
    qty: int


class Best(Bought):
    place: int


def best_products(sales: st.ZSet[Sold]) -> st.ZSet[Best]:
    totals = st.aggregate(
        sales,
        by=lambda s: (s.category, s.line.product),
        into=Bought,
        qty=st.agg.sum(lambda s: s.line.qty),
    )
    ranked = st.window(
        totals,
        by=lambda t: t.category,
        order=st.win.desc(lambda t: t.qty),
        into=Best,
        place=st.win.rank(),
    )
    return st.filter(ranked, f=lambda b: b.place <= 3)


def sleeping(customers: st.ZSet[Customer], orders: st.ZSet[Order]) -> st.ZSet[Customer]:
    recent = st.temporal_filter(orders, lower=lambda o: o.placed, upper=lambda o: o.placed + MONTH)
    return st.antijoin(customers, recent, on_left=lambda c: c.id, on_right=lambda o: o.customer)


class Day(st.Data):
    day: dt.date
    cents: int


class DaySoFar(st.Data):
    day: dt.date
    so_far: int


class DayOfWeek(st.Data):
    day: dt.date
    mean: float


def daily(sales: st.ZSet[Sold]) -> st.ZSet[Day]:
    return st.aggregate(sales, by=lambda s: s.day, into=Day, cents=st.agg.sum(cents))


def running_total(days: st.ZSet[Day]) -> st.ZSet[DaySoFar]:
    return st.window(
        days,
        order=lambda d: d.day,
        into=DaySoFar,
        so_far=st.win.sum(lambda d: d.cents, rows=(None, 0)),
    )


def moving_average(days: st.ZSet[Day]) -> st.ZSet[DayOfWeek]:
    return st.window(
        days,
        order=lambda d: d.day,
        into=DayOfWeek,
        mean=st.win.avg(lambda d: d.cents, range=(-WEEK, 0)),
    )


class Visit(st.Data):
    user: int
    start: dt.datetime
    end: dt.datetime
    clicks: int


def visits(clicks: st.ZSet[Click]) -> st.ZSet[Visit]:
    found = st.sessions(clicks, by=lambda c: c.user, at=lambda c: c.at, gap=HALF_AN_HOUR)
    return st.aggregate(
        found, by=lambda s: (s.row.user, s.start, s.end), into=Visit, clicks=st.agg.count()
    )


class Listed(st.Data):
    order: int
    no: int
    list_cents: int | None


def list_prices(sales: st.ZSet[Sold], prices: st.ZSet[Price]) -> st.ZSet[Listed]:
    priced = st.asof_join(
        sales,
        prices,
        on_left=lambda s: s.line.product,
        on_right=lambda p: p.product,
        at_left=lambda s: s.day,
        at_right=lambda p: p.since,
        how="left",
    )
    return st.map(
        priced,
        f=lambda p: Listed(order=p.left.line.order, no=p.left.line.no, list_cents=p.right.cents),
    )


class Value(st.Data):
    order: int
    country: str
    cents: int


class Median(st.Data):
    country: str
    median: float


def median_value(sales: st.ZSet[Sold]) -> st.ZSet[Median]:
    values = st.aggregate(
        sales, by=lambda s: (s.line.order, s.country), into=Value, cents=st.agg.sum(cents)
    )
    return st.aggregate(
        values, by=lambda v: v.country, into=Median, median=st.agg.median(lambda v: v.cents)
    )


def shop(
    customers: st.ZSet[Customer],
    products: st.ZSet[Product],
    prices: st.ZSet[Price],
    orders: st.ZSet[Order],
    lines: st.ZSet[Line],
    returns: st.ZSet[Return],
    clicks: st.ZSet[Click],
) -> tuple[
    st.ZSet[Revenue],
    st.ZSet[Revenue],
    st.ZSet[Share],
    st.ZSet[Best],
    st.ZSet[Customer],
    st.ZSet[DaySoFar],
    st.ZSet[DayOfWeek],
    st.ZSet[Visit],
    st.ZSet[Listed],
    st.ZSet[Median],
]:
    sales = sold(lines, orders, customers, products)
    days = daily(sales)
    return (
        revenue(sales),
        net_revenue(sales, returns),
        returned_share(orders, returns),
        best_products(sales),
        sleeping(customers, orders),
        running_total(days),
        moving_average(days),
        visits(clicks),
        list_prices(sales, prices),
        median_value(sales),
    )


SOLD = """
    SELECT l.order, l.no, l.product, o.placed AS day, date_format(o.placed, 'yyyy-MM') AS month,
        c.country, p.category, l.qty, l.cents
    FROM lines l JOIN orders o ON l.order = o.id JOIN customers c ON o.customer = c.id
        JOIN products p ON l.product = p.id
"""
DAYS = "(SELECT day, sum(qty * cents) AS cents FROM sold GROUP BY day)"
PLAIN = {
    "revenue": "SELECT month, country, category, sum(qty * cents) FROM sold GROUP BY 1, 2, 3",
    "net revenue": """
        SELECT month, country, category, sum(cents) FROM (
            SELECT month, country, category, qty * cents AS cents FROM sold UNION ALL
            SELECT s.month, s.country, s.category, -r.qty * s.cents
            FROM sold s JOIN returns r ON s.order = r.order AND s.no = r.no)
        GROUP BY 1, 2, 3""",
    "share of orders with a return": """
        SELECT date_format(placed, 'yyyy-MM'),
            avg(if(id IN (SELECT order FROM returns), 1, 0)) FROM orders GROUP BY 1""",
    "best products": """
        SELECT * FROM (
            SELECT category, product, sum(qty),
                rank() OVER (PARTITION BY category ORDER BY sum(qty) DESC) AS place
            FROM sold GROUP BY 1, 2)
        WHERE place <= 3""",
    "sleeping customers": """
        SELECT * FROM customers WHERE id NOT IN (
            SELECT customer FROM orders WHERE placed BETWEEN '{now}' - INTERVAL 29 DAYS AND '{now}')
        """,
    "running total": f"SELECT day, sum(cents) OVER (ORDER BY day) FROM {DAYS}",
    "moving average": f"""
        SELECT day, avg(cents) OVER (ORDER BY day RANGE BETWEEN 6 PRECEDING AND CURRENT ROW)
        FROM {DAYS}""",
    "visits": """
        SELECT user, min(at), max(at), count(1) FROM (
            SELECT *, count_if(at > before + INTERVAL 30 MINUTES) OVER (
                PARTITION BY user ORDER BY at ROWS UNBOUNDED PRECEDING) AS visit
            FROM (SELECT *, lag(at) OVER (PARTITION BY user ORDER BY at) AS before FROM clicks))
        GROUP BY user, visit""",
    "list prices": """
        SELECT s.order, s.no, max_by(p.cents, p.since)
        FROM sold s LEFT JOIN prices p ON s.product = p.product AND p.since <= s.day
        GROUP BY 1, 2""",
    "median value of orders": """
        SELECT country, median(cents) FROM (
            SELECT country, sum(qty * cents) AS cents FROM sold GROUP BY order, country)
        GROUP BY country""",
}
TABLES = ("customers", "products", "prices", "orders", "lines", "returns", "clicks")
START = dt.date(2024, 1, 1)


def week_of_trade(number: int, old: dict[str, Any], chance: random.Random) -> tuple[Any, ...]:
    """The changes of a week: orders, clicks, prices, returns, and some that are cancelled."""
    day = START + dt.timedelta(days=7 * number)
    noon = dt.datetime.combine(day, dt.time(12), dt.UTC)
    new: dict[str, list[Any]] = {name: [] for name in TABLES}
    if not number:
        new["customers"] = [Customer(id=i, country="PT" if i % 3 else "DE") for i in range(12)]
        new["products"] = [Product(id=i, category="tea" if i % 2 else "rice") for i in range(9)]
    changed = chance.sample(range(9), 3 if number else 9)
    new["prices"] = [Price(product=i, since=day, cents=chance.randrange(99)) for i in changed]
    for id in range(100 * number, 100 * number + 8):  # noqa: A001
        placed = day - dt.timedelta(days=chance.randrange(3))
        new["orders"].append(Order(id=id, customer=chance.randrange(12), placed=placed))
        for no, product in enumerate(chance.sample(range(9), 3)):
            line = Line(order=id, no=no, product=product, qty=1 + no, cents=5 + product)
            new["lines"].append(line)
    rows = {name: sorted((row for row, _ in z.iter()), key=repr) for name, z in old.items()}
    some = chance.sample(rows["lines"], min(4, len(rows["lines"])))
    new["returns"] = [Return(order=x.order, no=x.no, qty=1, day=day) for x in some]
    minutes = {chance.randrange(300) for _ in range(30)}
    new["clicks"] = [Click(user=m % 4, at=noon + dt.timedelta(minutes=m)) for m in minutes]
    gone = {n: chance.sample(rows[n], len(rows[n]) // 5) for n in ("orders", "clicks")}
    return tuple(
        st.ZSetPython([(r, 1) for r in new[n]] + [(r, -1) for r in gone.get(n, ())]) for n in TABLES
    )


def as_sql(value: object) -> object:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def differences(
    tables: dict[str, Any], views: list[st.ZSetPython[st.Data]], now: dt.date
) -> list[str]:
    """The views that are not what plain Spark SQL gives on the tables."""
    spark = st.get_session()
    for name, table in tables.items():
        table.to_dataframe(spark).drop("_count_").createOrReplaceTempView(name)
    spark.sql(SOLD).createOrReplaceTempView("sold")
    wrong: list[str] = []
    for (name, text), view in zip(PLAIN.items(), views, strict=True):
        rows = spark.sql(text.replace("{now}", str(now))).collect()
        plain = Counter(tuple(map(as_sql, row)) for row in rows)
        if {tuple(vars(row).values()): n for row, n in view.iter()} != plain:
            wrong.append(name)
    return wrong


def says_python(graph: Any, tables: dict[str, Any], views: list[Any], now: dt.date) -> bool:
    """Whether the views are what plain Python says of the tables, for machines without Spark."""
    outs = st.reference(graph).step(tuple(tables.values()), now=now)
    return all(out.to_python() == view for out, view in zip(outs, views, strict=True))


def main() -> None:
    graph = st.compile(shop)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    tables: dict[str, Any] = {name: st.ZSetPython() for name in TABLES}
    views: list[st.ZSetPython[st.Data]] = [st.ZSetPython() for _ in PLAIN]
    chance, now = random.Random(2), START
    for number in range(3):
        changes = week_of_trade(number, tables, chance)
        now = START + dt.timedelta(days=7 * number)
        outs = stepper.step(changes, now=now)
        tables = {n: tables[n] + change for n, change in zip(TABLES, changes, strict=True)}
        views = [view + out.to_python() for view, out in zip(views, outs, strict=True)]
    print(views[3])
    try:
        st.get_session()
    except st.SteppingError as e:
        if not says_python(graph, tables, views, now):
            raise SystemExit("not what plain Python says of the tables") from e
        print(f"Each of {len(views)} views is what plain Python says of the tables; no Spark here.")
        return
    wrong = differences(tables, views, now)
    if wrong:
        raise SystemExit(f"not what plain Spark SQL gives: {', '.join(wrong)}")
    print(f"Each of {len(views)} views is what plain Spark SQL gives on the tables.")


if __name__ == "__main__":
    main()
