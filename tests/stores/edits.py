"""Edits of a state, as somebody makes them who has no idea of it, or a bad one."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any
Edit: TypeAlias = Callable[[Path, random.Random], None]

ODD: Sequence[Json] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**4000, 0.5, 1e308,
    float("nan"), float("inf"), "", "5", "a", "\0", "\ud800", "../../victim", "data/../../victim",
    "/etc/hostname", "int", "Decimal(99, 3)", "Decimal(3, 99)", "Decimal(99999999999999999999, 0)",
    "\u0661", "x" * 100_000, [], {}, [[]], [None], ["a"], [["a", "int"]],
    [["a", "int"], ["a", "str"]], {"a": 1}, {"list": "int"}, {"list": {"list": None}},
    {"row": []}, {"": ""},
)  # fmt: skip


def places_in(whole: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of a JSON value, but of itself."""
    items: Any = ()
    if isinstance(whole, dict):
        items = whole.items()
    elif isinstance(whole, list):
        items = enumerate(whole)
    for key, part in items:
        yield (*path, key)
        yield from places_in(part, (*path, key))


def nested(part: Json, levels: int) -> Json:
    """The part, in so many lists."""
    for _ in range(levels):
        part = [part]
    return part


def edited(whole: Json, rng: random.Random) -> Json:
    """The same with one part changed."""
    whole = copy.deepcopy(whole)
    spots = list(places_in(whole))
    if not spots:
        return rng.choice(ODD)
    *path, key = rng.choice(spots)
    around = whole
    for step in path:
        around = around[step]
    match rng.randrange(7):
        case 0:
            del around[key]
        case 1:
            around[key] = nested(around[key], rng.choice([1, 2]))
        case 2:
            *other, last = rng.choice(spots)
            part = whole
            for step in other:
                part = part[step]
            around[key] = copy.deepcopy(part[last])
        case 3 if isinstance(around, list):
            around.insert(key, copy.deepcopy(around[key]))
        case 4 if isinstance(around[key], int):
            around[key] += rng.choice([-1, 1, -around[key], 2**20, 2**62])
        case _:
            around[key] = copy.deepcopy(rng.choice(ODD))
    return whole


def digest(body: Json) -> str:
    """The digest of a manifest, as a store makes it."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def seal(body: Json) -> str:
    """A manifest with a digest that is right."""
    return json.dumps({"manifest": body, "sha256": digest(body)})


def files(state: Path, folder: str) -> list[Path]:
    """The files of a folder, the oldest first."""
    return sorted((state / folder).iterdir())


def newest(state: Path) -> Path:
    """The newest manifest."""
    return files(state, "manifests")[-1]


def body_of(manifest: Path) -> Json:
    """What a manifest says."""
    return json.loads(manifest.read_text())["manifest"]


# -- edits of JSON


def unsealed_manifest(state: Path, rng: random.Random) -> None:
    """One thing of the newest manifest is changed."""
    newest(state).write_text(json.dumps(edited(json.loads(newest(state).read_text()), rng)))


def registers(state: Path, rng: random.Random) -> None:
    """One thing of the descriptions of registers is changed."""
    file = state / "registers.json"
    file.write_text(json.dumps(edited(json.loads(file.read_text()), rng)))


def text(state: Path, rng: random.Random) -> None:
    """A JSON file is cut, has other bytes, or is something else altogether."""
    file = rng.choice([state / "registers.json", *files(state, "manifests")])
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] = rng.randrange(256)
        case 2:
            data[at:at] = rng.choice([b"NaN", b"Infinity", b'"a":1,', b"\xff", b"\0", b"[" * 50])
        case 3:
            data[:] = rng.choice([b"", b"null", b"[]", b"{}", b"5", b'"a"', b'{"manifest": {}}'])
        case _:
            data = data.replace(b'"', b'"x":1,"', 1) + data
    file.write_bytes(data)


def other_manifest(state: Path, rng: random.Random) -> None:
    """A manifest has the name of another, or of one that is not there."""
    file = rng.choice(files(state, "manifests"))
    names = [f.name for f in files(state, "manifests") if f != file]
    names += ["99999999-999999999999-9999.json", "00000001-000000000099-0000.json", "a.json"]
    shutil.copyfile(file, state / "manifests" / rng.choice(names))


# -- edits of data


def told(state: Path) -> None:
    """Have the newest manifest say the sizes that files have."""
    body = body_of(newest(state))
    lists = [b for batches in body["registers"].values() for b in batches]
    lists += [o["files"] for o in body["outputs"] or ()]
    for f in (f for listed in lists for f in listed):
        f["bytes"] = (state / f["name"]).stat().st_size
    newest(state).write_text(seal(body))


def some_data(state: Path, rng: random.Random) -> Path:
    """A file that the newest manifest names."""
    body = body_of(newest(state))
    lists = [b for batches in body["registers"].values() for b in batches]
    lists += [o["files"] for o in body["outputs"]]
    names = [str(f["name"]) for listed in lists for f in listed]
    return state / rng.choice(names)


def bytes_of_data(state: Path, rng: random.Random) -> None:
    """A data file is cut, or has other bytes; its size is told, or is not."""
    file = some_data(state, rng)
    data = bytearray(file.read_bytes())
    at = rng.choice([rng.randrange(len(data)), len(data) - 1 - rng.randrange(min(600, len(data)))])
    match rng.randrange(4):
        case 0:
            del data[at:]
        case 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        case 2:
            data[:] = data[: len(data) // 2]
        case _:
            for _ in range(rng.choice([1, 1, 3])):
                data[at] ^= 1 << rng.randrange(8)
                at = rng.randrange(len(data))
    file.write_bytes(data)
    if rng.random() < 0.8:
        told(state)


def swapped_data(state: Path, rng: random.Random) -> None:
    """Two data files have each other's content."""
    one, other = some_data(state, rng), some_data(state, rng)
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    told(state)


def gone(state: Path, rng: random.Random) -> None:
    """A file is not there."""
    every = [p for p in state.rglob("*") if p.is_file()]
    rng.choice(every).unlink()


EDITS: Sequence[Edit] = (
    unsealed_manifest, registers, text, other_manifest,
    bytes_of_data, swapped_data, gone,
)  # fmt: skip
