"""The record of an answer, for metrics and for the measurement of recall and drift."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class AnswerRecord(NamedTuple):
    """An answer of `rows`, of `requested` ones, from `source`, for `known` and `unknown` history items.

    `vector` [D] is the user's if `rows` and `scores` are the index's result for it, without `excluded` rows
    and among the `allowed` ones [N]; None if they were selected in any other way.
    """

    source: str
    requested: int
    known: int
    unknown: int
    vector: NDArray[np.float32] | None
    excluded: NDArray[np.integer[Any]]
    allowed: NDArray[np.bool_] | None
    rows: NDArray[np.integer[Any]]
    scores: NDArray[np.floating[Any]]
