"""Manifests: each lists the files of the state after one step, and so commits it.

The files are `manifests/<generation>-<step>-<revision>.json`, and the greatest name is the state. A
writer begins a new generation when it takes over from one that might still be alive, or goes back
to an older step: later manifests of the other writer do not count. A revision is the same step in
other files. Nothing in a manifest depends on the number of steps before it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as of_dataclass
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Raw, Struct, field, to_builtins

from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreMismatch
from stepping_spark.relations.store import now_from_text, now_to_text
from stores.base import LastStep, Natural, PositiveNumber, decoded
from stores.parquet.directories import Directory

FORMAT = 2
FOLDER, DATA = "manifests", "data"
REGISTERS = "registers.json"
_NAME = re.compile(rf"{FOLDER}/([0-9]{{8}})-([0-9]{{12}})-([0-9]{{4}})\.json")
LAST = 10**8 - 1, 10**12 - 1, 10**4 - 1  # of generations, steps and revisions: so many digits

DATA_NAME = re.compile(rf"{DATA}/(?:\w+-(\d{{8}})-\d{{12}}-)?[\w-]+\.parquet", re.ASCII)
"""The names of files of rows; the group is the generation that wrote it, if the name has it."""

NUMBERED = re.compile(rf"{DATA}/(\d{{4,}})-\d{{8}}-\d{{12}}-", re.ASCII)
"""The beginning of the names of a register's files; the group is the number of the register."""

CIRCUIT_NAME = re.compile(r"circuits/(\d{8})-[0-9a-f]{16}\.json", re.ASCII)
"""The names of files of circuits; the group is the generation that wrote it."""

FileOrder: TypeAlias = tuple[int, int, int]


class File(Struct, frozen=True):
    """A Parquet file; `first` and `last` are the least and the greatest place in it."""

    name: Annotated[str, Meta(pattern=rf"^{DATA_NAME.pattern}\Z")]
    rows: PositiveNumber
    nbytes: PositiveNumber = field(name="bytes")
    first: Natural
    last: Natural


@dataclass(frozen=True)
class FileBatch:
    """Rows in files. Rows of a register are consolidated, and in the order of their places."""

    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(f.rows for f in self.files)

    @property
    def nbytes(self) -> int:
        """The size of its files."""
        return sum(f.nbytes for f in self.files)

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return [f.name for f in self.files]


def batches_of(parts: Sequence[tuple[File, ...]]) -> list[FileBatch]:
    """The batches of the files: one, if the ranges of places of the parts do not overlap."""
    ordered = sorted(parts, key=lambda files: files[0].first)
    if all(a[-1].last < b[0].first for a, b in itertools.pairwise(ordered)):
        return [FileBatch(tuple(f for files in ordered for f in files))]
    return [FileBatch(files) for files in ordered]


Output: TypeAlias = tuple[object, FileBatch]
"""An output of a step: the kinds of its columns (see `Schema.kinds`), and the rows."""


@dataclass(frozen=True)
class Manifest:
    """The state after a step."""

    generation: int
    revision: int = 0
    fingerprint: str = ""
    last: LastStep = of_dataclass(default_factory=LastStep)
    registers: Mapping[str, tuple[FileBatch, ...]] = of_dataclass(default_factory=dict)
    outputs: tuple[Output, ...] | None = None
    circuit: str | None = None  # the name of the file with the registers and the circuit, if any

    @property
    def step(self) -> int:
        """The number of the step."""
        return self.last.step

    @property
    def order(self) -> FileOrder:
        """The order of manifests: the newest has the greatest."""
        return self.generation, self.step, self.revision

    @property
    def name(self) -> str:
        """The name of its file."""
        return name_of(self.order)

    @property
    def next_files(self) -> str:
        """The generation and the step in the names of the next files."""
        return f"{self.generation:08d}-{self.step + 1:012d}"

    def files(self) -> Iterator[tuple[str, File]]:
        """All files, each with the register or the output that it belongs to."""
        for register, batches in self.registers.items():
            for batch in batches:
                yield from ((f"register {register!r}", f) for f in batch.files)
        for i, (_, batch) in enumerate(self.outputs or ()):
            yield from ((f"output {i}", f) for f in batch.files)

    def encode(self) -> bytes:
        """The manifest as JSON, with a digest of itself."""
        last = self.last
        body: dict[str, Any] = {
            "format": FORMAT,
            "generation": self.generation,
            "step": self.step,
            "revision": self.revision,
            "fingerprint": self.fingerprint,
            "now": now_to_text(last.now),
            "offsets": dict(last.offsets),
            "settings": dict(last.settings),
            "registers": {n: [_files_as_json(b) for b in bs] for n, bs in self.registers.items()},
            "outputs": None
            if self.outputs is None
            else [{"schema": kinds, "files": _files_as_json(b)} for kinds, b in self.outputs],
            "made_by": None if last.made_by is None else list(last.made_by),
            "circuit": self.circuit,
        }
        return _lines({"manifest": body, "sha256": _digest(body)}).encode()


def _lines(value: Any, depth: int = 5, end: str = "\n") -> str:
    """JSON with one line per file; files are at this depth. One line per value would be slow."""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    start = f"{end} "
    if isinstance(value, list):
        items = (_lines(v, depth - 1, start) for v in value)
        return f"[{start}{f',{start}'.join(items)}{end}]"
    items = (f"{json.dumps(k)}: {_lines(v, depth - 1, start)}" for k, v in value.items())
    return f"{{{start}{f',{start}'.join(items)}{end}}}"


def _files_as_json(batch: FileBatch) -> list[Any]:
    return [to_builtins(f) for f in batch.files]


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class _Output(Struct, frozen=True):
    schema: Any
    files: tuple[File, ...]


class _Format(Struct, frozen=True):
    format: int


class _Body(Struct, frozen=True):
    generation: Annotated[int, Meta(ge=0, le=LAST[0])]
    step: Annotated[int, Meta(ge=0, le=LAST[1])]
    revision: Annotated[int, Meta(ge=0, le=LAST[2])]
    fingerprint: str
    now: str | None
    offsets: dict[str, int]
    registers: dict[str, tuple[tuple[File, ...], ...]]
    outputs: tuple[_Output, ...] | None
    # Earlier versions did not write the rest.
    settings: dict[str, str] = field(default_factory=dict)
    made_by: tuple[str, ...] | None = None
    circuit: Annotated[str, Meta(pattern=rf"^{CIRCUIT_NAME.pattern}\Z")] | None = None


class _Whole(Struct, frozen=True):
    manifest: Raw
    sha256: str


def decode(data: bytes) -> Manifest:
    """The inverse of `Manifest.encode`. Raises a ValueError with the problem of the data.

    Raises `OtherFormat` for an undamaged manifest that only another version can read.
    """
    try:
        whole = decoded(data, _Whole)
        digest = _digest(json.loads(bytes(whole.manifest)))
    except ValueError as e:
        raise ValueError(f"it is half-written, or no manifest: {e}") from None
    if digest != whole.sha256:
        raise ValueError("its content does not have the digest that it was written with")
    version = decoded(whole.manifest, _Format).format
    if version != FORMAT:
        raise OtherFormat(
            f"has the format {version}, and this version of stepping_spark reads {FORMAT}"
        )
    body = decoded(whole.manifest, _Body)
    now = now_from_text(body.now)
    return Manifest(
        body.generation,
        body.revision,
        body.fingerprint,
        LastStep(body.step, now, body.offsets, body.settings, body.made_by),
        {name: tuple(map(FileBatch, batches)) for name, batches in body.registers.items()},
        None
        if body.outputs is None
        else tuple((output.schema, FileBatch(output.files)) for output in body.outputs),
        body.circuit,
    )


def name_of(order: FileOrder) -> str:
    """The name of a manifest's file."""
    generation, step, revision = order
    return f"{FOLDER}/{generation:08d}-{step:012d}-{revision:04d}.json"


def orders(names: Iterable[str]) -> list[FileOrder]:
    """The manifests among these files, the oldest first."""
    matches = (_NAME.fullmatch(n) for n in names)
    return sorted((int(m[1]), int(m[2]), int(m[3])) for m in matches if m)


class Log:
    """The manifests of a store."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def orders(self) -> list[FileOrder]:
        """All orders, the oldest first."""
        return orders(self._directory.sizes(FOLDER))

    def of_step(self, step: int, among: Sequence[FileOrder]) -> FileOrder | None:
        """The newest complete manifest of a step among these; a damaged one if none is complete."""
        candidates = [o for o in reversed(among) if o[1] == step]
        return next(filter(self.is_whole, candidates), candidates[0] if candidates else None)

    def read(self, order: FileOrder) -> Manifest:
        """A manifest. Raises `StoreCorrupt` if it is damaged, `StoreMismatch` in another format."""
        name = name_of(order)
        try:
            return self._decoded(order)
        except OtherFormat as e:
            raise StoreMismatch(
                f"{self._directory.shown}: {name}, the manifest of step {order[1]}, {e}; use the "
                "version that wrote it, or make a new store"
            ) from None
        except ValueError as e:
            raise StoreCorrupt(
                f"{self._directory.shown}: {name}, the manifest of step {order[1]}, is damaged: "
                f"{e}; {self.remedy(order)}"
            ) from None

    def read_or_none(self, order: FileOrder) -> Manifest | None:
        """A manifest; None if it is damaged, in another format, or removed."""
        try:
            return self._decoded(order)
        except (ValueError, FileNotFoundError):
            return None

    def _decoded(self, order: FileOrder) -> Manifest:
        manifest = decode(self._directory.read(name_of(order)))
        if manifest.order != order:
            raise ValueError(f"by its content it is {manifest.name}")
        return manifest

    def write(self, manifest: Manifest, after: Sequence[str]) -> None:
        """Commit: from here on the manifest counts.

        Raises an `OSError` if it was not written, and a `Doubt` if that is unknown.
        """
        data = manifest.encode()
        self._check(manifest)
        try:
            self._directory.create(manifest.name, data, after)
        except FileExistsError:
            # After a lost response, a retry of the file system finds the file of its first attempt.
            if self._directory.read(manifest.name) != data:
                raise
        except OSError as e:
            try:
                if self._directory.read(manifest.name) == data:
                    return
            except FileNotFoundError:
                raise e from None
            except OSError:
                raise Doubt(manifest) from e
            raise

    def _check(self, manifest: Manifest) -> None:
        """Raise an error for a manifest that could not be read again."""
        if not _NAME.fullmatch(manifest.name):
            raise StoreError(
                f"{self._directory.shown}: step {manifest.step} was not committed: its manifest "
                f"would be {manifest.name}, and its numbers are too large; somebody has edited the "
                "names of manifests: restore them, or make a new store"
            )

    def remedy(self, order: FileOrder) -> str:
        """The remedy if the state of a manifest cannot be read."""
        return instead(o for o in reversed(self.orders()) if o < order and self.is_whole(o))

    def is_whole(self, order: FileOrder) -> bool:
        """Whether a manifest can be read, and its files exist with their sizes."""
        try:
            manifest = self.read_or_none(order)
            if manifest is None:
                return False
            return next(damages(manifest, self._directory), None) is None
        except OSError:  # there is something else than a file
            return False

    def check(self, manifest: Manifest) -> None:
        """Raise `StoreCorrupt` with the first file that is missing or has another size."""
        for damage in damages(manifest, self._directory):
            raise StoreCorrupt(
                f"{self._directory.shown}: step {manifest.step} cannot be read: {damage}; "
                f"{self.remedy(manifest.order)}"
            )


def instead(whole: Iterable[FileOrder]) -> str:
    """The remedy for an unreadable state, if these older steps can be read, newest first."""
    for _, step, _ in whole:
        return f"open the last whole step with at_step={step}, or restore the file"
    return "no older step is whole: restore the files, or make a new store"


def none_is_left(shown: str) -> StoreCorrupt:
    """The error for a state without any manifest."""
    return StoreCorrupt(
        f"{shown}: no manifest is left, so the files of the state are unknown; restore "
        f"{FOLDER}/, or make a new store"
    )


class OtherFormat(ValueError):
    """A complete manifest, in a format that this version does not read."""


class Doubt(Exception):
    """Whether a manifest was written is unknown: the file system failed in between."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest.name)
        self.manifest = manifest


def damages(manifest: Manifest, directory: Directory) -> Iterator[str]:
    """The problems of the files of a manifest, from their sizes."""
    sizes: Mapping[str, int] = {}
    for i, (whose, f) in enumerate(manifest.files()):
        sizes = sizes if i else directory.sizes(f.name.rpartition("/")[0])
        size = sizes.get(f.name)
        if size is None:
            yield f"{f.name} of {whose} is missing"
        elif size != f.nbytes:
            yield f"{f.name} of {whose} has {size} bytes, and was written with {f.nbytes}"


def next_revision(manifest: Manifest) -> Manifest:
    """The manifest of the same state, as the next revision."""
    return replace(manifest, revision=manifest.revision + 1)
