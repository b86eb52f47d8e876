"""Which events a comparison is measured on."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.activation.conftest import DAY, START
from turret.activation import held_out as module
from turret.activation.held_out import held_out
from turret.data.errors import DataError
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.format.manifest import Manifest, Norms, Scoring


def manifest(version: str, data: str, until: str | None = None) -> Manifest:
    return Manifest(
        version=version,
        created="",
        data_until=until,
        dimension=2,
        item_count=2,
        scoring=Scoring(kind="dot", temperature=1.0),
        history_length=5,
        norms=Norms(quantiles=(), zeros=0),
        fingerprints={"data": data},
        files={},
    )


def after(days: float) -> str:
    """The time before the events of a day, which begin `days` days after the first ones."""
    return datetime.fromtimestamp(START + days * DAY - 1, UTC).isoformat(timespec="milliseconds")


def test_both_trained_on_the_data_are_measured_on_its_test_part(tastes: PreparedData) -> None:
    chosen = held_out(tastes, manifest("new", tastes.fingerprint), manifest("live", tastes.fingerprint))
    np.testing.assert_array_equal(chosen.starts, tastes.splits[:, 1])
    np.testing.assert_array_equal(chosen.ends, tastes.offsets[1:])
    assert (chosen.rule, chosen.warning) == ("of the test part", None)


def test_an_older_live_version_is_measured_on_later_events_of_the_test_part(tastes: PreparedData) -> None:
    """Users without a later event are left out: the live version may have been trained on their last one."""
    last = datetime.fromtimestamp(START + 3 * DAY + 59, UTC).isoformat()
    chosen = held_out(tastes, manifest("new", tastes.fingerprint), manifest("live", "older", last))
    times = [int(tastes.times[start]) for start in chosen.starts]
    assert len(chosen.users) == 60
    assert min(times) == (START + 3 * DAY + 60) * 1000
    assert chosen.rule == f"of the test part and after {last}"


def test_two_versions_of_other_data_are_measured_on_events_after_both(tastes: PreparedData) -> None:
    chosen = held_out(tastes, manifest("new", "other", after(2)), manifest("live", "older", after(1)))
    np.testing.assert_array_equal(chosen.starts, tastes.offsets[:-1] + 2)
    np.testing.assert_array_equal(chosen.ends, tastes.offsets[1:])
    assert chosen.warning is None
    reverse = held_out(tastes, manifest("new", "other", after(1)), manifest("live", "older", after(2)))
    np.testing.assert_array_equal(reverse.starts, chosen.starts)


@pytest.mark.parametrize(("until", "reason"), [(after(9), "none is after"), (None, "has no times")])
def test_a_live_version_that_may_know_the_events_is_warned_of(
    tastes: PreparedData, until: str | None, reason: str
) -> None:
    chosen = held_out(tastes, manifest("new", tastes.fingerprint), manifest("live", "newer", until))
    np.testing.assert_array_equal(chosen.starts, tastes.splits[:, 1])
    assert chosen.warning is not None
    assert "version live may have been trained on some of these events" in chosen.warning
    assert reason in chosen.warning


@pytest.mark.parametrize(
    ("until", "reason"), [(after(9), "no event that version new was not trained on"), (None, "without times")]
)
def test_events_that_the_new_version_may_know_are_refused(
    tastes: PreparedData, until: str | None, reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        held_out(tastes, manifest("new", "newer", until), manifest("live", tastes.fingerprint))


def test_data_without_a_test_part_and_without_times_is_refused(tmp_path: Path, tastes: PreparedData) -> None:
    (tmp_path / "log.csv").write_text("user_id,item_id\na,1\nb,2\n")
    config = {"source": tmp_path / "log.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    with pytest.raises(DataError, match="no event that version new was not trained on"):
        held_out(data, manifest("new", data.fingerprint), manifest("live", data.fingerprint))
    with pytest.raises(DataError, match="without times"):
        held_out(data, manifest("new", "other", after(0)), manifest("live", data.fingerprint))


def test_blocks_and_samples_of_users_change_no_bounds(
    tastes: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = manifest("new", "other", after(2.0005)), manifest("live", "older", after(1))
    whole = held_out(tastes, *versions)
    assert len(set((whole.starts - tastes.offsets[whole.users]).tolist())) == 2
    monkeypatch.setattr(module, "_EVENTS_A_BLOCK", 7)
    blocks = held_out(tastes, *versions)
    np.testing.assert_array_equal(blocks.starts, whole.starts)
    monkeypatch.setattr(module, "MOST_USERS", 50)
    some = held_out(tastes, *versions)
    assert len(some.users) == 50
    np.testing.assert_array_equal(some.starts, whole.starts[some.users])
