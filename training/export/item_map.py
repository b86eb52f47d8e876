"""The item vectors in the plane, for the page: near items lie near each other (t-SNE)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.config import ScoringConfig

# So many items are laid out, in time of their square (some seconds); the others are placed among them.
LANDMARKS = 1_000
# Another item is placed between _BETWEEN laid-out ones, by a power of the distances, which differ little in
# many dimensions. _BLOCK vectors are placed or projected at once.
_BETWEEN, _POWER, _BLOCK = 4, 12, 16_384
# The schedule follows van der Maaten and Hinton (2008), section 3.4: neighbours of an item, all steps, the
# early steps with enlarged attraction, the enlargement, and the momentum in the early steps and after them.
# The learning rate is the number of items over the enlargement (Belkina et al., 2019).
_PERPLEXITY, _STEPS, _EARLY, _ENLARGED, _MOMENTUM = 30.0, 400, 100, 12.0, (0.5, 0.8)
_BISECTIONS = 40


def project_items(
    vectors: NDArray[np.float32], counts: NDArray[np.int64], scoring: ScoringConfig
) -> NDArray[np.uint16]:
    """Lay item vectors [N, D] out in the plane: uint16 [N, 2]. A bias in the last column is left out.

    The `LANDMARKS` items with most events, by `counts` [N], are laid out by t-SNE, as vectors of items with
    few events have learned little; each other item is placed between the nearest landmarks.
    """
    vectors = vectors[:, :-1] if scoring.item_bias else vectors
    chosen = np.sort(np.argsort(-counts, kind="stable")[:LANDMARKS])
    landmarks = np.asarray(vectors[chosen], dtype=np.float32)
    laid_out = layout(landmarks)
    if len(chosen) == len(vectors):
        return quantised(laid_out)
    blocks = [vectors[first : first + _BLOCK] for first in range(0, len(vectors), _BLOCK)]
    return quantised(np.concatenate([_placed(block, landmarks, laid_out) for block in blocks]))


def layout(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The t-SNE of vectors [N, D], started at their two principal components: [N, 2], the same each time.

    Source: van der Maaten and Hinton, "Visualizing Data using t-SNE" (2008), the whole gradient, equation 5.
    """
    count, start = len(vectors), principal_components(vectors)
    if count < 4:
        return start
    shared = torch.from_numpy(_neighbourhoods(_distances(torch.from_numpy(vectors).double())))
    deviation = start[:, 0].std() or 1.0
    points = torch.from_numpy(start * (1e-4 / deviation)).float()
    moved, rate = torch.zeros_like(points), count / _ENLARGED
    kernel, pulls = torch.empty_like(shared), torch.empty_like(shared)  # a new one each step takes longer
    for step in range(_STEPS):
        _distances(points, kernel).add_(1.0).reciprocal_().fill_diagonal_(0.0)
        torch.mul(shared, _ENLARGED if step < _EARLY else 1.0, out=pulls)
        pulls.sub_(kernel, alpha=float(1.0 / kernel.sum())).mul_(kernel)
        gradient = 4.0 * (pulls.sum(dim=1, keepdim=True) * points - pulls @ points)
        moved = _MOMENTUM[step >= _EARLY] * moved - rate * gradient
        points = points + moved
    return points.double().numpy()


def _distances(points: Tensor, out: Tensor | None = None) -> Tensor:
    """The squared distances [N, N] of points [N, D]."""
    squares = (points * points).sum(dim=1)
    distances = torch.add(squares[:, None], squares, out=out)
    return distances.addmm_(points, points.T, alpha=-2.0).clamp_(min=0.0)


def _neighbourhoods(distances: Tensor) -> NDArray[np.float32]:
    """The joint probabilities [N, N] of equation 1, whose conditional ones have the perplexity `_PERPLEXITY`.

    The precision of each item's Gaussian is found by bisection of the entropy.
    """
    count = len(distances)
    # Distances are scaled so that the bounds below suit vectors of any length.
    distances = distances / distances.mean().clamp(min=1e-30)
    distances.fill_diagonal_(torch.inf)
    nearest = distances.min(dim=1, keepdim=True).values
    wanted = float(np.log(min(_PERPLEXITY, (count - 1) / 3)))
    low, high = torch.full((count, 1), -10.0).double(), torch.full((count, 1), 20.0).double()
    for _ in range(_BISECTIONS):
        precision = ((low + high) / 2).exp()
        chances = torch.softmax(-(distances - nearest) * precision, dim=1)
        entropy = -torch.special.xlogy(chances, chances).sum(dim=1, keepdim=True)
        is_wide = entropy > wanted
        low, high = torch.where(is_wide, (low + high) / 2, low), torch.where(is_wide, high, (low + high) / 2)
    joint: NDArray[np.float32] = ((chances + chances.T) / (2.0 * count)).float().numpy()
    return joint


def _placed(
    vectors: NDArray[np.float32], landmarks: NDArray[np.float32], laid_out: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The points [B, 2] of vectors [B, D]: means over the nearest landmarks, weighted by inverse distance."""
    queries, others = torch.from_numpy(np.asarray(vectors, dtype=np.float32)), torch.from_numpy(landmarks)
    distances, nearest = torch.cdist(queries, others).topk(min(_BETWEEN, len(landmarks)), largest=False)
    distances = distances.double().clamp(min=1e-6)
    weights = (distances[:, :1] / distances) ** _POWER
    points = torch.from_numpy(laid_out)[nearest] * weights[:, :, None]
    placed: NDArray[np.float64] = (points.sum(dim=1) / weights.sum(dim=1, keepdim=True)).numpy()
    return placed


def quantised(points: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Scale points [N, 2] to 0 .. 65535, both axes alike and the middle of their range in the centre."""
    low, high = points.min(axis=0), points.max(axis=0)
    side = float((high - low).max()) or 1.0
    scaled = 0.5 + (points - (low + high) / 2) / side
    square: NDArray[np.uint16] = np.rint(scaled * np.iinfo(np.uint16).max).astype(np.uint16)
    return square


def principal_components(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The coordinates [N, 2] along the two directions of the largest variance.

    The directions are eigenvectors of the covariance matrix [D, D]; each axis points so that its largest
    weight is positive. One dimension or one item leaves the missing coordinates 0. Sums are in float64, and
    so are the vectors, `_BLOCK` at a time.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(vectors), _BLOCK)]
    covariance = sum((centred := vectors[block] - mean).T @ centred for block in blocks)
    _, axes = np.linalg.eigh(covariance)
    best = axes[:, ::-1][:, :2]
    signs = np.sign(best[np.abs(best).argmax(axis=0), np.arange(best.shape[1])])
    directions = best * np.where(signs == 0, 1.0, signs)
    points = np.concatenate([(vectors[block] - mean) @ directions for block in blocks])
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
