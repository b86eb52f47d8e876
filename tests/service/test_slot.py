import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.app import create_app
from service.errors import NothingLiveError, ServiceError
from service.settings import Settings
from service.slot import Slot
from tower.bundle import Bundle, load
from tower.contents import BundleContents
from tower.errors import BundleError
from tower.pointer import current, point
from tower.publishing import publish

Make = Callable[..., BundleContents]
VERSIONS = ("v1", "v2", "v3")


@pytest.fixture
def three(bundles: Path, make_contents: Make) -> Path:
    """Versions with disjoint items: 100-159, 200-239 and 300-319."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    return bundles


def consistent(answer: dict[str, Any]) -> bool:
    first = 100 * int(answer["version"][1:])
    return bool(answer["items"]) and all(first <= item["id"] < first + 100 for item in answer["items"])


def test_a_folder_without_a_current_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="export one"):
        Slot(tmp_path)


def test_a_pointer_that_was_lost_is_refused_with_the_versions(bundles: Path) -> None:
    (bundles / "current").unlink()
    with pytest.raises(ServiceError, match="there are v1"):
        Slot(bundles)


def test_a_pointer_to_nothing_is_refused(bundles: Path) -> None:
    point(bundles, "v9")
    with pytest.raises(BundleError, match="there are: v1"):
        Slot(bundles)


def test_a_slot_that_waits_makes_its_folder_and_says_what_it_waits_for(tmp_path: Path) -> None:
    async def wait_a_moment(slot: Slot) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slot.fill(), 0.05)

    slot = Slot(tmp_path / "new" / "bundles", wait=True)
    asyncio.run(wait_a_moment(slot))
    assert slot.version is None
    with pytest.raises(
        NothingLiveError, match=f"{tmp_path}/new/bundles holds no current version; export one"
    ):
        _ = slot.live


def test_a_folder_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="file/bundles can't be made"):
        Slot(tmp_path / "file" / "bundles", wait=True)


@pytest.mark.parametrize("how", ["published", "repaired", "pointed elsewhere", "activated"])
def test_a_slot_that_waits_takes_the_first_version_that_can_be_served(
    three: Path, tmp_path: Path, make_contents: Make, how: str
) -> None:
    root = tmp_path / "empty" if how == "published" else three
    golden = three / "v1" / "golden.json"

    async def fill_then_mend(slot: Slot) -> None:
        filling = asyncio.create_task(slot.fill())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(filling), 0.1)
        assert slot.version is None
        if how == "published":
            publish(root, make_contents("v1"))
        elif how == "repaired":
            golden.with_suffix(".away").rename(golden)
        elif how == "pointed elsewhere":
            point(root, "v2")
        else:
            await slot.activate("v2")
        await asyncio.wait_for(filling, 10)

    golden.rename(golden.with_suffix(".away"))
    slot = Slot(root, wait=True)
    asyncio.run(fill_then_mend(slot))
    expected = "v1" if how in ("published", "repaired") else "v2"
    assert slot.version == slot.live.version == current(root) == expected
    with pytest.raises(BundleError, match="no other version was live"):
        asyncio.run(slot.roll_back())


def test_a_refused_version_leaves_everything_as_it_was(three: Path) -> None:
    slot = Slot(three)
    live = slot.live
    (three / "v2" / "golden.json").unlink()
    with pytest.raises(BundleError):
        asyncio.run(slot.activate("v2"))
    assert slot.live is live
    assert current(three) == "v1"


def test_activations_queue(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is asked for last is live in the end, and each names the one it took the place of."""
    delays = iter([0.0, 0.2, 0.1, 0.0])

    def load_slowly(root: Path, version: str) -> Bundle:
        time.sleep(next(delays))
        return load(root, version)

    monkeypatch.setattr("service.slot.load", load_slowly)
    slot = Slot(three)

    async def all_at_once() -> list[tuple[str, str | None]]:
        swaps = await asyncio.gather(*(slot.activate(version) for version in VERSIONS))
        return [(live.version, replaced) for live, replaced in swaps]

    assert asyncio.run(all_at_once()) == [("v1", "v1"), ("v2", "v1"), ("v3", "v2")]
    assert slot.live.version == current(three) == "v3"


def test_every_answer_is_of_one_version_while_versions_change(
    three: Path, settings: Settings, admin: dict[str, str]
) -> None:
    """300 activations among requests; each answer holds items of the version that it names, and no other."""
    history = [101, 102, 201, 202, 301, 302]
    batch = {"requests": [{"history": history, "k": 5}, {"k": 5}, {"user_id": 7, "k": 3}]}

    async def hammer() -> list[dict[str, Any]]:
        transport = httpx2.ASGITransport(create_app(settings))
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:

            async def activate() -> None:
                for place in range(300):
                    body = {"version": VERSIONS[place % 3]}
                    assert (await client.post("/admin/activate", json=body, headers=admin)).status_code == 200

            async def ask() -> list[dict[str, Any]]:
                answers = []
                for _ in range(100):
                    answer = await client.post("/v1/recommend", json={"history": history, "k": 10})
                    several = await client.post("/v1/recommend/batch", json=batch)
                    results = several.json()["results"]
                    assert len({result["version"] for result in results}) == 1
                    answers += [answer.json(), *results]
                return answers

            _, *answered = await asyncio.gather(activate(), *(ask() for _ in range(4)))
            return [answer for answers in answered for answer in answers]

    answers = asyncio.run(hammer())
    assert len(answers) == 4 * 100 * 4
    assert {answer["version"] for answer in answers} == set(VERSIONS)
    assert all(map(consistent, answers))
