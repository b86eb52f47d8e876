import json
from pathlib import Path

import pytest

from tests.retraining.records import record, size
from turret.data.errors import TurretError
from turret.retraining.record import RECORDS, Figures, append_record, lineage, read_records


def test_a_record_is_one_line_of_json_and_is_read_back(tmp_path: Path) -> None:
    figures = Figures(
        metric="ndcg@10",
        users=50,
        new=0.2,
        live=0.1,
        low=0.05,
        high=0.15,
        margin=0.1,
        rule="newest",
    )
    written = [record("one", new_events=7, figures=figures), record("two", decision="refused", status=3)]
    for one in written:
        append_record(tmp_path, one)
    lines = (tmp_path / RECORDS).read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == ["one", "two"]
    assert json.loads(lines[0])["figures"]["low"] == 0.05
    assert read_records(tmp_path) == written


def test_a_folder_without_records_has_none(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []


def test_the_torn_line_of_a_crash_is_skipped_and_costs_no_later_record(tmp_path: Path) -> None:
    append_record(tmp_path, record("one"))
    with (tmp_path / RECORDS).open("a") as file:
        file.write('{"run": "tor')
    append_record(tmp_path, record("two"))
    assert [one.run for one in read_records(tmp_path)] == ["one", "two"]


def test_records_that_can_not_be_read_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / RECORDS).mkdir()
    with pytest.raises(TurretError, match=r"retrains\.jsonl can't be read"):
        read_records(tmp_path)


def test_a_lineage_counts_the_warm_starts_since_the_last_full_training() -> None:
    records = [
        record("full", mode="anew", before=size(100), after=size(110)),
        record("warm-1", origin="full", before=size(110), after=size(120)),
        record("refused", origin="warm-1", decision="refused", before=size(120), after=size(130)),
        record("warm-2", origin="warm-1", before=size(130), after=size(140)),
    ]
    found = lineage(records, "warm-2")
    assert (found.warm_starts, found.full) == (2, size(110))
    assert lineage(records, "full").warm_starts == 0


def test_a_version_of_another_command_had_the_data_before_the_first_warm_start_from_it() -> None:
    records = [
        record("refused", live="first", decision="refused", before=size(100), after=size(110)),
        record("warm-1", live="first", origin="first", before=size(110), after=size(120)),
    ]
    assert lineage(records[:1], "first").full == size(100)
    found = lineage(records, "warm-1")
    assert (found.warm_starts, found.full) == (1, size(100))
    assert (lineage(records, "other").warm_starts, lineage(records, "other").full) == (0, None)
    assert lineage([], None).full is None
