"""The Markdown documents, and the code in them, which the tests run as readers would.

A document's Python blocks are one program, run from top to bottom in an empty folder. What it
prints is the text blocks of the document, in order.

    python -m tests.documents

draws the pictures that pages of the guide make, into the folder of each page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cases import ROOT

GUIDE = ROOT / "docs" / "guide"
_FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """The pages of the guide."""
    return sorted(GUIDE.rglob("*.md"))


def name_of(page: Path) -> str:
    """The path of a document from the root, or from the guide's folder."""
    return page.relative_to(GUIDE if page.is_relative_to(GUIDE) else ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [code for _, found, code in _FENCE.findall(text_of(page)) if found == language]


def languages(page: Path) -> set[str]:
    """The languages of a document's fenced blocks."""
    return {language for _, language, _ in _FENCE.findall(text_of(page))}


def commands(page: Path) -> list[str]:
    """The lines of a document's shell blocks; one that ends with a backslash goes on."""
    shell = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line for line in shell.splitlines() if line and not line.startswith("#")]


def prose(page: Path) -> str:
    """The document without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def program(page: Path) -> str:
    """The Python of a document, each line at the place that it has there, for tracebacks."""
    text, lines = text_of(page), [""] * (text_of(page).count("\n") + 1)
    for found in _FENCE.finditer(text):
        if found[2] == "python":
            first = text.count("\n", 0, found.start(3))
            for i, line in enumerate(found[3].splitlines()):
                lines[first + i] = line.removeprefix(found[1])
    return "\n".join(lines)


def run(page: Path, folder: Path, known: Mapping[str, Any] | None = None) -> str:
    """Run a document's Python in a folder, with the names that it may use; gives what it prints."""
    script = folder / f"{page.stem.replace('-', '_')}.py"
    script.write_text(program(page), encoding="utf-8")
    printed = io.StringIO()
    with in_folder(folder), contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), init_globals=dict(known or {}), run_name="guide")
    return printed.getvalue()


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def draw() -> None:
    """Write the pictures of the guide anew, each beside its page."""
    for page in pages():
        if "st.write_svg(" not in "".join(blocks(page, "python")):
            continue
        with tempfile.TemporaryDirectory() as folder:
            run(page, Path(folder))
            for picture in Path(folder).glob("*.svg"):
                shutil.copy(picture, page.parent)
                print(page.parent / picture.name)


if __name__ == "__main__":
    draw()
