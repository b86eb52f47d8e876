"""Prepared data: what it holds, how it is described and looked up, and how damage shows."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tests.data.conftest import Prepare, prepare_as
from turret.data.errors import DataError
from turret.data.manifest import DataManifest
from turret.data.prepared import Part, PreparedData, look_up

EVENTS = """user_id,item_id,timestamp
b,x,3
a,x,2
a,y,1
a,z,3
a,x,4
b,y,1
"""


@pytest.fixture
def opened(prepared: Prepare) -> PreparedData:
    return prepared(EVENTS)


def _ids(opened: PreparedData, rows: np.ndarray) -> str:
    return "".join(map(str, opened.item_ids.ids(rows)))


def test_histories_end_before_a_part_and_targets_are_the_part(opened: PreparedData) -> None:
    a, b = opened.users.row("a"), opened.users.row("b")
    assert a is not None
    assert b is not None
    histories = [_ids(opened, opened.history(a, end)) for end in ("validation", "test", "end")]
    assert histories == ["yx", "yxz", "yxzx"]
    assert [_ids(opened, opened.targets(a, part)) for part in get_args(Part)] == ["yx", "z", "x"]
    assert [_ids(opened, opened.targets(b, part)) for part in get_args(Part)] == ["yx", "", ""]


def test_counts_are_of_one_part_only(opened: PreparedData) -> None:
    counts = [opened.item_counts(part).tolist() for part in get_args(Part)]
    assert counts == [[2, 2, 0], [0, 0, 1], [1, 0, 0]], "of x, y and z"


def test_verifying_notices_a_changed_byte(opened: PreparedData) -> None:
    opened.verify()
    path = opened.folder / "times.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"times\.npy has changed"):
        PreparedData.open(opened.folder).verify()


def test_a_truncated_or_missing_file_is_noticed_when_opening(opened: PreparedData) -> None:
    path = opened.folder / "items.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"items\.npy is missing or does not have 152 bytes"):
        PreparedData.open(opened.folder)
    path.unlink()
    with pytest.raises(DataError, match=r"items\.npy is missing"):
        PreparedData.open(opened.folder)


def test_a_manifest_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format_version": 2}')
    with pytest.raises(DataError, match=r"can't read .*manifest\.json \(format_version: .* 1\); prepare"):
        DataManifest.load(tmp_path)


FIVE_USERS = "user,item,time\n" + "".join(
    f"{user},{item},{time}\n"
    for user, items in {"ann": "abc", "bob": "abcdefgh", "cem": "ab", "dee": "abcde", "eva": "a"}.items()
    for time, item in enumerate(items)
)


def test_a_history_is_whole_up_to_its_newest_items_and_oldest_first(prepared: Prepare) -> None:
    """With the held-out events, as a request would; nobody named is somebody of median activity."""
    folder = prepared(FIVE_USERS).folder
    assert look_up(folder, "dee", limit=1000)[0] == list("abcde")
    assert look_up(folder, "bob", limit=3)[0] == list("fgh")
    assert look_up(folder, None, limit=1000)[0] == list("abc")
    with pytest.raises(DataError, match=r"no user 'fay' in .*such as ann, bob, cem$"):
        look_up(folder, "fay", limit=1000)


def test_what_the_catalog_says_comes_along_item_by_item(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,time\nann,b,1\nann,a,2\nann,c,3\n")
    (tmp_path / "items.csv").write_text("item,title,genres\na,Anna,drama|war\nb,Bob,\nc,,war\n")
    prepare_as(tmp_path / "prepared", source=tmp_path / "events.csv", items=tmp_path / "items.csv")
    items, fields, _ = look_up(tmp_path / "prepared", "ann", limit=2)
    assert items == ["a", "c"]
    assert fields == [
        {"title": "Anna", "genres": ["drama", "war"]},
        {"title": None, "genres": ["war"]},
    ]
