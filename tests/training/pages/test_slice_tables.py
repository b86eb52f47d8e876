from turret.training.inspection.compared import SliceComparison
from turret.training.pages.slice_tables import compared_slices, signed


def value(mean: float, low: float, high: float) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high}


def test_a_difference_is_coloured_where_its_interval_excludes_zero() -> None:
    assert signed(value(0.2, 0.1, 0.3)) == '<span class="good">+0.2000</span>'
    assert signed(value(-0.2, -0.3, -0.1)) == '<span class="bad">\N{MINUS SIGN}0.2000</span>'
    assert signed(value(0.2, -0.1, 0.3)) == "<span>+0.2000</span>"


def test_a_slice_without_the_metric_has_empty_cells() -> None:
    own = value(0.5, 0.4, 0.6)
    made = compared_slices([SliceComparison("target cold", 3, [own, None], [None, value(0, 0, 0)])], "auc")
    assert '<td class="n">0.5000</td><td class="n"></td>' in made
