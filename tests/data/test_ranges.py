import numpy as np

from data.ranges import ranges


def test_ranges_are_laid_end_to_end() -> None:
    """Empty ranges leave nothing."""
    assert ranges(np.array([5, 9, 2]), np.array([2, 0, 3])).tolist() == [5, 6, 2, 3, 4]
    assert ranges(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []
