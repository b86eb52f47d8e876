"""Synthetic shops that the tests of several folders prepare."""

from pathlib import Path

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise


def small_shop(folder: Path, users: int, items: int) -> PreparedData:
    """So many users of 3 to 40 events, about 15 each, with the last item of each out."""
    config = SyntheticConfig(
        users=users, items=items, events_per_user=15, shortest_history=3, longest_history=40
    )
    synthesise(config, folder / "raw")
    prepare(PrepareConfig(source=folder / "raw"), folder / "prepared")
    return PreparedData.open(folder / "prepared")
