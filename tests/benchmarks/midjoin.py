"""What it saves to add up the batches of a state in the middle of a join, and not after it.

    python -m tests.benchmarks.midjoin --batches 1,4,16

A state of updates: each batch takes back the rows of the batch before, and puts new ones in their
place. A step joins a change with the rows of its keys, of which all batches have some. In turn and
in one run: the parts joined as they are, and added up first. Medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from unittest import mock

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.execution import scheduler
from stepping_spark.relations.relation import DriverRelation, Relation, added_up
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import get_session
from tests.benchmarks.tables import Customer, query


class InBatches(st.StoreMemory):
    """A store with a register in batches that it never merges."""

    parts: Mapping[str, tuple[Relation, ...]] = {}

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        return self.parts.get(register, ())


def updates(batches: int, keys: int, rows: int, schema: Schema) -> tuple[Relation, ...]:
    """The rows of some customers, of which each batch has a new version."""
    made = []
    for version in range(batches):
        kinds = [(version, 1)] if version == 0 else [(version - 1, -1), (version, 1)]
        lines = [
            {"id": i, "customer": i % keys, "amount": v, "_count_": n}
            for v, n in kinds
            for i in range(keys * rows)
        ]
        made.append(DriverRelation(pa.Table.from_pylist(lines, schema.arrow), schema))
    return tuple(made)


def stepper_of(batches: int, keys: int, rows: int) -> st.Stepper:
    """A stepper whose state of orders is in so many batches."""
    graph = st.compile(query)
    store = InBatches.from_graph(graph)
    assert isinstance(store, InBatches)
    register = next(n for n, _ in st.explain(graph).arrangements if "orders" in n)
    store.parts = {register: updates(batches, keys, rows, graph.inputs[0].type.schema)}
    return st.Stepper(graph, store, local_rows=10_000_000)


def as_they_are(parts: tuple[Relation, ...], schema: object) -> tuple[Relation, ...]:
    """Instead of `scheduler.added_up`: leave it to the end of the join."""
    return parts


@click.command()
@click.option("--batches", default="1,4,16", show_default=True)
@click.option("--keys", default=20, show_default=True, help="Keys of the change.")
@click.option("--rows", default=50, show_default=True, help="Rows of state for each key.")
@click.option("--per-key", default=5, show_default=True, help="Rows of the change for each key.")
@click.option("--rounds", default=30, show_default=True)
def main(batches: str, keys: int, rows: int, per_key: int, rounds: int) -> None:
    """Print the medians, side by side."""
    get_session()
    table = Table(title="a step of a join; milliseconds, medians")
    for name in ("batches", "rows of them", "added up at the end", "mid-join", "ratio"):
        table.add_column(name, justify="right")
    customers = [(Customer(id=k, region=i), 1) for k in range(keys) for i in range(per_key)]
    change = st.ZSetPython(customers)
    for n in (int(b) for b in batches.split(",")):
        stepper = stepper_of(n, keys, rows)
        ms: dict[bool, list[float]] = {False: [], True: []}
        for i in range(rounds + 5):
            for midway in (False, True):
                way = added_up if midway else as_they_are
                begun = time.perf_counter()
                with mock.patch.object(scheduler, "added_up", way):
                    (out,) = stepper.step((None, change))
                took = (time.perf_counter() - begun) * 1e3
                assert len(out.to_python()) == keys * rows * per_key
                if i >= 5:
                    ms[midway].append(took)
        late, midst = (statistics.median(ms[midway]) for midway in (False, True))
        lines = (2 * n - 1) * keys * rows
        table.add_row(str(n), f"{lines:,}", f"{late:.1f}", f"{midst:.1f}", f"{midst / late:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
