"""MovieLens, in the files of its three generations."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.conftest import prepare_as
from turret.data.errors import SourceError
from turret.data.features import Bag
from turret.data.prepared import PreparedData
from turret.data.reading.movielens import is_movielens, open_movielens

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
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"ml/{name}", content.encode(encoding))
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
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in SMALL.items():
            archive.writestr(f"../../evil/{name}", content)
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
