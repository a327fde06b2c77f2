"""Functions that make rows of a list: explode, posexplode, and inline of a list of structs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from stepping_spark.from_sql.aggregate_calls import args_of, name_of
from stepping_spark.from_sql.binder import Binder
from stepping_spark.from_sql.columns import Column, Expr
from stepping_spark.from_sql.plan import Plan, Unnest
from stepping_spark.from_sql.structs import names_of


def unnested(
    binder: Binder, plan: Plan, call: Expr, table: str, names: Sequence[str], outer: bool = False
) -> tuple[Plan, list[Column]]:
    """The plan with the items of a list, by explode, posexplode or inline, and their columns."""
    name = name_of(call)
    kind = name.removesuffix("_outer")
    if kind not in ("explode", "posexplode", "inline"):
        binder.fail(call, f"{name} is not supported", "use explode")
    args, _ = args_of(call)
    value = binder.bind_row(args[0])
    made = ["pos", "col"] if kind == "posexplode" else ["col"]
    if kind == "inline":
        found = _fields(value)
        if not names and found is None:
            remedy = "name them: LATERAL VIEW inline(…) t AS a, b"
            binder.fail(call, "the columns of inline are not known from the text", remedy)
        made = list(names) if found is None else found
    if names and len(names) != len(made):
        binder.fail(call, f"{name} makes {len(made)} columns, and {len(names)} are named")
    columns = [Column(n, table) for n in names or made]
    position = columns[0] if kind == "posexplode" else None
    for attach in binder.before:
        plan = attach(plan)
    binder.before.clear()
    outer = outer or name.endswith("_outer")
    made_of = tuple(columns) if kind == "inline" else (columns[-1],)
    return Unnest(plan, value, made_of, outer, position, kind == "inline"), columns


def _fields(value: Expr) -> list[str] | None:
    """The names of the structs of a list, if the text shows them: array(struct(a, b), …)."""
    if name_of(value) == "transform" and isinstance(value.expressions[-1], exp.Lambda):
        return names_of(value.expressions[-1].this)
    if name_of(value) == "array" and value.expressions:
        return names_of(value.expressions[0])
    return None
