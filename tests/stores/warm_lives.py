"""What `tests.stores.lives` forks its processes from: imported once, and a step taken already."""

from __future__ import annotations

import gc

from tests.stores.lives import undisturbed

undisturbed(steps=2)
gc.freeze()  # a collection in each process would copy all that they share
