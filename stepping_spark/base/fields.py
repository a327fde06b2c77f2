"""Objects that are pickled without what they have cached."""

from __future__ import annotations

import dataclasses


class PickledByFields:
    """A base of frozen dataclasses: their pickled form has the fields, and no cached property.

    So another thread may read a cached property meanwhile, and a job for workers stays small.
    """

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
