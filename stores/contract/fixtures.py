"""What the tests of a store are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stores.contract.values import (
    Create,
    Hold,
    Reopen,
    as_it_is,
)


class StoreFixtures:
    """What the tests of a store get; a subclass gives `create`, and what else applies to it."""

    commits = 500
    """How many small steps are taken to see that batches do not pile up."""

    @pytest.fixture(autouse=True)
    def nothing_is_logged(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        """Merges that fail, and files that may not last, are logged: here none may."""
        yield
        # A server of S3 that a test has started may log what is its own affair.
        ours = [r for r in caplog.get_records("call") if r.name.startswith("stepping_spark")]
        assert not ours

    @pytest.fixture
    def create(self) -> Create:
        """A function that makes a new, empty store for the registers, and opens it."""
        raise NotImplementedError("give a fixture `create`: see StoreContract")

    @pytest.fixture
    def reopen(self) -> Reopen:
        """A function that gives up a store, and opens what it has kept with another one."""
        pytest.skip("this store does not outlive its process")

    @pytest.fixture
    def reopen_or_not(self, request: pytest.FixtureRequest) -> Reopen:
        """`reopen`, where a store outlives its process; else the store goes on."""
        # Not by comparing `type(self).reopen`: some versions of pytest make it anew at each look.
        if next(c for c in type(self).__mro__ if "reopen" in vars(c)) is StoreFixtures:
            return lambda store, _: store
        found: Reopen = request.getfixturevalue("reopen")
        return found

    @pytest.fixture
    def rival(self) -> Reopen:
        """A function that opens what a store keeps a second time, while it is in use."""
        pytest.skip("what this store keeps cannot be opened twice")

    @pytest.fixture
    def hold(self) -> Hold:
        """How changes and keys are given to the store: as they are, or as DataFrames."""
        return as_it_is
