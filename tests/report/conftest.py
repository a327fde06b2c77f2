"""One browser for all tests of pages: the Chromium or Chrome that is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = (
    "the tests of the report need Chromium or Chrome, and none of these programs is on the PATH: "
    f"{', '.join(PROGRAMS)}; on Debian: apt install chromium"
)

OpenPage = Callable[..., Page]

PATIENCE = 60_000  # milliseconds: CI may be busy


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without a window; without one to start, tests are skipped, and fail in CI."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a file; what the page says on its console, and what it asks of others, is an error."""
    contexts, said = [], []

    def opened(path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: said.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith(ALLOWED) else said.append(r.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []


ALLOWED = ("file:", "data:", "blob:", "about:")
