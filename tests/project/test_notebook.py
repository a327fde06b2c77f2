"""The example notebook runs, and shows what it has: one kernel, without Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.cases import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"

pytestmark = pytest.mark.slow


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def outputs(cell: Any) -> list[Any]:
    found: list[Any] = cell.get("outputs", [])
    return found


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook with its outputs, executed in a folder of its own."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name.lower()))
        patch.setenv("PYTHONPATH", str(ROOT))
        notebook = read()
        client = NotebookClient(
            notebook,
            timeout=120,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
    return notebook


def shown(executed: Any, begins: str) -> dict[str, str]:
    """What a cell shows that begins or ends so, by MIME type."""
    (cell,) = (
        c
        for c in executed.cells
        if c.cell_type == "code" and (c.source.startswith(begins) or c.source.endswith(begins))
    )
    data: dict[str, str] = {}
    for output in outputs(cell):
        data |= output.get("data", {})
    return data


def test_no_cell_complains(executed: Any) -> None:
    wrong = [
        output
        for cell in executed.cells
        for output in outputs(cell)
        if output.output_type in ("error", "stream")
    ]
    assert wrong == []


def test_a_circuit_shows_its_picture(executed: Any) -> None:
    assert "<svg" in shown(executed, "graph = st.compile(revenue)")["image/svg+xml"]


def test_a_plan_is_a_table(executed: Any) -> None:
    page = shown(executed, "st.explain(graph)")["text/html"]
    assert "<th" in page
    assert "bilinear" in page
    assert "revenue.orders by customer" in page


def test_z_sets_are_tables(executed: Any) -> None:
    assert "<td" in shown(executed, "\nview")["text/html"]
    change = shown(executed, "\nchange")["text/html"]
    assert ">-1<" in change


def test_the_progress_bar_is_html_and_ends_full(executed: Any) -> None:
    bar = shown(executed, "changes = [")
    assert '<progress max="60" value="60"' in bar["text/html"]
    assert "stepping 60 of 60" in bar["text/html"]


def test_metrics_are_a_table_with_reasons(executed: Any) -> None:
    page = shown(executed, "stepper.metrics[-1]")["text/html"]
    assert "step 62: " in page
    assert "; a Spark query would take longer" in page


def test_the_report_is_a_page_in_a_frame(executed: Any) -> None:
    page = shown(executed, "stepper.report()")["text/html"]
    assert page.startswith("<iframe srcdoc=")
    assert "revenue took 62 steps" in page


def test_the_notebook_is_kept_without_what_it_showed() -> None:
    kept = read()
    assert [cell for cell in kept.cells if outputs(cell) or cell.get("execution_count")] == []
    assert Path(NOTEBOOK).stat().st_size < 20_000
