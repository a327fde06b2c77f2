"""Runs a user's file, and finds the pipeline, the views, or the stepper that it defines."""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

import stepping_spark as st
from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import short
from stepping_spark.cli.output import NOT_DONE
from stepping_spark.pipeline.views import declared_of

T = TypeVar("T")


class NotRun(click.ClickException):
    """An error in the user's file."""

    exit_code = NOT_DONE


def object_in(file: Path, names: Sequence[str], classes: tuple[type[Any], ...]) -> Any:
    """The variable of a file with one of these names, or its only object of these classes."""
    variables = _run(file)
    value = _chosen(variables, str(file), names, classes)
    if value is None:
        raise click.UsageError(f"{file} has no {' or '.join(names)}; {_remedy(names[0])}")
    return value


def pipeline_in(target: str, store: str | None) -> st.Pipeline:
    """The pipeline that a file defines, or a pipeline of its views: all of them, or the named one.

    `target` is a file or a module, optionally followed by a colon and the name of a view.
    """
    variables, name = _defined(target)
    views = {id(v): v for v in variables.values() if declared_of(v) is not None}
    value = (
        variables.get(name) if name else _chosen(variables, target, ("pipeline",), (st.Pipeline,))
    )
    if isinstance(value, st.Pipeline):
        if store is not None:
            raise click.UsageError(
                f"{target} makes an st.Pipeline, which has a store; leave out --store"
            )
        return value
    if name and declared_of(value) is None:
        is_it = f"is {short(value)}" if name in variables else "is not there"
        names = ", ".join(v.__name__ for v in views.values())
        raise click.UsageError(
            f"{target}: {name} {is_it}; name an st.Pipeline or a function under @st.view"
            + (f": {names}" if names else "")
        )
    if not views:
        raise click.UsageError(
            f"{target} has no pipeline, and no function under @st.view; {_remedy('pipeline')}"
        )
    if store is None:
        raise click.UsageError(
            f"{target} has views, and does not say where their state is; give "
            "--store parquet:DIRECTORY or --store postgresql://user@host/database"
        )
    return naming_target(target, lambda: _pipeline_of(list(views.values()), value, store))


def circuit_in(target: str) -> st.Graph[Any, Any]:
    """The circuit of a query that a file or a module defines: `queries.py:totals`.

    The name is that of a query function or of a compiled circuit.
    """
    variables, name = _defined(target)
    if not name:
        raise click.UsageError(
            f"{target}: write the name of the query after a colon: {target}:revenue"
        )
    query = variables.get(name)
    if isinstance(query, st.Graph):
        return query
    if isinstance(query, st.Pipeline) or declared_of(query) is not None:
        raise click.UsageError(
            f"{target} is part of a pipeline, whose tables change with its state; write "
            f"stepping-spark run {target} --evolve"
        )
    if not callable(query):
        is_it = f"is {short(query)}" if name in variables else "is not there"
        raise click.UsageError(f"{target}: {name} {is_it}; name a query function or a circuit")
    circuit: st.Graph[Any, Any] = naming_target(target, lambda: st.compile(query))
    return circuit


def naming_target(target: str | Path, make: Callable[[], T]) -> T:
    """What `make` returns. Where an error begins with a line of click, the target replaces it."""
    try:
        return make()
    except (st.InputError, st.CompileError) as e:
        message = str(e).removeprefix(f"{user_line()}: ")
        raise type(e)(str(e) if message == str(e) else f"{target}: {message}") from e


def _pipeline_of(views: Sequence[Any], only: Any, store: str) -> st.Pipeline:
    """The pipeline of all views, or of one view and the views it reads, which are not written."""
    if only is None:
        return st.Pipeline(views[0] if len(views) == 1 else views, store=store)
    needed = _needed(only, views)
    if len(needed) == 1:
        return st.Pipeline(only, store=store)
    declared = declared_of(only)
    assert declared is not None
    into = {} if declared.into is None else {declared.name: declared.into}
    return st.Pipeline(needed, store=store, into=into)


def _needed(view: Any, views: Sequence[Any]) -> list[Any]:
    """A view, and the views it reads: the views named like its parameters without a source."""
    by_name = {declared.name: v for v in views if (declared := declared_of(v)) is not None}
    needed = [view]
    for reads in needed:  # grows during the loop
        declared = declared_of(reads)
        assert declared is not None
        for parameter in inspect.signature(reads).parameters:
            read = by_name.get(parameter)
            if read is not None and read not in needed and parameter not in declared.sources:
                needed.append(read)
    return needed


def _defined(target: str) -> tuple[Mapping[str, Any], str]:
    """The variables of a file or a module, and the name after the colon."""
    if os.path.isfile(target):
        return _run(Path(target)), ""
    where, colon, name = target.rpartition(":") if ":" in target else (target, "", "")
    if colon and not name.isidentifier():
        raise click.UsageError(
            f"{target}: write the name of a view after the colon: {where}:revenue"
        )
    if os.path.isfile(where):
        return _run(Path(where)), name
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        return vars(importlib.import_module(where)), name
    except ImportError as e:
        if not f"{where}.".startswith(f"{e.name}."):
            raise
    except ValueError:
        pass
    raise click.UsageError(f"there is no file {where}, and no module of this name; check the path")


def _run(file: Path) -> Mapping[str, Any]:
    """Run a file, and return its variables; errors in it are shown like Python's."""
    if file.suffix == ".html":
        raise click.UsageError(
            f"{file} is a page; give the Python file that makes the pipeline or the stepper"
        )
    if file.suffix in (".sql", ".toml"):
        raise click.UsageError(
            f"{file} is not Python. All its views are run by stepping-spark run {file}, which can "
            "also --evolve their state, and write a --report; a single view is a file of its own"
        )
    sys.path.insert(0, str(file.resolve().parent))  # as for a script
    try:
        return runpy.run_path(str(file), run_name="pipeline")
    except st.SteppingError:
        raise
    except Exception as e:
        raise NotRun(f"{file} cannot be run:\n{_trace(file, e)}") from e


def _trace(file: Path, error: Exception) -> str:
    """The traceback of an error, from the file's line on."""
    trace = traceback.TracebackException.from_exception(error)
    while trace.stack and trace.stack[0].filename != str(file):
        del trace.stack[0]
    return "".join(trace.format() if trace.stack else trace.format_exception_only()).rstrip()


def _chosen(
    variables: Mapping[str, Any], where: str, names: Sequence[str], classes: tuple[type[Any], ...]
) -> Any:
    """The variable with one of these names, or the only one of these classes; None if none."""
    for name in names:
        if isinstance(variables.get(name), classes):
            return variables[name]
    matches = {name: value for name, value in variables.items() if isinstance(value, classes)}
    if len(matches) > 1:
        raise click.UsageError(
            f"{where} has several: {', '.join(matches)}; call the one that is meant `{names[0]}`"
        )
    return next(iter(matches.values()), None)


def _remedy(name: str) -> str:
    return f"write one at the top of the file: {name} = st.{name.capitalize()}(…)"
