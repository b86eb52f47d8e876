from pathlib import Path

import pytest

from service.admin_key import AdminKey, admin_key
from service.errors import RequestError, ServiceError
from service.settings import Settings


@pytest.fixture
def keyless(tmp_path: Path) -> Settings:
    return Settings(bundles=tmp_path)


def accepts(key: AdminKey, header: str | None) -> bool:
    try:
        key.check(header)
    except RequestError:
        return False
    return True


def test_a_key_is_made_once_for_its_owner_only(keyless: Settings) -> None:
    admin_key(keyless)
    path = keyless.bundles / "admin.key"
    written = path.read_text().strip()
    assert len(written) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert accepts(admin_key(keyless), f"Bearer {written}")
    assert path.read_text().strip() == written


def test_the_refusal_names_the_place_and_not_the_key(keyless: Settings) -> None:
    key = admin_key(keyless)
    path = keyless.bundles / "admin.key"
    with pytest.raises(RequestError) as caught:
        key.check("Bearer guess")
    assert caught.value.status == 401
    assert str(path) in str(caught.value)
    assert path.read_text().strip() not in str(caught.value)


@pytest.mark.parametrize(
    "header", [None, "", "key", "Bearer", "Bearer ", "Bearer keys", "Bearer ké", "\udcff"]
)
def test_only_the_exact_key_is_accepted(header: str | None) -> None:
    assert not accepts(AdminKey("key", "here"), header)
    assert accepts(AdminKey("key", "here"), "Bearer key")


def test_an_empty_file_is_not_an_empty_key(keyless: Settings) -> None:
    (keyless.bundles / "admin.key").write_text("\n")
    with pytest.raises(ServiceError, match="is empty"):
        admin_key(keyless)


def test_a_folder_without_a_place_for_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="TURRET_ADMIN_KEY"):
        admin_key(Settings(bundles=tmp_path / "missing"))
