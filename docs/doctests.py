"""An extension of Griffe, which reads docstrings: examples become blocks of code.

A docstring here is Markdown, except for its examples, which begin with `>>>` for
doctest. Markdown would take these for quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


def fenced(text: str) -> str:
    """The text with a fence around each example, which an empty line ends."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class Doctests(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
