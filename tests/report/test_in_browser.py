"""The report in a browser: it says what the steps say, to a mouse, a keyboard and a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import stepping_spark as st
from tests.report.conftest import OpenPage
from tests.report.runs import large, stepped

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stepper() -> st.Stepper[Any, Any]:
    return stepped()


@pytest.fixture(scope="module")
def report(stepper: st.Stepper[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    stepper.write_report(path)
    return path


def box(page: Page, path: str) -> Locator:
    """The box of a vertex in the picture, which is made to be seen whole."""
    page.get_by_role("button", name="Fit", exact=True).click()
    number = page.evaluate(
        """path => {
            const data = JSON.parse(document.getElementById("numbers").textContent);
            const boxes = data.pictures[data.pictures.length - 1].boxes;
            return boxes.findIndex((b) => b.kind !== "output" && b.paths.includes(path));
        }""",
        path,
    )
    return page.locator(f'#canvas .box[data-box="{number}"]')


def fill(of: Locator) -> str:
    found: str = of.locator("path, polygon, ellipse").first.evaluate(
        "e => getComputedStyle(e).fill"
    )
    return found


def width_of_all(page: Page) -> tuple[int, int]:
    found: list[int] = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return found[0], found[1]


def test_the_json_in_the_page_is_the_metrics_of_the_stepper(
    open_page: OpenPage, report: Path, stepper: st.Stepper[Any, Any]
) -> None:
    page = open_page(report)
    numbers = json.loads(page.evaluate("document.getElementById('numbers').textContent"))
    assert numbers["steps"]["ms"] == [round(m.ms, 3) for m in stepper.metrics]
    assert page.inner_text("#sentence") == numbers["sentence"] == str(stepper.report())


def test_what_users_wrote_is_shown_and_not_run(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    assert page.evaluate("window.evil") is None
    assert page.locator("main img, main script, main b b").count() == 0
    assert "</script><img src=x onerror=" in page.inner_text("#state-table")
    box(page, "spending.large").click()
    assert "# </script><b>not HTML</b>" in page.inner_text("#panel code")


@pytest.mark.driver
def test_a_click_on_a_vertex_opens_its_panel(
    open_page: OpenPage, report: Path, stepper: st.Stepper[Any, Any]
) -> None:
    page = open_page(report)
    box(page, "spending.aggregate.accumulate").click()
    said = page.inner_text("#panel")
    assert page.inner_text("#panel .path") == "spending.aggregate.accumulate"
    assert "total = st.aggregate(" in said
    why = stepper.metrics[-1].vertices["spending.aggregate.accumulate"].why
    assert f"On the driver, 12 steps\nthe last time: {why}" in said
    page.get_by_role("button", name="Close").click()
    assert page.inner_text("#panel").startswith("Choose a vertex")


def test_the_panel_of_a_state_says_by_which_key_it_is_kept(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)
    box(page, "spending.join.old state of users").click()
    said = page.inner_text("#panel")
    assert "looked up by id; 7 rows," in said


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_choice_of_a_number_changes_the_colours(
    open_page: OpenPage, report: Path, dark: bool
) -> None:
    page = open_page(report, dark=dark)
    state, orders = box(page, "spending.join.state of large"), box(page, "spending.orders")
    seen = {}
    for name in ("Milliseconds", "Rows read", "Amplification", "Jobs", "State"):
        page.get_by_role("radio", name=name).check(force=True)
        seen[name] = fill(state), fill(orders)
    assert seen["State"][0] != seen["Rows read"][0], "a register has bytes, and reads nothing"
    assert seen["Rows read"][1] != seen["Milliseconds"][1], "an input has rows, and takes no time"
    page.get_by_role("radio", name="Rows read").check(force=True)
    page.get_by_role("radio", name="First load", exact=True).check(force=True)
    assert "in the first load" in page.inner_text("#circuit-lead")


def test_light_and_dark_follow_the_system_and_the_switch(open_page: OpenPage, report: Path) -> None:
    def background(page: Page) -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    light, dark = open_page(report), open_page(report, dark=True)
    assert background(light) != background(dark)
    light.get_by_role("button", name="Switch between light and dark").click()
    assert background(light) == background(dark)
    dark.emulate_media(color_scheme="light")
    expect(dark.locator(":root")).not_to_have_class("dark")
    assert background(dark) != background(light)


CONTRAST = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgb = (c) => { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
    const light = (c) => { const [r, g, b] = rgb(c).map((v) => v / 255)
        .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const found = [];
    for (const g of document.querySelectorAll("#canvas .box")) {
        const back = light(getComputedStyle(g.querySelector("path, polygon, ellipse")).fill);
        for (const t of g.querySelectorAll("text")) {
            const front = light(getComputedStyle(t).fill);
            found.push((Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
        }
    }
    return Math.min(...found);
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_names_of_vertices_can_be_read_on_every_colour(
    open_page: OpenPage, report: Path, dark: bool
) -> None:
    page = open_page(report, dark=dark)
    for name in ("Milliseconds", "Rows read", "State"):
        page.get_by_role("radio", name=name).check(force=True)
        assert page.evaluate(CONTRAST) >= 4.5


def test_all_can_be_done_by_keyboard(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    focused = "document.activeElement.getAttribute('class') || document.activeElement.id || ''"
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(focused))
        if str(seen[-1]).startswith("box"):
            break
    assert seen[0] == "skip"
    assert "canvas" in seen
    before = page.get_attribute("#canvas g.all", "transform")
    page.keyboard.press("+")
    assert page.get_attribute("#canvas g.all", "transform") != before
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "panel"
    assert "Ran" in page.inner_text("#panel") or "rows" in page.inner_text("#panel").lower()
    page.keyboard.press("Escape")
    assert page.inner_text("#panel").startswith("Choose a vertex")
    assert str(page.evaluate(focused)).startswith("box")
    page.focus("#timeline")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#timeline-readout").startswith("step 2: ")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#timeline-readout").startswith("step 3: ")
    page.focus("#metric input:checked")
    page.keyboard.press("ArrowRight")
    assert page.locator("#metric input:checked").get_attribute("value") == "rows"


def test_the_picture_is_moved_and_zoomed_by_mouse_and_buttons(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)

    def placed() -> str | None:
        return page.get_attribute("#canvas g.all", "transform")

    seen = [placed()]
    around = page.locator("#canvas").bounding_box()
    assert around
    x, y = around["x"] + 20, around["y"] + around["height"] / 2
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    expect(page.locator("#canvas g.all")).not_to_have_attribute("transform", str(seen[0]))
    seen.append(placed())
    page.mouse.down()
    page.mouse.move(x + 50, y + 30, steps=3)
    page.mouse.up()
    seen.append(placed())
    for name in ("Zoom in", "Zoom out", "Fit"):
        page.get_by_role("button", name=name, exact=True).click()
        seen.append(placed())
    assert len(set(seen)) >= 4
    assert seen[-1] == seen[0], "it opens with the whole circuit"
    assert page.inner_text("#panel").startswith("Choose a vertex"), "no vertex was clicked"


def test_a_function_folds_into_one_box_and_out_of_it(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    inner = box(page, "spending.join.join")
    assert inner.is_visible()
    page.get_by_role("button", name="Fold join").click()
    assert not inner.is_visible()
    assert "vertices" in (page.locator(".folded-text").text_content() or "")
    page.locator(".folded-text").click()
    assert "spending.join.join" in page.inner_text("#panel")
    page.get_by_role("button", name="Fold join").click()
    assert inner.is_visible()
    page.select_option("#detail", label="Functions folded")
    assert page.locator("#canvas .box.k-function").count() == 2


def test_a_phone_shows_it_without_scrolling_sideways(open_page: OpenPage, report: Path) -> None:
    page = open_page(report, width=390, height=800)
    wide, screen = width_of_all(page)
    assert wide <= screen == 390
    box(page, "spending.orders").click()
    wide, _ = width_of_all(page)
    assert wide <= screen
    for section in ("steps", "state", "top", "compare"):
        assert page.locator(f"#{section}").is_visible()


def test_the_top_ten_go_by_the_number_that_is_chosen(
    open_page: OpenPage, report: Path, stepper: st.Stepper[Any, Any]
) -> None:
    page = open_page(report)
    page.select_option("#top-by", "rows")
    rows = page.locator("#top-table tbody tr")
    measured = stepper.report().numbers["measured"]
    reads = {p: m["after"]["rows_in"] for p, m in measured.items() if m["after"]["counted"]}
    most = max(reads.values())
    first = rows.first.inner_text().split("\n")[0].strip()
    assert reads[first] == most
    assert rows.count() <= 10
    rows.first.get_by_role("button").click()
    assert first in page.inner_text("#panel")


def test_two_runs_are_compared(
    open_page: OpenPage, report: Path, stepper: st.Stepper[Any, Any], tmp_path: Path
) -> None:
    page = open_page(report)
    assert page.inner_text("#compare-out") == ""
    other = stepped(4)
    other.write_report(tmp_path / "other.html")
    page.set_input_files("#other", tmp_path / "other.html")
    page.wait_for_selector("#compare-out table")
    said = page.inner_text("#compare-out")
    assert "11 steps and 3 steps after the first load" in said
    assert "There are few steps" in said
    assert "Rows read for each row changed" in said
    (tmp_path / "no.html").write_text("<html></html>")
    page.set_input_files("#other", tmp_path / "no.html")
    expect(page.locator("#compare-error")).to_have_text(
        "no.html is no report, or one of another version."
    )
    stepper.write_report(tmp_path / "both.html", beside=tmp_path / "other.html")
    both = open_page(tmp_path / "both.html")
    assert "11 steps and 3 steps" in both.inner_text("#compare-out")


def test_a_large_report_opens_soon(open_page: OpenPage, tmp_path: Path) -> None:
    large().write(tmp_path / "large.html")
    page = open_page(tmp_path / "large.html")
    shown = page.evaluate("performance.now()")
    assert page.locator("#canvas .box").count() > 80
    assert shown < 30_000
    assert page.locator("#state-table tbody tr").count() == 25


def test_a_report_in_a_notebook_is_the_page_in_a_frame(
    open_page: OpenPage, stepper: st.Stepper[Any, Any], tmp_path: Path
) -> None:
    cell = stepper.report()._repr_html_()
    (tmp_path / "cell.html").write_text(f"<!doctype html><title>cell</title>{cell}", "utf-8")
    page = open_page(tmp_path / "cell.html")
    frame = page.frame_locator("iframe")
    assert frame.locator("#sentence").inner_text() == str(stepper.report())
    assert frame.locator("#canvas .box").count() > 5


def test_a_circuit_that_took_no_step_has_a_page_too(open_page: OpenPage, tmp_path: Path) -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.distinct(a)

    graph = st.compile(query)
    st.Stepper(graph, st.StoreMemory.from_graph(graph)).write_report(tmp_path / "none.html")
    page = open_page(tmp_path / "none.html")
    assert "has taken no step" in page.inner_text("#sentence")
    page.locator("#canvas .box").first.click()
    assert page.inner_text("#steps-lead") == "No step was taken in this process."
