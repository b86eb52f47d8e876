from collections.abc import Callable
from pathlib import Path

import pytest

from tower.contents import BundleContents
from tower.errors import BundleError
from tower.listing import versions
from tower.publishing import publish

Make = Callable[..., BundleContents]


def test_versions_are_listed_with_what_is_wrong_with_them(bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("v2", seed=1))
    (bundles / "broken").mkdir()
    (bundles / ".publishing-v3-abc").mkdir()
    (bundles / "admin.key").write_text("key")
    found = {one.version: one for one in versions(bundles)}
    assert set(found) == {"broken", "v1", "v2"}
    assert [name for name, one in found.items() if one.is_current] == ["v1"]
    assert "manifest.json" in (found["broken"].error or "")
    assert (found["v2"].item_count, found["v2"].metrics) == (60, {"recall@10": 0.5})


def test_listing_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="name a folder"):
        versions(tmp_path / "missing")
