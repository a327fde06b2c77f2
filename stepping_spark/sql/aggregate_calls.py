"""Calls of aggregate and window functions in SQL: their names, arguments and errors."""

from __future__ import annotations

from sqlglot import exp

from stepping_spark.sql.plan import FunctionCall, Scalar

AGGREGATES = frozenset(
    """
    any any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set
    corr count count_if covar_pop covar_samp every first first_value grouping grouping_id kurtosis
    last last_value listagg max max_by mean median min min_by mode percentile percentile_cont
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp string_agg sum var_pop var_samp variance
    """.split()  # noqa: SIM905 - a list of 60 strings reads worse
)
REFUSED_AGGREGATES = frozenset(
    """
    approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine bitmap_and_agg bitmap_construct_agg bitmap_or_agg collect_union
    count_min_sketch histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float measure percentile_approx percentile_disc schema_of_variant_agg
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer vector_avg vector_sum
    """.split()  # noqa: SIM905 - a list of 40 strings reads worse
)
"""Aggregates of Spark that are not maintained, mostly sketches and approximations."""
WINDOW_ONLY = frozenset(
    ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead")
) | {"nth_value"}
GENERATORS = frozenset(
    ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer")
) | {"json_tuple", "stack", "variant_explode", "variant_explode_outer"}
_MANY = 1_000
_ONE_VALUE = """
    avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set count_if grouping kurtosis
    max median min percentile_cont skewness stddev stddev_pop sum var_pop variance
"""
_ARITIES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(_ONE_VALUE.split(), (1, 1)),
    **dict.fromkeys(("any_value", "first", "first_value", "last", "last_value"), (1, 2)),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "max_by", "min_by", "percentile"), (2, 2)),
    **{name: (2, 2) for name in AGGREGATES if name.startswith("regr_")},
    **dict.fromkeys(("count",), (1, _MANY)),
    **dict.fromkeys(("listagg",), (1, 2)),
    **dict.fromkeys(("mode",), (0, 2)),
    **dict.fromkeys(("row_number", "cume_dist"), (0, 0)),
    **dict.fromkeys(("ntile",), (0, 1)),
    **dict.fromkeys(("lag", "lead"), (1, 3)),
    **dict.fromkeys(("nth_value",), (2, 3)),
}
"""The least and the greatest number of arguments of aggregate and window functions."""
_WITH_FLAG = ("any_value", "first", "first_value", "last", "last_value", "mode", "nth_value")
"""Functions whose last, optional argument is TRUE or FALSE."""
_IGNORING_NULLS = frozenset(_WITH_FLAG) - {"mode"} | {"lag", "lead"}

_SAME = {
    "array_agg": "collect_list",
    "any": "bool_or",
    "some": "bool_or",
    "every": "bool_and",
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "string_agg": "listagg",
}
_NODES: dict[type[Scalar], str] = {
    exp.ArgMax: "max_by",
    exp.ArgMin: "min_by",
    exp.GroupConcat: "listagg",
}


def name_of(node: Scalar) -> str:
    """The name of the called function, in lower case; empty if the node is no call."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() if isinstance(node.this, str) else node.name.lower()
    if type(node) in _NODES:
        return _NODES[type(node)]
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def canonical(name: str) -> str:
    """The one name of functions that are synonyms."""
    return _SAME.get(name, name)


def instead_of(call: FunctionCall) -> str:
    """A remedy for a wrong call; "" if there is none."""
    if call.name not in ("max_by", "min_by") or len(call.args) != 3:
        return ""
    return (
        "for the first n of a key, write array_agg(x) of a sub-query with "
        "QUALIFY row_number() OVER (PARTITION BY key ORDER BY y) <= n"
    )


def wrong_call(call: FunctionCall) -> str:
    """Why a call has wrong arguments or clauses for its function; "" if it is correct."""
    name, n = call.name, len(call.args)
    least, most = _ARITIES.get(name, (0, _MANY))
    if not least <= n <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        expected = f"at least {least}" if most == _MANY else expected
        return f"{name} takes {expected} arguments, found {n}"
    flagged = name in _WITH_FLAG and n and n == most
    if flagged and not isinstance(call.args[-1], exp.Boolean):
        return f"the last argument of {name} is TRUE or FALSE"
    if call.ignore_nulls and name not in _IGNORING_NULLS:
        return f"{name} has no IGNORE NULLS"
    if call.condition is not None and name in WINDOW_ONLY:
        return f"{name} has no FILTER"
    if name == "percentile_cont" and not call.order:
        return f"{name} needs WITHIN GROUP (ORDER BY …)"
    return ""


def inner_call(node: Scalar) -> Scalar:
    """The call within FILTER, WITHIN GROUP and IGNORE NULLS."""
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def is_aggregate(node: Scalar) -> bool:
    """Whether a node is a call of an aggregate function."""
    is_quantifier = isinstance(node, exp.Any) and isinstance(node.this, exp.Query)
    return not is_quantifier and name_of(inner_call(node)) in AGGREGATES | REFUSED_AGGREGATES


def is_star(node: Scalar) -> bool:
    """Whether an argument is `*` or `table.*`."""
    return isinstance(node.this if isinstance(node, exp.Column) else node, exp.Star)


def args_of(node: Scalar) -> tuple[list[Scalar], bool]:
    """The arguments of a call, and whether it has DISTINCT."""
    if isinstance(node, exp.Anonymous):
        args = list(node.expressions)
    else:
        args = [a for a in (node.args.get("this"), node.args.get("expression")) if a is not None]
        args += [a for a in (node.args.get("separator"),) if a is not None]
        args += node.expressions
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        return list(args[0].expressions), True
    if args and isinstance(args[0], exp.Distinct):
        return [*args[0].expressions, *args[1:]], True
    return args, False
