"""Public data sets: downloaded, checked, unpacked, and made tables."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

from tests.support.limits import small_files
from turret.data.errors import FetchError
from turret.data.reading.datasets import DATASETS, WORKBOOK, fetch

NAME = "movielens-100k"


def _zip_bytes(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


ML_100K = _zip_bytes({"ml-100k/u.data": b"1\t2\t3\t4\n", "ml-100k/README": bytes(100_000)})


class Mirror:
    """A folder of data sets, whose publishers state the checksums of what is there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        self.publish(NAME, ML_100K)

    def publish(self, name: str, content: bytes) -> None:
        """Let the data set `name` be this zip."""
        digest = hashlib.sha256(content).hexdigest()
        self._monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], size=len(content), sha256=digest))
        self.put(content, name)

    def put(self, content: bytes, name: str = NAME) -> None:
        """Serve this, whatever was stated."""
        (self.folder / DATASETS[name].url.rpartition("/")[2]).write_bytes(content)

    def fetch(self, target: Path, name: str = NAME) -> Path:
        return fetch(name, target, f"{self.folder.as_uri()}/")


@pytest.fixture
def mirror(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    return Mirror(tmp_path_factory.mktemp("mirror"), monkeypatch)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_data_set_is_downloaded_unpacked_and_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    folder = mirror.fetch(tmp_path / "raw")
    assert folder == tmp_path / "raw" / NAME
    assert (folder / "u.data").read_bytes() == b"1\t2\t3\t4\n"
    assert _names(folder) == ["README", "source.json", "u.data"]
    assert _names(tmp_path / "raw") == [NAME]
    (mirror.folder / "ml-100k.zip").unlink()
    mirror.fetch(tmp_path / "raw")


def test_a_data_set_that_was_replaced_is_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.fetch(tmp_path)
    mirror.publish(NAME, _zip_bytes({"ml-100k/u.data": b"5\t6\t7\t8\n", "ml-100k/README": bytes(100_000)}))
    assert (mirror.fetch(tmp_path) / "u.data").read_bytes() == b"5\t6\t7\t8\n"


def test_a_zip_brought_by_hand_is_used_and_left(mirror: Mirror, tmp_path: Path) -> None:
    (mirror.folder / "ml-100k.zip").rename(tmp_path / "ml-100k.zip")
    assert (mirror.fetch(tmp_path) / "u.data").exists()
    assert _names(tmp_path) == ["ml-100k.zip", NAME]


@pytest.mark.parametrize("content", [ML_100K.replace(b"1\t2\t3\t4", b"9\t9\t9\t9"), ML_100K[:50_000]])
def test_another_file_or_half_of_it_is_refused_and_the_next_run_starts_over(
    mirror: Mirror, tmp_path: Path, content: bytes
) -> None:
    mirror.put(content)
    with pytest.raises(FetchError, match=f"has the sha256 .* instead of {DATASETS[NAME].sha256}"):
        mirror.fetch(tmp_path)
    assert _names(tmp_path) == []
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


def test_a_disk_that_takes_no_more_is_a_sentence(mirror: Mirror, tmp_path: Path) -> None:
    with small_files(50_000), pytest.raises(FetchError, match=r"File too large; .* MB of free space"):
        mirror.fetch(tmp_path)
    assert (mirror.fetch(tmp_path) / "u.data").exists()


def test_an_address_that_gives_no_file_is_a_sentence(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mirror.folder / "ml-100k.zip").unlink()
    with pytest.raises(FetchError, match=r"can't be fetched .*No such file.*--base-url"):
        mirror.fetch(tmp_path)

    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("http.client.HTTPConnection.connect", refuse)
    for url in ("http://127.0.0.1:port", "http://two words", "http://[1", "http://127.0.0.1:9"):
        with pytest.raises(FetchError, match=r"can't be fetched .*; check the address, the network"):
            fetch(NAME, tmp_path, url)


@pytest.mark.parametrize("where", ["end", "all"])
def test_a_damaged_zip_is_a_sentence(mirror: Mirror, tmp_path: Path, where: str) -> None:
    mirror.publish(NAME, {"end": ML_100K[:-30], "all": b"not a zip"}[where])
    with pytest.raises(FetchError, match=r"ml-100k\.zip is damaged .*delete it"):
        mirror.fetch(tmp_path)


# Five lines as in the real workbook: codes that are numbers beside text, a return, lines without customer or
# description.
LINES = (Path(__file__).parents[1] / "fixtures" / "online_retail.xlsx").read_bytes()


def test_every_line_of_the_workbook_is_kept_with_its_codes_as_text(mirror: Mirror, tmp_path: Path) -> None:
    """Times are seconds of the shop's clock; a product takes its most frequent description."""
    mirror.publish("online-retail", _zip_bytes({WORKBOOK: LINES}))
    folder = mirror.fetch(tmp_path, "online-retail")
    assert _names(folder) == [WORKBOOK, "events.parquet", "items.parquet", "source.json"]
    lines, items = (pl.read_parquet(folder / f"{name}.parquet") for name in ("events", "items"))
    assert lines["invoice_no"].to_list() == ["536365", "536365", "536366", "C536379", "536414"]
    assert lines["item_id"].to_list() == ["85123A", "71053", "71053", "71053", "22139"]
    assert lines["user_id"].to_list() == [17850, 17850, None, 14527, None]
    assert lines["quantity"].to_list() == [6, 6, 2, -1, 56]
    assert lines["unit_price"].to_list() == [2.55, 3.39, 3.39, 27.5, 0.0]
    assert lines["country"].to_list() == ["United Kingdom"] * 3 + ["France", "United Kingdom"]
    assert lines["timestamp"].to_list() == [1291191960, 1291191960, 1291192110, 1323435000, 1291191960]
    titles = dict(zip(items["item_id"], items["title"], strict=True))
    assert titles == {"85123A": "WHITE HANGING HEART", "71053": "WHITE METAL LANTERN", "22139": None}
