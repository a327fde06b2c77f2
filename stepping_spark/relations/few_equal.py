"""Adding up rows of which few are equal: only those that share a hash are compared."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stepping_spark.relations.arrow import (
    canonical,
    concat,
    consolidate,
    has_floats,
    without_zeros,
)
from stepping_spark.relations.hashes import key_hashes
from stepping_spark.relations.slots import are_mostly_different, repeated, sample
from stepping_spark.rows.schema import Schema


def consolidate_few_equal(table: pa.Table, schema: Schema) -> pa.Table:
    """What `consolidate` gives, in about half the time where few rows are equal.

    So it is with most relations. Where it sees that many are equal, it calls `consolidate`.
    """
    if table.num_rows < 2 or not schema.columns:
        return consolidate(table, schema)
    rows, names = table.num_rows, [n for n, _ in schema.columns]
    picked = np.zeros(rows, np.bool_)
    picked[sample(rows)] = True
    # A filter copies these rows only; to take some, Arrow first copies all text of a column.
    hashes, _ = key_hashes(table if picked.all() else table.filter(pa.array(picked)), names)
    if not are_mostly_different(hashes, rows):
        return consolidate(table, schema)
    if len(hashes) < rows:
        hashes, _ = key_hashes(table, names)
    shared = repeated(hashes)
    equal = consolidate(table.filter(pa.array(shared)), schema)
    others = table.filter(pa.array(~shared)) if shared.any() else table
    others = others.select(schema.arrow.names)
    columns = [canonical(c) if has_floats(c.type) else c for c in others.columns]
    others = without_zeros(pa.Table.from_arrays(columns, schema=schema.arrow), schema)
    return concat([others, equal], schema)
