"""Public data sets: downloaded, checked and unpacked, and MovieLens in its three generations."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

from tests.data.conftest import prepare_as
from tests.support.tools import small_files
from turret.data.errors import FetchError, SourceError
from turret.data.features.columns import Bag
from turret.data.fetching.datasets import DATASETS, WORKBOOK, fetch
from turret.data.prepared import PreparedData
from turret.data.reading.movielens import is_movielens, open_movielens

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


Files = dict[str, str]

SMALL: Files = {
    "u.data": "2\t11\t5\t881250949\n1\t10\t3\t881250950\n1\t11\t4\t881250940\n",
    "u.genre": "unknown|0\nAction|1\nDrama|2\n\n",
    "u.item": "10|Amélie (2001)|01-Jan-1995||http://x|0|1|1\n11|unknown||||1|0|0\n",
    "u.user": "1|24|M|technician|85711\n2|53|F|other|94043\n",
}
MILLION: Files = {
    "ratings.dat": "2::11::5::978300760\n1::10::3::978300761\n1::11::4::978300750\n",
    "movies.dat": "10::Amélie :: the film (2001)::Action|Drama\n11::unknown::\n",
    "users.dat": "1::M::24::12::85711\n2::F::53::1::94043\n",
}
LARGE: Files = {
    "ratings.csv": (
        "userId,movieId,rating,timestamp\n2,11,5.0,978300760\n1,10,3.5,978300761\n1,11,4,978300750\n"
    ),
    "movies.csv": 'movieId,title,genres\n10,"Amélie, (2001)",Action|Drama\n11,unknown,(no genres listed)\n',
    "tags.csv": "userId,movieId,tag,timestamp\n",
}


def _folder(path: Path, files: Files, encoding: str = "utf-8") -> Path:
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_bytes(content.encode(encoding))
    return path


def _zip(path: Path, files: Files, encoding: str = "utf-8") -> Path:
    path.write_bytes(_zip_bytes({f"ml/{name}": content.encode(encoding) for name, content in files.items()}))
    return path


def _prepare(source: Path, tmp_path: Path) -> PreparedData:
    return PreparedData.open(prepare_as(tmp_path / "prepared", source=source).folder)


@pytest.mark.parametrize(
    ("files", "encoding", "title"),
    [
        (SMALL, "latin-1", "Amélie (2001)"),
        (MILLION, "latin-1", "Amélie :: the film (2001)"),
        (MILLION, "utf-8", "Amélie :: the film (2001)"),
        (LARGE, "utf-8", "Amélie, (2001)"),
    ],
)
@pytest.mark.parametrize("pack", [_folder, _zip])
def test_every_generation_is_read_from_a_folder_and_from_a_zip(
    tmp_path: Path, pack: Callable[[Path, Files, str], Path], files: Files, encoding: str, title: str
) -> None:
    opened = _prepare(pack(tmp_path / "ml.zip", files, encoding), tmp_path)
    assert [opened.users.ids(range(2)), opened.item_ids.ids(range(2))] == [[1, 2], [10, 11]]
    assert opened.item_ids.ids(opened.history(0, "end")) == [11, 10]
    assert opened.manifest.time.kind == "timestamp"
    fields = opened.fields
    assert (fields["title"], fields["year"]) == ([title, "unknown"], [2001, None])
    assert fields["genres"] == [["Action", "Drama"], []]
    genres = opened.item_features.columns["genres"]
    assert isinstance(genres, Bag)
    assert genres.row(0).tolist() == [1, 2]
    known = {feature.name: feature.values for feature in opened.user_features.features}
    if files is LARGE:
        assert known == {}
    else:
        assert (known["gender"], known["age"]) == (("F", "M"), ("24", "53"))


def test_files_one_folder_further_in_are_found(tmp_path: Path) -> None:
    _folder(tmp_path / "unpacked" / "ml-1m", MILLION)
    assert is_movielens(tmp_path / "unpacked")
    assert len(_prepare(tmp_path / "unpacked", tmp_path).event_items) == 3


def test_other_files_of_the_same_names_are_read_by_their_headers(tmp_path: Path) -> None:
    ratings = "rating,timestamp,movieId,userId\n5,978300760,11,2\n3,978300761,10,1\n"
    folder = _folder(tmp_path / "mine", {"ratings.csv": ratings, "movies.csv": "movieId,name\n10,A\n11,B\n"})
    opened = _prepare(folder, tmp_path)
    assert opened.users.ids(range(2)) == [1, 2]
    assert opened.item_ids.ids(opened.history(1, "end")) == [11]
    assert not is_movielens(_zip(tmp_path / "mine.zip", {"ratings.csv": ratings, "movies.csv": ""}))


def test_paths_inside_a_zip_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    path.write_bytes(_zip_bytes({f"../../evil/{name}": text.encode() for name, text in SMALL.items()}))
    work = tmp_path / "deep" / "work"
    work.mkdir(parents=True)
    with pytest.raises(SourceError, match="is not MovieLens data"):
        open_movielens(path, work)
    assert list(tmp_path.rglob("u.data")) == []


def test_other_folders_and_archives_are_none_of_movielens(tmp_path: Path) -> None:
    _folder(tmp_path / "other", {"ratings.csv": "a\n"})
    assert not is_movielens(tmp_path / "other")
    assert not is_movielens(_zip(tmp_path / "other.zip", {"a": ""}))
    (tmp_path / "not.zip").write_text("zip?")
    for path in (tmp_path / "other", tmp_path / "other.zip", tmp_path / "not.zip"):
        with pytest.raises(SourceError, match=r"it needs u\.data and u\.item, ratings\.dat and movies\.dat"):
            open_movielens(path, tmp_path)
