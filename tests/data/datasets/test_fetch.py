import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

from tests.data.datasets.test_retail import HEADER, ROWS
from tests.data.file_server import FileServer, serving
from tests.data.workbook import workbook
from tests.support.full_disk import small_files
from turret.data.datasets.fetch import fetch
from turret.data.datasets.public_datasets import DATASETS, Dataset
from turret.data.errors import FetchError

NAME = "movielens-100k"
ATTEMPTS = 5


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


CONTENT = _zip({"ml-100k/u.data": b"1\t2\t3\t4\n", "ml-100k/README": bytes(100_000)})


def _publish(monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> Dataset:
    """Let the data set `name` be this zip."""
    checksums = {kind: hashlib.new(kind, content).hexdigest() for kind in DATASETS[name].checksums}
    dataset = DATASETS[name].model_copy(update={"size": len(content), "checksums": checksums})
    monkeypatch.setitem(DATASETS, name, dataset)
    return dataset


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    _publish(monkeypatch, NAME, CONTENT)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving() as files:
        files.files["mirror/ml-100k.zip"] = CONTENT
        yield files


def _fetch(server: FileServer, target: Path, name: str = NAME) -> Path:
    return fetch(name, target, f"{server.url}/mirror/")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_data_set_is_downloaded_and_unpacked(server: FileServer, tmp_path: Path) -> None:
    folder = _fetch(server, tmp_path / "raw")
    assert folder == tmp_path / "raw" / NAME
    assert (folder / "u.data").read_bytes() == b"1\t2\t3\t4\n"
    assert _names(folder) == ["README", "source.json", "u.data"]
    assert _names(tmp_path / "raw") == [NAME]


def test_a_download_that_was_cut_off_half_way_goes_on_in_the_next_run(
    server: FileServer, tmp_path: Path
) -> None:
    server.cuts = [10_000] * ATTEMPTS
    with pytest.raises(FetchError, match="resume after 50,000 of"):
        _fetch(server, tmp_path)
    assert (_fetch(server, tmp_path) / "u.data").exists()
    assert server.requests[-1]["Range"] == "bytes=50000-"
    assert server.sent == [10_000] * ATTEMPTS + [len(CONTENT) - 50_000]


def test_a_data_set_that_is_there_is_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    _fetch(server, tmp_path)
    _fetch(server, tmp_path)
    assert len(server.requests) == 1


def test_a_data_set_that_lost_a_file_is_fetched_again(server: FileServer, tmp_path: Path) -> None:
    (_fetch(server, tmp_path) / "u.data").write_bytes(b"")
    assert (_fetch(server, tmp_path) / "u.data").read_bytes() == b"1\t2\t3\t4\n"
    assert len(server.requests) == 2


def test_a_data_set_whose_publisher_replaced_it_is_fetched_again(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the older zip have the same names and sizes."""
    _fetch(server, tmp_path)
    newer = _zip({"ml-100k/u.data": b"5\t6\t7\t8\n", "ml-100k/README": bytes(100_000)})
    server.files["mirror/ml-100k.zip"] = newer
    _publish(monkeypatch, NAME, newer)
    assert (_fetch(server, tmp_path) / "u.data").read_bytes() == b"5\t6\t7\t8\n"


def test_a_zip_brought_by_hand_is_used_and_left(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "ml-100k.zip").write_bytes(CONTENT)
    assert (_fetch(server, tmp_path) / "u.data").exists()
    assert not server.requests
    assert _names(tmp_path) == ["ml-100k.zip", NAME]


def test_a_wrong_checksum_is_refused_and_the_next_run_starts_over(server: FileServer, tmp_path: Path) -> None:
    server.files["mirror/ml-100k.zip"] = CONTENT.replace(b"1\t2\t3\t4", b"9\t9\t9\t9")
    with pytest.raises(FetchError, match=f"has the md5 .* instead of {hashlib.md5(CONTENT).hexdigest()}"):
        _fetch(server, tmp_path)
    assert _names(tmp_path) == ["ml-100k.zip.wrong"]
    server.files["mirror/ml-100k.zip"] = CONTENT
    assert (_fetch(server, tmp_path) / "u.data").exists()


def test_a_zip_with_a_path_out_of_the_folder_leaves_nothing_behind(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = _zip({"u.data": b"1", "../../evil": b"2"})
    _publish(monkeypatch, NAME, content)
    server.files["mirror/ml-100k.zip"] = content
    with pytest.raises(FetchError, match=r"'\.\./\.\./evil' leads out of the folder"):
        _fetch(server, tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ml-100k.zip"]


def test_a_folder_of_somebody_else_is_left_alone(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "mine").write_text("1")
    with pytest.raises(FetchError, match="was not fetched by turret; move it away"):
        _fetch(server, tmp_path)
    assert not server.requests


def test_a_missing_file_names_the_mirror(server: FileServer, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(FetchError, match=rf"{re.escape(server.url)}/mirror/ml-100k\.zip: .* 404 Not Found"):
        _fetch(server, tmp_path)


def test_a_disk_that_takes_no_more_is_a_sentence_and_loses_nothing(
    server: FileServer, tmp_path: Path
) -> None:
    with small_files(50_000), pytest.raises(FetchError, match=r"File too large; .* MB of free space"):
        _fetch(server, tmp_path)
    assert (_fetch(server, tmp_path) / "u.data").exists()
    assert server.requests[-1]["Range"] == "bytes=50000-"


def test_a_target_that_is_a_file_is_a_sentence(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("")
    with pytest.raises(FetchError, match=r"Not a directory; movielens-100k needs a writable folder"):
        _fetch(server, tmp_path / "raw")


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    known = "movielens-100k, movielens-1m, movielens-32m, online-retail"
    with pytest.raises(FetchError, match=f"no data set 'movielens'; choose one of {known}"):
        fetch("movielens", tmp_path)


def test_a_mirror_is_an_http_address(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="--base-url 'file:///etc' is not a URL"):
        fetch(NAME, tmp_path, "file:///etc")


def test_online_retail_becomes_tables(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = _zip({"Online Retail.xlsx": workbook([HEADER, *ROWS])})
    _publish(monkeypatch, "online-retail", content)
    server.files["mirror/online+retail.zip"] = content
    folder = _fetch(server, tmp_path, "online-retail")
    assert pl.read_parquet(folder / "events.parquet").height == len(ROWS)
    assert _names(folder) == ["Online Retail.xlsx", "events.parquet", "items.parquet", "source.json"]


def test_every_data_set_has_an_address_checksums_and_terms() -> None:
    digits = {"md5": 32, "sha256": 64}
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.url.startswith("https://")
        assert dataset.checksums
        for kind, digest in dataset.checksums.items():
            assert re.fullmatch(f"[0-9a-f]{{{digits[kind]}}}", digest)
        assert dataset.terms
        assert dataset.unpacked_limit > dataset.size
