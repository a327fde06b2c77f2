"""Text that is put into other SQL text is in parentheses, and no module writes it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.expressions.expr import Expr
from stepping_spark.rows.sql_text import all_of, any_of, closed
from tests.cases import ROOT

PACKAGES = ("stepping_spark", "circuits", "stores")
MODULES = sorted(p for d in PACKAGES for p in (ROOT / d).rglob("*.py"))


@pytest.mark.parametrize(
    "text",
    [
        *("`a`", "t.`x``y`.`z`", "x", "1L", "1.5D", "'it'", "DATE'2024-01-01'", "X'00'"),
        *("f(a, b)", "CAST(a + b AS BIGINT)", "f(g(a), ')')", "f(`)`)", "(a + b)", "(SELECT 1)"),
        "CASE WHEN CASE WHEN a THEN b END THEN c END",
    ],
)
def test_what_reads_the_same_everywhere_gets_no_parentheses(text: str) -> None:
    assert closed(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("a = b", "a AND b", "-1L", "1e-05D", "- x", "a IS NULL", "a IN (b)", "NOT (a)", "NOT(a)"),
        *("f(a) + f(b)", "(a) = (b)", "f(')') = g('(')", "f(`)`) = g(`(`)", "a BETWEEN b AND c"),
        *("CASE WHEN a THEN b END + 1", "'a' || 'b'", "a[0] + 1", "f(a).x", "x -> y"),
    ],
)
def test_what_may_be_read_otherwise_beside_something_gets_parentheses(text: str) -> None:
    assert closed(text) == f"({text})"


def test_conditions_are_joined_each_in_its_parentheses() -> None:
    assert all_of(["a = b", "f(c)"]) == "((a = b) AND f(c))"
    assert any_of(["a"]) == "a"


# -- the syntax trees of the modules

_SPARK = re.compile(r"\b(SELECT|CAST\(|CASE WHEN|named_struct\(|array\()")
_HIDDEN = re.compile(r"`[^`]*`|'[^']*'|/\*.*?\*/")
_TOKEN = re.compile(
    r"[(\[]|[)\]]|\bCASE\b|\bEND\b|(?<=\s)(?:<=>|<>|<=|>=|=|<|>|\+|-|\*|/|%|\|\|)(?=\s)"
    r"|\b(?:AND|OR|NOT|IS|IN|BETWEEN|LIKE)\b"
)
# What begins so is a query, or a part of one, and not a value.
_QUERY = re.compile(
    r"\s*(?:SELECT|INSERT|ON CONFLICT|DELETE|CREATE|FROM|WITH|WHERE|WHEN|OVER|JOIN|GROUP BY"
    r"|OR REPLACE|COPY|GRANT|SET|LIKE \{)"
)
_CLOSES = {"closed", "let", "let_all", "all_of", "any_of"}


def has_open_operator(text: str) -> bool:
    """Whether an operator stands in the text outside of all parentheses."""
    depth = 0
    for token in _TOKEN.findall(_HIDDEN.sub("x", text)):
        if token in ("(", "[", "CASE"):
            depth += 1
        elif token in (")", "]", "END"):
            depth -= 1
        elif depth <= 0:
            return True
    return False


def open_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The f-strings of a module that put something beside an operator, and do not close it."""
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or _is_said_to_people(node, above):
            continue
        text = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in node.values)
        if has_open_operator(text) and not _QUERY.match(text) and not _is_closed(node, above):
            yield node.lineno, text


def _is_closed(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    call = above[node]
    if isinstance(call, ast.GeneratorExp | ast.List | ast.Dict):
        call = above[call]
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") in _CLOSES


def _is_said_to_people(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """Whether an f-string is a part of an error's message, or of what an object says of itself."""
    while node in above:
        node = above[node]
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.FunctionDef) and node.name in ("__str__", "describe", "note"):
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
            return True
    return False


def texts_of(tree: ast.AST) -> Iterator[str]:
    return (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is str)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_module_puts_text_beside_an_operator_without_closing_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if path.name == "sql_text.py" or not any(map(_SPARK.search, texts_of(tree))):
        return
    assert list(open_texts(tree)) == []
    joined = [
        n.lineno
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and n.attr == "join"
        and isinstance(n.value, ast.Constant)
        and n.value.value in (" AND ", " OR ")
    ]
    assert joined == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('f"{a} = {b}"', True),
        ('f"CASE WHEN {a} = {b} THEN {c} END"', False),
        ('f"CASE WHEN {a} THEN {b} END + {c}"', True),
        ('f"{a} IS NOT NULL"', True),
        ('f"f({a} + {b})"', False),
        ('closed(f"{a} = {b}")', False),
        ('all_of(f"{a} = {b}" for a in c)', False),
        ('let_all("v", {"x": f"{a} + {b}"}, c)', False),
        ('f"SELECT {a} = {b} AS c"', False),
        ('raise StepError(f"{a} = {b}: too large")', False),
    ],
)
def test_such_text_would_be_found(code: str, found: bool) -> None:
    assert bool(list(open_texts(ast.parse(code)))) == found


def test_every_expression_is_written_by_the_one_function_that_closes_it() -> None:
    kinds: list[type[Expr]] = [Expr]
    for cls in kinds:
        kinds += cls.__subclasses__()
    own = [cls.__name__ for cls in kinds if "sql" in vars(cls)]
    assert own == ["Expr"]
    named = [
        path.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "_sql"
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert named == []


def test_only_one_module_says_that_text_is_closed() -> None:
    makers = [
        path.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("Sql", "cast")
        and "Sql" in ast.unparse(node)
    ]
    assert set(makers) == {"sql_text.py"}


# -- what an expression says of itself


class Flags(st.Data):
    b: bool
    c: bool
    d: bool


def _kept(f: Callable[[Any], Any]) -> Any:
    def query(a: st.ZSet[Flags]) -> st.ZSet[Flags]:
        return st.distinct(st.filter(a, f=f))

    return st.compile(query)


def test_a_store_of_a_condition_with_other_parentheses_is_refused(tmp_path: Path) -> None:
    made = _kept(lambda r: (r.b & r.c) == r.d)
    st.StoreParquet.from_graph(made, tmp_path / "s", create=True).close()
    with pytest.raises(st.StoreMismatch, match=re.escape("filter [(b AND c) = d]")):
        st.StoreParquet.from_graph(_kept(lambda r: r.b & (r.c == r.d)), tmp_path / "s")
