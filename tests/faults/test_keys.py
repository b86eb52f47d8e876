"""Keys that are wrong, missing or revoked, and key files that vanish while the service runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.service_calls import anew, kill_workers
from tests.support.service_process import Process, Start
from turret.service.keys.keys import add_key, new_key, record


def make(path: Path, *scopes: str) -> str:
    """Make a key and put it into a file of keys."""
    key = new_key("shop")
    add_key(path, record("shop", key, scopes))
    return key


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def statuses(service: Process, headers: dict[str, str]) -> set[int]:
    """Those of recommendations, on connections that are spread over both workers."""
    return {anew(service, "POST", "/v1/recommend", json={}, headers=headers).status_code for _ in range(12)}


@pytest.mark.nightly
@pytest.mark.fault(26)
def test_nothing_of_a_key_is_ever_written(start: Start, bundles: Path) -> None:
    """Keys that are right, wrong, too long, in the path, in the query and in the body; nor in any file."""
    right = make(bundles.parent / "keys.json", "read", "write")
    service = start(admin_port=0)
    admin_key = (bundles / "admin.key").read_text().strip()
    secret = right.rsplit("_", 1)[0][-6:] + right[-30:]
    said = ""
    for key in (right, right[:-1], right + "x", right * 20, admin_key, admin_key[:-1]):
        for method, url in (
            ("POST", "/v1/recommend"),
            ("GET", f"/v1/version?key={key[:90]}"),
            ("POST", f"{service.urls[-1]}/admin/activate"),
            ("POST", "/v1/events"),
            ("BREW", "/v1/version"),
        ):
            answer = service.client.request(method, url, content=b"{", headers=bearer(key))
            said += answer.text + str(answer.headers)
    said += service.client.get("/metrics").text + service.client.get("/openapi.json").text
    service.process.terminate()
    said += "".join(service.process.communicate())
    files = [one for one in bundles.parent.rglob("*") if one.is_file() and one.name != "admin.key"]
    for text in (right[-30:], secret, admin_key[-30:], admin_key[:30]):
        assert text not in said
        assert not [one for one in files if text.encode() in one.read_bytes()]


@pytest.mark.nightly
@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("change", "required"),
    [(Path.unlink, False), (Path.unlink, True), (lambda path: path.write_text("{"), False)],
)
def test_workers_that_start_without_the_key_file_go_on_with_the_keys_that_were_read(
    start: Start, bundles: Path, change: Callable[[Path], object], required: bool
) -> None:
    """Both are killed; those that begin then answer to the same keys, and to nobody else."""
    path = bundles.parent / "keys" / "keys.json"
    key = make(path, "read")
    service = start(workers=2, keys=str(path), require_keys=required)
    change(path)
    kill_workers(service)
    assert (statuses(service, {}), statuses(service, bearer(key))) == ({401}, {200})


@pytest.mark.nightly
@pytest.mark.fault(45)
@pytest.mark.parametrize("is_planted", [True, False], ids=["planted", "deleted"])
def test_an_admin_key_that_is_replaced_while_the_service_runs_does_not_count(
    start: Start, bundles: Path, is_planted: bool
) -> None:
    """A worker that starts later has that of the start, and makes no new one for readers of the folder."""
    service, path, planted = start(), bundles / "admin.key", "planted" * 8
    right = path.read_text().strip()
    path.unlink()
    if is_planted:
        path.write_text(f"{planted}\n")
        path.chmod(0o600)
    kill_workers(service)

    def rolled_back(key: str) -> int:
        asked = {"json": {"version": "v1"}, "headers": bearer(key)}
        return anew(service, "POST", "/admin/rollback", **asked).status_code

    assert (rolled_back(planted), rolled_back(right)) == (401, 409)  # there is no version before this one
    assert is_planted or not path.exists()
