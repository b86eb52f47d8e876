import pytest

from turret.tower.format.engine_settings import EngineEffort, EngineSettings

# A graph that needs more effort for fewer rows, fails at 100, and scores all of 10.
MEASURED: dict[int, dict[int, int | None]] = {
    1000: {10: 40, 50: 90},
    300: {10: 60, 50: 200},
    100: {10: None, 50: 400},
    10: {10: 10},
}
SETTINGS = EngineSettings(
    engine="redis",
    url="redis://engine",
    collection="turret_items",
    alias="turret_live",
    efforts=tuple(
        EngineEffort(rows=rows, k=k, breadth=breadth, recall=0.99 if breadth else 0.5)
        for rows, by_k in MEASURED.items()
        for k, breadth in by_k.items()
    ),
)


@pytest.mark.parametrize(
    ("rows", "k", "breadth"),
    [
        (1000, 10, 40),
        (1000, 11, 90),
        (999, 10, 60),
        (301, 10, 60),
        (300, 10, 60),
        (300, 50, 200),
        (299, 10, None),
        (150, 11, 400),
        (100, 10, None),
        (99, 5, None),
        (11, 11, None),
        (10, 10, 10),
        (9, 9, None),
        (1000, 51, None),
    ],
)
def test_between_two_measured_numbers_of_rows_the_larger_effort_holds(
    rows: int, k: int, breadth: int | None
) -> None:
    """Where one of the two failed, or is missing, the search is exact."""
    assert SETTINGS.breadth(rows, k) == breadth
