"""Matrix factorisation by alternating least squares, of the library implicit."""

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.extras import install_command
from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.fitted import Baseline, Fitted, by_history
from turret.training.baselines.interactions import Interactions, Offsets, Rows

FACTORS, REGULARISATION, CONFIDENCE, ITERATIONS = 64, 0.1, 10.0, 15


def fit_als(data: PreparedData, until: HistoryEnd) -> Fitted:
    """Implicit matrix factorisation (Hu et al. 2008), with vectors of users solved from their histories.

    The weight of a pair is 10, that of all others 1; 64 factors, 15 iterations. 256 bytes a user and item.
    """
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    log = Interactions.training(data)

    def matrix(offsets: Offsets, items: Rows) -> Any:
        ones = np.ones(len(items), dtype=np.float32)
        return csr_matrix((ones, items, offsets), shape=(len(offsets) - 1, log.item_count))

    with warnings.catch_warnings():
        # It advises to set an environment variable for the threads of the linear algebra library.
        warnings.simplefilter("ignore")
        model = AlternatingLeastSquares(
            factors=FACTORS,
            regularization=REGULARISATION,
            alpha=CONFIDENCE,
            iterations=ITERATIONS,
            num_threads=torch.get_num_threads(),
            random_state=0,
        )
        model.fit(matrix(log.user_offsets, log.items), show_progress=False)

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        vectors = model.recalculate_user(np.arange(len(offsets) - 1), matrix(offsets, items))
        result: NDArray[np.float32] = np.atleast_2d(vectors) @ model.item_factors.T
        # Scores of known users are raised above zero, which by_history keeps for items without a score.
        result += np.float32(1e-6) - result.min(axis=1, keepdims=True)
        result[np.diff(offsets) == 0] = 0.0
        return result

    return Fitted(by_history(scores, data, until))


def _obstacle(data: PreparedData) -> str | None:
    if find_spec("implicit") is not None:
        return None
    return f"implicit is not installed; run: {install_command('baselines')}"


ALS = Baseline("als", "matrix factorisation", fit_als, _obstacle)
