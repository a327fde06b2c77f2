"""Rejected rows: rows of a source that do not fit its input, and their sink.

`on_invalid` of a source decides about them. If they go to a sink, the circuit of the pipeline has
one more input and one more view for them. So a step commits them with its other changes, and their
sink gets them exactly once, like any sink.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, short
from stepping_spark.circuit.graph import AnyGraph, Origin, Path, Vertex
from stepping_spark.circuit.operators import Input
from stepping_spark.pipeline.protocols import AT, MISFITS
from stepping_spark.rows.data import Data
from stepping_spark.rows.schema import COUNT, ZSetType
from stepping_spark.rows.types import row_type
from stepping_spark.zsets.from_arrow import Fitting, python_of
from stepping_spark.zsets.spark import ZSetSpark

pc: Any = pyarrow.compute

FAIL, DROP = "fail", "drop"


class Rejected(Data):
    """A row that does not fit its input, for the sink of `on_invalid`.

    `input` is the name of the input, `position` is the row's place in its source, `change` is
    "insert" or "delete", `row` is the original row, as JSON or as the line of a file, and `reason`
    is the error. Each row is an event: a deletion of a row that did not fit is another row, with
    the change "delete".

    >>> def big(orders: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(orders, f=lambda x: x > 10)
    >>> seen = []
    >>> orders = st.Items(
    ...     [(1, pa.table({"_value_": [20, None]}))],
    ...     on_invalid=lambda step, rows: seen.extend(rows.iter()),
    ... )
    >>> st.Pipeline(big, store="memory", orders=orders).run()
    1
    >>> [(r.position, r.change, r.row) for r, _ in seen]
    [('position 1', 'insert', '{"_value_": null}')]
    """

    input: str
    position: str
    change: str
    row: str
    reason: str


TYPE = ZSetType(row_type(Rejected))


def rejected_of(input_name: str, misfits: pa.Table) -> ZSetSpark[Any]:
    """Misfits with their counts, as the rows of their view."""
    pairs = (
        (
            Rejected(
                input=input_name,
                position=m[AT],
                change="insert" if m[COUNT] > 0 else "delete",
                row=m["row"],
                reason=m["reason"],
            ),
            abs(m[COUNT]),
        )
        for m in misfits.to_pylist()
    )
    return ZSetSpark.of_rows(pairs, TYPE, f"input {input_name!r}")


def added_up(tables: Iterable[pa.Table], place: str) -> pa.Table:
    """The consolidated misfits, each with its first place; rows with the sum 0 are left out.

    `place` is the place of the batch, for tables without places.
    """
    parts = [_placed(table, place) for table in (MISFITS.empty_table(), *tables)]
    whole: Any = pa.concat_tables(parts)
    groups = whole.group_by(["row", "reason"], use_threads=False)
    sums = groups.aggregate([(COUNT, "sum"), (AT, "first")])
    sums = sums.rename_columns(["row", "reason", COUNT, AT])
    misfits: pa.Table = sums.filter(pc.not_equal(sums.column(COUNT), 0))
    return misfits


def _placed(misfits: pa.Table, place: str) -> pa.Table:
    if AT in misfits.schema.names:
        return misfits
    places: Any = pa.repeat(pa.scalar(place), misfits.num_rows)
    return misfits.append_column(AT, places)


def without_misfits(
    table: pa.Table, fitting: Fitting, count: str | None, place: str
) -> tuple[pa.Table, pa.Table]:
    """The rows of a relation that fit, and the misfits with their original rows and a place."""
    reasons = fitting.reasons()
    places = sorted(reasons)
    at: Any = pa.array(places, pa.int64())
    came: Any = table.take(at)
    rows = came if count is None else came.drop_columns([count])
    counts = fitting.relation.column(COUNT).take(at)
    misfits = pa.table(
        [texts_of(rows), pa.array([reasons[i] for i in places], pa.string()), counts],
        schema=MISFITS,
    )
    keep = pc.invert(pc.is_in(pa.array(range(table.num_rows), pa.int64()), value_set=at))
    return fitting.relation.filter(keep), _placed(misfits, place)


def texts_of(rows: pa.Table) -> pa.Array[Any]:
    """Each row as JSON."""
    columns = [(name, rows.column(i)) for i, name in enumerate(rows.column_names)]
    return pa.array(
        [
            json.dumps({n: python_of(c[i]) for n, c in columns}, default=_text, ensure_ascii=False)
            for i in range(rows.num_rows)
        ],
        pa.string(),
    )


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def on_invalid_of(name: str, argument: object) -> object:
    """The `on_invalid` of a source argument: "fail", "drop", or a sink."""
    choice = getattr(argument, "on_invalid", FAIL)
    if isinstance(choice, str) and choice not in (FAIL, DROP):
        raise InputError(
            f"{user_line()}: input {name!r} has on_invalid={short(choice)}; expected {FAIL!r}, "
            f"{DROP!r}, or a sink for rows that do not fit, as st.DeltaTable(path, changes=True)"
        )
    for sink in choice if isinstance(choice, list | tuple) else [choice]:
        if getattr(sink, "key", None):
            raise InputError(
                f"{user_line()}: on_invalid of input {name!r} is {short(sink)} with a key, and "
                "rows that do not fit have none, because the same row may come again: write "
                "changes=True and no key"
            )
    return choice


def view_of(name: str) -> str:
    """The view of an input's rows that do not fit."""
    return f"{name} (rejected)"


def with_rejected(graph: AnyGraph, inputs: Sequence[str]) -> AnyGraph:
    """The circuit with one more input and one more view for each of these inputs."""
    if not inputs:
        return graph
    vertices = [
        Vertex(Input(len(graph.inputs) + i, view_of(name), TYPE)) for i, name in enumerate(inputs)
    ]
    line = graph.line(graph.inputs[0])
    origins: Mapping[Vertex, Origin] = {
        v: Origin(Path((graph.name, view_of(name))), line)
        for v, name in zip(vertices, inputs, strict=True)
    }
    called = graph.called or ("",) * len(graph.outputs)
    more = dataclasses.replace(
        graph,
        inputs=(*graph.inputs, *vertices),
        outputs=(*graph.outputs, *vertices),
        origins={**graph.origins, **origins},
        called=(*called, *map(view_of, inputs)),
        single=False,
    )
    return dataclasses.replace(more, made_by=(*graph.made_by, *map(more.signature, vertices)))


def digests_of_rejected(graph: AnyGraph) -> set[str]:
    """The digests of the views of misfits, which may be added and removed."""
    return {Vertex(Input(i, "", TYPE)).digest for i in range(2 * len(graph.inputs))}
