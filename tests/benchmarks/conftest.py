import pytest

from tests.support.shops import small_shop
from turret.data.prepared import PreparedData


@pytest.fixture(scope="module")
def few_users(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """60 users of about 15 events, the last one out."""
    return small_shop(tmp_path_factory.mktemp("shop"), users=60, items=160)
