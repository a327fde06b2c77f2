"""A step that is repeated is answered with what it gave, if this query is the one that gave it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from stepping_spark.errors import StoreError
from stepping_spark.graph.graph import AnyGraph


def check_made_by(
    kept: Sequence[str] | None, graph: AnyGraph, step: int, *, beside: Collection[str] = ()
) -> None:
    """Refuse to answer for a committed step where another query took it.

    `kept` is what the store says of who computed each output. The step cannot be recomputed:
    its state is the one before it, and that is gone. Outputs that are computed like one of
    `beside` may be there or not.
    """
    if kept is None:
        raise StoreError(
            f"step {step} is committed already, and the state does not say which query gave its "
            "outputs: nothing was kept of them, or a version of stepping_spark wrote them that "
            f"did not say it. Go on with step {step + 1}, and read what you need from a cache; or "
            f"repeat step {step} with the version and the query that took it"
        )
    left_out = set(_digests(list(beside)))
    then, now = ([d for d in _digests(told) if d not in left_out] for told in (kept, graph.made_by))
    if then != now:
        raise StoreError(
            f"step {step} is committed already, and its outputs came from another query than "
            f"{graph.name} is now:\n"
            + "".join(f"  {line}\n" for line in _differences(kept, graph))
            + f"Repeat step {step} with the query that took it, to get its outputs again; or go on "
            f"with this query at step {step + 1}: the outputs of that step are not recomputed"
        )


def _digests(told: Sequence[str]) -> list[str]:
    """The digests of what computes the outputs, without the words, which name classes."""
    return [one.rpartition(" ")[2] for one in told]


def _differences(kept: Sequence[str], graph: AnyGraph) -> Iterator[str]:
    now = graph.made_by
    if len(kept) != len(now):
        yield f"outputs: {len(kept)} then, {len(now)} now"
    for i, (old, new, v) in enumerate(zip(kept, now, graph.outputs, strict=False)):
        if _digests([old]) == _digests([new]):
            continue
        was, is_now = (told.rpartition(" ")[0] for told in (old, new))
        if was != is_now:
            yield f"output {i}: {was} then, {is_now} now ({graph.line(v)})"
        else:
            changed = "of other streams or with another function now"
            yield f"output {i}: {was}, {changed} ({graph.line(v)})"
