from pathlib import Path

import pytest

from turret.service.latency import LatencyEstimate, is_large, is_short
from turret.service.models.loaded_model import open_live
from turret.tower.format.index_settings import FlatSettings


def test_one_long_answer_among_short_ones_does_not_count() -> None:
    latency = LatencyEstimate()
    for _ in range(100):
        latency.add(0.0005)
    latency.add(0.02)
    assert not latency.is_long()


def test_the_estimate_begins_with_the_first_answer_and_moves_by_a_tenth() -> None:
    latency = LatencyEstimate()
    latency.add(0.01)
    assert latency.seconds == 0.01
    latency.add(0.02)
    assert latency.seconds == pytest.approx(0.011)


def test_answers_that_take_long_are_known_from_the_first_until_they_are_short_again() -> None:
    latency = LatencyEstimate()
    assert not latency.is_long()
    latency.add(0.05)
    assert latency.is_long()
    for _ in range(100):
        latency.add(0.0005)
    assert not latency.is_long()


def test_answers_of_a_remote_index_never_hold_up_the_loop(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they take no processor time, as a search that waits for another process."""
    assert not open_live(bundles, "v1").latency.is_long()
    monkeypatch.setattr(FlatSettings, "is_remote", True)
    latency = open_live(bundles, "v1").latency
    latency.add(0.0005)
    assert latency.is_long()


@pytest.mark.parametrize(
    ("scanned", "changed", "expected"), [(27_000, 0, False), (1_000_000, 0, True), (27_000, 1_000, True)]
)
def test_a_filter_over_many_items_takes_long_even_for_a_quick_version(
    scanned: int, changed: int, expected: bool
) -> None:
    latency = LatencyEstimate()
    latency.add(0.0005)
    assert latency.is_long(scanned, changed) == expected


@pytest.mark.parametrize(
    ("items", "history", "expected"), [(100, 1_000, False), (101, 0, True), (10, 1_001, True)]
)
def test_an_answer_of_many_items_or_for_a_long_history_is_large(
    items: int, history: int, expected: bool
) -> None:
    assert is_large(items, history) == expected


@pytest.mark.parametrize(
    ("body", "expected"), [(b"[1]", True), (b"x" * 32_769, False), (b"[" * 1_001, False)]
)
def test_a_body_of_few_bytes_and_few_parts_is_short(body: bytes, expected: bool) -> None:
    assert is_short(body) == expected
