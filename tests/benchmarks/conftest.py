import pytest

from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData
from data.synthetic import SyntheticConfig, synthesise


@pytest.fixture(scope="module")
def few_users(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """60 users of about 15 events, the last one out."""
    folder = tmp_path_factory.mktemp("shop")
    config = SyntheticConfig(users=60, items=160, events_per_user=15, shortest_history=3, longest_history=40)
    synthesise(config, folder / "raw")
    prepare(PrepareConfig(source=folder / "raw"), folder / "prepared")
    return PreparedData.open(folder / "prepared")
