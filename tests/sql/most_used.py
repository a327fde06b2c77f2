"""How often functions occur in texts of views.

    python -m tests.sql.most_used FOLDER

The folder holds corpora of views, in files of JSON: objects with `sql`, or with `views` that have
`sql_spark` or `sql`. Prints the functions of Spark by how often they are called, as lines of
`most_used.csv`, whose third column is a call over the rows of the test beside.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_suffix(".csv")
_CALL = re.compile(r"\b([a-z_][a-z_0-9]*)\s*\(")
_NO_CALLS = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*")
# Words before a parenthesis that are functions by their names only.
NO_FUNCTIONS = {"and", "between", "decimal", "exists", "filter", "in", "not", "or", "range", "when"}


def listed() -> list[tuple[str, int, str]]:
    """The functions that occur most: their names, how often they occur, and a call of each."""
    with LIST.open(encoding="utf-8", newline="") as lines:
        return [(name, int(times), call) for name, times, call in csv.reader(lines)]


def texts_in(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.json*")):
        whole = path.read_text(encoding="utf-8")
        found: list[Any] = (
            [*map(json.loads, whole.splitlines())]
            if path.suffix == ".jsonl"
            else [json.loads(whole)]
        )
        for part in found:
            yield from _texts(part)


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for one in part:
            yield from _texts(one)
    elif isinstance(part, dict) and isinstance(part.get("sql"), str):
        yield part.get("sql_spark") or part["sql"]
    elif isinstance(part, dict) and "views" in part:
        yield from _texts(part["views"])


def counted(folder: Path, names: set[str]) -> Counter[str]:
    """The calls of functions of these names."""
    found = Counter[str]()
    for text in texts_in(folder):
        plain = _NO_CALLS.sub(" ", text.lower())
        found.update(n for n in _CALL.findall(plain) if n in names)
        found["case"] += len(re.findall(r"\bcase\b", plain))
    return found


def main() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    names = {row[0] for row in session.sql("SHOW FUNCTIONS").collect()} - NO_FUNCTIONS
    session.stop()
    calls = {name: call for name, _, call in listed()} if LIST.exists() else {}
    lines = csv.writer(sys.stdout, lineterminator="\n")
    for name, times in counted(Path(sys.argv[1]), names | {"cast", "extract"}).most_common(100):
        lines.writerow([name, times, calls.get(name, "")])


if __name__ == "__main__":
    main()
