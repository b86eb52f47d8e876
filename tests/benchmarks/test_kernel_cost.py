import pytest

from benchmarks.kernel_cost import growth, measure_size, print_table
from benchmarks.kernel_steps import BATCH, NEGATIVES, FullStep, SampledStep


@pytest.mark.nightly
def test_a_row_holds_what_is_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    """Both steps' times, their ratio, the memory of both and how exact the log counts are."""
    row = measure_size(300, rounds=1)
    assert row["ratio_full"] == pytest.approx(row["full"]["median_ms"] / row["sampled"]["median_ms"])
    assert row["log_count_error"] < 1e-4
    assert row["table_bytes"] == 300 * 64 * 4
    parts = sum(row["sampled"][f"{name}_ms"] for name in SampledStep.parts)
    assert parts == pytest.approx(row["sampled"]["median_ms"], rel=0.5)
    print_table({"rows": [row]})
    assert "300" in capsys.readouterr().out


def test_growth_is_between_catalogs() -> None:
    """The larger one's time over the smaller one's."""
    assert growth({"sampled": {"median_ms": 2.0}}, {"sampled": {"median_ms": 5.0}}) == 2.5


def test_both_steps_train_the_same_towers() -> None:
    """From the same start, both move the table: one where it drew, the other everywhere."""
    sampled, full = SampledStep(50_000), FullStep(50_000)
    start = sampled.towers.items.weight.detach().clone()
    assert start.equal(full.towers.items.weight)
    sampled()
    full()
    moved = (sampled.towers.items.weight != start).any(dim=1).sum()
    assert BATCH < moved <= BATCH * (NEGATIVES + 1)
    assert (full.towers.items.weight != start).any(dim=1).all()
