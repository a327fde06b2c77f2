"""Runs a file of the user, and finds what it makes: a pipeline, or a stepper."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def made_by(file: Path, names: Sequence[str], classes: tuple[type[Any], ...]) -> Any:
    """What a file's variable of one of these names is, or the only thing of these classes."""
    sys.path.insert(0, str(file.resolve().parent))  # as Python does for a script
    found = runpy.run_path(str(file), run_name="pipeline")
    for name in names:
        if isinstance(found.get(name), classes):
            return found[name]
    made = {name: value for name, value in found.items() if isinstance(value, classes)}
    if len(made) == 1:
        (only,) = made.values()
        return only
    name, of = names[0], " or ".join(names)
    several = f"several: {', '.join(made)}"
    raise click.UsageError(
        f"{file} has {several if made else f'no {of}'}; call one of them `{name}`, at the top of "
        f"the file: {name} = st.{name.capitalize()}(…)"
    )
