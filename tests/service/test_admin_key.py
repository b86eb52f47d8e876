from pathlib import Path

import pytest

from service.admin_key import admin_key
from service.errors import ServiceError
from service.settings import Settings


@pytest.fixture
def keyless(tmp_path: Path) -> Settings:
    return Settings(bundles=tmp_path)


def test_a_key_is_made_once_for_its_owner_only(keyless: Settings) -> None:
    key = admin_key(keyless)
    path = keyless.bundles / "admin.key"
    assert path.read_text().strip() == key
    assert len(key) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert admin_key(keyless) == key


def test_the_key_of_the_environment_comes_first(keyless: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_ADMIN_KEY", "mine")
    assert admin_key(Settings(bundles=keyless.bundles)) == "mine"
    assert not (keyless.bundles / "admin.key").exists()


def test_an_empty_file_is_not_an_empty_key(keyless: Settings) -> None:
    (keyless.bundles / "admin.key").write_text("\n")
    with pytest.raises(ServiceError, match="is empty"):
        admin_key(keyless)


def test_a_folder_without_a_place_for_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="TURRET_ADMIN_KEY"):
        admin_key(Settings(bundles=tmp_path / "missing"))
