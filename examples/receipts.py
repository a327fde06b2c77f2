"""Receipts by day, kept where other processes can look them up.

Till lines become receipts: a sum for each number. A cache keeps the receipts by their day, in
Parquet files; the program opens the state again, as another process would, looks one day up, and
goes on from there. A line that was typed wrong is put right, and its receipt follows.

    python examples/receipts.py
"""

import datetime as dt
import tempfile

import stepping_spark as st


class Line(st.Data):
    receipt: int
    day: dt.date
    item: str
    cents: int


class Receipt(st.Data):
    receipt: int
    day: dt.date
    items: int
    cents: int


BY_DAY = st.Index.pick(Receipt, lambda r: r.day)
cache = st.Cache[Receipt](name="receipts")


def receipts(lines: st.ZSet[Line]) -> st.ZSet[Receipt]:
    made = st.aggregate(
        lines,
        by=lambda line: (line.receipt, line.day),
        into=Receipt,
        items=st.agg.count(),
        cents=st.agg.sum(lambda line: line.cents),
    )
    _ = cache[made](lambda made: st.integrate_indexed(made, indexes=(BY_DAY,)))
    return made


MONDAY, TUESDAY = dt.date(2024, 3, 4), dt.date(2024, 3, 5)
BREAD = Line(receipt=1, day=MONDAY, item="bread", cents=320)
MILK = Line(receipt=1, day=MONDAY, item="milk", cents=1090)
TEA = Line(receipt=2, day=MONDAY, item="tea", cents=450)
SOUP = Line(receipt=3, day=TUESDAY, item="soup", cents=275)


def show(store: st.StoreParquet, day: dt.date) -> None:
    print(f"{day}:")
    for _, receipt, _ in cache.zset(store).iter_by_index(BY_DAY, {day}):
        print(f"  receipt {receipt.receipt}: {receipt.items} items, {receipt.cents / 100:.2f}")


def main() -> None:
    graph = st.compile(receipts)
    with tempfile.TemporaryDirectory() as folder:
        with st.StoreParquet.from_graph(graph, folder, create=True) as store:
            st.iteration(store, graph, (st.ZSetPython([(x, 1) for x in (BREAD, MILK, TEA, SOUP)]),))
            show(store, MONDAY)

        again = st.compile(receipts)
        with st.StoreParquet.from_graph(again, folder) as store:
            print("The milk was 1.09:")
            (lines,) = st.actions(store, again)
            print(lines.replace(MILK, Line(receipt=1, day=MONDAY, item="milk", cents=109)))
            show(store, MONDAY)
            show(store, TUESDAY)


if __name__ == "__main__":
    main()
