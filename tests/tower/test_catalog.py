from pathlib import Path

import pytest

from tower.catalog import Catalog
from tower.errors import BundleError


def test_fields_come_back_by_row(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.json"
    Catalog({"title": ["É", None], "genres": [["a"], []]}).save(path)
    assert Catalog.load(path, 2).of(0) == {"title": "É", "genres": ["a"]}
    assert Catalog.load(path, 2).of(1) == {"title": None, "genres": []}


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"fields": 3}', '{"fields": {"a": [1]}}', '{"fields": {"a": 1}}']
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "catalogue.json"
    path.write_text(text)
    with pytest.raises(BundleError, match="catalogue"):
        Catalog.load(path, 2)
