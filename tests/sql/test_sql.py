"""`st.sql`: tables, results, statements, streams inside of a query, pipelines and refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies

import stepping_spark as st
from stepping_spark.base.callsite import SqlText
from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.cli import main
from stepping_spark.plan.planner import plan_of
from stepping_spark.rows.data import Data
from stepping_spark.sql.views import table_of


class Order(st.Data):
    id: int
    country: str | None
    cents: int


class Total(st.Data):
    country: str | None
    total: int | None


ORDERS = [
    Order(id=1, country="AT", cents=5),
    Order(id=2, country="DE", cents=6),
    Order(id=3, country="AT", cents=7),
]
DDL = "id BIGINT NOT NULL, country STRING, cents BIGINT NOT NULL"
FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("country", pa.string()),
    pa.field("cents", pa.int64(), nullable=False),
]
ARROW = pa.schema(FIELDS)


def answer(query: Any, *rows: Data) -> Any:
    """The first output of a query on rows."""
    (out,) = st.reference(st.compile(query)).step((st.ZSetPython(dict.fromkeys(rows, 1)),))
    return out


def values(out: Any) -> dict[tuple[Any, ...], int]:
    """The values of rows, with their weights."""
    return {tuple(vars(row).values()): n for row, n in out.iter()}


def made(cls: Any) -> list[Any]:
    return [cls(**vars(order)) for order in ORDERS]


@pytest.mark.parametrize("table", [Order, DDL, ARROW], ids=["class", "DDL", "Arrow"])
def test_a_table_is_a_class_or_a_schema(table: Any) -> None:
    query = st.sql("SELECT Country, sum(cents) AS total FROM orders GROUP BY 1", orders=table)
    out = answer(query, *made(query.rows["orders"]))
    assert values(out) == {
        ("AT", 12): 1,
        ("DE", 6): 1,
    }


def test_a_result_may_have_a_class() -> None:
    query = st.sql(
        "SELECT sum(cents) AS total, country FROM orders GROUP BY country", to=Total, orders=Order
    )
    wanted = {Total(country="AT", total=12): 1, Total(country="DE", total=6): 1}
    assert dict(answer(query, *ORDERS).iter()) == wanted


def test_columns_have_the_names_that_spark_gives_them() -> None:
    text = "SELECT count(*), sum(cents), cents + 1, max(id) FROM orders GROUP BY cents"
    graph = st.compile(st.sql(text, orders=Order))
    (output,) = graph.outputs
    row: Any = output.type
    names = [row.row.column_names.get(n, n) for n, _ in row.row.fields]
    assert names == ["count(1)", "sum(cents)", "(cents + 1)", "max(id)"]


def test_views_may_read_views_and_pictures_have_their_names() -> None:
    query = st.sql(
        """
        -- only for others
        CREATE TEMPORARY VIEW big AS SELECT * FROM orders WHERE cents > 5;
        CREATE OR REPLACE MATERIALIZED VIEW lake.shop.totals (country, total)
        COMMENT 'by country' REFRESH POLICY INCREMENTAL STRICT AS
        SELECT country, sum(cents) FROM big GROUP BY country;
        CREATE VIEW largest AS SELECT max(total) AS total FROM totals
        """,
        orders=Order,
    )
    graph = st.compile(query)
    assert graph.called == ("totals", "largest")
    change = st.ZSetPython(dict.fromkeys(ORDERS, 1))
    totals, largest = st.reference(graph).step((change,))
    assert values(totals) == {("AT", 7): 1, ("DE", 6): 1}
    assert values(largest) == {(7,): 1}


def test_a_field_may_have_the_name_of_another_column(tmp_path: Path) -> None:
    """`columns=` of a table says which column a name of the text is."""
    rows_there = pa.table({"id": [1], "a": [2], "b": [3]})
    changes = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(tmp_path / "t", rows_there, configuration=changes)
    found: dict[str, Any] = {}
    for text, columns in {
        "SELECT id, a FROM t": {"a": "b"},
        "SELECT * FROM t": {"a": "b"},
        "SELECT b, a FROM t": {"a": "b", "b": "a"},
    }.items():
        table = st.DeltaTable(str(tmp_path / "t"), columns=columns)
        rows: list[Any] = []
        with st.Pipeline(
            st.sql(text),
            store="memory",
            t=table,
            into=lambda _, z, rows=rows: rows.extend(z.iter()),
        ) as pipeline:
            pipeline.run()
        found[text] = [vars(row) for row, _ in rows]
    assert found == {
        "SELECT id, a FROM t": [{"id": 1, "a": 3}],
        "SELECT * FROM t": [{"id": 1, "a": 3}],
        "SELECT b, a FROM t": [{"b": 2, "a": 3}],
    }


TAGS = pa.map_(pa.string(), pa.int32())


TWICE = pa.schema([pa.field("id", pa.int64()), pa.field("id", pa.int64())])
OTHER_CASE = pa.schema([pa.field("id", pa.int64()), pa.field("ID", pa.int64())])


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("id BIGNT", "'id BIGNT' is no DDL, from 'BIGNT' on; write each column with its type"),
        ("id BIGINT name STRING", "is no DDL, from 'name' on; write each"),
        ("CREATE TABLE t (id INT)", "is no DDL, from 'TABLE' on; write each"),
        ("id: BIGNT", "'id: BIGNT' is no DDL"),
        ("id, name", "has no columns with a type; write each column with its type"),
        ("", "has no columns with a type; write each column with its type"),
        ("id BIGINT, ID STRING", "has the column 'id' twice; leave one out"),
        ("id DECIMAL(50, 2)", "a row can hold none of the columns id (decimal(50,2))"),
        ("id MAP<STRING, INT>", "a row can hold none of the columns id (map<string,int>)"),
        (TWICE, "table t: the schema has the column 'id' twice; leave one out"),
        (OTHER_CASE, "table t: the schema has the column 'id' twice; leave one out"),
    ],
)
def test_columns_that_are_no_ddl_are_refused(ddl: Any, said: str) -> None:
    with pytest.raises(st.CompileError, match=re.escape(said)):
        st.sql("SELECT count(*) AS n FROM t", t=ddl)


def test_whole_rows_are_for_the_compilation() -> None:
    with pytest.raises(st.CompileError, match=r"an argument of st\.compile and st\.Pipeline"):
        st.sql("SELECT 1 AS n FROM t", t="id INT", whole_rows=True)
    compiled: Any = st.compile
    for whole_rows in ("yes", 1, None, ["t"]):
        with pytest.raises(st.CompileError, match=r"whole_rows=.*: expected True"):
            compiled(st.sql("SELECT 1 AS n FROM t", t="id INT"), whole_rows=whole_rows)


def test_a_type_in_ddl_may_be_behind_a_colon() -> None:
    texts = "id BIGINT NOT NULL, at STRUCT<x: DATE>", "id: BIGINT NOT NULL, at: STRUCT<x: DATE>"
    graphs = [st.compile(st.sql("SELECT id, at.x FROM t", t=text)) for text in texts]
    assert str(graphs[0]) == str(graphs[1])


@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize(
    "table",
    ["tags MAP<STRING, INT>, id BIGINT, s STRING", pa.schema([("id", pa.int64()), ("tags", TAGS)])],
    ids=["DDL", "Arrow"],
)
def test_a_column_that_rows_cannot_hold_is_an_error_only_where_it_is_read(
    table: Any, whole_rows: bool
) -> None:
    def graph(text: str) -> Any:
        return st.compile(st.sql(text, t=table), whole_rows=whole_rows)

    read = [
        "*",
        "t.*",
        "tags['a']",
        "id FROM t WHERE tags IS NULL --",
        "id FROM t ORDER BY tags LIMIT 1 --",
    ]
    for text in read:
        with pytest.raises(CompileError, match=r"column tags is map<.*rows cannot hold that") as e:
            graph(f"SELECT {text} FROM t")
        assert str(e.value).endswith("^")
    joins = ["a.id FROM t a JOIN t b USING (id) --", "count(*) FROM t a, t b --"]
    for text in ("* EXCEPT (tags)", "id", "count(*)", *joins):
        graph(f"SELECT {text} FROM t")
    graph("CREATE TEMPORARY VIEW a AS SELECT * FROM t; CREATE VIEW b AS SELECT id FROM a")


TYPES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.decimal128(10, 2): "DECIMAL(10, 2)",
    pa.string(): "STRING",
}


def nested(inner: strategies.SearchStrategy[Any]) -> strategies.SearchStrategy[Any]:
    """Lists and structs of types, each with its text in DDL."""
    structs = strategies.lists(inner, min_size=1, max_size=3).map(
        lambda parts: (
            pa.struct([pa.field(f"a {i}", t) for i, (t, _) in enumerate(parts)]),
            f"STRUCT<{', '.join(f'`a {i}`: {text}' for i, (_, text) in enumerate(parts))}>",
        )
    )
    return structs | inner.map(lambda of: (pa.list_(of[0]), f"ARRAY<{of[1]}>"))


@given(strategies.recursive(strategies.sampled_from(list(TYPES.items())), nested, max_leaves=4))
def test_a_source_says_the_same_types_as_ddl_at_any_depth(of: tuple[Any, str]) -> None:
    """INT within a struct counted as BIGINT: a quotient with a decimal had other digits."""
    there, text = of
    columns = pa.schema([pa.field("x", there)])
    kinds = [table_of("t", table).columns for table in (columns, f"x {text}")]
    assert kinds[0]["x"][1] == kinds[1]["x"][1]


def test_a_column_of_nulls_alone_asks_for_its_type() -> None:
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("day", pa.null())]
    columns = pa.schema(fields)
    with pytest.raises(CompileError, match=r"state the types of its table as DDL \(day STRING\)"):
        st.compile(st.sql("SELECT id, day FROM t", t=columns))
    st.compile(st.sql("SELECT id, day FROM t", t="id BIGINT, day STRING"))


@pytest.mark.parametrize(
    ("hint", "buckets"),
    [
        ("", "256 buckets"),
        ("/*+ BROADCAST(orders) */", "256 buckets"),
        ("/*+ GROUP_SIZE(1000) */", ""),
        ("/*+ BROADCAST(orders), group_size(1000000) */", "1,024 buckets"),
    ],
)
def test_a_hint_has_the_size_of_groups(hint: str, buckets: str) -> None:
    text = f"SELECT {hint} country, max(cents) AS most FROM orders GROUP BY country"
    graph = st.compile(st.sql(text, orders=Order))
    assert len(plan_of(graph).registers) == (2 if buckets else 1)
    assert buckets in str(graph) if buckets else "buckets" not in str(graph)


@pytest.mark.driver
def test_an_error_of_a_sum_names_the_operator_and_not_its_change() -> None:
    graph = st.compile(
        st.sql("SELECT country, sum(cents) AS c FROM orders GROUP BY 1", orders=Order)
    )
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    with pytest.raises(StepError, match=r"\): flatten: a sum is beyond int: .*; add up Decimals"):
        stepper.step((st.ZSetPython({Order(id=1, country="AT", cents=2**62): 3}),))


BEYOND = "SELECT country, sum({}) AS c FROM orders GROUP BY 1"
BEYOND_IN_ORDER = "SELECT id, sum({}) OVER (PARTITION BY country ORDER BY id) AS c FROM orders"


@pytest.mark.parametrize("text", [BEYOND, BEYOND_IN_ORDER], ids=["a group", "a window"])
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("cents", "CAST(x AS DECIMAL(38, 0))"),
        ("CAST(cents AS DECIMAL(38, 18))", "CAST(x AS DOUBLE)"),
    ],
)
def test_the_remedy_for_a_sum_beyond_its_type_is_one(text: str, value: str, remedy: str) -> None:
    rows = st.ZSetPython({Order(id=i, country="AT", cents=2**62): 30 for i in (1, 2)})

    def step(value: str) -> Any:
        graph = st.compile(st.sql(text.format(value), orders=Order))
        return st.Stepper(graph, st.StoreMemory.from_graph(graph)).step((rows,))

    with pytest.raises(StepError, match=re.escape(remedy)):
        step(value)
    (out,) = step(remedy.replace("(x ", f"({value} "))
    assert len(list(out.iter()))


@pytest.mark.parametrize("given", ["", "(x)", "(0)", "(-1)", "(1, 2)", "('7')", "(1.5)"])
def test_a_hint_without_a_number_of_rows_is_refused(given: str) -> None:
    text = f"SELECT /*+ GROUP_SIZE{given} */ max(cents) AS most FROM orders"
    with pytest.raises(CompileError, match=r"largest group; write /\*\+ GROUP_SIZE\(1000\) \*/"):
        st.sql(text, orders=Order)


SUMS = "SELECT country, sum(cents) AS total, count(*) AS n FROM orders GROUP BY country"


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT country FROM sums",
        "SELECT country, n FROM SUMS WHERE country = 'AT'",
        "SELECT a.country, b.n FROM sums a LEFT JOIN sums b ON a.total = b.n",
        "SELECT * FROM shop.sums WHERE n > 1",
    ],
)
def test_views_share_the_state_of_a_view_that_they_read(text: str, temporary: bool) -> None:
    kind = "TEMPORARY VIEW" if temporary else "VIEW"
    views = [
        f"CREATE {kind} sums AS {SUMS}",
        f"CREATE VIEW a AS {text}",
        f"CREATE VIEW b AS {text}",
    ]
    graph = st.compile(st.sql("; ".join(views), orders=Order))
    groups = [r for r in plan_of(graph).registers if "accumulate" in r.name]
    assert len(groups) == 1
    *_, a, b = st.reference(graph).step((st.ZSetPython(dict.fromkeys(ORDERS, 1)),))
    alone = st.sql(f"WITH sums AS ({SUMS}) {text.replace('shop.', '')}", orders=Order)
    assert values(a) == values(b) == values(answer(alone, *ORDERS))


@pytest.mark.parametrize(
    "views",
    [
        "a AS SELECT max(cents) AS m FROM orders; SELECT id, (SELECT m FROM a) AS m FROM orders",
        "a AS SELECT DISTINCT country FROM orders WHERE country IS NOT NULL;"
        "SELECT id FROM orders WHERE country IS NOT NULL AND country NOT IN (SELECT * FROM a)",
    ],
    ids=["one row", "never NULL"],
)
def test_what_is_known_of_a_view_is_known_where_it_is_read(views: str) -> None:
    first, second = views.split(";")
    kept = [
        len(
            plan_of(
                st.compile(
                    st.sql(f"CREATE {kind} {first}; CREATE VIEW b AS {second}", orders=Order)
                )
            ).registers
        )
        for kind in ("VIEW", "TEMPORARY VIEW")
    ]
    assert kept[0] <= kept[1]


def test_a_class_converts_what_is_written_and_not_what_others_read() -> None:
    class Value(st.Data):
        value: float | None

    big = 2**53
    text = f"""
    CREATE VIEW a AS SELECT DISTINCT {big} + id AS value FROM orders;
    CREATE VIEW b AS SELECT value - {big} AS value FROM a;
    CREATE VIEW c AS SELECT count(*) AS value FROM a
    """
    graph = st.compile(st.sql(text, to=Value, orders=Order))
    _, b, c = st.reference(graph).step((st.ZSetPython(dict.fromkeys(ORDERS, 1)),))
    assert values(b) == {(1.0,): 1, (2.0,): 1, (3.0,): 1}
    assert values(c) == {(3.0,): 1}


def test_a_view_may_have_the_name_of_a_table_that_it_reads() -> None:
    query = st.sql(
        """
        CREATE VIEW Orders AS SELECT country, cents FROM orders WHERE cents > 5;
        CREATE VIEW n AS SELECT count(*) AS n, sum(cents) AS cents FROM ORDERS
        """,
        orders=Order,
    )
    graph = st.compile(query)
    _, n = st.reference(graph).step((st.ZSetPython(dict.fromkeys(ORDERS, 1)),))
    assert values(n) == {(2, 13): 1}


def test_sql_is_part_of_a_query_in_python() -> None:
    def big(orders: st.ZSet[Order]) -> st.ZSet[Any]:
        sums = st.sql("SELECT country, sum(cents) AS total FROM orders GROUP BY 1", orders=orders)
        return st.filter(sums, f=lambda row: row.total > 6)

    assert [row.total for row, _ in answer(big, *ORDERS).iter()] == [12]


def test_the_same_view_by_hand_and_in_sql_has_the_same_registers() -> None:
    def by_hand(orders: st.ZSet[Order]) -> st.ZSet[Total]:
        return st.aggregate(
            orders, by=lambda o: o.country, into=Total, total=st.agg.sum(lambda o: o.cents)
        )

    text = "SELECT country, sum(cents) AS total FROM orders GROUP BY country"
    graphs = [st.compile(by_hand), st.compile(st.sql(text, to=Total, orders=Order))]
    kept = [[keys for _, keys in st.explain(graph).arrangements] for graph in graphs]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT nothing FROM orders", "line 1, column 8: there is no column nothing"),
        ("SELECT o.nothing FROM orders o", "the columns are id, country, cents"),
        ("SELECT x.id FROM orders o", "the tables here are o"),
        ("SELECT a.id FROM orders a, orders b WHERE id = 1", "id is ambiguous; write one of a.id"),
        ("SELECT id, sum(cents) FROM orders", "id is neither in GROUP BY nor in an aggregate"),
        ("SELECT id FROM orders WHERE sum(cents) > 1", "sum is an aggregate"),
        ("SELECT id, cents AS ID FROM orders", "two columns of the result are called ID"),
        ("SELECT id FROM orders UNION SELECT id, cents FROM orders", "1 and 2 columns"),
        ("SELECT row_number() FROM orders", "row_number needs OVER"),
        ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id FROM orders GROUP BY 2", "GROUP BY 2: the select list has 1 columns"),
        ("SELECT (SELECT id, cents FROM orders) AS x FROM orders", "has one column, found 2"),
        ("SELECT id FROM orders LIMIT cents", "LIMIT takes a number"),
        ("DROP TABLE orders", "this is no query"),
        ("CREATE FUNCTION f AS SELECT 1", "CREATE FUNCTION makes no view"),
        ("SELECT 'x", "missing quote"),
        ("SELECT FROM WHERE", "SQL, line 1"),
        ("SELECT window(id, '1 hour') AS w FROM orders", "is of a TIMESTAMP, found bigint"),
        ("SELECT mode() WITHIN GROUP (ORDER BY id DESC) FROM orders", "leave out DESC"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_view_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        st.compile(st.sql(text, orders=Order))


def test_a_table_that_is_not_given_is_named() -> None:
    with pytest.raises(CompileError, match="columns of table missing are not known; say them"):
        st.sql("SELECT id FROM missing")()


@pytest.mark.parametrize("table", ["orders", "shop.orders"])
def test_a_query_of_with_may_be_called_like_the_table_that_it_reads(table: str) -> None:
    text = f"WITH orders AS (SELECT * FROM {table}) SELECT max(id) AS id FROM orders"
    bound: Any = st.sql(text)
    query = bound.with_tables({"orders": Order})
    assert [row.id for row, _ in answer(query, *ORDERS).iter()] == [3]


def test_a_query_of_with_that_nothing_reads_needs_no_table() -> None:
    text = (
        "WITH a AS (SELECT * FROM missing), b AS (SELECT * FROM a), c AS (SELECT * FROM orders), "
        "d AS (SELECT id FROM c) SELECT max(id) AS id FROM d"
    )
    bound: Any = st.sql(text)
    assert bound.missing == ["orders"]
    query = bound.with_tables({"orders": Order})
    assert [row.id for row, _ in answer(query, *ORDERS).iter()] == [3]


def test_an_error_names_the_text_of_the_view_that_it_is_in() -> None:
    text = SqlText('SELECT "id",\n"nothing" FROM "shop"."orders"', "model a", quoted_names=True)
    with pytest.raises(CompileError, match=r"^model a, line 2, column 1: there is no column"):
        st.sql(text, orders=Order)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(CompileError, match="table orders: expected a row class"):
        st.sql("SELECT 1 FROM orders", orders=5)


def feed(path: Path, *rows: Order) -> None:
    table = pa.Table.from_pylist([vars(row) for row in rows], ARROW)
    enabled = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(path, table, mode="append", configuration=enabled)


VIEWS = """
CREATE MATERIALIZED VIEW totals AS
SELECT country, count(*) AS n, sum(cents) AS total FROM orders GROUP BY country
"""


def shown(path: Path) -> list[dict[str, Any]]:
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["country"]))


def test_a_pipeline_takes_the_columns_from_its_sources(tmp_path: Path) -> None:
    feed(tmp_path / "orders", *ORDERS)
    with st.Pipeline(
        st.sql(VIEWS),
        store="memory",
        orders=st.DeltaTable(tmp_path / "orders"),
        into=st.DeltaTable(tmp_path / "totals", key="country"),
    ) as pipeline:
        pipeline.run()
        deltalake.DeltaTable(tmp_path / "orders").delete("id = 1")
        pipeline.run()
    assert shown(tmp_path / "totals") == [
        {"country": "AT", "n": 1, "total": 7},
        {"country": "DE", "n": 1, "total": 6},
    ]


@pytest.mark.parametrize("by", ["options", "TOML"])
def test_a_file_of_sql_is_run_without_python(tmp_path: Path, by: str) -> None:
    feed(tmp_path / "orders", *ORDERS)
    (tmp_path / "views.sql").write_text(VIEWS)
    said = [str(tmp_path / "views.sql"), "--store", f"parquet:{tmp_path / 'state'}"]
    said += ["--source", f"orders=delta:{tmp_path / 'orders'}"]
    said += ["--sink", f"totals=delta:{tmp_path / 'totals'}:country"]
    if by == "TOML":
        said = [str(tmp_path / "shop.toml")]
        (tmp_path / "shop.toml").write_text(
            f'sql = "views.sql"\nstore = "parquet:{tmp_path / "state"}"\n'
            f'[sources.orders]\ndelta = "{tmp_path / "orders"}"\n'
            f'[sinks.totals]\ndelta = "{tmp_path / "totals"}"\nkey = "country"\n'
        )
    for steps in ("1 step taken", "0 steps taken"):
        result = CliRunner().invoke(main, ["run", *said])
        assert (result.exit_code, steps in result.output) == (0, True), result.output
    assert [row["total"] for row in shown(tmp_path / "totals")] == [12, 6]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\ufeffSELECT id FROM orders".encode(), "there is no source for orders"),
        ("SELECT id FROM größen".encode("latin-1"), "is not in UTF-8: byte 17 is 0xf6; save it so"),
        (b"CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT 1 AS x",
         "reads b before it makes this view; write each view after those that it reads"),
    ],
    ids=["byte order mark", "another encoding", "another order"],
)  # fmt: skip
def test_a_file_of_sql_that_cannot_be_read_says_why(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "views.sql").write_bytes(content)
    result = CliRunner().invoke(main, ["run", str(tmp_path / "views.sql"), "--store", "memory"])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_view_may_have_a_name_that_python_forbids() -> None:
    query = st.sql("CREATE VIEW `my view` AS SELECT id FROM orders", orders=Order)
    assert str(st.compile(query).outputs[0].type) == "ZSet[my_view]"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--source", "orders=delt:x"], "the kinds are delta, files, iceberg, postgres"),
        (["--source", "orders=postgresql://u@h/db"], "say the table after a #"),
        ([], "give --store"),
    ],
)
def test_a_table_of_the_command_line_that_is_none_is_refused(
    tmp_path: Path, option: list[str], said: str
) -> None:
    (tmp_path / "views.sql").write_text(VIEWS)
    store = ["--store", "memory"] if option else []
    result = CliRunner().invoke(main, ["run", str(tmp_path / "views.sql"), *store, *option])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


# -- stepping-spark sql


def explained(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["sql", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize("by", ["columns", "source", "TOML"])
def test_views_are_explained_and_drawn_and_nothing_is_run(tmp_path: Path, by: str) -> None:
    views, orders = tmp_path / "views.sql", tmp_path / "orders"
    views.write_text(VIEWS + ";\nCREATE VIEW n AS\nSELECT max(n) AS most FROM totals")
    feed(orders, *ORDERS)
    (tmp_path / "shop.toml").write_text(
        f'sql = "views.sql"\n[sources.orders]\ndelta = "{orders}"\n'
    )
    options: dict[str, list[object]] = {
        "columns": [views, "--columns", f"orders={DDL}"],
        "source": [views, "--source", f"orders=delta:{orders}"],
        "TOML": [tmp_path / "shop.toml"],
    }
    said = options[by]
    code, text = explained(*said, "--out", tmp_path / "views.svg", "--level", 1)
    assert (code, (tmp_path / "views.svg").read_bytes()[:5]) == (0, b"<?xml")
    assert "count(), sum(cents) by country" in " ".join(text.split())
    assert "a step of\n  totals: reads the change of orders, and" in text
    assert "\n  n: reads the change of orders, and" in text
    assert not (tmp_path / "state").exists()
    code, text = explained(*said, "--verbose")
    assert (code, "(views.sql:6, in n)" in text, "core.py" in text) == (0, True, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either a file"),
        (["views.sql"], "there is no source for orders; give --source orders=delta:lake/orders"),
        (["views.sql", "--columns", "orders"], "expected NAME=DDL, such as orders='id BIGINT"),
        (
            ["views.sql", "--columns", "orders=id"],
            "views.sql: table orders: the DDL 'id' has no columns",
        ),
        (["views.sql", "--columns", "orders=id INT"], "views.sql, line 3, column 8: there is no"),
        (["views.sql", "--out", "views.gif"], "expected a name that ends with .svg or .png"),
        (["views.sql", "--exclude", "x"], "--no-checks are for --dbt"),
        (["views.txt"], "views.txt is neither .sql nor .toml"),
    ],
)
def test_what_is_not_explained_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("views.sql", "views.txt"):
        Path(name).write_text(VIEWS)
    code, text = explained(*arguments)
    assert (code, said in " ".join(text.split())) == (2, True), text


def test_what_the_text_says_of_a_view_is_shown() -> None:
    text = """
    -- Large orders,
    -- for the report
    CREATE VIEW large AS SELECT * FROM orders WHERE cents > 5; -- not this
    CREATE MATERIALIZED VIEW revenue COMMENT 'By country' AS
    SELECT country, sum(cents) AS cents FROM large GROUP BY country
    """
    graph = st.compile(st.sql(text, orders="id INT, country STRING, cents INT"))
    said = {v.path: v.comment for v in st.explain(graph).vertices if v.comment}
    assert said == {
        "large.large": "Large orders,\nfor the report",
        "revenue.revenue": "By country",
    }
    assert "      -- By country\n" in str(st.explain(graph))
    assert "By country" in graph._repr_svg_()
