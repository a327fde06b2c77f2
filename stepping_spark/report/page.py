"""Writes numbers and pictures to one HTML file, which uses no network and runs no other script.

Users' text (names, lines of source, errors) is data: JSON that the page shows as text. A content
security policy has the digest of the page's only script, so that no other script runs.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template

from stepping_spark.errors import SteppingError

_NUMBERS = re.compile(r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL)

Json = Mapping[str, object]


@cache
def _part(name: str) -> str:
    return files("stepping_spark.report").joinpath("page", name).read_text(encoding="utf-8")


def page_of(numbers: Json, beside: Json | None, pictures: Sequence[str]) -> str:
    """The page, as HTML."""
    script = _part("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_part("report.html")).substitute(
        title=html.escape(f"{numbers['name']}: report of its steps"),
        sentence=html.escape(str(numbers["sentence"])),
        name=html.escape(str(numbers["name"])),
        digest=digest,
        style=_part("report.css"),
        script=script,
        numbers=as_json(numbers),
        beside=as_json(beside),
        pictures="".join(f"<template class=picture>{svg}</template>" for svg in pictures),
    )


def as_json(value: Json | None) -> str:
    """JSON that is safe inside a script element: `<` is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def numbers_in(text: str, where: str) -> Json:
    """The numbers of a report, from its page or from their JSON."""
    found = _NUMBERS.search(text)
    try:
        numbers = json.loads(found[1] if found else text)
    except ValueError:
        numbers = None
    if not isinstance(numbers, dict) or numbers.get("format") != FORMAT:
        raise SteppingError(
            f"{where} is no report, or one of another version; give a file that "
            "stepper.write_report(path) has written"
        )
    return numbers


FORMAT = 1
"""The version of the format of the numbers, for readers of them."""
