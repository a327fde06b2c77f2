"""The identity of a stream, equal in every process and for every version that reads a state."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_DIGEST = "[0-9a-f]{16}"
_TEXT = re.compile(f"(.*?) ({_DIGEST})(?: by (.*?))?(?: of((?: {_DIGEST})+) ?)?", re.DOTALL)


@dataclass(frozen=True)
class Signature:
    """The identity of a stream: its operator in words, and a digest of its whole computation.

    The signature of a register also has the `key`, as text, and in a recursion the digests of the
    fixpoint and its inputs (`within`). Words are for people: they contain names of classes, which
    may change, so they do not distinguish streams.

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
        """The signature without its words: equal for equal streams. Unchanged without a digest."""
        return replace(self, words="") if self.digest else self

    @property
    def shown(self) -> str:
        """The text for people: the words and the key."""
        by = f" by {self.key}" if self.key else ""
        return f"{self.words}{by}{', in a recursion' if self.within else ''}"

    def __str__(self) -> str:
        """The signature as text, in format 1 of a state."""
        by = f" by {self.key}" if self.key else ""
        within = f" of {' '.join(self.within)}" if self.within else ""
        return f"{self.words} {self.digest}{by}{within}" if self.digest else self.words

    @classmethod
    def of_text(cls, text: str) -> Signature:
        """The signature from its text in a state. An edited text yields one without a digest."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls(text)
        words, digest, key, within = match.groups()
        return cls(words, digest, key or "", tuple((within or "").split()))
