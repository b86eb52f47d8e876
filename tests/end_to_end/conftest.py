"""The trained shop."""

import pytest

from tests.support.trained import TrainedShop, trained_shop


@pytest.fixture(scope="session")
def shop() -> TrainedShop:
    """A shop with the runs and versions `ids` and `features`. Nobody may write to it."""
    return trained_shop()
