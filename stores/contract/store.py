"""What every store must do, as tests: subclass `StoreContract` and give it your store.

class TestMyStore(StoreContract):
    @pytest.fixture
    def create(self, tmp_path: Path) -> Create:
        return lambda registers: MyStore(registers, tmp_path / uuid4().hex)
"""

from __future__ import annotations

from stores.contract.additions import Additions
from stores.contract.evolving import Evolving
from stores.contract.kept import KeptWithSteps
from stores.contract.opening import Opening
from stores.contract.rows import Rows
from stores.contract.steps import Steps


class StoreContract(Additions, Steps, KeptWithSteps, Evolving, Opening, Rows):
    """Tests that each store passes; a subclass gives `create`, and what else applies to it."""
