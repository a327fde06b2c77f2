"""Tests that every store must pass: subclass `StoreContract` for a store of your own.

`store` has the class. `rows` tests that rows of every type are stored unchanged, read by key and
added up, and `steps` that a step is committed whole or not at all. `values` has the test data.
"""

from stores.contract.store import StoreContract

__all__ = ["StoreContract"]
