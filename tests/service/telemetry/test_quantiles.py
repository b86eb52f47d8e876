import pytest

from turret.service.telemetry.quantiles import quantile


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([0, 0, 0], 0.5, None),
        ([4, 0, 0], 0.5, 0.5),
        ([0, 4, 0], 0.5, 1.5),
        ([2, 2, 0], 0.5, 1.0),
        ([1, 0, 3], 0.99, 2.0),
        ([10, 0, 0], 1.0, 1.0),
    ],
)
def test_a_quantile_is_interpolated_in_its_bucket(
    counts: list[float], share: float, value: float | None
) -> None:
    """With the bounds 1 and 2, and a bucket above them."""
    assert quantile((1.0, 2.0), counts, share) == value
