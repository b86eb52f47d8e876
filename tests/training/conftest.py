"""Prepared data and runs that the tests of this folder share."""

import pytest

from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData
from data.synthetic import SyntheticConfig, synthesise


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """A small synthetic shop: 300 users, 200 items, last item out. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("shop")
    config = SyntheticConfig(users=300, items=200, events_per_user=15, shortest_history=3, longest_history=40)
    synthesise(config, folder / "raw")
    prepare(PrepareConfig(source=folder / "raw"), folder / "prepared")
    return PreparedData.open(folder / "prepared")


@pytest.fixture(scope="session")
def handmade(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Five users of 1 to 7 events in file order; small enough to work out by hand."""
    folder = tmp_path_factory.mktemp("handmade")
    histories = {"a": "pqrstpq", "b": "qr", "c": "p", "d": "stpqr", "e": "rsq"}
    rows = [f"{user},{item}" for user, items in histories.items() for item in items]
    (folder / "events.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    config = {"source": folder / "events.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), folder / "prepared")
    return PreparedData.open(folder / "prepared")
