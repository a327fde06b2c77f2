"""Facts enriched by left joins, kept up to date while every table changes, and proved.

Parcels have a customer, who has an address, whose district has a courier. Any of them may be
unknown yet: the parcel is in the view all the same, with what is known of it. One delta join keeps
the four tables, each by what it is looked up by, and nothing that is joined; a left lookup finds a
row, or nothing, and says so.

    python examples/enrichment.py

At the end the sum of all changes is compared with a plain Spark SQL query on the final tables.
"""

import random
from collections.abc import Callable
from typing import Any

import stepping_spark as st


class Parcel(st.Data):
    id: int
    customer: int | None


class Customer(st.Data):
    id: int
    address: int | None


class Address(st.Data):
    id: int
    district: str | None


class Courier(st.Data):
    district: str
    name: str


class Enriched(st.Data):
    parcel: int
    customer: int | None
    district: str | None
    courier: str | None


def enriched(
    parcels: st.ZSet[Parcel],
    customers: st.ZSet[Customer],
    addresses: st.ZSet[Address],
    couriers: st.ZSet[Courier],
) -> st.ZSet[Enriched]:
    known = st.delta_join(
        parcels,
        st.Lookup(customers, key=lambda c: c.id, on=lambda row: row[0].customer, how="left"),
        st.Lookup(addresses, key=lambda a: a.id, on=lambda row: row[1].address, how="left"),
        st.Lookup(couriers, key=lambda c: c.district, on=lambda row: row[2].district, how="left"),
    )
    return st.map(
        known,
        f=lambda row: Enriched(
            parcel=row[0].id, customer=row[1].id, district=row[2].district, courier=row[3].name
        ),
    )


PLAIN = """
    SELECT p.id AS parcel, c.id AS customer, a.district, k.name AS courier
      FROM parcels p LEFT JOIN customers c ON p.customer = c.id
                     LEFT JOIN addresses a ON c.address = a.id
                     LEFT JOIN couriers k ON a.district = k.district
"""
TABLES = ("parcels", "customers", "addresses", "couriers")


def changes(tables: dict[str, st.ZSetPython[Any]], chance: random.Random) -> tuple[Any, ...]:
    """New rows for each table, and some of the old ones taken back."""

    def some(limit: int) -> int | None:
        return chance.randrange(limit) if chance.random() < 0.9 else None

    new: dict[str, Callable[[], st.Data]] = {
        "parcels": lambda: Parcel(id=chance.randrange(1000), customer=some(30)),
        "customers": lambda: Customer(id=chance.randrange(30), address=some(20)),
        "addresses": lambda: Address(
            id=chance.randrange(20), district=chance.choice([None, "N1", "N2", "N3", "N4"])
        ),
        "couriers": lambda: Courier(
            district=chance.choice(["N1", "N2", "N3"]), name=chance.choice(["Ann", "Bob"])
        ),
    }
    given: list[Any] = []
    for name, table in tables.items():
        old = sorted((row for row, _ in table.iter()), key=repr)
        gone = [(row, -1) for row in chance.sample(old, len(old) // 3)]
        come = [(new[name](), 1) for _ in range(20 if name == "parcels" else 12)]
        given.append(st.ZSetPython([*gone, *come]))
    return tuple(given)


def main() -> None:
    graph = st.compile(enriched)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    tables: dict[str, st.ZSetPython[Any]] = {name: st.ZSetPython() for name in TABLES}
    view = st.ZSetPython[Enriched]()
    chance = random.Random(1)
    for _ in range(12):
        given = changes(tables, chance)
        (change,) = stepper.step(given)
        view = view + change.to_python()
        tables = {name: tables[name] + z for name, z in zip(tables, given, strict=True)}

    spark = st.get_session()
    for name, table in tables.items():  # to Spark SQL, a row that is there twice is two rows
        rows = table.to_dataframe(spark).selectExpr("*", "explode(sequence(1L, _count_)) AS copy")
        rows.createOrReplaceTempView(name)
    plain = st.ZSetSpark.from_dataframe(spark.sql(PLAIN), Enriched)
    if view != plain:
        raise SystemExit(f"the maintained view differs from the query: {view - plain.to_python()}")
    print(view)
    print(f"{len(st.explain(graph).arrangements)} arrangements, all of inputs.")
    print("It equals, exactly, what one plain Spark SQL query gives on the final tables.")


if __name__ == "__main__":
    main()
