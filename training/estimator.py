"""Losses and samplers for a torch model and a training loop of one's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import ValidationError
from torch import Tensor, nn

from turret.data.errors import shown
from turret.tower.config import ScoringConfig
from turret.tower.layers.packed import ranges
from turret.tower.towers.model import paired_scores, scored_items, scored_users
from turret.training.config.experiment import refusal, scoring_refusal
from turret.training.errors import TrainingError
from turret.training.losses.pairwise import positive_labels
from turret.training.objectives.arguments import (
    GivenStatistics,
    check_propensities,
    check_rows,
    check_settings,
    check_shapes,
    check_tensors,
    weights_of,
)
from turret.training.objectives.contract import Examples, LossSettings, SeenItems, StepLoss, weighted_mean
from turret.training.objectives.sampled import described, one_for_each_positive
from turret.training.randomness import stream
from turret.training.samplers.core.settings import BuildContext, SamplerSettings
from turret.training.samplers.from_batch.in_batch import GivenSampler

ItemTower = Callable[[Tensor], Tensor]
"""Item vectors [..., D] of int64 item rows [...], such as an `nn.Embedding`."""

CHUNK = 65_536  # items that a refresh encodes at once
_MOST = 2**31


class Estimator(nn.Module):
    """A loss over a catalog of N items, estimated from the candidates that a sampler draws.

    A score is the inner product of a user vector and an item vector over the temperature. Scores and losses
    are float32 at least: towers may be computed in bfloat16, or under autocast. Parameters (few losses have
    any) are to be trained with the model's own. `state_dict` holds the sampler's state and the number of
    steps too: with the same seed, a restored estimator draws what the stored one would have drawn. With
    `torch.distributed`, each rank has draws of its own.
    """

    def __init__(
        self,
        loss: LossSettings,
        sampler: SamplerSettings | None = None,
        *,
        items: int,
        temperature: float = 1.0,
        cosine: bool = False,
        absolute: bool = False,
        counts: ArrayLike | None = None,
        following: tuple[ArrayLike, ArrayLike] | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Build the loss and the sampler.

        Args:
            loss: such as `losses.sampled_softmax()`.
            sampler: such as `samplers.quadratic(negatives=64)`; None for a loss over the whole catalog.
            items: N, the size of the catalog.
            temperature: the divisor of scores; 1 where the model learns one and divides user vectors by it.
            cosine: whether vectors are divided by their lengths; a learned temperature is lost then.
            absolute: whether the sign of a score is dropped.
            counts: int64 [N], how often each item is a positive; for samplers by popularity.
            following: item rows [M] and the rows [M] that came next; for n-grams.
            seed: the seed of all draws.
            device: the device of the vectors.

        Raises:
            TrainingError: loss or sampler are no settings, they and the scores don't fit together, or counts
                are missing.
        """
        super().__init__()
        check_settings(loss, sampler)
        for name, number, least in (("items", items, 1), ("seed", seed, 0)):
            is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not is_whole or not least <= number < _MOST:
                raise TrainingError(
                    f"{name} is {shown(number)}; give a whole number of at least {least}, below {_MOST:,}."
                )
        kind = "cosine" if cosine else "dot"
        try:
            self.scoring = ScoringConfig(kind=kind, temperature=temperature, absolute=absolute)
        except ValidationError:
            raise TrainingError(f"temperature is {temperature!r}; give a number above 0.") from None
        if reason := refusal(loss, sampler) or scoring_refusal(loss, sampler, self.scoring):
            raise TrainingError(f"{reason}.")
        if not loss.servable:
            raise TrainingError(f"losses.{loss.kind} doesn't rank by an inner product; use another loss.")
        try:
            device = torch.empty(0, device=device).device
        except (RuntimeError, TypeError, AssertionError):  # torch was built without it
            raise TrainingError(
                f"torch has no device {shown(device)} here; give another, such as 'cpu'."
            ) from None
        context = BuildContext(GivenStatistics(items, counts, following), self.scoring, seed, device)
        self.sampler = None if sampler is None else sampler.build(context)
        self.items, self.seed, self.device, self.step = items, seed, device, 0
        self.kind, self.pair_loss = loss.kind, loss.pair_loss()
        self.needs_propensities = loss.needs_propensities
        self.objective = loss.objective(context, self.sampler).to(device)

    def forward(
        self,
        users: Tensor,
        positives: Tensor,
        item_tower: ItemTower,
        weights: Tensor | None = None,
        last_items: Tensor | None = None,
        seen: tuple[Tensor, Tensor] | None = None,
        targets: Tensor | None = None,
        negatives: Tensor | None = None,
        propensities: Tensor | None = None,
    ) -> StepLoss:
        """The loss of one step, to call `loss.backward()` on, and the number of masked candidates.

        Args:
            users: [B, D] user vectors.
            positives: int64 [B], the item row that each is trained on, or [B, T], several for each.
            item_tower: the vectors of item rows.
            weights: [B] example weights; ones by default.
            last_items: int64 [B], the newest item that each user has used; n-grams need it.
            seen: examples [M], below B, and the item rows [M] to mask for them.
            targets: [B, T], the probability of each of several positives, 1 / T by default; zero for none,
                and each row sums to 1. With T = N and all item rows it is a distribution over the catalog.
            negatives: int64 [B, K], the candidates of each example for `GivenNegatives`; -1 for none.
            propensities: [B], the probability with which a logged answer showed the positive, NaN for none;
                `losses.top_k_off_policy` needs them.

        Raises:
            TrainingError: shapes or types that don't fit, rows outside of the catalog, missing `last_items`,
                or before the first `refresh` of a sampler that draws by item vectors.
        """
        check_tensors(users=users, positives=positives, targets=targets, negatives=negatives)
        check_shapes(users, positives, targets, negatives)
        if negatives is not None and not isinstance(self.sampler, GivenSampler):
            raise TrainingError(
                "only GivenNegatives reads negatives; build Estimator(loss, GivenNegatives())."
            )
        size = len(users)
        check_propensities(propensities, self.kind, self.needs_propensities, size)
        if last_items is not None:
            check_rows("last_items", last_items, (size,), self.items)
        if negatives is not None:
            check_rows("negatives", negatives, tuple(negatives.shape), self.items, first=-1)
        if seen is not None:
            if not isinstance(seen, tuple | list) or len(seen) != 2:
                raise TrainingError("seen is no pair; give (examples, item rows), two int64 tensors [M].")
            check_tensors(**{"seen[0]": seen[0], "seen[1]": seen[1]})
            check_rows("seen[0]", seen[0], tuple(seen[0].shape[:1]), size)
            check_rows("seen[1]", seen[1], tuple(seen[0].shape), self.items)
        with self._encoding(item_tower, users) as encoder:
            users = users.to(encoder.dtype)
            batch = Examples(
                users=scored_users(users, self.scoring),
                positives=positives,
                positive_vectors=users,
                items=encoder,
                scoring=self.scoring,
                weights=weights_of(weights, users),
                last_items=last_items,
                negatives=negatives,
                propensities=propensities,
            )
            examples = _completed(batch, targets, seen, self.items)
            random = stream(self.seed, "draw", self.step, _rank())
            self.step += 1
            loss: StepLoss = self.objective(examples, random)
        return loss

    def pairs(
        self,
        users: Tensor,
        items: Tensor,
        labels: Tensor,
        item_tower: ItemTower,
        weights: Tensor | None = None,
    ) -> StepLoss:
        """The loss of labelled pairs: each score is judged by its label, and nothing is drawn.

        Args:
            users: [B, D] user vectors.
            items: int64 [B], the item row of each pair.
            labels: [B], 1 where they belong together, and 0 (or -1) where they don't.
            item_tower: the vectors of item rows.
            weights: [B] weights of the pairs; ones by default.

        Raises:
            TrainingError: the loss compares candidates, so that a pair alone has none; or other labels.
        """
        if self.pair_loss is None:
            raise TrainingError(
                f"losses.{self.kind} compares a positive with candidates, so a pair alone has no loss; use "
                "losses.binary_cross_entropy or losses.cosine_embedding, or give each positive negatives."
            )
        check_tensors(users=users, items=items, labels=labels)
        check_rows("items", items, (len(users),), self.items)
        with self._encoding(item_tower, users) as encoder:
            users = users.to(encoder.dtype)
            vectors = encoder.item_vectors(items)
            scores = paired_scores(scored_users(users, self.scoring), vectors, self.scoring)
            losses = self.pair_loss(scores, positive_labels(labels, len(users)))
            return StepLoss(weighted_mean(losses, weights_of(weights, users)), items.new_zeros(()))

    def refresh(self, item_tower: ItemTower) -> None:
        """Let the sampler copy all item vectors: before the first step, and best as each epoch begins."""
        if self.sampler is not None:
            chunks = torch.split(torch.arange(self.items, device=self.device), CHUNK)
            with self._encoding(item_tower) as encoder:
                self.sampler.refresh(torch.cat([encoder.current_vectors(rows) for rows in chunks]))

    def update(self, item_tower: ItemTower) -> None:
        """Let the sampler renew its share of item vectors: after each step of the optimiser."""
        if self.sampler is not None:
            with self._encoding(item_tower) as encoder:
                self.sampler.update(encoder.current_vectors)

    @contextmanager
    def _encoding(self, item_tower: ItemTower, users: Tensor | None = None) -> Iterator["_Encoder"]:
        """Compute without autocast, with the vectors of `item_tower` in float32 or the wider type of `users`.

        The tower itself runs under the caller's autocast. The vectors have the width of `users`.
        """
        user_type = torch.float32 if users is None else users.dtype
        wide, kind = torch.promote_types(user_type, torch.float32), self.device.type
        # A weight that is cast and cached without gradients, as by `refresh`, would get none in the step.
        autocast = torch.autocast(
            kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), cache_enabled=False
        )
        with torch.autocast(kind, enabled=False):
            width = None if users is None else users.shape[1]
            yield _Encoder(item_tower, self.items, self.scoring, self.device, wide, autocast, width)

    def get_extra_state(self) -> dict[str, Any]:
        """The number of steps and the sampler's state, for `state_dict`."""
        return {"step": self.step, "sampler": self.sampler.state() if self.sampler else {}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.step = state["step"]
        if self.sampler is not None:
            self.sampler.restore(state["sampler"])


@dataclass(frozen=True)
class _Encoder:
    """Scored vectors of an item tower, which runs under `autocast`, in the type `dtype`."""

    tower: ItemTower
    items: int
    scoring: ScoringConfig
    device: torch.device
    dtype: torch.dtype
    autocast: torch.autocast
    width: int | None

    def item_vectors(self, rows: Tensor) -> Tensor:
        try:
            with self.autocast:
                vectors = self.tower(rows)
        except IndexError as error:
            raise TrainingError(
                f"the item tower fails for rows up to {int(rows.max())} ({error}); give one of "
                f"{self.items} items."
            ) from error
        if not isinstance(vectors, Tensor) or vectors.shape[:-1] != rows.shape or vectors.dim() <= rows.dim():
            result = described(vectors) if isinstance(vectors, Tensor) else shown(vectors)
            raise TrainingError(f"the item tower gives {result} for rows {tuple(rows.shape)}; give [..., D].")
        if self.width not in (None, vectors.shape[-1]):
            raise TrainingError(
                f"users have {self.width} columns, and items {vectors.shape[-1]}; give both one width D."
            )
        return scored_items(vectors.to(self.dtype), self.scoring)

    @torch.no_grad()
    def current_vectors(self, rows: Tensor) -> Tensor:
        if not isinstance(self.tower, nn.Module) or not self.tower.training:
            return self.item_vectors(rows)
        self.tower.eval()
        try:
            return self.item_vectors(rows)
        finally:
            self.tower.train()

    def catalog_vectors(self) -> Tensor:
        return self.item_vectors(torch.arange(self.items, device=self.device))


def _rank() -> int:
    """The rank of this process; 0 where there is one process."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def _completed(
    batch: Examples, targets: Tensor | None, seen: tuple[Tensor, Tensor] | None, item_count: int
) -> Examples:
    """One example for each positive, with the vectors of the positives and the seen items."""
    owners = torch.arange(len(batch.users), device=batch.positives.device)
    if batch.positives.dim() == 2:
        batch, owners = one_for_each_positive(batch, targets)
    check_rows("positives", batch.positives, tuple(batch.positives.shape), item_count)
    return replace(
        batch,
        positive_vectors=batch.items.item_vectors(batch.positives),
        seen=None if seen is None else _with_positives(*seen, owners, batch.positives),
    )


def _with_positives(users: Tensor, rows: Tensor, owners: Tensor, positives: Tensor) -> SeenItems:
    """The seen `rows` of `users` for each example of `owners`, ascending, and the example's positive."""
    first = torch.searchsorted(owners, users)
    counts = torch.searchsorted(owners, users, right=True) - first
    numbers = torch.arange(len(positives), device=positives.device)
    examples = torch.cat([ranges(first, counts), numbers])
    return SeenItems.of(examples, torch.cat([rows.repeat_interleave(counts), positives]), numbers)
