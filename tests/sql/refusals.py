"""The views of others that are refused, counted by reason: `docs/guide/sql-refused.md`.

`python -m tests.sql.refusals` writes the page; a long test compares it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from tests.cases import ROOT
from tests.sql import corpus, replayed, tpc

PAGE: Path = ROOT / "docs" / "guide" / "sql-refused.md"

REASONS = {
    "two columns of one name in the result": r"two columns of the result are called",
    "an aggregate that is approximate, or not supported": r"the aggregate .* is not supported",
    "a recursion that is not linear": r"in its own recursive part",
}
"""Reasons, each with what the errors say."""


def reason_of(message: str) -> str:
    """The reason that an error gives. Raises `ValueError` for one that is in no list."""
    for reason, said in REASONS.items():
        if re.search(said, message):
            return reason
    raise ValueError(f"the page of refusals knows no reason for this: {message}")


Text = tuple[str, Mapping[str, Any]]


def texts() -> Iterator[tuple[str, list[Text]]]:
    """The views of each corpus, with their tables."""
    tables = corpus.tpcc().TABLES
    yield "openivm", [_of(q, tables) for q in corpus.queries("openivm")]
    yield "openivm, long texts", [_of(q, tables) for q in corpus.queries("openivm_large")]
    for name in ("tpch", "tpcds"):
        ddls = tpc.tables(name)
        title = {"tpch": "TPC-H", "tpcds": "TPC-DS"}[name]
        yield title, [_of(q, ddls) for q in corpus.queries(name)]
    yield "Nexmark", [_of(q, tpc.NEXMARK) for q in tpc.nexmark()]
    for file in replayed.FILES:
        cases = json.loads((corpus.folder() / "ivm" / f"{file}.json").read_text())
        views = [text for case in cases for text in _of_case(case)]
        yield f"test suite of {file}", views


def _of(q: Mapping[str, Any], ddls: Mapping[str, Any]) -> Text:
    return q["sql"], {t: ddls[t] for t in q["tables"]}


def _of_case(case: Mapping[str, Any]) -> Iterator[Text]:
    """The views of a case that read tables only: others are as those that they read."""
    ddls = {
        t: ", ".join(f"`{c['name']}` {replayed.ddl_of(c['type'])}" for c in columns)
        for t, columns in case["tables"].items()
    }
    views = {v["name"].lower() for v in case["views"]}
    for v in case["views"]:
        text = v["sql_spark"] or v["sql"]
        if not views & set(re.findall(r"\w+", text.lower())):
            yield text, ddls


def counted(spark: Any) -> dict[str, Counter[str]]:
    """How many views of each corpus are maintained, and refused for each reason."""
    found: dict[str, Counter[str]] = {}
    there: dict[str, str] = {}
    for name, views in texts():
        counts = found[name] = Counter()
        for text, ddls in views:
            if _is_spark(spark, text, ddls, there):
                counts[_said(text, ddls)] += 1
    return found


def _said(text: str, ddls: Mapping[str, Any]) -> str:
    try:
        st.compile(st.sql(text, **ddls))
    except CompileError as e:
        return reason_of(str(e))
    return ""


def _is_spark(spark: Any, text: str, ddls: Mapping[str, str], there: dict[str, str]) -> bool:
    """Whether Spark analyses a text. `there` are the tables that Spark has already."""
    try:
        for name, ddl in ddls.items():
            if there.get(name) != ddl:
                spark.createDataFrame([], ddl).createOrReplaceTempView(name)
                there[name] = ddl
        _ = spark.sql(text).schema
    except Exception:
        return False
    return True


def page(found: Mapping[str, Counter[str]]) -> str:
    """The page."""
    lines = [
        "# Views in SQL that are refused",
        "",
        "The views that others wrote, as far as Spark takes them, and those of them that",
        "[`st.sql`](sql.md) refuses, by reason. Each refusal is an error with its place and what",
        "to write instead. A test makes this page.",
        "",
        "| views | Spark takes | maintained | refused |",
        "|---|--:|--:|--:|",
    ]
    for name, counts in found.items():
        total, kept = counts.total(), counts[""]
        lines.append(f"| {name} | {total:,} | {kept:,} | {total - kept:,} |")
    reasons: Counter[str] = Counter()
    for counts in found.values():
        reasons.update({r: n for r, n in counts.items() if r})
    lines += ["", "| reason | views |", "|---|--:|"]
    lines += [f"| {reason} | {n:,} |" for reason, n in sorted(reasons.items(), key=_rank)]
    return "\n".join(lines) + "\n"


def _rank(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def main() -> None:
    """Write the page."""
    from stepping_spark.spark.session import get_session

    PAGE.write_text(page(counted(get_session())))


if __name__ == "__main__":
    main()
