from turret.training.inspection.exposure import Exposure, Spread
from turret.training.pages.exposure_section import exposure_section


def spread(*shares: float) -> Spread:
    return Spread(list(shares), coverage=0.05, gini=0.5, popularity=1234.5)


def test_shares_of_tenths_are_drawn_and_the_rest_is_in_a_table() -> None:
    tenths = spread(0.55, *[0.05] * 9)
    made = exposure_section(Exposure(tenths, tenths, tenths), 20)
    assert all(label in made for label in ("top 10 %", "10 to 20 %", "90 to 100 %", "first 20"))
    assert made.count("<rect") == 3 * 10 + 3  # the bars, and the legend
    assert '<td class="n">5.0 %</td><td class="n">0.500</td><td class="n">55 %</td>' in made


def test_a_catalog_of_few_items_has_fewer_groups() -> None:
    two = spread(0.5, 0.5)
    made = exposure_section(Exposure(two, two, two), 10)
    assert "top 50 %" in made
    assert "50 to 100 %" in made
