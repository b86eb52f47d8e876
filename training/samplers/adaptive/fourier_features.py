"""The Gaussian kernel by random Fourier features."""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import DenseSampler
from turret.training.samplers.adaptive.orthogonal_directions import orthogonal_directions
from turret.training.samplers.core.contract import Encode, Sampler, State
from turret.training.samplers.core.settings import Negatives, SamplerContext, SamplerSettings, Steps
from turret.training.samplers.core.snapshot import Snapshot


class FourierFeaturesConfig(SamplerSettings):
    """The Gaussian kernel exp(-sharpness |h - w|^2 / 2) by `features` random cosines and sines."""

    symmetric: ClassVar[bool] = False
    scores_catalog: ClassVar[bool] = True

    kind: Literal["fourier_features"] = "fourier_features"
    negatives: Negatives = 64
    features: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 256
    sharpness: Annotated[float, Field(gt=0.0, le=1e6)] = 4.0
    refresh_every: Steps = 100

    @property
    def stored_features(self) -> int:
        """As many as are set."""
        return self.features

    def build(self, context: SamplerContext) -> Sampler:
        """Build the sampler."""
        snapshot = Snapshot(context.item_count, self.refresh_every, context.device)
        random = stream(context.seed, "fourier features", 0)
        sharpness = context.capped(self.sharpness)
        return FourierFeaturesSampler(self.negatives, self.features, sharpness, snapshot, random)


class FourierFeaturesSampler(DenseSampler):
    """K candidates an example, by an estimate of the kernel exp(-sharpness |h - w|^2 / 2).

    phi(x) holds the cosines and sines of F Gaussian directions times sqrt(sharpness) x, over sqrt(F); the
    mean of k_i = phi(h)'phi(w_i) is the kernel, for unit vectors exp(sharpness <h, w_i>) but for a factor.

    Where the kernel is small, k_i is off by about 1 / sqrt(2 F), and often negative. A floor under q would
    count by another law than it draws by. Here q is in proportion to k_i + sqrt(k_i^2 + 1 / (2 F)): positive
    and smooth, about 2 k_i where the estimate stands out of its error, and small for negative k_i.

    All weights of a query are needed for its q: O(F N), in blocks of examples. (A tree whose nodes hold sums
    of phi would need O(F log N), and soften the error of every level.) That is more work than the exact
    kernel or the full softmax, O(D N): this sampler is there for comparison.

    The features of all items take 8 F N bytes, and are those of a snapshot of which a part is renewed a step.

    Source: Rawat et al. 2019, section 3.1 (the features) and 3.2 (the sampler, with k_i taken for positive).
    """

    def __init__(
        self, negatives: int, features: int, sharpness: float, snapshot: Snapshot, random: np.random.Generator
    ) -> None:
        """Set up for K = `negatives` and F = `features` directions from `random`."""
        super().__init__(self._log_weights, negatives, snapshot)
        self.feature_count = features
        self.scale = math.sqrt(sharpness)
        # The width D of the directions is known with the first vectors.
        self.seed = int(random.integers(2**63))
        self.directions = torch.empty(0, 0)
        self.features = torch.empty(0, 0)

    def refresh(self, item_vectors: Tensor) -> None:
        """Draw by these vectors from now on. Raises TrainingError as the snapshot does."""
        super().refresh(item_vectors)
        self._build()

    def update(self, encode: Encode) -> None:
        """Renew a part of the catalog. Raises TrainingError as the snapshot does."""
        part = self.snapshot.update(encode)
        self.features[part] = self._mapped(self.snapshot.vectors[part])

    def restore(self, state: State) -> None:
        """Restore a `state`; the features follow from the vectors."""
        super().restore(state)
        if state:
            self._build()

    def _build(self) -> None:
        vectors = self.snapshot.vectors
        width = vectors.shape[1]
        if self.directions.shape[0] != width:
            drawn = orthogonal_directions(self.feature_count, width, np.random.default_rng(self.seed))
            self.directions = torch.from_numpy(self.scale * drawn.T).float().to(vectors.device)
        # Mapped by the parts in which they are followed, features depend on the vectors alone, to the last
        # bit; those of all rows at once are summed in another order.
        step = self.snapshot.rows_a_step
        self.features = torch.cat([self._mapped(part) for part in torch.split(vectors, step)])

    def _mapped(self, vectors: Tensor) -> Tensor:
        """Phi of [M, D]: [M, 2 F]."""
        angles = vectors.float() @ self.directions
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(self.feature_count)

    def _log_weights(self, query: Tensor, vectors: Tensor) -> Tensor:
        """The unnormalised log q [B, N], from the features of `vectors`."""
        error = 0.5 / self.feature_count
        estimate = self._mapped(query) @ self.features.T
        larger = (estimate.abs() + (estimate.square() + error).sqrt()).log()
        # The two solutions multiply to the error, which gives the small one without cancellation.
        return torch.where(estimate > 0, larger, math.log(error) - larger)
