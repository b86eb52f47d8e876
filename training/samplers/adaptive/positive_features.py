"""The exponential kernel by positive random features."""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from turret.training.randomness import stream
from turret.training.samplers.adaptive.feature_tables import FeatureTables, Floats
from turret.training.samplers.adaptive.orthogonal_directions import orthogonal_directions
from turret.training.samplers.core.categorical import draw_by_inversion
from turret.training.samplers.core.contract import CountingSampler, DrawContext, Encode, Sampler, State
from turret.training.samplers.core.draw import Draw, check_positives, drawn_by_example
from turret.training.samplers.core.settings import Negatives, SamplerContext, SamplerSettings, Steps
from turret.training.samplers.core.snapshot import Snapshot

# Floats computed at once for all features of many candidates: 16 MB.
_HELD = 2**22


class PositiveFeaturesConfig(SamplerSettings):
    """The kernel exp(sharpness <h, w>) by `features` positive random features, each with an alias table.

    It is never sharper than the softmax, exp(<h, w> / temperature). The sharper it is, the more features its
    estimate needs.
    """

    symmetric: ClassVar[bool] = False

    kind: Literal["positive_features"] = "positive_features"
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
        sharpness = context.capped(self.sharpness)
        snapshot = Snapshot(context.item_count, self.refresh_every, context.device)
        random = stream(context.seed, "positive features", 0)
        return PositiveFeaturesSampler(self.negatives, self.features, sharpness, snapshot, random)


class PositiveFeaturesSampler(CountingSampler):
    """K candidates an example, from q(i | h) in proportion to sum_f phi_f(h) phi_f(w_i).

    phi_f(x) = exp(g_f'x - |x|^2 / 2), with Gaussian g_f and x = sqrt(sharpness) h or sqrt(sharpness) w, is
    never negative, and the mean of phi_f(h) phi_f(w) is exp(sharpness <h, w>). So q is a mixture: a feature
    is drawn in proportion to phi_f(h) S_f, where S_f = sum_i phi_f(w_i), and then an item by that feature's
    alias table: O(D F) a query and O(1) a draw. q is exact with any features. Its log takes O(D F) a
    different candidate and O(F) a candidate.

    The estimate's relative variance is up to exp(sharpness |h + w|^2) / F: with few features a kernel as
    sharp as a softmax of low temperature is drawn further from it than a milder one.

    The tables take 8 F N bytes, 205 MB for 256 features of 100,000 items. As an alias table can't be changed
    in part, they are all built from one frozen copy of the item vectors, while a second copy is renewed a
    part a step. Once all of that is new, it is the next frozen one: O(D F N) in that step. Features are
    kept as logarithms relative to their largest, so that no norm overflows them. The tables and the work on
    them stay on the CPU, wherever the snapshot is.

    Source: Choromanski et al. 2021, lemma 1 (the features) and section 3 (orthogonal directions); Blanc &
    Rendle 2018, section 5, name such a kernel as future work.
    """

    def __init__(
        self, negatives: int, features: int, sharpness: float, snapshot: Snapshot, random: np.random.Generator
    ) -> None:
        """Set up for K = `negatives` and F = `features` directions from `random`."""
        self.negatives = negatives
        self.features = features
        self.scale = math.sqrt(sharpness)
        # The width D of the directions is known with the first vectors.
        self.seed = int(random.integers(2**63))
        self.directions = torch.empty(0, 0)
        self.snapshot = snapshot
        self.frozen = torch.empty(0, 0)
        self.half_norms = torch.empty(0)
        self.tables = FeatureTables.empty(features, snapshot.item_count)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids, each example's own."""
        check_positives(positives, self.snapshot.item_count)
        log_mix = self._log_mixture(query)
        positions = torch.from_numpy(context.random.random((len(query), self.negatives)))
        features, _ = draw_by_inversion(log_mix, positions)
        ids = torch.from_numpy(self.tables.draw(features.numpy(), context.random))
        log_q = self._log_q(log_mix, ids).to(query.device)
        of_positives = self._log_q(log_mix, positives.cpu().unsqueeze(1))[:, 0].to(query.device)
        return drawn_by_example(ids.to(positives.device), log_q, of_positives, positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The mixture of the features' shares of all items: [B, N]."""
        mix = self._log_mixture(query).exp().float()
        blocks = torch.split(torch.arange(len(self.frozen)), max(1, _HELD // self.features))
        return torch.cat([mix @ self._log_shares(rows).exp().T for rows in blocks], dim=1).to(query.device)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(K q) of `ids` for each example: [B, K]."""
        wanted = ids.cpu().expand(len(query), -1)
        return math.log(self.negatives) + self._log_q(self._log_mixture(query), wanted).to(query.device)

    def refresh(self, item_vectors: Tensor) -> None:
        """Draw by these vectors from now on."""
        self.snapshot.refresh(item_vectors)
        self._freeze(self.snapshot.vectors)

    def update(self, encode: Encode) -> None:
        """Renew a part of the second copy; once all of it is new, draw by it."""
        self.snapshot.update(encode)
        if self.snapshot.position == 0:
            self._freeze(self.snapshot.vectors)

    def state(self) -> State:
        """Both copies of the vectors and the position of the next renewal; the tables follow from these."""
        state = self.snapshot.state()
        return {**state, "frozen": self.frozen} if state else {}

    def restore(self, state: State) -> None:
        """Restore a `state`."""
        if state:
            self.snapshot.restore(state)
            self._freeze(state["frozen"])

    def _freeze(self, vectors: Tensor) -> None:
        self.frozen = vectors.cpu().float().clone()
        width = self.frozen.shape[1]
        if self.directions.shape[1] != width:
            drawn = orthogonal_directions(self.features, width, np.random.default_rng(self.seed))
            self.directions = torch.from_numpy(self.scale * drawn).float()
        half_norms = (self.scale * self.frozen.double()).square().sum(dim=1) / 2.0
        # A constant cancels in q; without it the exponents are smaller, so more exact.
        self.half_norms = (half_norms - half_norms.min()).float()
        self.tables.build(self._log_features)

    def _log_features(self, part: slice) -> Floats:
        """The logs of a part of the features for all items: [P, N]."""
        logs: Floats = (self.directions[part] @ self.frozen.T - self.half_norms).numpy()
        return logs

    def _log_shares(self, rows: Tensor) -> Tensor:
        """log(phi_f(w) / S_f) of the item `rows` [M]: [M, F]."""
        log_features = self.frozen[rows] @ self.directions.T - self.half_norms[rows].unsqueeze(1)
        return log_features - torch.from_numpy(self.tables.log_sums).float()

    def _log_mixture(self, query: Tensor) -> Tensor:
        """The log probability of each feature: float64 [B, F]. |h|^2 is in all of them, and cancels."""
        _ = self.snapshot.vectors  # raises before the first refresh
        log_features = (query.cpu().float() @ self.directions.T).double()
        return (log_features + torch.from_numpy(self.tables.log_sums)).log_softmax(dim=1)

    def _log_q(self, log_mix: Tensor, ids: Tensor) -> Tensor:
        """Log q of the items `ids` [B, M] under mixtures [B, F]: [B, M]."""
        distinct, positions = torch.unique(ids, return_inverse=True)
        log_shares = self._log_shares(distinct)
        held = max(1, _HELD // (ids.shape[1] * self.features))
        parts = zip(torch.split(positions, held), torch.split(log_mix.float(), held), strict=True)
        return torch.cat([(log_shares[some] + mix.unsqueeze(1)).logsumexp(dim=2) for some, mix in parts])
