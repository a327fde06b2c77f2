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

So nothing depends on the clock, on how soon a listing shows a new file, or on the lock. Claims stay
for a day after a later one was made; by then a listing shows the manifests of that.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress

from stepping_spark.errors import StoreCorrupt, StoreLocked, StoreUnavailable
from stores.decoding import Natural, Struct, decoded
from stores.parquet.directory import TEMPORARY, Directory
from stores.parquet.manifest import DATA, FOLDER, LAST, Order, name_of, none_is_left, orders
from stores.pool import side_by_side

CLAIMS = "claims"
KEPT_FOR = 86_400.0
"""Seconds for which a claim stays after a later one, by the file system's clock."""

SHOWN_WITHIN = 600.0
"""Seconds, by the file system's clock, within which a listing shows what was written."""

MOST_ASKED_FOR = 16
"""So many claims are asked for by name, where a listing may not show them yet."""

TRIES, PAUSE = 5, 0.05  # of listings that are late, and the seconds between them

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
        self._listed = {generation for generation, _ in claimed}
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
        """The manifests of earlier generations, also those that a listing does not show yet."""
        gone: Order | None = None
        for _ in range(TRIES):
            found = [o for o in orders(self._directory.sizes(FOLDER)) if o[0] < self.generation]
            if not found or self._is_there(found[-1]):
                gone = self._follow(found)
                if gone is None:
                    return found
            time.sleep(PAUSE)
        if not found:
            raise none_is_left(self._directory.shown)
        if gone is not None and self._is_old(gone):
            raise self._older(found[-1], gone)
        raise StoreUnavailable(
            f"{self._directory.shown}: {FOLDER}/ does not list yet what it has: others have just "
            "written there; wait a moment, and open it again. If it is a copy that was put back, "
            f"put back {CLAIMS}/ and {DATA}/ from the same copy"
        )

    def _follow(self, found: list[Order]) -> Order | None:
        """Add the manifests after the last one. Returns one that was written, and then removed."""
        gone: Order | None = None
        since = found[-1][0] + 1 if found else 1
        late = set(range(self.generation - MOST_ASKED_FOR, self.generation))
        asked = sorted(g for g in late | self._listed if since <= g < self.generation)
        for first, written in side_by_side(self._first_of, asked):
            if first is not None and self._is_there(first):
                found.append(first)
                gone = None  # a later writer removes what is older
            elif written:
                gone = first
        while found and (following := self.after(found[-1])) is not None:
            found.append(following)
        return gone

    def _is_old(self, order: Order) -> bool:
        """Whether a generation was claimed so long ago that a listing shows it."""
        its, mine = (self._directory.status(n) for n in (_name(order[0]), self.name))
        return bool(its and mine and its.changed < mine.changed - SHOWN_WITHIN)

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

    def _first_of(self, generation: int) -> tuple[Order | None, bool]:
        """The manifest that a writer has said it would begin with, and whether it has written it.

        A claim that nobody can read is taken for one that was never made use of.
        """
        with suppress(FileNotFoundError, ValueError):
            claim = decoded(self._directory.read(_name(generation)), _File)
            if claim.begins[0] == generation:
                return claim.begins, claim.written
        return None, False

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
