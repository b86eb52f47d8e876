"""Samplers by random features: positive (Choromanski et al. 2021) and Fourier ones (Rawat et al. 2019)."""

import math
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from turret.tower.kernels.compiled import compiled, in_parts
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import DenseSampler
from turret.training.samplers.core.contract import (
    Draw,
    DrawContext,
    Sampler,
    State,
    draw_by_inversion,
    drawn_from,
)
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.core.snapshot import SnapshotSampler, SnapshotSettings
from turret.training.samplers.fixed.alias import fill_cells

Floats = NDArray[np.float32]

# So many floats of log features are held while tables are built: 64 MB.
_HELD = 2**24


@compiled
def fill_tables(
    log_features: Floats,
    log_sums: NDArray[np.float64],
    keep: Floats,
    other: NDArray[np.int32],
    start: int,
    stop: int,
) -> None:
    """Build the alias tables (Walker 1977) of the features from `start` to `stop`.

    Args:
        log_features: [F, N], the logs of each feature for all items.
        log_sums: [F], set to log S_f, the log of a feature's sum over all items.
        keep: [F, N], set to the share of a cell that belongs to the cell's own item.
        other: [F, N], set to the item that the rest of the cell belongs to.
    """
    mass = np.empty(log_features.shape[1])
    for feature in range(start, stop):
        # Relative to its largest value, a feature can't overflow; an item whose feature underflows is never
        # drawn.
        largest = log_features[feature].max()
        mass[:] = np.exp((log_features[feature] - largest).astype(np.float64))
        total = mass.sum()
        log_sums[feature] = largest + np.log(total)
        mass *= len(mass) / total
        fill_cells(mass, keep[feature], other[feature])


def orthogonal_directions(count: int, width: int, random: np.random.Generator) -> NDArray[np.float64]:
    """`count` directions [F, D], each N(0, I) by itself, and orthogonal to the others of its block of D.

    Directions that never point the same way waste no feature, so the kernel's estimate varies less and stays
    unbiased. Each direction has the length of an independent Gaussian vector.

    Source: Yu et al. 2016, "Orthogonal random features"; Choromanski et al. 2021, section 3.
    """
    blocks = [_rotation(width, random) for _ in range(-(-count // width))]
    lengths = np.linalg.norm(random.normal(size=(count, width)), axis=1)
    return np.asarray(np.concatenate(blocks)[:count] * lengths[:, None])


def _rotation(width: int, random: np.random.Generator) -> NDArray[np.float64]:
    """A uniformly random orthogonal matrix [D, D]."""
    rotation, triangle = np.linalg.qr(random.normal(size=(width, width)))
    # The signs that the decomposition picks would leave some orientations out (Mezzadri 2007).
    return np.asarray(rotation * np.sign(np.diagonal(triangle)))


# So many floats are computed at once for all features of many candidates: 16 MB.
_HELD_FEATURES = 2**22


class FeatureSettings(SnapshotSettings):
    """A kernel by random features of vectors at most `refresh_every` steps old.

    Args:
        negatives: K, the number of candidates.
        refresh_every: the greatest age of a copied item vector, in steps.
        features: F, the number of random features; more make the estimate of the kernel better.
        sharpness: the factor of <h, w> in the exponent of the kernel, at most 1 / temperature.
    """

    symmetric: ClassVar[bool] = False

    features: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 256
    sharpness: Annotated[float, Field(gt=0.0, le=1e6)] = 4.0


class FeatureSampler(SnapshotSampler):
    """A sampler by F random features, whose directions are drawn once their width D is known."""

    _directions: Tensor | None = None

    def __init__(self, settings: FeatureSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.feature_count = settings.features
        # A kernel that is sharper than the softmax would only be harder to estimate.
        self.scale = math.sqrt(min(settings.sharpness, 1.0 / context.scoring.temperature))
        purpose = settings.kind.replace("_", " ")
        self.seed = int(stream(context.seed, purpose, 0).integers(2**63))

    @property
    def directions(self) -> Tensor:
        """The directions float32 [F, D], times the square root of the sharpness."""
        width = self.vectors.shape[1]
        if self._directions is None or self._directions.shape[1] != width:
            drawn = orthogonal_directions(self.feature_count, width, np.random.default_rng(self.seed))
            self._directions = torch.from_numpy(self.scale * drawn).float()
        return self._directions


class PositiveFeaturesConfig(FeatureSettings):
    """The kernel exp(sharpness <h, w>) by `features` positive random features, each with an alias table.

    The kernel is never sharper than the softmax, exp(<h, w> / temperature). The sharper it is, the more
    features its estimate needs. For the settings see `FeatureSettings`.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.positive_features(negatives=4, features=16).build(catalog)
        >>> sampler.refresh(vectors)
        >>> sampler.draw(users, positives, step).ids.shape
        torch.Size([2, 4])
    """

    kind: Literal["positive_features"] = "positive_features"

    def build(self, context: BuildContext) -> Sampler:
        return PositiveFeaturesSampler(self, context)


class PositiveFeaturesSampler(FeatureSampler):
    """K candidates an example, from q(i | h) in proportion to sum_f phi_f(h) phi_f(w_i).

    phi_f(x) = exp(g_f'x - |x|^2 / 2), with Gaussian g_f and x = sqrt(sharpness) h or sqrt(sharpness) w, is
    never negative, and the mean of phi_f(h) phi_f(w) is exp(sharpness <h, w>). So q is a mixture: a feature
    is drawn in proportion to phi_f(h) S_f, where S_f = sum_i phi_f(w_i), and then an item by that feature's
    alias table: O(D F) a query and O(1) a draw. q is exact with any features. The log of q takes O(D F)
    for each different candidate and O(F) for each candidate.

    The tables take 8 F N bytes. As an alias table can't be changed in part, all are built from one frozen
    copy of the item vectors, while a part of a second copy is renewed in each step. Once all of the second
    copy is new, it becomes the frozen one, which takes O(D F N) in that step. The tables and the work on them
    stay on the CPU.

    Source: Choromanski et al. 2021, lemma 1 (the features) and section 3 (orthogonal directions); Blanc &
    Rendle 2018, section 5, name such a kernel as future work.
    """

    def __init__(self, settings: FeatureSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.frozen = torch.empty(0, 0)
        self.half_norms = torch.empty(0)
        size = (self.feature_count, self.item_count)
        self.log_sums = np.zeros(self.feature_count)
        self.keep, self.other = np.zeros(size, np.float32), np.zeros(size, np.int32)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids, each example's own."""
        log_mix = self._log_mixture(query)
        positions = torch.from_numpy(context.random.random((len(query), self.negatives)))
        features = draw_by_inversion(log_mix, positions)[0].numpy()
        cells = context.random.integers(self.item_count, size=features.shape)
        kept = context.random.random(features.shape) < self.keep[features, cells]
        ids = torch.from_numpy(np.where(kept, cells, self.other[features, cells]))
        log_q = self._log_q(log_mix, ids).to(query.device)
        of_positives = self._log_q(log_mix, positives.cpu().unsqueeze(1))[:, 0].to(query.device)
        return drawn_from(ids.to(positives.device), log_q, of_positives, positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The mixture of the features' shares of all items: [B, N]."""
        mix = self._log_mixture(query).exp().float()
        blocks = torch.split(torch.arange(len(self.frozen)), max(1, _HELD_FEATURES // self.feature_count))
        return torch.cat([mix @ self._log_shares(rows).exp().T for rows in blocks], dim=1).to(query.device)

    def follow(self, rows: slice) -> None:
        """Draw by the copy once all of it is new."""
        if self.position == 0:
            self._freeze(self.vectors)

    def state(self) -> State:
        """Both copies of the vectors, from which the tables follow, and the position of the next renewal."""
        state = super().state()
        return {**state, "frozen": self.frozen} if state else {}

    def restore(self, state: State) -> None:
        super().restore(state)
        if state:
            self._freeze(state["frozen"])

    def _freeze(self, vectors: Tensor) -> None:
        self.frozen = vectors.cpu().clone()
        half_norms = (self.scale * self.frozen.double()).square().sum(dim=1) / 2.0
        # The least norm cancels in q; without it the exponents are smaller, and so more exact.
        self.half_norms = (half_norms - half_norms.min()).float()
        held = max(1, _HELD // self.item_count)
        for first in range(0, self.feature_count, held):
            part = slice(first, min(first + held, self.feature_count))
            log_features = (self.directions[part] @ self.frozen.T - self.half_norms).numpy()
            arrays = (log_features, self.log_sums[part], self.keep[part], self.other[part])
            in_parts(len(log_features), partial(fill_tables, *arrays))

    def _log_shares(self, rows: Tensor) -> Tensor:
        """log(phi_f(w) / S_f) of the item `rows` [M]: [M, F]."""
        log_features = self.frozen[rows] @ self.directions.T - self.half_norms[rows].unsqueeze(1)
        return log_features - torch.from_numpy(self.log_sums).float()

    def _log_mixture(self, query: Tensor) -> Tensor:
        """The log probability of each feature: float64 [B, F]. |h|^2 is in all, and cancels."""
        log_features = (query.cpu().float() @ self.directions.T).double()
        return (log_features + torch.from_numpy(self.log_sums)).log_softmax(dim=1)

    def _log_q(self, log_mix: Tensor, ids: Tensor) -> Tensor:
        """Log q of the items `ids` [B, M] under mixtures [B, F]: [B, M]."""
        distinct, positions = torch.unique(ids, return_inverse=True)
        log_shares = self._log_shares(distinct)
        held = max(1, _HELD_FEATURES // (ids.shape[1] * self.feature_count))
        parts = zip(torch.split(positions, held), torch.split(log_mix.float(), held), strict=True)
        return torch.cat([(log_shares[part] + mix.unsqueeze(1)).logsumexp(dim=2) for part, mix in parts])


class FourierFeaturesConfig(FeatureSettings):
    """The Gaussian kernel exp(-sharpness |h - w|^2 / 2) by `features` random cosines and sines.

    For the settings see `FeatureSettings`.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.fourier_features(negatives=4, features=16).build(catalog)
        >>> sampler.refresh(vectors)
        >>> sampler.draw(users, positives, step).ids.shape
        torch.Size([2, 4])
    """

    scores_catalog: ClassVar[bool] = True

    kind: Literal["fourier_features"] = "fourier_features"

    def build(self, context: BuildContext) -> Sampler:
        return FourierFeaturesSampler(self, context)


class FourierFeaturesSampler(FeatureSampler, DenseSampler):
    """K candidates an example, by an estimate of the kernel exp(-sharpness |h - w|^2 / 2).

    phi(x) holds the cosines and sines of F Gaussian directions times sqrt(sharpness) x, over sqrt(F); the
    mean of k_i = phi(h)'phi(w_i) is the kernel, which is exp(sharpness <h, w_i>) up to a factor for unit
    vectors.

    Where the kernel is small, k_i is off by about 1 / sqrt(2 F), and often negative. So q is in proportion to
    k_i + sqrt(k_i^2 + 1 / (2 F)): positive and smooth, about 2 k_i where the estimate stands out of its
    error. The q of a query needs all of its weights: O(F N), in blocks of examples.

    The features of all items take 8 F N bytes, and follow a snapshot, a part of which is renewed in each
    step.

    Source: Rawat et al. 2019, section 3.1 (the features) and 3.2 (the sampler, with k_i taken for positive).
    """

    def __init__(self, settings: FeatureSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.features = torch.empty(0, 0)

    def follow(self, rows: slice) -> None:
        # Features are computed by the parts in which rows are renewed, so that they depend on the vectors
        # alone, to the last bit; all rows at once would be summed in another order.
        mapped = torch.cat([self._mapped(part) for part in torch.split(self.vectors[rows], self.rows_a_step)])
        if len(mapped) == self.item_count:
            self.features = mapped
        else:
            self.features[rows] = mapped

    def _mapped(self, vectors: Tensor) -> Tensor:
        """The features phi(x) [M, 2 F] of vectors x [M, D]."""
        angles = vectors.float() @ self.directions.T.to(vectors.device)
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(self.feature_count)

    def log_weights(self, query: Tensor) -> Tensor:
        """The unnormalised log q [B, N], from the features of the items."""
        error = 0.5 / self.feature_count
        estimate = self._mapped(query) @ self.features.T
        larger = (estimate.abs() + (estimate.square() + error).sqrt()).log()
        # The two solutions multiply to the error, which gives the small one without cancellation.
        return torch.where(estimate > 0, larger, math.log(error) - larger)
