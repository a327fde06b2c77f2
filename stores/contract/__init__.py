"""What a store must do, as tests: subclass `StoreContract` for a store of your own."""

from stores.contract.store import StoreContract

__all__ = ["StoreContract"]
