"""Events that name answers: the place and the propensity of their items, from the answer log."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.conftest import Prepare, prepare_as
from turret.data.answers.examination import weights_of_shown
from turret.data.answers.form import answer_id_of, minute_file
from turret.data.answers.log import SCHEMA, damage_told, read_answers
from turret.data.errors import ColumnError, ConfigurationError, SourceError
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append

NOON = 1_777_636_800_000  # 2026-05-01T12:00:00Z
FIRST, SECOND, UNKNOWN = (answer_id_of(NOON + number, bytes([number])) for number in range(3))


def write_log(folder: Path, answers: list[tuple[str, list[str], list[float]]], name: str = "0") -> Path:
    """An answer log of one file: the id, the items from place 1 on, and the propensities of each answer."""
    rows: list[dict[str, Any]] = [
        {
            "answer_id": answer_id,
            "time": NOON,
            "call": "recommend",
            "version": "spring",
            "route": "live",
            "visitor": "",
            "items": items,
            "places": list(range(1, len(items) + 1)),
            "scores": [0.0] * len(items),
            "sources": ["towers"] * len(items),
            "propensities": propensities,
            "context": "{}",
            "rules": [],
        }
        for answer_id, items, propensities in answers
    ]
    path = minute_file(folder, NOON, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(path)
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two answers with the items 1 to 3."""
    answers = [(FIRST, ["1", "2"], [0.25, 1.0]), (SECOND, ["3", "1"], [0.5, 0.125])]
    return write_log(tmp_path / "answers", answers)


def events(*rows: tuple[int, int, int, str | None]) -> pl.DataFrame:
    """A log of (user, item, time, answer id)."""
    return pl.DataFrame(list(rows), schema=["user_id", "item_id", "timestamp", "answer_id"], orient="row")


ROWS = (
    (7, 1, 1_000_000_000, FIRST),
    (7, 1, 1_000_000_001, SECOND),
    (7, 2, 1_000_000_002, None),  # no answer led to it
    (7, 2, 1_000_000_003, SECOND),  # this answer has no item 2
    (8, 3, 1_000_000_000, UNKNOWN),
    (8, 3, 1_000_000_001, SECOND),
    (8, 2, 1_000_000_002, FIRST),
)
PLACES = [1, 2, 0, 0, 0, 1, 2]
PROPENSITIES = [0.25, 0.125, np.nan, np.nan, np.nan, 0.5, 1.0]


def test_an_event_has_the_place_and_the_propensity_of_its_item_in_the_answer(
    prepared: Prepare, log: Path
) -> None:
    data = prepared(events(*ROWS), {"answers": log})
    assert data.places is not None
    assert data.places.tolist() == PLACES
    np.testing.assert_array_equal(data.propensities, np.array(PROPENSITIES, np.float32))


def test_ids_in_texts_are_those_of_the_answers_too(prepared: Prepare, log: Path) -> None:
    data = prepared(events(*ROWS).write_csv(), {"answers": log})
    assert data.places is not None
    assert data.places.tolist() == PLACES


def test_an_answer_that_is_in_the_log_twice_makes_no_event_twice(prepared: Prepare, log: Path) -> None:
    write_log(log, [(FIRST, ["1", "2"], [0.25, 1.0])], name="1")
    data = prepared(events(*ROWS), {"answers": log})
    assert data.places is not None
    assert data.places.tolist() == PLACES


def test_without_the_option_a_column_of_answers_changes_no_file(prepared: Prepare) -> None:
    """The fingerprint is over all files."""
    named = prepared(events(*ROWS))
    without = prepared(events(*ROWS).drop("answer_id"))
    assert named.fingerprint == without.fingerprint
    assert named.places is None
    assert named.propensities is None


def test_sources_without_a_column_of_answers_name_none(tmp_path: Path, log: Path) -> None:
    for name, table in (("a", events(*ROWS[:4])), ("b", events(*ROWS[4:]).drop("answer_id"))):
        table.write_parquet(tmp_path / f"{name}.parquet")
    files = [f"{name}:{tmp_path / name}.parquet" for name in "ab"]
    folder = prepare_as(tmp_path / "prepared", source_files=files, answers=log).folder
    data = PreparedData.open(folder)
    assert data.places is not None
    assert data.places.tolist() == [*PLACES[:4], 0, 0, 0]


def test_events_that_are_appended_have_the_places_of_one_preparation(
    prepared: Prepare, tmp_path: Path, log: Path
) -> None:
    whole = prepared(events(*ROWS), {"answers": log})
    expected = np.asarray(whole.places).tolist(), np.asarray(whole.propensities).tolist()
    data = prepared(events(*ROWS[:2], *ROWS[4:6]), {"answers": log})
    events(*ROWS[2:4], ROWS[6]).write_parquet(tmp_path / "new.parquet")
    append(tmp_path / "new.parquet", data.folder)
    both = PreparedData.open(data.folder)
    found = np.asarray(both.places).tolist(), np.asarray(both.propensities).tolist()
    assert str(found) == str(expected)  # NaN is no equal of itself


def test_an_append_may_name_another_folder_of_the_answer_log(
    prepared: Prepare, tmp_path: Path, log: Path
) -> None:
    """As when older answers have been deleted; their events keep their places."""
    data = prepared(events(*ROWS[:3]), {"answers": log})
    moved = write_log(tmp_path / "moved", [(SECOND, ["3", "1"], [0.5, 0.125])])
    shutil.rmtree(log)
    events(ROWS[5], ROWS[6]).write_parquet(tmp_path / "new.parquet")
    with pytest.raises(SourceError, match="answers is no folder"):
        append(tmp_path / "new.parquet", data.folder)
    append(tmp_path / "new.parquet", data.folder, {"answers": moved})
    both = PreparedData.open(data.folder)
    assert np.asarray(both.places).tolist() == [1, 2, 0, 1, 0]
    assert both.manifest.settings["answers"] == str(moved)


def test_answers_are_not_appended_to_data_without_places(
    prepared: Prepare, tmp_path: Path, log: Path
) -> None:
    data = prepared(events(*ROWS[:3]))
    events(*ROWS[3:]).write_parquet(tmp_path / "new.parquet")
    with pytest.raises(ConfigurationError, match=r"without an answer log, .* prepare the whole log again"):
        append(tmp_path / "new.parquet", data.folder, {"answers": log})


def test_a_file_of_the_log_with_damaged_pages_is_told(prepared: Prepare, log: Path) -> None:
    """Its columns can be read, as they are at its end."""
    (file,) = log.glob("*/*.parquet")
    content = bytearray(file.read_bytes())
    content[4:200] = b"\xff" * 196
    file.write_bytes(content)
    with pytest.raises(
        SourceError, match=r"answer log of --answers can't be read .*; delete the damaged file"
    ):
        prepared(events(*ROWS), {"answers": log})
    with pytest.raises(SourceError, match=r"can't be read .*; delete the damaged file"), damage_told(log):
        weights_of_shown(read_answers(log))


def test_an_answer_log_beside_events_that_name_no_answer_is_refused(prepared: Prepare, log: Path) -> None:
    with pytest.raises(ColumnError, match=r"has no column answer_id .* else leave --answers out"):
        prepared(events(*ROWS).drop("answer_id"), {"answers": log})
    with pytest.raises(SourceError, match="is no folder; name the folder of the service's answer log"):
        prepared(events(*ROWS), {"answers": log / "none"})
