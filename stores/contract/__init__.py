"""What a store must do, as tests: subclass `StoreContract` for a store of your own.

`store` has the class. `rows` tests that rows of every type are kept as they are, read by key and
added up, and `steps` that a step is committed whole or not at all. `values` are what they put in.
"""

from stores.contract.store import StoreContract

__all__ = ["StoreContract"]
