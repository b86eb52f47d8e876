"""Files of keys that vanish, change or can't be read while the service runs and its workers come and go."""

import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.asking import ASK, Asker, bearer, make
from tests.faults.processes import children, kill, until
from tests.support.service_process import OPEN, Start
from turret.service.keys.key_file import remove_key


def _delete(path: Path) -> None:
    path.unlink()


def _move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _close_the_folder(path: Path) -> None:
    """Nothing below it can be reached any more (as root reads everything, by ENOTDIR and not by EACCES)."""
    _move_the_folder(path)
    path.parent.write_text("")


def _point_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _damage(path: Path) -> None:
    path.write_text("{")


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("change", "required"),
    [
        (_delete, False),
        (_delete, True),
        (_move_the_folder, False),
        (_close_the_folder, True),
        (_point_nowhere, False),
        (_damage, False),
        (_damage, True),
    ],
)
def test_workers_that_start_without_the_key_file_go_on_with_the_keys_that_were_read(
    start: Start, bundles: Path, change: Callable[[Path], None], required: bool
) -> None:
    """Both are killed; those that begin then answer to the same keys, and to nobody else."""
    path = bundles.parent / "keys" / "keys.json"
    key = make(bundles, "shop", "read", path=path)
    service = start(workers=2, keys=str(path), require_keys=required)
    change(path)
    for pid in children(service.process.pid):
        kill(pid, signal.SIGKILL)

    def statuses(headers: dict[str, str]) -> set[int]:
        headers = {"Connection": "close", **headers}
        post = service.client.post
        return {post("/v1/recommend", content=ASK, headers=headers).status_code for _ in range(20)}

    assert statuses({}) == {401}
    assert statuses(bearer(key)) == {200}


@pytest.mark.fault(44)
def test_a_revocation_counts_also_if_the_file_could_not_be_read_when_it_changed(
    start: Start, bundles: Path
) -> None:
    """The worker has no file descriptor left at that time, and one again later."""
    key, other = make(bundles, "shop", "read"), make(bundles, "other", "read")
    service = start()
    asker = Asker(service)
    assert asker.ask(key) == 200
    (worker,) = children(service.process.pid)
    limits = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (1, limits[1]))
    remove_key(bundles.parent / "keys.json", "shop")
    time.sleep(1.1)
    assert asker.ask(key) == 200  # it can't know yet
    resource.prlimit(worker, resource.RLIMIT_NOFILE, limits)
    until(lambda: asker.ask(key) == 401)
    assert asker.ask(other) == 200
    asker.close()
    _, complaints = service.stop()
    assert complaints.count("Too many open files; the keys read before stay valid") == 1


@pytest.mark.fault(47)
def test_a_service_that_starts_open_says_so_once(start: Start, bundles: Path) -> None:
    service = start(workers=2)
    assert service.client.post("/v1/recommend", content=ASK).status_code == 200
    service.client.close()
    service.process.terminate()
    _, complaints = service.process.communicate(timeout=20)
    assert complaints.count(OPEN) == 1
    assert "turret keys new" in complaints


@pytest.mark.fault(43)
def test_all_workers_close_when_one_has_seen_a_key_file(start: Start, bundles: Path) -> None:
    """Also those that look later, when it may be gone again."""
    service = start(workers=2)
    key = make(bundles, "shop", "read")
    path = bundles.parent / "keys.json"

    def closed() -> bool:
        headers = {"Connection": "close"}
        return service.client.post("/v1/recommend", content=ASK, headers=headers).status_code == 401

    until(closed)
    path.rename(path.with_name("moved"))
    assert all(closed() for _ in range(20))
    for pid in children(service.process.pid):
        kill(pid, signal.SIGKILL)
    until(lambda: len(children(service.process.pid)) == 2)
    assert all(closed() for _ in range(20))
    path.with_name("moved").rename(path)
    asker = Asker(service)
    until(lambda: asker.ask(key) == 200)
    asker.close()


@pytest.mark.fault(67)
def test_an_open_service_refuses_while_its_folder_of_keys_is_a_file_and_is_open_again_after(
    start: Start, bundles: Path
) -> None:
    """The supervisor, which looks quietly, closes nothing for good; a key file then does, and is logged."""
    path = bundles.parent / "keys" / "keys.json"
    path.parent.mkdir()
    service = start(workers=2, keys=str(path))

    def status() -> int:
        return service.client.post("/v1/recommend", content=ASK, headers={"Connection": "close"}).status_code

    assert status() == 200
    _close_the_folder(path)
    until(lambda: [status() for _ in range(10)] == [401] * 10)
    time.sleep(1.2)  # the supervisor has looked too
    path.parent.unlink()
    path.parent.with_name("elsewhere").rename(path.parent)
    until(lambda: [status() for _ in range(10)] == [200] * 10)
    make(bundles, "shop", "read", path=path)
    until(lambda: status() == 401)
    service.client.close()
    service.process.terminate()
    _, complaints = service.process.communicate(timeout=20)
    assert complaints.count("can't check whether ") in (1, 2)  # each worker, once
    assert complaints.count("reading and writing require a key from now on") == 1


@pytest.mark.fault(45)
def test_an_admin_key_that_is_planted_while_the_service_runs_opens_nothing(
    start: Start, bundles: Path
) -> None:
    """A worker that starts later has the key that the service was started with."""
    service = start()
    right, path = (bundles / "admin.key").read_text().strip(), bundles / "admin.key"
    path.unlink()
    path.write_text("planted" * 8 + "\n")
    path.chmod(0o600)
    (worker,) = children(service.process.pid)
    kill(worker, signal.SIGKILL)
    until(lambda: children(service.process.pid) not in ([], [worker]))

    def rolled_back(key: str) -> int:
        return service.client.post("/admin/rollback", headers=bearer(key)).status_code

    assert rolled_back("planted" * 8) == 401
    assert rolled_back(right) == 409  # there is no version before this one
    time.sleep(1.1)
    _, complaints = service.stop()
    assert complaints.count("admin.key has changed") == 1


@pytest.mark.fault(46)
def test_a_chosen_admin_key_is_not_found_by_guessing(start: Start, bundles: Path) -> None:
    """Beyond twenty guesses of an address not even the right one is compared; keys that were made pass."""
    made = make(bundles, "boss", "admin")
    service = start(admin_key="correct-horse-battery")
    asker = Asker(service)
    guesses = [f"correct-horse-{number:07}" for number in range(200)]
    statuses = [asker.ask(guess) for guess in guesses]
    assert statuses[:20] == [401] * 20
    assert asker.ask("correct-horse-battery") == 429
    assert asker.ask(made) == 403
    time.sleep(1.1)
    assert asker.ask("correct-horse-battery") == 403
    asker.close()
