"""The numbers that README and guide show, as `views`, `tpch` and `fair` measured them.

    python -m tests.benchmarks.measured

writes their tables into the pages, from the CSV files beside this module.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.cases import ROOT

HERE = Path(__file__).parent
SCALES = {"driver": "0.1", "spark": "1"}
"""By where the steps of TPC-H's queries run: the scale that is shown."""

ENGINES = {
    "orders": (
        *("memory", "Parquet", "Postgres", "by hand"),
        *("Spark again", "Spark again, cached", "DuckDB again", "streaming"),
    ),
    "left": ("memory", "Parquet", "Postgres", "Spark again", "DuckDB again", "pathway"),
    "README": ("memory", "Parquet", "Spark again", "DuckDB again"),
    "fair": ("by hand", "everything in Spark", "by default", "query, cached", "query, files"),
}

Row = Sequence[str]


def lines(name: str) -> list[dict[str, str]]:
    """The lines of a CSV file beside this module."""
    with (HERE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measured(view: str, scale: str) -> dict[str, dict[int, float]]:
    """Milliseconds of a step by engine, and by the number of changed orders."""
    found: dict[str, dict[int, float]] = {}
    for row in lines("measured"):
        if (row["view"], row["scale"]) == (view, scale):
            found.setdefault(row["engine"], {})[int(row["changed"])] = float(row["ms"])
    return found


def refreshed(mode: str) -> dict[str, dict[float, float]]:
    """How many times faster a step is than computing a view of TPC-H again: by query and share.

    `mode` is where steps run, as in `tests.benchmarks.tpch`.
    """
    found: dict[str, dict[float, float]] = {}
    for row in _of_mode(mode):
        speed_up = float(row["again"]) / float(row["step"])
        found.setdefault(f"Q{row['query']}", {})[float(row["share"])] = speed_up
    return found


def targets() -> dict[tuple[str, str], tuple[float | None, float]]:
    """A step, and what it is compared with: the ratio, if it is measured, and the target."""
    return {
        (row["step"], row["other"]): (
            float(row["ratio"]) if row["ratio"] else None,
            float(row["target"]),
        )
        for row in lines("targets")
    }


def medians(mode: str) -> dict[float, float]:
    """By share, the median of how many times faster a step of the 22 queries is."""
    of = list(refreshed(mode).values())
    return {share: median(times[share] for times in of) for share in of[0]}


def _of_mode(mode: str) -> list[dict[str, str]]:
    return [r for r in lines("tpch") if (r["mode"], r["scale"]) == (mode, SCALES[mode])]


# -- the tables of the pages


def written(text: str) -> str:
    """A page, with the numbers of the CSV files in its tables: their first lines find them."""
    for begins, rows in TABLES.items():
        head = rf"^(\| {re.escape(begins)} \|.*\n\|[-| ]*\n)(?:\|.*\n)*"
        cells = [[f" {cell} |" if cell else " |" for cell in row] for row in rows()]
        body = "".join(f"|{''.join(row)}\n" for row in cells)
        text = re.sub(head, rf"\g<1>{body}", text, flags=re.MULTILINE)
    return text


def _orders() -> Iterator[Row]:
    return _view("orders")


def _left() -> Iterator[Row]:
    return _view("left")


def _view(view: str) -> Iterator[Row]:
    for scale in ("0.1", "1"):
        times = measured(view, scale)
        for k in times["memory"]:
            of = [times.get(engine, {}).get(k) for engine in ENGINES[view]]
            first, *others = ["" if ms is None else f"{ms:,.0f}" for ms in of]
            yield f"{scale}, {k:,}", f"**{first}**", *others


def _readme() -> Iterator[Row]:
    times = measured("orders", "1")
    for k in times["memory"]:
        of = [times[engine][k] for engine in ENGINES["README"]]
        yield f"{k:,}", *(f"**{ms:,.0f}**" if ms == min(of) else f"{ms:,.0f}" for ms in of)


def _fair() -> Iterator[Row]:
    found = lines("fair")
    for at in dict.fromkeys((r["scale"], r["store"], r["changed"]) for r in found):
        of = {r["engine"]: r for r in found if (r["scale"], r["store"], r["changed"]) == at}
        cells = (_ms_and_cpu(of[e]) if e in of else "" for e in ENGINES["fair"])
        yield f"{at[0]}, {at[1]}", f"{int(at[2]):,}", *cells


def _ms_and_cpu(row: dict[str, str]) -> str:
    return f"{int(row['ms']):,}" + (f" ({int(row['cpu']):,})" if row["cpu"] else "")


def _on_driver() -> Iterator[Row]:
    return _queries("driver")


def _in_spark() -> Iterator[Row]:
    return _queries("spark")


def _queries(mode: str) -> Iterator[Row]:
    again: dict[str, list[float]] = {}
    for row in _of_mode(mode):
        again.setdefault(f"Q{row['query']}", []).append(float(row["again"]))
    for name, of in refreshed(mode).items():
        yield name, f"{median(again[name]):,.0f}", *map(_factor, of.values())
    yield "**median**", "", *(f"**{_factor(x)}**" for x in medians(mode).values())


def _medians() -> Iterator[Row]:
    yield "median of the 22", *(f"**{_factor(x)}**" for x in medians("driver").values())


def _factor(x: float) -> str:
    return f"{x:,.0f}" if x >= 9.95 else f"{x:.2g}"


def _targets() -> Iterator[Row]:
    for (step, other), (ratio, target) in targets().items():
        yield step, other, "" if ratio is None else f"{ratio:g}", f"{target:g}"


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "a step | compared with": _targets,
    "scale, K | memory | Parquet | Postgres | by hand": _orders,
    "scale, K | memory | Parquet | Postgres | Spark again": _left,
    "scale, store | K": _fair,
    "query | again, ms": _on_driver,
    "query, in Spark | again, ms": _in_spark,
    "orders that change | stepping_spark (memory)": _readme,
    "orders that change | 0.01 %": _medians,
}
PAGES = (ROOT / "docs" / "guide" / "measurements.md", ROOT / "README.md")


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
