import pytest

from turret.data.prepared import PreparedData
from turret.training.inspection.rankings import Rankings, rankings_of
from turret.training.run import Run


@pytest.fixture(scope="session")
def rankings(evaluated: Run, shop: PreparedData) -> Rankings:
    """The first ten items of every user of the shop, by its evaluated run."""
    return rankings_of(evaluated, shop, "test", 10)
