"""The files that Spark's workers write are all found, or missed with a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turret.data.configuration import load_configuration
from turret.data.errors import DataError
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

# They need a session of Spark.
pytestmark = pytest.mark.nightly

BothWays = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@pytest.mark.parametrize("folder", ["sorted", "distinct_user"])
def test_workers_with_another_file_system_are_found_out(
    folder: str, tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are not where this process looks for them."""
    (tmp_path / "events.csv").write_text("user,item,time\na,x,1\na,y,2\na,z,3\n", encoding="utf-8")
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: [] if folder in self.parts else list(glob(self, pattern))
    )
    config = load_configuration(PrepareConfig, overrides={"source": tmp_path / "events.csv"})
    with pytest.raises(DataError, match="its workers have another file system; choose a folder with --to"):
        prepare(config, tmp_path / "prepared", engine="local")
    assert not (tmp_path / "prepared").exists()
