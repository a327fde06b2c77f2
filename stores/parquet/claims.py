"""Generations: each writer claims a new one, and so notices a writer that comes after it.

A lock keeps writers apart where it works. Where it does not (it was removed, or has run out, or the
file system does not lock), generations decide:

1. Who begins to write creates `claims/<generation>.json`, the next one that there is none of: a
   file is created by one writer only. It holds the manifest that the writer will begin with.
2. Then it looks up the newest manifest, and writes the same state as the first of its generation,
   which outranks all that older writers still write.
3. Who has written a manifest looks, by its name, whether there is the claim after its own. If there
   is none, whoever claims later finds the manifest in 2: the step is committed. If there is one,
   the step may not count, and the writer says so, and ends.

So nothing depends on the clock or on the lock. A listing shows all that was written before it, as
every object store has it by now. Claims stay for a day after a later one was made.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

from stepping_spark.errors import StoreCorrupt, StoreLocked
from stores.decoding import Natural, decoded
from stores.parquet.directory import TEMPORARY, Directory
from stores.parquet.manifest import DATA, FOLDER, LAST, Order, name_of, none_is_left, orders
from stores.pool import side_by_side

CLAIMS = "claims"
KEPT_FOR = 86_400.0
"""Seconds for which a claim stays after a later one, by the file system's clock."""

_CLAIM = re.compile(rf"{CLAIMS}/(\d{{8}})(-\w+)?\.json", re.ASCII)
_LITTER = re.compile(
    rf"{CLAIMS}/(?:{TEMPORARY})?(?:\d{{8}}(?:-\w+)?|asking-\w+)\.json(?:-\w+)?", re.ASCII
)


class _File(Struct, frozen=True):
    begins: tuple[Natural, Natural, Natural]
    written: bool


class Claim:
    """The right to write a generation, until there is a later one."""

    def __init__(self, directory: Directory, who: dict[str, object]) -> None:
        self._directory = directory
        self._who = {**who, "claim": uuid.uuid4().hex}
        claimed = _known(directory.changed(CLAIMS))
        written = [(order[0], name_of(order)) for order in orders(directory.sizes(FOLDER))]
        last, its_name = max(claimed + written, default=(0, ""))
        self._check_is_number(last + 1, its_name)
        self.generation = last + 1
        if not directory.excludes:
            self._check_alone()
        while not self._created():
            self._check_is_number(self.generation + 1, self.name)
            self.generation += 1

    @property
    def name(self) -> str:
        """The name of its file."""
        return _name(self.generation)

    def begins_with(self, order: Order, *, written: bool) -> None:
        """Record the first manifest, before and after it is written."""
        self._directory.write(self.name, self._text(begins=order, written=written))

    def overtaken_by(self) -> bytes | None:
        """The writer that claimed or wrote after this one; None if there is none."""
        later = _name(self.generation + 1)
        if not is_claimed(self._directory, self.generation + 1):
            written = orders(self._directory.sizes(FOLDER))
            if all(generation <= self.generation for generation, _, _ in written):
                return None
        with suppress(FileNotFoundError):
            return self._directory.read(later)
        return b""

    def known_orders(self) -> list[Order]:
        """The manifests of earlier generations, the oldest first."""
        known = self._earlier()
        last = known[-1][0] if known else 0
        claimed = (g for g, _ in _known(self._directory.changed(CLAIMS)))
        asked = [g for g in claimed if last < g < self.generation]
        begun = max((o for o in side_by_side(self._begun_by, asked) if o is not None), default=None)
        if begun is None:
            return known
        known = self._earlier()  # perhaps it was written since the first look
        if not known:
            raise none_is_left(self._directory.shown)
        if known[-1] < begun:
            raise self._older(known[-1], begun)
        return known

    def _earlier(self) -> list[Order]:
        return [o for o in orders(self._directory.sizes(FOLDER)) if o[0] < self.generation]

    def _older(self, last: Order, gone: Order) -> StoreCorrupt:
        """The error if manifests that writers have written since are missing."""
        return StoreCorrupt(
            f"{self._directory.shown}: {_name(gone[0])} says that {name_of(gone)} was written, and "
            f"it is gone: the last manifest is {name_of(last)}, of step {last[1]}; {FOLDER}/ may "
            f"be of an older copy than {CLAIMS}/: restore both, and {DATA}/, from one copy; or, to "
            f"go on after step {last[1]} and lose those after it, remove {CLAIMS}/ while nobody "
            "writes"
        )

    def _check_is_number(self, generation: int, after: str) -> None:
        """Raise `StoreCorrupt` if there is no next generation."""
        if generation > LAST[0]:
            raise StoreCorrupt(
                f"{self._directory.shown}: there is {after}, and no writer can come after it; "
                f"writers count from 1, so somebody else has put it there: remove {after}"
            )

    def after(self, order: Order) -> Order | None:
        """The manifest that the writer wrote after this one; None if this is its last."""
        generation, step, revision = order
        following = (generation, step + 1, 0), (generation, step, revision + 1)
        return next(filter(self._is_there, following), None)

    def sweep(self) -> None:
        """Remove old claims, and the files of unfinished attempts to claim."""
        changed = self._directory.changed(CLAIMS)
        mine = self._directory.status(self.name)
        if mine is not None:
            until = mine.changed - KEPT_FOR
            old = [n for n, at in changed.items() if at < until and n != self.name]
            self._directory.remove(filter(_LITTER.fullmatch, old))

    def _created(self) -> bool:
        text = self._text()
        try:
            self._directory.create(self.name, text)
        except FileExistsError:
            # A file system that lost its answer, and was asked again, finds its own.
            with suppress(FileNotFoundError):
                return self._directory.read(self.name) == text
            return False
        return True

    def _check_alone(self) -> None:
        """Check that no other writer claims now, on file systems where two could create one file.

        Each writes a file of its own, and then looks: of two at least one sees the other.
        """
        mine = f"{CLAIMS}/{self.generation:08d}-{uuid.uuid4().hex}.json"
        self._directory.write(mine, self._text())
        known = _known(self._directory.changed(CLAIMS))
        if any(generation >= self.generation and name != mine for generation, name in known):
            self._directory.remove([mine])
            raise StoreLocked(
                f"{self._directory.shown}: another writer is opening the state at this moment; "
                "wait until it has ended, and open it again"
            )

    def _begun_by(self, generation: int) -> Order | None:
        """The first manifest that a writer has written, as its claim says; None for none.

        A claim that nobody can read is taken for one that was never made use of.
        """
        with suppress(FileNotFoundError, ValueError):
            claim = decoded(self._directory.read(_name(generation)), _File)
            if claim.begins[0] == generation and claim.written:
                return claim.begins
        return None

    def _is_there(self, order: Order) -> bool:
        return self._directory.status(name_of(order)) is not None

    def _text(self, **more: object) -> bytes:
        return json.dumps({**self._who, **more}).encode()


def is_claimed(directory: Directory, generation: int) -> bool:
    """Whether somebody has claimed a generation."""
    return directory.status(_name(generation)) is not None


def _name(generation: int) -> str:
    return f"{CLAIMS}/{generation:08d}.json"


def _known(names: Iterable[str]) -> list[tuple[int, str]]:
    """The generations that are claimed, as a listing shows them."""
    return [(int(m[1]), n) for n in names if (m := _CLAIM.fullmatch(n))]
