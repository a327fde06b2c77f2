"""Which models of a project are maintained, which tests are checks, and why others are neither."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter

from stepping_spark.callsite import user_line
from stepping_spark.dbt.manifest import COMPILE, Manifest, Node
from stepping_spark.errors import InputError

WRITTEN = ("table", "incremental", "materialized_view")
"""How models are materialized that are views of the pipeline."""

_COMPOSED = ("view", "ephemeral")
_PYTHON = "it is a Python model, and only SQL is maintained; write it as a query function"
_SNAPSHOT = "it is a snapshot, which keeps what rows were; write the view with changes=True instead"


@dataclass(frozen=True)
class Choice:
    """What is made of a project, each in an order in which nothing stands before what it reads.

    `models` are planned, those of them in `views` are outputs, and `checks` are tests. `refused`
    are models and tests among them that cannot be maintained, with the reason, and `left_out` is
    what was not asked for, by name.
    """

    models: tuple[Node, ...]
    views: tuple[Node, ...]
    checks: tuple[Node, ...]
    refused: dict[str, str]
    left_out: dict[str, str]


def chosen(
    manifest: Manifest, select: Collection[str], exclude: Collection[str], *, checks: bool
) -> Choice:
    """What is made of a project. Raises `InputError` for names that there are not."""
    order = _in_order(manifest)
    _check_compiled(manifest, order)
    models = {manifest.called[n.id]: n for n in order if n.kind == "model"}
    tests = {manifest.called[n.id]: n for n in order if n.kind == "test"}
    selected, excluded = _listed("select", select), _listed("exclude", exclude)
    _check_names("select", selected, models)
    _check_names("exclude", excluded, {**models, **tests})
    left_out = _left_out(manifest, order, excluded)
    lost = [name for name in selected if name in left_out]
    if lost:
        raise InputError(
            f"{user_line()}: dbt project {manifest.project}: select= names {lost[0]}, and "
            f"{left_out[lost[0]]}; leave it out of one of the two"
        )
    wanted = [models[name] for name in selected] or [
        n for name, n in models.items() if name not in left_out and n.materialized not in _COMPOSED
    ]
    if not wanted:
        raise InputError(
            f"{user_line()}: dbt project {manifest.project}: no model is materialized as "
            f"{', '.join(WRITTEN)}, and only these are written; name the models that are to be "
            f"views: select=[{next(iter(models), '…')!r}] (--select)"
        )
    needed = set(_with_what_they_read(manifest, wanted))
    of_views = {n.id for n in wanted}
    planned = [n for n in order if n.kind == "model" and n.id in needed]
    planned = [n for n in planned if n.materialized != "ephemeral" or n.id in of_views]
    views = [n for n in planned if n.id in of_views]
    of_tests = [
        n
        for name, n in tests.items()
        if checks and name not in left_out and n.reads and needed.issuperset(n.reads)
    ]
    for name, node in models.items():
        if node.id not in needed:
            left_out.setdefault(name, "it is no table, and nothing that is maintained reads it")
    tested = {n.id for n in of_tests}
    for name, node in tests.items():
        if node.id not in tested:
            why = "it tests what is not maintained" if checks else "checks=False"
            left_out.setdefault(name, why)
    refused = {n.id: reason for n in (*planned, *of_tests) if (reason := _refusal(n)) is not None}
    return Choice(tuple(planned), tuple(views), tuple(of_tests), refused, left_out)


def _left_out(manifest: Manifest, order: list[Node], excluded: Collection[str]) -> dict[str, str]:
    """What is excluded, with what reads it, and snapshots; by name, with the reason."""
    found: dict[str, str] = {}
    for node in order:
        name = manifest.called[node.id]
        reads = [manifest.nodes[id_] for id_ in node.reads if id_ in manifest.nodes]
        gone = [manifest.called[r.id] for r in reads if r.kind == "model"]
        gone = [other for other in gone if other in found]
        if name in excluded:
            found[name] = "it is named in exclude="
        elif node.kind == "snapshot":
            found[name] = _SNAPSHOT
        elif gone:
            found[name] = f"it reads {gone[0]}, which is left out"
    return found


def _in_order(manifest: Manifest) -> list[Node]:
    nodes = manifest.nodes
    reads = {id_: [r for r in node.reads if r in nodes] for id_, node in nodes.items()}
    return [nodes[id_] for id_ in TopologicalSorter(reads).static_order()]


def _check_compiled(manifest: Manifest, order: list[Node]) -> None:
    without = [n.name for n in order if n.kind == "model" and n.code is None]
    if without:
        shown = ", ".join(without[:3]) + (", …" if without[3:] else "")
        raise InputError(
            f"{user_line()}: dbt project {manifest.project}: {manifest.path} has no compiled SQL "
            f"of {len(without)} model{'' if len(without) == 1 else 's'} ({shown}): `dbt parse` "
            f"and `dbt run --select` leave it out; run `{COMPILE}`"
        )


def _listed(option: str, names: Collection[str]) -> list[str]:
    if isinstance(names, str):
        raise InputError(f"{user_line()}: {option}={names!r}: write a list, {option}=[{names!r}]")
    return list(names)


def _check_names(option: str, names: Collection[str], known: Collection[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"{user_line()}: {option}= names {', '.join(map(repr, unknown))}; name some of "
            f"{', '.join(sorted(known))}"
        )


def _with_what_they_read(manifest: Manifest, nodes: Collection[Node]) -> Iterator[str]:
    seen: set[str] = set()
    pending = [n.id for n in nodes]
    while pending:
        id_ = pending.pop()
        if id_ in manifest.nodes and id_ not in seen:
            seen.add(id_)
            pending += manifest.nodes[id_].reads
            yield id_


def _refusal(node: Node) -> str | None:
    """Why a model or a test cannot be maintained, as far as its configuration tells it."""
    if node.said.get("language") == "python":
        return _PYTHON
    if node.kind == "model" and node.materialized not in (*WRITTEN, *_COMPOSED):
        known = ", ".join((*_COMPOSED, *WRITTEN))
        return f"it is materialized as {node.materialized}, which is none of {known}"
    if node.kind == "test":
        for name, usual in (("fail_calc", "count(*)"), ("error_if", "!= 0"), ("warn_if", "!= 0")):
            found = node.config.get(name) or usual
            if found != usual:
                return f"its {name} is {found!r}, and a check fails for each row: {usual!r}"
    return None
