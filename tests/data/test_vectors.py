"""Ready vectors: columns and files of them, what is checked, how they are stored."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.data.conftest import Prepare, prepare_as
from turret.data.errors import ColumnError, DataError
from turret.data.features.columns import VectorRows
from turret.data.features.feature import Feature
from turret.data.prepared import PreparedData

EVENTS = "user,item,time\n" + "".join(f"u{u},i{u % 3},{t}\n" for u in range(4) for t in range(4))


@pytest.fixture
def shop(tmp_path: Path, prepared: Prepare) -> Prepare:
    """Prepare a log of the items i0 to i2 with an items table, under overrides."""

    def make(items: dict[str, list[Any]] | None = None, **overrides: object) -> PreparedData:
        pl.DataFrame(items or {"item": ["i2", "i1", "i0"]}).write_parquet(tmp_path / "items.parquet")
        return prepared(EVENTS, {"items": tmp_path / "items.parquet", **overrides})

    return make


def column(data: PreparedData, name: str) -> tuple[Feature, NDArray[Any]]:
    """The feature of a name, and its stored vectors."""
    feature = next(one for one in data.item_features.features if one.name == name)
    found = data.item_features.columns[name]
    assert isinstance(found, np.ndarray)
    return feature, found


def test_a_column_of_lists_is_a_vector(shop: Prepare) -> None:
    data = shop({"item": ["i2", "i1", "i0", "cold"], "look": [[3.0, 4.0], None, [1.0, 0.0], [0.5, 0.5]]})
    feature, vectors = column(data, "look")
    assert (feature.kind, feature.width, feature.size) == ("vector", 2, 2)
    np.testing.assert_array_equal(vectors, [[1, 0], [np.nan, np.nan], [3, 4]])
    # The root mean square of the known numbers.
    assert feature.deviation == pytest.approx(np.sqrt((1 + 9 + 16) / 4))
    assert data.item_features.raw(0)["look"] == [1.0, 0.0]
    assert "look" not in data.item_features.raw(1)
    assert "look" not in data.fields
    assert data.cold_items().rows(slice(0, 1))[0]["look"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("ids", ["npy", "csv", "parquet"])
def test_a_file_of_vectors_has_its_ids_beside(shop: Prepare, tmp_path: Path, ids: str) -> None:
    names = ["i1", "other", "i0"]
    np.save(tmp_path / "look.npy", np.array([[1, 2], [5, 6], [3, 4]], dtype=np.float16))
    if ids == "npy":
        np.save(tmp_path / "look.ids.npy", np.array(names))
    elif ids == "csv":
        (tmp_path / "look.ids.csv").write_text("id\n" + "\n".join(names) + "\n")
    else:
        pl.DataFrame({"id": names}).write_parquet(tmp_path / "look.ids.parquet")
    data = shop(item_features__vector=[f"look={tmp_path / 'look.npy'}"])
    _, vectors = column(data, "look")
    assert vectors.dtype == np.float16
    assert isinstance(vectors, np.memmap)
    np.testing.assert_array_equal(vectors, [[3, 4], [1, 2], [np.nan, np.nan]])


def test_blocks_give_every_row_once() -> None:
    source = np.arange(40, dtype=np.float32).reshape(20, 2)
    rows = np.random.default_rng(0).integers(-1, 20, 20_000)
    found = np.concatenate(list(VectorRows(source, rows).blocks()))
    np.testing.assert_array_equal(np.isnan(found[:, 0]), rows < 0)
    np.testing.assert_array_equal(found[rows >= 0], source[rows[rows >= 0]])


@pytest.mark.parametrize("raw", [[1.0], [1.0, 2.0, 3.0], "ab", 5, [1.0, float("nan")], [1.0, "x"], [[1, 2]]])
def test_a_value_that_is_no_vector_is_refused(raw: object) -> None:
    feature = Feature(name="look", kind="vector", width=2, deviation=2.0)
    with pytest.raises(Exception, match="give a list of 2 finite numbers, or null"):
        feature.encode_one(raw)
    assert feature.encode_one([2, 4.0]).tolist() == [1.0, 2.0]  # type: ignore[union-attr]
    assert np.isnan(feature.encode_one(None)).all()


def test_lists_in_texts_are_vectors_too_where_nearly_all_have_one_length(
    tmp_path: Path, prepared: Prepare
) -> None:
    path = tmp_path / "items.csv"

    def make(*first: str) -> PreparedData:
        look = [*first, *(f"[0.5, 1, {number}.0]" for number in range(20 - len(first)))]
        pl.DataFrame({"item": [f"i{number}" for number in range(20)], "look": look}).write_csv(path)
        return prepared(EVENTS, {"items": path})

    _, vectors = column(make("[]", "[0, 1, 0]"), "look")
    np.testing.assert_array_equal(vectors[:2], [[np.nan] * 3, [0, 1, 0]])
    with pytest.raises(ColumnError, match=r"most vectors have 3 numbers, and that of 'i1' has 2"):
        make("[]", "[0.5, 1]")
    with pytest.raises(ColumnError, match=r"that of 'i0' is no list of numbers: 'oops'"):
        make("oops")


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (["[]"] * 3, "empty lists alone"),
        (["[0.1 -2.  ... 3.e-05\n 4. ]", "[1. 2. ... 3.]", ""], "vectors that NumPy has shortened with ..."),
    ],
)
def test_vectors_that_are_lost_are_left_out_with_the_reason(
    tmp_path: Path, look: list[str], reason: str
) -> None:
    (tmp_path / "log.csv").write_text(EVENTS)
    pl.DataFrame({"item": ["i0", "i1", "i2"], "look": look}).write_csv(tmp_path / "items.csv")
    files = {"source": tmp_path / "log.csv", "items": tmp_path / "items.csv"}
    assert f"left out: look ({reason}" in "".join(prepare_as(tmp_path / "out", **files).warnings)
    with pytest.raises(ColumnError, match=r"no vector|no list of numbers.*NumPy has shortened"):
        prepare_as(tmp_path / "out", **files, item_features__vector=["look"])


@pytest.mark.parametrize(
    ("look", "sentence"),
    [
        ([[1.0, 2.0], [1.0], [3.0, 4.0]], r"most vectors have 2 numbers, and that of .i1. has 1"),
        ([[1.0, 2.0], [1.0, float("inf")], None], r"vector of .i1. has a number that is not finite"),
        ([None, None, None], r"has no vector in any row"),
    ],
)
def test_a_wrong_column_is_told(shop: Prepare, look: list[Any], sentence: str) -> None:
    items = {"item": ["i0", "i1", "i2"], "look": pl.Series(look, dtype=pl.List(pl.Float64))}
    with pytest.raises(ColumnError, match=sentence):
        shop(items, item_features__vector=["look"])


@pytest.mark.parametrize(
    ("vectors", "ids", "sentence"),
    [
        (None, None, r"can't be read as a \.npy file"),
        (np.zeros((2, 3)), None, r"holds float64 of shape \(2, 3\); give float16 or float32"),
        (np.zeros((2, 3), "f4"), None, r"the ids of .* are missing; .* look\.ids\.npy, look\.ids\.csv"),
        (np.zeros((2, 3), "f4"), ["i0"], r"has 1 ids, and .* 2 vectors; give one each"),
        (np.zeros((2, 3), "f4"), ["i0", "i0"], r"has the id 'i0' twice"),
        (np.zeros((2, 3), "f4"), ["a", "b"], r"no id of .*, such as 'a', is one of the items, such as 'i0'"),
        (
            np.array([[1, 2], [np.nan, 1]], "f4"),
            ["i0", "i1"],
            r"vector of .i1. has a number that is not finite",
        ),
    ],
)
def test_a_wrong_file_is_told(
    shop: Prepare, tmp_path: Path, vectors: NDArray[Any] | None, ids: list[str] | None, sentence: str
) -> None:
    if vectors is not None:
        np.save(tmp_path / "look.npy", vectors)
    if ids is not None:
        np.save(tmp_path / "look.ids.npy", np.array(ids))
    with pytest.raises(DataError, match=sentence):
        shop(item_features__vector=[f"look={tmp_path / 'look.npy'}"])
