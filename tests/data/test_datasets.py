"""Public data sets: downloaded, checked, unpacked, and made tables."""

import hashlib
import io
import stat
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import polars as pl
import pytest

from tests.data.file_server import FileServer, serving
from tests.data.workbook import Cell, workbook
from tests.support.full_disk import small_files
from turret.data.datasets.archive import MAX_MEMBERS, unpack
from turret.data.datasets.download import download
from turret.data.datasets.fetch import fetch
from turret.data.datasets.public_datasets import DATASETS
from turret.data.datasets.retail import WORKBOOK, convert_online_retail
from turret.data.errors import FetchError

CONTENT = np.random.default_rng(7).bytes(300_000)
HALF = 150_000


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as files:
        files.files["set.zip"] = CONTENT
        yield files


def _download(server: FileServer, folder: Path, retries: int = 0) -> bytes:
    target = folder / "set.zip"
    download(f"{server.url}/set.zip", target, len(CONTENT), waits=[0.0] * retries)
    return target.read_bytes()


def _half(server: FileServer, folder: Path) -> None:
    """An earlier run that lost the connection half way."""
    server.cuts = [HALF]
    with pytest.raises(FetchError, match=r"after 150,000 of 300,000 bytes"):
        _download(server, folder)


def test_a_later_run_asks_only_for_the_rest(server: FileServer, tmp_path: Path) -> None:
    _half(server, tmp_path)
    assert _download(server, tmp_path) == CONTENT
    assert server.requests[1]["Range"] == "bytes=150000-"
    assert server.requests[1]["If-Range"] == '"1"'
    assert server.sent == [HALF, len(CONTENT) - HALF]
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


def test_a_lost_connection_or_a_busy_server_is_tried_again(server: FileServer, tmp_path: Path) -> None:
    server.cuts, server.statuses = [100_000, 50_000], [429, 503]
    assert _download(server, tmp_path, retries=4) == CONTENT
    assert server.sent == [100_000, 50_000, 150_000]


def test_a_server_without_ranges_sends_the_whole_again(server: FileServer, tmp_path: Path) -> None:
    _half(server, tmp_path)
    server.ranges = False
    assert _download(server, tmp_path) == CONTENT
    assert server.sent == [HALF, len(CONTENT)]


def test_a_file_that_changed_in_between_is_not_mixed_with_the_old_one(
    server: FileServer, tmp_path: Path
) -> None:
    _half(server, tmp_path)
    server.files["set.zip"] = CONTENT[::-1]
    server.etag = '"2"'
    assert _download(server, tmp_path) == CONTENT[::-1]


@pytest.mark.parametrize("announces_length", [True, False])
def test_another_range_than_the_requested_one_starts_over(
    server: FileServer, tmp_path: Path, announces_length: bool
) -> None:
    """The bytes would add up to the whole size; and kept as the beginning they would be resumed."""
    _half(server, tmp_path)
    server.rewind, server.announces_length, server.cuts = 10, announces_length, [HALF]
    with pytest.raises(FetchError, match=r"sent another range .* after 0 of 300,000 bytes"):
        _download(server, tmp_path)
    assert not list(tmp_path.iterdir())
    assert _download(server, tmp_path) == CONTENT
    assert "Range" not in server.requests[2]


def test_a_part_may_be_whole_too_long_or_unknown_to_the_server(server: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "set.zip.part"
    part.write_bytes(CONTENT)
    assert _download(server, tmp_path) == CONTENT
    assert not server.requests
    part.write_bytes(CONTENT + b"more")
    assert _download(server, tmp_path) == CONTENT
    part.write_bytes(CONTENT[:HALF])
    server.statuses = [416]
    assert _download(server, tmp_path, retries=1) == CONTENT
    assert "Range" not in server.requests[-1]


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"!"], ids=["shorter", "longer"])
def test_a_file_of_another_size_is_refused_before_it_is_fetched(
    server: FileServer, tmp_path: Path, content: bytes
) -> None:
    server.files["set.zip"] = content
    with pytest.raises(FetchError, match=rf"has {len(content):,} bytes instead of 300,000"):
        _download(server, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_stream_without_a_length_stops_at_the_expected_size(server: FileServer, tmp_path: Path) -> None:
    server.announces_length = False
    assert _download(server, tmp_path) == CONTENT
    (tmp_path / "set.zip").unlink()
    server.files["set.zip"] = CONTENT * 2
    with pytest.raises(FetchError, match="has more than 300,000 bytes"):
        _download(server, tmp_path)


def test_an_address_that_gives_no_file_is_reported_at_once(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files.clear()
    with pytest.raises(FetchError, match=r"set\.zip: the server responded 404 Not Found.*--base-url"):
        _download(server, tmp_path, retries=3)
    assert len(server.requests) == 1
    for url in ("http://127.0.0.1:port/set.zip", "http://two words/set.zip", "http://[1/set.zip"):
        with pytest.raises(FetchError, match="is not a valid address"):
            download(url, tmp_path / "set.zip", 1)

    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("http.client.HTTPConnection.connect", refuse)
    with pytest.raises(FetchError, match=r"can't be reached .*refused.*check the network"):
        _download(server, tmp_path)


NAME = "movielens-100k"


def _zip_bytes(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


ML_100K = _zip_bytes({"ml-100k/u.data": b"1\t2\t3\t4\n", "ml-100k/README": bytes(100_000)})


class Mirror:
    """A server of data sets, whose publishers state the checksums of what is there."""

    def __init__(self, server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self._monkeypatch = server, monkeypatch
        self.publish(NAME, ML_100K)

    def publish(self, name: str, content: bytes) -> None:
        """Let the data set `name` be this zip."""
        checksums = {kind: hashlib.new(kind, content).hexdigest() for kind in DATASETS[name].checksums}
        dataset = DATASETS[name].model_copy(update={"size": len(content), "checksums": checksums})
        self._monkeypatch.setitem(DATASETS, name, dataset)
        self.put(content, name)

    def put(self, content: bytes, name: str = NAME) -> None:
        """Serve this, whatever was stated."""
        self.server.files[f"mirror/{DATASETS[name].file}"] = content

    def fetch(self, target: Path, name: str = NAME) -> Path:
        return fetch(name, target, f"{self.server.url}/mirror/")


@pytest.fixture
def mirror(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return Mirror(server, monkeypatch)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_data_set_is_downloaded_unpacked_and_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    folder = mirror.fetch(tmp_path / "raw")
    assert folder == tmp_path / "raw" / NAME
    assert (folder / "u.data").read_bytes() == b"1\t2\t3\t4\n"
    assert _names(folder) == ["README", "source.json", "u.data"]
    assert _names(tmp_path / "raw") == [NAME]
    mirror.fetch(tmp_path / "raw")
    assert len(mirror.server.requests) == 1


def test_a_data_set_that_lost_a_file_or_was_replaced_is_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    """The files of the newer zip have the same names and sizes."""
    (mirror.fetch(tmp_path) / "u.data").write_bytes(b"")
    assert (mirror.fetch(tmp_path) / "u.data").read_bytes() == b"1\t2\t3\t4\n"
    mirror.publish(NAME, _zip_bytes({"ml-100k/u.data": b"5\t6\t7\t8\n", "ml-100k/README": bytes(100_000)}))
    assert (mirror.fetch(tmp_path) / "u.data").read_bytes() == b"5\t6\t7\t8\n"


def test_a_zip_brought_by_hand_is_used_and_left(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "ml-100k.zip").write_bytes(ML_100K)
    assert (mirror.fetch(tmp_path) / "u.data").exists()
    assert not mirror.server.requests
    assert _names(tmp_path) == ["ml-100k.zip", NAME]


def test_a_wrong_checksum_is_refused_and_the_next_run_starts_over(mirror: Mirror, tmp_path: Path) -> None:
    mirror.put(ML_100K.replace(b"1\t2\t3\t4", b"9\t9\t9\t9"))
    with pytest.raises(FetchError, match=f"has the md5 .* instead of {hashlib.md5(ML_100K).hexdigest()}"):
        mirror.fetch(tmp_path)
    assert _names(tmp_path) == ["ml-100k.zip.wrong"]
    mirror.put(ML_100K)
    assert (mirror.fetch(tmp_path) / "u.data").exists()


def test_what_is_in_the_way_is_left_alone(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "mine").write_text("1")
    with pytest.raises(FetchError, match="was not fetched by turret; move it away"):
        mirror.fetch(tmp_path)
    (tmp_path / "raw").write_text("")
    with pytest.raises(FetchError, match=r"Not a directory; movielens-100k needs a writable folder"):
        mirror.fetch(tmp_path / "raw")
    assert not mirror.server.requests


def test_a_disk_that_takes_no_more_is_a_sentence_and_loses_nothing(mirror: Mirror, tmp_path: Path) -> None:
    with small_files(50_000), pytest.raises(FetchError, match=r"File too large; .* MB of free space"):
        mirror.fetch(tmp_path)
    assert (mirror.fetch(tmp_path) / "u.data").exists()
    assert mirror.server.requests[-1]["Range"] == "bytes=50000-"


LIMIT = 100_000


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _refused(tmp_path: Path, archive: Path, message: str, limit: int = LIMIT) -> None:
    """The zip is refused, and nothing appears inside the folder nor beside it."""
    folder = tmp_path / "outer" / "folder"
    folder.mkdir(parents=True)
    with pytest.raises(FetchError, match=message):
        unpack(archive, folder, limit)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]
    assert not list(folder.iterdir())


def test_files_arrive_without_the_single_folder_around_them(tmp_path: Path) -> None:
    members = {"ml-1m/": b"", "ml-1m/ratings.dat": b"1::2", "ml-1m/deep/README": b"hello"}
    folder = tmp_path / "folder"
    folder.mkdir()
    unpack(_zip(tmp_path / "a.zip", members), folder, LIMIT)
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    assert found == {"ratings.dat": b"1::2", "deep/README": b"hello"}


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/evil", "C:evil", "c:\\evil", "..\\evil", "\\evil"]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    _refused(tmp_path, _zip(tmp_path / "a.zip", {"good": b"1", name: b"2"}), "leads out of the folder")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_or_device_is_refused(tmp_path: Path, kind: int) -> None:
    member = ZipInfo("passwd")
    member.external_attr = (kind | 0o777) << 16
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(member, "/etc/passwd")
    _refused(tmp_path, tmp_path / "a.zip", "'passwd' is a link or a device")


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "a.zip", {"secret": b"1"})
    content = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + place] |= 1
    archive.write_bytes(content)
    _refused(tmp_path, archive, "'secret' is encrypted")


def test_a_zip_that_declares_too_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    _refused(tmp_path, _zip(tmp_path / "a.zip", {"zeros": bytes(LIMIT + 1)}), "unpacks to 100,001 bytes")


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    members = {str(number): b"" for number in range(MAX_MEMBERS + 1)}
    _refused(tmp_path, _zip(tmp_path / "a.zip", members), "1,001 members")


def test_a_zip_that_lies_about_its_size_does_not_fill_the_disk(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "a.zip", {"zeros": bytes(10 * LIMIT)})
    content = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.index(signature) + place, 10)
    archive.write_bytes(content)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FetchError, match=r"damaged|unpacks to more than"):
        unpack(archive, folder, LIMIT)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LIMIT


def test_content_beyond_the_declared_sizes_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's zipfile stops at the declared size, which its documentation does not promise."""
    archive = _zip(tmp_path / "a.zip", {"zeros": b"0" * 10})
    monkeypatch.setattr("turret.data.datasets.archive._chunks", lambda *_: iter([bytes(LIMIT // 2)] * 9))
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FetchError, match="unpacks to more than 100,000 bytes"):
        unpack(archive, folder, LIMIT)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LIMIT


@pytest.mark.parametrize("where", ["content", "end", "all"])
def test_a_damaged_zip_is_a_sentence(tmp_path: Path, where: str) -> None:
    whole = io.BytesIO()
    with ZipFile(whole, "w") as archive:
        archive.writestr("numbers", b"0123456789" * 10)
    content = whole.getvalue()
    damaged = {"content": content.replace(b"0123", b"0124", 1), "end": content[:-30], "all": b"not a zip"}[
        where
    ]
    (tmp_path / "a.zip").write_bytes(damaged)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FetchError, match=r"a\.zip is damaged .*delete it"):
        unpack(tmp_path / "a.zip", folder, LIMIT)


HEADER: list[Cell] = [
    "InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country",
]  # fmt: skip
UK = "United Kingdom"
MORNING = datetime(2010, 12, 1, 8, 26)
# As in the real workbook: codes that are numbers beside text, returns, lines without customer or description.
ROWS: list[list[Cell]] = [
    [536365, "85123A", "WHITE HANGING HEART ", 6, MORNING, 2.55, 17850, UK],
    [536365, 71053, "WHITE METAL LANTERN", 6, MORNING, 3.39, 17850, UK],
    [536366, 71053, "white metal lantern?", 2, datetime(2010, 12, 1, 8, 28, 30), 3.39, None, UK],
    ["C536379", 71053, "WHITE METAL LANTERN", -1, datetime(2011, 12, 9, 12, 50), 27.5, 14527, "France"],
    [536414, 22139, None, 56, MORNING, 0.0, None, UK],
]


def _converted(folder: Path, rows: list[list[Cell]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    (folder / WORKBOOK).write_bytes(workbook(rows))
    convert_online_retail(folder)
    return pl.read_parquet(folder / "events.parquet"), pl.read_parquet(folder / "items.parquet")


def test_every_line_of_the_workbook_is_kept_with_its_codes_as_text(tmp_path: Path) -> None:
    """Times are seconds of the shop's clock; a product takes its most frequent description."""
    lines, items = _converted(tmp_path, [HEADER, *ROWS])
    assert lines["invoice_no"].to_list() == ["536365", "536365", "536366", "C536379", "536414"]
    assert lines["item_id"].to_list() == ["85123A", "71053", "71053", "71053", "22139"]
    assert lines["user_id"].to_list() == [17850, 17850, None, 14527, None]
    assert lines["quantity"].to_list() == [6, 6, 2, -1, 56]
    assert lines["unit_price"].to_list() == [2.55, 3.39, 3.39, 27.5, 0.0]
    assert lines["country"].to_list() == [UK, UK, UK, "France", UK]
    assert lines["timestamp"].to_list() == [1291191960, 1291191960, 1291192110, 1323435000, 1291191960]
    titles = dict(zip(items["item_id"], items["title"], strict=True))
    assert titles == {"85123A": "WHITE HANGING HEART", "71053": "WHITE METAL LANTERN", "22139": None}


def test_online_retail_is_fetched_as_tables(mirror: Mirror, tmp_path: Path) -> None:
    mirror.publish("online-retail", _zip_bytes({WORKBOOK: workbook([HEADER, *ROWS])}))
    folder = mirror.fetch(tmp_path, "online-retail")
    assert pl.read_parquet(folder / "events.parquet").height == len(ROWS)
    assert _names(folder) == [WORKBOOK, "events.parquet", "items.parquet", "source.json"]
