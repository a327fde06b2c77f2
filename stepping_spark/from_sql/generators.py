"""Functions that make rows of a list: explode and posexplode."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.from_sql.aggregate_calls import args_of, name_of
from stepping_spark.from_sql.binder import Binder
from stepping_spark.from_sql.columns import Column, Expr
from stepping_spark.from_sql.plan import Plan, Unnest


def unnested(
    binder: Binder, plan: Plan, call: Expr, table: str, names: Sequence[str], outer: bool = False
) -> tuple[Plan, list[Column]]:
    """The plan with the items of a list, by explode or posexplode, and their columns."""
    name = name_of(call)
    kind = name.removesuffix("_outer")
    if kind not in ("explode", "posexplode"):
        binder.fail(call, f"{name} is not supported", "use explode")
    args, _ = args_of(call)
    made = ["pos", "col"] if kind == "posexplode" else ["col"]
    if names and len(names) != len(made):
        binder.fail(call, f"{name} makes {len(made)} columns, and {len(names)} are named")
    columns = [Column(n, table) for n in names or made]
    position = columns[0] if kind == "posexplode" else None
    value = binder.bind_row(args[0])
    for attach in binder.before:
        plan = attach(plan)
    binder.before.clear()
    outer = outer or name.endswith("_outer")
    return Unnest(plan, value, (columns[-1],), outer, position), columns
