"""What identifies a stream, the same in every process and for every version that reads a state."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_DIGEST = "[0-9a-f]{16}"
_TEXT = re.compile(f"(.*?) ({_DIGEST})(?: by (.*?))?(?: of((?: {_DIGEST})+) ?)?", re.DOTALL)


@dataclass(frozen=True)
class Signature:
    """What a stream is: its operator in words, and a digest of all that it depends on.

    That of a register also has the `key`, as text, and in a recursion the digests of what it is
    `within`: the fixpoint, then its inputs. Words are for people: they name classes, which may get
    other names, so they tell no two streams apart.

    >>> s = Signature("filter [x > 2]", "0123456789abcdef", key="x.name")
    >>> str(s)
    'filter [x > 2] 0123456789abcdef by x.name'
    >>> Signature.of_text(str(s)) == s
    True
    """

    words: str = ""
    digest: str = ""
    key: str = ""
    within: tuple[str, ...] = ()

    @property
    def identity(self) -> Signature:
        """All of it but the words: equal for streams that are the same. Without a digest, all."""
        return replace(self, words="") if self.digest else self

    @property
    def shown(self) -> str:
        """The words, for people."""
        by = f" by {self.key}" if self.key else ""
        return f"{self.words}{by}{', in a recursion' if self.within else ''}"

    def __str__(self) -> str:
        """The text that the format 1 of a state has of it."""
        by = f" by {self.key}" if self.key else ""
        within = f" of {' '.join(self.within)}" if self.within else ""
        return f"{self.words} {self.digest}{by}{within}" if self.digest else self.words

    @classmethod
    def of_text(cls, text: str) -> Signature:
        """The signature that a state has as text. One that somebody has edited has no digest."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls(text)
        words, digest, key, within = match.groups()
        return cls(words, digest, key or "", tuple((within or "").split()))
