"""The statements of a text: a query, or several views of which later ones may read earlier ones.

The head of `CREATE … VIEW name … AS` is read here, token by token: its clauses differ between
platforms, and say nothing about the rows. What follows AS is parsed as a query, at its own place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType, exp
from sqlglot.tokenizer_core import Token

from stepping_spark.from_sql.columns import Expr
from stepping_spark.from_sql.parse import failure, query_of, tokens_of
from stepping_spark.from_sql.plan import Filter, Plan, Project, Scan, nodes, with_fresh_columns
from stepping_spark.from_sql.query import Queries, used_queries

_KINDS = ("VIEW", "TABLE")
_BEFORE = ("OR", "REPLACE", "REFRESH", "TEMPORARY", "TEMP", "GLOBAL", "MATERIALIZED", "STREAMING",
           "LIVE", "PRIVATE")  # fmt: skip


@dataclass(frozen=True)
class View:
    """A view: its name, its plan, and what its statement says of it."""

    name: str
    plan: Plan
    at: Expr
    text: str
    comment: str | None = None

    @property
    def tables(self) -> set[str]:
        """The tables that it reads."""
        return {node.table for node in nodes(self.plan) if isinstance(node, Scan)}

    @property
    def keeps_state(self) -> bool:
        """Whether it is more than rows of a table that are mapped and filtered."""
        return not all(isinstance(n, Scan | Project | Filter) for n in nodes(self.plan))


@dataclass(frozen=True)
class Statement:
    """A statement: the tree of its query, the text that it stands in, and the head of a CREATE."""

    tree: Expr
    text: str
    name: str = ""
    columns: tuple[str, ...] = ()
    comment: str | None = None
    temporary: bool = False


class Views:
    """Makes the views of statements, one after another; later ones may read earlier ones."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        self._tables = dict(tables)
        self._known: dict[str, Plan] = {}

    def view(self, statement: Statement) -> View:
        """The view of a statement. Raises `SqlError` with its place."""
        tree = statement.tree.copy()
        queries = Queries(statement.text, self._tables, self._known)
        plan = queries.planned(tree)
        if statement.columns:
            if len(statement.columns) != len(plan.columns):
                queries.fail(
                    tree,
                    f"view {statement.name} names {len(statement.columns)} columns, and its query "
                    f"has {len(plan.columns)}",
                )
            plan = with_fresh_columns(plan, "", statement.columns)
        if statement.name:
            self._known[statement.name.lower()] = plan
        return View(statement.name, plan, tree, statement.text, statement.comment)

    def cut(self, view: View) -> None:
        """Let later views read the rows of a view, like those of a table, and not its plan."""
        del self._known[view.name.lower()]
        self._tables[view.name] = [c.name for c in view.plan.columns]


def views_of(statements: Iterable[Statement], tables: Mapping[str, Sequence[str]]) -> list[View]:
    """The views that statements make; a temporary view is there for others only."""
    views = Views(tables)
    made = [(statement, views.view(statement)) for statement in statements]
    return [view for statement, view in made if not statement.temporary]


def tables_in(statements: Iterable[Statement]) -> list[str]:
    """The names of the tables that statements read, and that are none of their own views."""
    found: dict[str, None] = {}
    views: set[str] = set()
    for statement in statements:
        for node in tables_of(statement.tree):
            if node.name.lower() not in views:
                found.setdefault(node.name)
        views.add(statement.name.lower())
    return list(found)


def tables_of(tree: Expr, ctes: frozenset[str] = frozenset()) -> Iterator[exp.Table]:
    """The tables and views that a query names: those that are no query of its WITH.

    Queries of WITH that nothing reads are left out.

    A query of WITH sees those before it, so `WITH orders AS (SELECT * FROM orders) …` reads a table
    `orders`. A name with a schema is always that of a table.
    """
    with_ = tree.args.get("with_")
    if with_ is not None:
        for cte in used_queries(tree, with_):
            own = {cte.alias.lower()}
            yield from tables_of(cte.this, ctes | own if with_.args.get("recursive") else ctes)
            ctes |= own
    if (
        isinstance(tree, exp.Table)
        and isinstance(tree.this, exp.Identifier)
        and (tree.args.get("db") or tree.name.lower() not in ctes)
    ):
        yield tree
    for child in tree.iter_expressions():
        if child is not with_:
            yield from tables_of(child, ctes)


def statements_of(text: str) -> list[Statement]:
    """The statements of a text."""
    found: list[Statement] = []
    tokens: list[Token] = []
    for token in tokens_of(text):
        if token.token_type is not TokenType.SEMICOLON:
            tokens.append(token)
        elif tokens:
            found.append(_statement(tokens, text))
            tokens = []
    return [*found, *([_statement(tokens, text)] if tokens else [])]


def _statement(tokens: list[Token], text: str) -> Statement:
    if tokens[0].text.upper() != "CREATE":
        return Statement(query_of(_at_its_place(text, tokens), text), text)
    return _Head(tokens, text).statement()


def _at_its_place(text: str, tokens: list[Token]) -> str:
    """The text of tokens, after as many lines and spaces as are before it in the whole text."""
    start, end = tokens[0].start, tokens[-1].end + 1
    before = "".join(c if c == "\n" else " " for c in text[:start])
    return before + text[start:end]


class _Head:
    """The head of a CREATE statement."""

    def __init__(self, tokens: list[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.at = 1

    def statement(self) -> Statement:
        """The statement; what is no view is refused."""
        words = set()
        while self._word() in _BEFORE:
            words.add(self._take())
        kind = self._take()
        if kind not in _KINDS:
            self._fail(f"CREATE {kind} makes no view")
        if self._word() == "IF":
            self.at += 3
        name = self._name()
        columns = self._columns() if self._word() == "(" else ()
        comment = None
        depth = 0
        while depth or self._word() != "AS":
            if self.at >= len(self.tokens):
                self._fail(f"{kind} {name} has no query: there is no AS")
            word = self._word()
            if word == "COMMENT" and not depth:
                comment = self.tokens[self.at + 1].text
            depth += (word == "(") - (word == ")")
            self.at += 1
        rest = self.tokens[self.at + 1 :]
        if not rest:
            self._fail(f"{kind} {name} has no query after AS")
        temporary = bool(words & {"TEMPORARY", "TEMP", "PRIVATE"})
        tree = query_of(_at_its_place(self.text, rest), self.text)
        return Statement(tree, self.text, name, columns, comment, temporary)

    def _word(self) -> str:
        return self.tokens[self.at].text.upper() if self.at < len(self.tokens) else ""

    def _take(self) -> str:
        word = self._word()
        self.at += 1
        return word

    def _name(self) -> str:
        """The name of the view; of a name with a schema, the last part."""
        name = self.tokens[self.at].text
        self.at += 1
        while self._word() == ".":
            name = self.tokens[self.at + 1].text
            self.at += 2
        return name

    def _columns(self) -> tuple[str, ...]:
        """The names in parentheses; types, comments and constraints beside them say nothing."""
        names, depth, expected = [], 0, False
        while True:
            word = self._word()
            if not word:
                self._fail("a list of columns does not end")
            depth += (word == "(") - (word == ")")
            if expected and word != "CONSTRAINT":
                names.append(self.tokens[self.at].text)
            expected = depth == 1 and word in ("(", ",")
            self.at += 1
            if not depth:
                return tuple(names)

    def _fail(self, reason: str) -> None:
        raise failure(self.text, None, reason, "write CREATE MATERIALIZED VIEW name AS SELECT …")
