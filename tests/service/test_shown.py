"""Where the bundles lie on the machine is told to nobody who asks over HTTP."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.bundle_damage import change_manifest, replace, rewrite
from tests.support.item_towers import with_item_tower
from turret.service.http.app import create_app
from turret.service.models.activation_state import activation_lock
from turret.service.settings import Settings
from turret.service.shown import without_folder
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]
Damage = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("/srv/models/v2/golden.json is missing", "v2/golden.json is missing"),
        (
            "there is no version 'v9' in /srv/models; there are: v1",
            "there is no version 'v9' in the folder of ",
        ),
        ("send it to /v1/versions", "send it to /v1/versions"),
    ],
)
def test_files_are_named_as_they_lie_in_the_folder(words: str, shown: str) -> None:
    assert without_folder(words, Path("/srv/models")).startswith(shown)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("no version 'x' in b; there are: v1, bad, v/b", "no version 'x' in b; there are: v1, bad, v/b"),
        ("b/v1/golden.json is missing", "v1/golden.json is missing"),
        ("no golden.json in tub/v1", "no golden.json in tub/v1"),
    ],
)
def test_a_short_name_of_a_folder_is_no_part_of_words(words: str, shown: str) -> None:
    assert without_folder(words, Path("b")) == shown


def test_a_folder_beside_the_one_of_the_bundles_keeps_its_name() -> None:
    assert without_folder("/srv/models2 and /srv/models.", Path("/srv/models")) == (
        "/srv/models2 and the folder of bundles."
    )


def test_a_folder_is_known_by_its_other_paths_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "link").symlink_to("models")
    monkeypatch.chdir(tmp_path)
    for written in ("link", tmp_path / "link", tmp_path / "models"):
        assert without_folder(f"{written}/v1/it", Path("link")) == "v1/it"


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    shutil.move(path, path.parent.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent.parent / "elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _nonsense(path: Path) -> None:
    if path.name in ("manifest.json", "manifest.sha256"):
        replace(path, b"{}")
    else:
        rewrite(path.parent, path.name, b"{}")


DAMAGES: list[Damage] = [
    Path.unlink,
    lambda path: replace(path, path.read_bytes()[:-1]),
    lambda path: replace(path, path.read_bytes()[:-1] + b"~"),
    _nonsense,
    _pipe,
    _link,
    _folder,
]


@pytest.fixture
def damaged(bundles: Path, make_contents: Make) -> list[str]:
    """Versions, each with one file that is damaged in one way."""
    names = []
    whole = publish(bundles, with_item_tower(make_contents("whole")))
    files = sorted(path.name for path in whole.iterdir())
    for name in files:
        for number, damage in enumerate(DAMAGES):
            version = f"{name[:40]}-{number}"
            shutil.copytree(whole, bundles / version)
            change_manifest(bundles / version, version=version)
            damage(bundles / version / name)
            names.append(version)
    return names


@pytest.fixture
def answers(fresh_client: TestClient, admin: dict[str, str]) -> Callable[[str], list[str]]:
    """What those are told who ask for a version in every way."""

    def ask(version: str) -> list[str]:
        calls = [
            fresh_client.post("/admin/activate", json={"version": version}, headers=admin),
            fresh_client.post(
                "/admin/routes", json={"canary": {"version": version, "share": 0.5}}, headers=admin
            ),
        ]
        assert {call.status_code for call in calls} <= {200, 409, 503}, [call.text for call in calls]
        return [call.text for call in calls]

    return ask


def test_no_refusal_tells_where_the_bundles_lie(
    fresh_client: TestClient, bundles: Path, damaged: list[str], answers: Callable[[str], list[str]]
) -> None:
    """Some files, as those of training, are not opened by a service: a version may be served without them."""
    told = [words for version in damaged for words in answers(version)]
    assert not [words for words in told if str(bundles.parent) in words]
    assert len({words for words in told if "stay" in words}) > 100
    listed = fresh_client.get("/v1/versions")
    assert listed.status_code == 200
    assert len([one for one in listed.json()["versions"] if one["error"]]) >= 10
    assert str(bundles.parent) not in listed.text


@pytest.mark.fault(51)
def test_no_fault_of_the_folder_tells_where_it_lies(
    fresh_client: TestClient, admin: dict[str, str], bundles: Path, answers: Callable[[str], list[str]]
) -> None:
    told = answers("missing")
    with activation_lock(bundles):
        fresh_client.app.state.components.settings.__dict__["activation_seconds"] = 0.01  # type: ignore[attr-defined]
        told += answers("v1")
    (bundles / "current").unlink()
    for make in (Path.mkdir, lambda path: path.symlink_to(bundles / "admin.key"), os.mkfifo):
        make(bundles / "current")
        told.append(fresh_client.get("/v1/versions").text)
        shutil.rmtree(bundles / "current") if (bundles / "current").is_dir() else (
            bundles / "current"
        ).unlink()
    moved = bundles.rename(bundles.parent / "moved")
    told += [fresh_client.get("/v1/versions").text, fresh_client.post("/admin/rollback", headers=admin).text]
    moved.rename(bundles)
    assert not [words for words in told if str(bundles.parent) in words]


@pytest.fixture
def waiting(tmp_path: Path, settings: Settings) -> Iterator[TestClient]:
    empty = settings.model_copy(update={"bundles": tmp_path / "empty", "wait": True})
    with TestClient(create_app(empty), raise_server_exceptions=False) as client:
        yield client


def test_a_service_that_waits_does_not_tell_where(waiting: TestClient, tmp_path: Path) -> None:
    model_holder = waiting.app.state.components.model_holder  # type: ignore[attr-defined]
    for content in (None, "missing", "no version"):
        if content:
            (tmp_path / "empty" / "current").write_text(content)
        model_holder._load_first()
        assert str(tmp_path) not in waiting.get("/readyz").text
    for path in ("/readyz", "/v1/version", "/v1/versions"):
        assert str(tmp_path) not in waiting.get(path).text
