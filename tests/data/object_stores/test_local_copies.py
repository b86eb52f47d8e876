from pathlib import Path

import pytest

from tests.data.object_stores.written import write
from turret.data.errors import SourceError
from turret.data.object_stores.local_copies import LocalCopies


def test_a_path_is_itself_and_needs_no_folder(tmp_path: Path) -> None:
    with LocalCopies(tmp_path / "prepared") as copies:
        assert copies.path(Path("events.csv")) == Path("events.csv")
        assert copies.name(Path("shop") / "events.csv") == "shop/events.csv"
        assert list(tmp_path.iterdir()) == []


def test_copies_keep_their_names_and_are_made_once(store: str, tmp_path: Path) -> None:
    events, other = write(f"{store}/a/events.csv", "new\n"), write(f"{store}/b/events.csv", "old\n")
    with LocalCopies(tmp_path / "prepared") as copies:
        first = copies.path(events)
        assert (first.name, first.read_text()) == ("events.csv", "new\n")
        write(events, "changed\n")
        assert copies.path(events) == first
        assert first.read_text() == "new\n"
        assert copies.path(other).read_text() == "old\n"
        assert [path.name.startswith(".prepared.") for path in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_copied_whole_and_its_files_have_urls(store: str, tmp_path: Path) -> None:
    write(f"{store}/shop/events.csv", "a\n")
    write(f"{store}/shop/parts/0.csv", "b\n")
    with LocalCopies(tmp_path / "prepared") as copies:
        folder = copies.path(f"{store}/shop/")
        assert (folder / "parts" / "0.csv").read_text() == "b\n"
        assert copies.name(folder / "parts" / "0.csv") == f"{store}/shop/parts/0.csv"


def test_an_error_names_the_url(store: str, tmp_path: Path) -> None:
    url = write(f"{store}/events.csv", "a\n")
    with (
        pytest.raises(SourceError, match=f"^{url} has no column") as raised,
        LocalCopies(tmp_path / "p") as copies,
    ):
        raise SourceError(f"{copies.path(url)} has no column")
    assert str(tmp_path) not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_at_a_url_is_an_error(store: str, tmp_path: Path) -> None:
    with (
        LocalCopies(tmp_path / "p") as copies,
        pytest.raises(SourceError, match=f"no object at or below {store}/a"),
    ):
        copies.path(f"{store}/a")
    assert list(tmp_path.iterdir()) == []
