"""What is read of a text, where sqlglot reads something else, and places in errors."""

from __future__ import annotations

from typing import Any

import pytest
from sqlglot import exp

from stepping_spark.base.errors import CompileError
from stepping_spark.sql.parse import query_of
from stepping_spark.sql.places import failure


def parsed(text: str) -> Any:
    query = f"SELECT {text}"
    (node,) = query_of(query, query).expressions
    return node


NAMES = """
date_add datediff to_date nvl ifnull collect_list first_value percentile_approx
year if string_agg any_value log sequence size date timestamp int replace left
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_a_function_keeps_its_name(name: str) -> None:
    node = parsed(f"{name}(a, b)")
    assert isinstance(node, exp.Anonymous)
    assert node.name == name


def test_a_cast_is_no_try_cast() -> None:
    assert type(parsed("CAST(a AS INT)")) is exp.Cast
    assert type(parsed("a::int")) is exp.Cast
    assert type(parsed("TRY_CAST(a AS INT)")) is exp.TryCast


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ("'a\"\"b'", 'a""b'),
        ("\"a''b\"", "a''b"),
        (r"'a\nb'", "a\nb"),
        (r"'50\%'", r"50\%"),
    ],
)
def test_a_string_is_spark_s(text: str, value: str) -> None:
    assert parsed(text).this == value


def test_a_subscript_of_an_array_is_one() -> None:
    node = parsed("array(1, 2)[0]")
    assert isinstance(node, exp.Bracket)
    assert isinstance(node.this, exp.Anonymous)


def test_a_unit_is_a_word() -> None:
    assert isinstance(parsed("datediff(day, a, b)").expressions[0], exp.Var)
    assert isinstance(parsed("datediff(day, a)").expressions[0], exp.Column)


@pytest.mark.parametrize(
    ("text", "place"),
    [("SELECT a b c", "line 1, column 12"), ("SELECT a\nFROM t WHERE WHERE", "line 2")],
)
def test_what_is_no_sql_is_shown_with_its_place(text: str, place: str) -> None:
    with pytest.raises(CompileError, match=f"SQL, {place}"):
        query_of(text, text)


def test_a_string_without_end_is_told() -> None:
    with pytest.raises(CompileError, match="missing quote"):
        query_of("SELECT 'a", "SELECT 'a")


def test_a_failure_points_at_the_node() -> None:
    text = "SELECT\n\ta + f(b, 'x')"
    tree = query_of(text, text)
    node = tree.expressions[0].expression
    assert str(failure(text, node, "no such function", "write g")) == (
        "SQL, line 2, column 6: no such function; write g\n  \ta + f(b, 'x')\n  \t    ^"
    )


def test_a_failure_of_a_node_without_place_points_at_its_parent() -> None:
    text = "SELECT f(NULL)"
    tree = query_of(text, text)
    null = tree.find(exp.Null)
    assert "column 8" in str(failure(text, null, "no"))
