"""Where the bundles lie on the machine is told to nobody who asks over HTTP."""

import os
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.service_app import ADMIN, activate
from turret.service.versions.folder import activation_lock, without_folder


@pytest.mark.parametrize(
    ("folder", "words", "shown"),
    [
        ("/srv/models", "/srv/models/v2/golden.json is missing", "v2/golden.json is missing"),
        (
            "/srv/models",
            "no 'v9' in /srv/models; there are: v1",
            "no 'v9' in the folder of bundles; there are: v1",
        ),
        ("/srv/models", "send it to /v1/versions", "send it to /v1/versions"),
        ("/srv/models", "/srv/models2 and /srv/models.", "/srv/models2 and the folder of bundles."),
        # A short name of a folder is no part of words.
        ("b", "no version 'x' in b; there are: v1, bad, v/b", "no version 'x' in b; there are: v1, bad, v/b"),
        ("b", "b/v1/golden.json is missing", "v1/golden.json is missing"),
        ("b", "no golden.json in tub/v1", "no golden.json in tub/v1"),
    ],
)
def test_files_are_named_as_they_lie_in_the_folder(folder: str, words: str, shown: str) -> None:
    assert without_folder(words, Path(folder)) == shown


def answers(client: TestClient, version: str) -> list[str]:
    """What is told to those who ask for a version in every way."""
    canary = {"canary": {"version": version, "share": 0.5}}
    calls = [
        activate(client, version),
        client.post("/admin/routes", json=canary, headers=ADMIN),
        client.post("/admin/comparison", json={"version": version}, headers=ADMIN),
    ]
    assert {call.status_code for call in calls} <= {200, 404, 409, 503}, [call.text for call in calls]
    return [call.text for call in calls]


@pytest.mark.fault(51)
def test_no_fault_of_the_folder_tells_where_it_lies(fresh_client: TestClient, bundles: Path) -> None:
    pointer = bundles / "current"
    told = answers(fresh_client, "missing")
    with activation_lock(bundles):
        fresh_client.app.state.components.settings.__dict__["activation_seconds"] = 0.01  # type: ignore[attr-defined]
        told += answers(fresh_client, "v1")
    pointer.unlink()
    for make, remove in ((Path.mkdir, Path.rmdir), (_link_to_key, Path.unlink), (os.mkfifo, Path.unlink)):
        make(pointer)
        told.append(fresh_client.get("/v1/versions").text)
        remove(pointer)
    moved = bundles.rename(bundles.parent / "moved")
    told += [fresh_client.get("/v1/versions").text, fresh_client.post("/admin/rollback", headers=ADMIN).text]
    moved.rename(bundles)
    assert not [words for words in told if str(bundles.parent) in words]


def _link_to_key(pointer: Path) -> None:
    pointer.symlink_to(pointer.with_name("admin.key"))
