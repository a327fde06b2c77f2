"""Mistakes that a tired developer makes, and the tests that must notice each of them.

A mistake is a text of the packages, and the text that replaces it. It names no file, so it survives
moves; a text that no longer occurs exactly once fails a test of every run.
`pytest -m long tests/project/test_planted.py` plants each mistake in a copy of the project, and
runs the tests that must fail there. Those are tests of a normal run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cases import ROOT

PACKAGES = ("stepping_spark", "circuits", "stores")


@dataclass(frozen=True)
class Mistake:
    """A text that occurs once in the packages, what replaces it, and the tests that notice."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]  # arguments of pytest

    def __str__(self) -> str:
        return self.name

    def places(self, root: Path = ROOT) -> list[Path]:
        """The modules that have the text, each as often as it has it."""
        texts = ((path, path.read_text(encoding="utf-8")) for path in modules(root))
        return [path for path, text in texts for _ in range(text.count(self.old))]

    def plant(self, root: Path) -> None:
        """Make the mistake in a copy of the project."""
        (path,) = self.places(root)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def modules(root: Path) -> Iterator[Path]:
    """The modules of the packages."""
    for package in PACKAGES:
        yield from (root / package).rglob("*.py")


def copy_to(directory: Path) -> Path:
    """A copy of the packages and of the tests, with their bytecode."""
    for folder in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / folder, directory / folder)
    shutil.copy2(ROOT / "pyproject.toml", directory)
    return directory


def run(root: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """The tests of a copy, up to the first that fails."""
    # A copy has no commit that could say the rotation, and the day would.
    options = ("-n=0", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--rotation=0")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=root,
        env={**os.environ, "CI": "true", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


DRIVER = ("-m", "not spark")
JOINS = ("tests/circuits/test_joins.py",)
OF_SQL = ("tests/circuits/test_joins_of_sql.py",)
LATENESS = ("tests/circuits/test_lateness.py",)
QUERIES = ("tests/execution/test_queries_of_spark.py",)
STORE = ("tests/stores/test_memory.py", *DRIVER)
PIPELINE = ("tests/pipeline/test_pipeline.py",)
GROUPS = ("tests/execution/test_large_groups.py",)
EAGER = ("tests/execution/test_eager.py", "-k", "many_steps")

MISTAKES = (
    # The engine on the driver.
    Mistake(
        "a row at the watermark is late",
        "< max(limit, INT_MIN))",
        "<= max(limit, INT_MIN))",
        (*LATENESS, *DRIVER),
    ),
    Mistake("NULL matches NULL", "if None not in key:", "if key is not None:", OF_SQL),
    Mistake(
        "the old row of joined aggregates is added, not subtracted",
        "old = negate(pieces(run).table, schema)",
        "old = pieces(run).table",
        ("tests/language/test_aggregates.py",),
    ),
    Mistake(
        "of rows that tie, those after the n-th come too",
        "before[key][of_key] < n)",
        "before[key][of_key] <= n)",
        ("tests/circuits/test_first_n.py",),
    ),
    Mistake(
        "the first rows of a group stay when it is put in buckets",
        "parts.append(negate(gone, self._schema))",
        "parts.append(negate(gone.slice(0, 0), self._schema))",
        (*GROUPS, *DRIVER),
    ),
    Mistake(
        "rows of another group that shares a hash come twice",
        "*(p.having(large_keys, among=False) for p in of_small),",
        "*of_small,",
        (*GROUPS, "-k", "other_keys"),
    ),
    Mistake(
        "a group in buckets is told by one row too many",
        "return np.asarray(np.bincount(ids, weights, number)[ids] > n)",
        "return np.asarray(np.bincount(ids, weights, number)[ids] > n + 1)",
        (*GROUPS, *DRIVER),
    ),
    Mistake(
        "a worker that was lost keeps later steps out of tasks",
        "raise NotThisTime(f\"Spark's tasks failed",
        "raise NotInTasks(f\"Spark's tasks failed",
        ("tests/execution/test_lost_workers.py",),
    ),
    Mistake(
        "tasks take the times of Spark as nanoseconds",
        'return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", **options)',
        "return pq.ParquetFile(opened, **options)",
        ("tests/pipeline/test_by_tasks.py", "-k", "any_year"),
    ),
    Mistake(
        "a row that is matched does not see the one that it matches",
        "np.concatenate([beside, changed[~has]])",
        "changed[~has]",
        ("tests/circuits/test_asof_join.py",),
    ),
    Mistake(
        "a frame ends a row early",
        "self.at + 1 + _within(frame.end, self.size)",
        "self.at + _within(frame.end, self.size)",
        ("tests/circuits/test_window.py",),
    ),
    Mistake(
        "a recursion forgets the iterations of the steps before",
        "k = k + 1 if changes else self._due_after(k)",
        "k = k + 1 if changes else None",
        ("tests/circuits/test_recursion.py",),
    ),
    # The engine in Spark.
    Mistake(
        "a row at the watermark is late in Spark",
        " < ({limit}), false)",
        " <= ({limit}), false)",
        QUERIES,
    ),
    Mistake("NULL matches NULL in Spark", "{a} = {b}", "{a} <=> {b}", QUERIES),
    Mistake(
        "rows without a key have a match in Spark",
        'f"({absent}) UNION ALL (SELECT {columns} FROM ({left}) l WHERE {null})"',
        'f"{absent}"',
        QUERIES,
    ),
    Mistake(
        "the old row of a group stays in Spark",
        'f"({after}) UNION ALL ({_negated(before, n.schema)})"',
        'f"{after}"',
        QUERIES,
    ),
    # Large steps in tasks.
    Mistake(
        "a stream that is spread by some values is not sent by others",
        "None if spread_by(values) <= self._spread_at(v) else values",
        "None if self._spread_at(v) else values",
        ("tests/execution/test_segments.py", "-k", "not many_parts"),
    ),
    # Passes.
    Mistake(
        "a join meets the new state on both sides",
        "Vertex(q.operator, a, Vertex(Delay(), _integral(b)))",
        "Vertex(q.operator, a, _integral(b))",
        ("tests/passes/test_rules.py",),
    ),
    Mistake(
        "only the first rows are kept of a stream that shrinks",
        "if _is_of_change(v) and is_positive(v.inputs[1]))",
        "if _is_of_change(v))",
        ("tests/circuits/test_first_n.py",),
    ),
    Mistake(
        "a row expires before the frames that reach back to it",
        "m.distance + further for m in marks",
        "m.distance for m in marks",
        (*LATENESS, *DRIVER),
    ),
    # Stores.
    Mistake(
        "a change is not consolidated",
        "known = change.consolidated and change.schema == register.schema",
        "known = True",
        STORE,
    ),
    Mistake(
        "the first of equal rows is not merged with the others",
        "np.append(same, False) | np.append(False, same)",
        "np.append(False, same)",
        STORE,
    ),
    Mistake(
        "the additions of a failed step stay",
        "dropped, self._added, self._building = self._added, {}, []",
        "dropped, self._added = self._added, {}",
        STORE,
    ),
    Mistake("a step may be left out", "if step != self.step + 1:", "if step <= self.step:", STORE),
    Mistake(
        "a manifest is written before its files are on the disk",
        "self._committed.commit(manifest, self._files.unsynced)",
        "self._committed.commit(manifest, [])",
        ("tests/stores/test_parquet_durability.py",),
    ),
    Mistake(
        "a row with a NULL is another one each time",
        "{0} IS NOT DISTINCT FROM {1}",
        "{0} = {1}",
        ("tests/stores/test_postgres.py", *DRIVER),
    ),
    # Rows that are added up before they are joined.
    Mistake(
        "a sum of one side forgets the weights of the other",
        "_product(s, weights) if pa.types.is_integer(t) else products(s, weights, t)",
        "s",
        EAGER,
    ),
    Mistake(
        "a column with two values is taken for one with one",
        'return bool(bounds["min"] == bounds["max"])',
        'return bool(bounds["min"] is not None)',
        EAGER,
    ),
    Mistake(
        "a condition on one side is not looked at",
        "for condition in conditions:\n            (mask,) = condition(table, ask)",
        "for condition in ():\n            (mask,) = condition(table, ask)",
        EAGER,
    ),
    # Pipelines.
    Mistake(
        "the position before a batch is committed with it",
        "position = feed.position if batch is None else batch.position",
        "position = feed.position",
        PIPELINE,
    ),
    Mistake(
        "a sink without the last step does not get it again",
        "lacking = [outlet for outlet in outlets if outlet.lacks(step, offsets)]",
        "lacking = [outlet for outlet in outlets if outlet.lacks(step - 1, offsets)]",
        PIPELINE,
    ),
    Mistake(
        "the old row of an update is inserted",
        '"update_preimage": -1,',
        '"update_preimage": 1,',
        ("tests/zsets/test_change_feed.py", *DRIVER),
    ),
    # SQL.
    Mistake(
        "USING shows the left column of a right join",
        'b if how == "right" else a for',
        "a for",
        ("tests/sql/test_queries.py::test_a_view_is_what_spark_answers", "-k", "using"),
    ),
    Mistake(
        "NOT IN forgets a NULL of the sub-query",
        "yield None, None, is_null(ref(sub.columns[0]))",
        "return",
        ("tests/sql/test_queries.py::test_a_view_is_what_spark_answers[1-not in, with NULL]",),
    ),
    Mistake(
        "an outer join is an inner one where a condition may be true of NULL",
        "return not possible(e, nulls) & {TRUE, OTHER}",
        "return NULL in possible(e, nulls)",
        ("tests/sql/test_rules.py", "-k", "without_rules"),
    ),
    Mistake(
        "rows of which more is read are replaced by their groups",
        "return None if refs(e) & set(self.rows.columns) else e",
        "return e",
        ("tests/sql/test_rules.py", "-k", "without_rules"),
    ),
    Mistake(
        "rows lose what a condition within the sub-query alone leaves out",
        "if not all(has(join.conditions, e) for e in conditions):",
        "if len(conditions) > len(join.conditions):",
        ("tests/sql/test_rules.py", "-k", "without_rules"),
    ),
    Mistake(
        "rows of all iterations are joined with each other",
        "if len(numbers) > 1 else ()",
        "if not numbers else ()",
        (
            "tests/sql/test_recursive.py::test_a_recursive_view_is_what_spark_answers",
            "-k",
            "itself-0 or alone-0",
        ),
    ),
    # Evolution.
    Mistake(
        "a view that subtracts is taken for one that adds",
        "pending.append((part.inputs[0], -n))",
        "pending.append((part.inputs[0], n))",
        ("tests/evolve/test_changes_by_hand.py",),
    ),
)
