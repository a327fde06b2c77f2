"""The tables of a state that becomes the state of another circuit, and the circuit's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepping_spark.store import Register, fingerprint
from stores.postgres.catalog import CIRCUIT, REGISTERS, STORE, TABLES, Catalog
from stores.postgres.connection import Connection
from stores.postgres.statements import Layout, identifier


def tell(catalog: Catalog, connection: Connection, circuit: str) -> None:
    """Keep the text of the circuit."""
    table = catalog.sql(f"CREATE TABLE IF NOT EXISTS {{}} ({TABLES[CIRCUIT]})", CIRCUIT)
    connection.execute(table.as_bytes())
    connection.execute(catalog.sql("DELETE FROM {}", CIRCUIT).as_bytes())
    connection.execute(catalog.sql("INSERT INTO {} VALUES ($1)", CIRCUIT).as_bytes(), [circuit])


def evolve(
    catalog: Catalog,
    connection: Connection,
    registers: Sequence[tuple[Register, Layout]],
    kept: Mapping[str, Layout],
) -> None:
    """Make these the registers of the state, within a transaction.

    Those that are kept have their tables, which other registers lose, and the rest get new
    ones.
    """
    stay = {layout.table for layout in kept.values()}
    tables = catalog.tables(connection).values()
    there = {table.name: table for table in tables if table.name in stay}
    for table in tables:
        if table.name not in stay:
            if table.view is not None:
                connection.execute(catalog.sql("DROP VIEW IF EXISTS {}", table.view).as_bytes())
            connection.execute(catalog.sql("DROP TABLE IF EXISTS {}", table.name).as_bytes())
    connection.execute(catalog.sql("DELETE FROM {}", REGISTERS).as_bytes())
    taken = catalog.relations(connection)
    for register, layout in registers:
        old = there.get(layout.table)
        if old is None:
            view = catalog.make(connection, register, layout, taken)
        else:
            view = old.view
            catalog.comment(connection, register, layout)
        catalog.note(connection, register, layout, view)
    update = catalog.sql("UPDATE {} SET fingerprint = $1", STORE)
    connection.execute(update.as_bytes(), [fingerprint([r for r, _ in registers])])


def next_layouts(
    catalog: Catalog,
    connection: Connection,
    registers: Sequence[Register],
    kept: Mapping[str, Layout],
) -> list[tuple[Register, Layout]]:
    """The registers of a circuit with their tables: the ones that are kept, and new ones."""
    tables = catalog.tables(connection).values()
    stay = {layout.table for layout in kept.values()}
    gone = [table for table in tables if table.name not in stay]
    taken = catalog.relations(connection) - {t.name for t in gone} - {t.view or "" for t in gone}
    return [
        (r, catalog.layout(r, kept[r.name].table if r.name in kept else identifier(r.name, taken)))
        for r in registers
    ]
