"""Samplers by the last item read: bigrams, and an adaptive mixture (Bengio & Senecal 2008, section V)."""

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import Draw, DrawContext, Sampler, State, drawn_from
from turret.training.samplers.core.settings import BuildContext, Negatives, Power, SamplerSettings, Steps
from turret.training.samplers.fixed.alias import AliasTable, Weights, unigram_weights

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


class NgramTables:
    """The uniform distribution, a unigram [N], and a distribution of each item's followers, over pairs [P].

    `unigram` and `followers` learn in each step; `publish` normalises them and makes the tables that are
    drawn from, in O(N + P).
    """

    def __init__(self, pairs: Rows, counts: Rows, unigram: Weights) -> None:
        """Take sorted [P] pairs last * N + next with [P] counts, and [N] positive unigram weights."""
        self.item_count = len(unigram)
        # How often any item followed each item: [N].
        self.followed = np.bincount(pairs // self.item_count, weights=counts, minlength=self.item_count)
        # A sentinel behind all pairs ends every search within the arrays.
        self.pairs = np.append(pairs, self.item_count**2)
        self.firsts = np.searchsorted(pairs, np.arange(self.item_count + 1) * self.item_count)
        self.unigram = np.asarray(unigram, dtype=np.float64)
        self.followers = np.append(counts, 0).astype(np.float64)
        self.publish()

    def publish(self) -> None:
        """Draw from the tables as they have learned so far."""
        last = self.pairs[:-1] // self.item_count
        totals = np.bincount(last, weights=self.followers[:-1], minlength=self.item_count)
        self.followers[:-1] /= totals[last]
        self.unigram /= self.unigram.sum()
        self.draw_from(self.unigram.copy(), self.followers.copy())

    def draw_from(self, unigram: Floats, followers: Floats) -> None:
        """Draw from these tables [N] and [P + 1], which are normalised."""
        self.drawn_unigram, self.drawn_followers = unigram, followers
        self.table = AliasTable(unigram)
        self.ends = np.concatenate([[0.0], np.cumsum(followers[:-1])])

    def follower(self, last: Rows, uniform: Floats) -> Rows:
        """Followers of `last` [B, 1] at shares `uniform` [B, K]; any items where nothing ever followed."""
        first, end = self.firsts[last], self.firsts[last + 1]
        position = self.ends[first] + uniform * (self.ends[end] - self.ends[first])
        index = np.searchsorted(self.ends, position, side="right") - 1
        items: Rows = self.pairs[np.maximum(np.minimum(index, end - 1), first)] % self.item_count
        return items

    def positions(self, last: Rows, ids: Rows) -> Rows:
        """The positions [B, K] of the pairs of `last` [B, 1] and `ids` [B, K]; -1 for an unknown pair."""
        pairs = last * self.item_count + ids
        position = np.searchsorted(self.pairs[:-1], pairs)
        return np.where(self.pairs[position] == pairs, position, -1)

    def components(self, last: Rows, ids: Rows) -> Floats:
        """The probabilities of `ids` [B, K] after `last` [B, 1] as drawn from: [3, B, K]."""
        followers = self.drawn_followers[self.positions(last, ids)]
        uniform = np.full(followers.shape, 1.0 / self.item_count)
        return np.stack([uniform, np.broadcast_to(self.drawn_unigram[ids], followers.shape), followers])

    def learn(self, last: Rows, ids: Rows, scores: Floats, rate: float) -> None:
        """Redistribute the mass of each example's `ids` [B, K] by their `scores`; minus infinity leaves out.

        Both tables move by `rate` towards the new mass. No item may come twice in a line.
        """
        redistribute(self.unigram, ids, scores, rate)
        positions = self.positions(last, ids)
        redistribute(self.followers, positions, np.where(positions < 0, -np.inf, scores), rate)


def redistribute(table: Floats, positions: Rows, scores: Floats, rate: float) -> None:
    """Move `table` towards the softmax of each line's `scores` [B, K], times the mass at its `positions`.

    A line's mass stays the same, so that positions it doesn't name keep theirs. A position of n lines moves n
    times by `rate`, towards the mean of the lines' softmaxes.
    """
    chosen = np.isfinite(scores)
    if not chosen.any():
        return
    greatest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(greatest), greatest, 0.0))
    mass = np.where(chosen, table[positions], 0.0).sum(axis=1, keepdims=True)
    wanted = mass * weights / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    moved, index, times = np.unique(positions[chosen], return_inverse=True, return_counts=True)
    mean = np.bincount(index, weights=wanted[chosen]) / times
    kept = (1.0 - rate) ** times
    table[moved] = kept * table[moved] + (1.0 - kept) * mean


class NgramSettings(SamplerSettings, ABC):
    """The settings of a sampler by n-grams.

    Args:
        negatives: K, the number of candidates.
        alpha: the power of the counts in the unigram.
    """

    negatives: Negatives = 64
    alpha: Power = 1.0

    def tables(self, context: BuildContext) -> NgramTables:
        """The n-grams of the training part. Raises TrainingError where there are no counts."""
        unigram = unigram_weights(context.statistics.item_counts(), self.alpha)
        return NgramTables(*context.statistics.bigram_counts(), unigram)


class NgramSampler(Sampler, ABC):
    """K candidates an example, drawn with replacement by `tables` and the last item of its history."""

    kind: ClassVar[str]

    def __init__(self, tables: NgramTables, negatives: int) -> None:
        self.tables = tables
        self.negatives = negatives

    @abstractmethod
    def log_q(self, last: Rows, ids: Rows) -> Floats:
        """The log probabilities of `ids` [B, K] after `last` [B, 1]."""

    def drawn(self, ids: Rows, last: Rows, positives: Tensor) -> Draw:
        """The draw of `ids` [B, K] after `last` [B, 1]."""
        drawn, log_q, positive_log_q = (
            torch.from_numpy(array).to(positives.device)
            for array in (ids, self.log_q(last, ids), self.log_q(last, _column(positives))[:, 0])
        )
        return drawn_from(drawn, log_q.float(), positive_log_q.float(), positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """q [B, N] after the last items of `context`. Raises TrainingError without it."""
        if context is None:
            raise TrainingError(
                f"objective.sampler.kind = {self.kind!r}: the proposal depends on the last item read; pass "
                "the context of the draw."
            )
        rows = np.arange(self.tables.item_count)[None]
        log_q = self.log_q(_column(context.last_items), rows)
        return torch.from_numpy(log_q).exp().float().to(query.device)


# The unigram adds so many counts to those of an item's followers.
BACKOFF = 10.0


class BigramConfig(NgramSettings):
    """Items are drawn as they follow the last item, with ten counts added by the unigram.

    For the settings see `NgramSettings`.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.bigram(negatives=4).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape
        torch.Size([2, 4])
    """

    kind: Literal["bigram"] = "bigram"

    def build(self, context: BuildContext) -> Sampler:
        return BigramSampler(self.tables(context), self.negatives)


class BigramSampler(NgramSampler):
    """K candidates an example, drawn with replacement from (c(last, i) + 10 u_i) / (c(last) + 10).

    c counts how often i came right after the last item that the example has read, c(last) how often anything
    did, and u is the unigram: the fewer events follow an item, the more of the draw is the unigram's
    (interpolation as with Dirichlet smoothing, MacKay & Peto 1995).
    """

    kind = "bigram"

    def __init__(self, tables: NgramTables, negatives: int) -> None:
        super().__init__(tables, negatives)
        # The share of the draw that is the followers', after each item: [N].
        self.share = tables.followed / (tables.followed + BACKOFF)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids by the last item that each example has read."""
        last, shape = _column(context.last_items), (len(positives), self.negatives)
        uniform, share = context.random.random(shape), self.share[last]
        unigram = self.tables.table.draw(uniform.size, context.random).reshape(shape)
        # One number decides between the unigram and the followers, and then among the followers.
        follower = self.tables.follower(last, uniform / np.where(share > 0.0, share, 1.0))
        return self.drawn(np.where(uniform < share, follower, unigram), last, positives)

    def log_q(self, last: Rows, ids: Rows) -> Floats:
        share = self.share[last]
        _, unigram, follower = self.tables.components(last, ids)
        q: Floats = (1.0 - share) * unigram + share * follower
        return np.log(q)


# The first shares of the uniform distribution, the unigram and the bigram; and those without any follower.
SHARES = (0.1, 0.3, 0.6)
UNFOLLOWED = (0.1, 0.9, 0.0)
# This part of the first shares stays, so that no item gets out of reach, whatever the scores are.
LASTING = 0.05


class AdaptiveNgramConfig(NgramSettings):
    """Uniform, unigram and bigram together; their shares and tables learn from the scores of the drawn.

    Args:
        rate: by how much shares and tables move in each step, between 0 and 1.
        publish_every: the number of steps after which draws take over what the tables have learned.
        negatives, alpha: see `NgramSettings`.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.adaptive_ngram(negatives=4).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape
        torch.Size([2, 4])
    """

    kind: Literal["adaptive_ngram"] = "adaptive_ngram"
    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05
    publish_every: Steps = 100

    def build(self, context: BuildContext) -> Sampler:
        return AdaptiveNgramSampler(self.tables(context), self.negatives, self.rate, self.publish_every)


class AdaptiveNgramSampler(NgramSampler):
    """K candidates an example, from sum_k a_k q_k(i | last), where q_k are uniform, unigram and bigram.

    After Bengio & Senecal 2008, section V: the n-grams are those of the data at first, and then follow the
    model. The scores of each step's candidates and positive give its shares p. Within the items of a step,
    each table's mass is redistributed in proportion to exp s, by `rate`. The shares a_k, one set for each
    bin of how often the last item was followed, move by `rate` towards the mean probability under p that
    an item came from component k: a step of EM for the least divergence of the mixture from p, where the
    paper follows the gradient. Tables learn in each step and are drawn from once they are published, every
    `publish_every` steps; log counts are those of the tables that were drawn from.
    """

    kind = "adaptive_ngram"
    observes_scores = True

    def __init__(self, tables: NgramTables, negatives: int, rate: float, publish_every: int) -> None:
        super().__init__(tables, negatives)
        # An item [N] without a follower has the bin 0, one with a follower 1, with two or three 2, and so on.
        self.bins: Rows = np.ceil(np.log2(tables.followed + 1.0)).astype(np.int64)
        self.rate = rate
        self.publish_every = publish_every
        self.first_shares = np.tile(SHARES, (int(self.bins.max()) + 1, 1))
        self.first_shares[0] = UNFOLLOWED
        self.shares = self.first_shares.copy()
        self.steps = 0
        # The last items [B, 1] and the positives [B, 1] of the last draw.
        self._last = self._positives = np.empty((0, 1), dtype=np.int64)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids by the last item that each example has read."""
        self._last, self._positives = (_column(rows) for rows in (context.last_items, positives))
        random, shape = context.random, (len(positives), self.negatives)
        component = random.random(shape)
        unigram = self.tables.table.draw(component.size, random).reshape(shape)
        follower = self.tables.follower(self._last, random.random(shape))
        uniform, below = self._shares(self._last)[:2].cumsum(axis=0)
        ids = np.where(
            component < uniform,
            random.integers(self.tables.item_count, size=shape),
            np.where(component < below, unigram, follower),
        )
        return self.drawn(ids, self._last, positives)

    def _shares(self, last: Rows) -> Floats:
        """The shares of the components after `last` [B, 1]: [3, B, 1]."""
        return np.moveaxis(self.shares[self.bins[last]], -1, 0)

    def log_q(self, last: Rows, ids: Rows) -> Floats:
        q: Floats = (self._shares(last) * self.tables.components(last, ids)).sum(axis=0)
        return np.log(q)

    def observe(self, draw: Draw, positive: Tensor, drawn: Tensor) -> None:
        """Learn from the tempered scores of the positives [B] and of the last draw's candidates [B, K]."""
        ids = np.concatenate([self._positives, draw.ids.cpu().numpy()], axis=1)
        scores = _float64(torch.cat([positive.unsqueeze(1), drawn], dim=1))
        valid = draw.valid.cpu().numpy() & (ids[:, 1:] != self._positives)
        valid = np.concatenate([np.ones_like(self._positives, dtype=bool), valid], axis=1)
        log_counts = np.concatenate([np.zeros(self._positives.shape), _float64(draw.log_count)], axis=1)
        self._learn_shares(ids, np.where(valid, scores - log_counts, -np.inf))
        once = np.where(valid & first_in_line(ids), scores, -np.inf)
        self.tables.learn(self._last, ids, once, self.rate)
        self.steps += 1
        if self.steps % self.publish_every == 0:
            self.tables.publish()

    def _learn_shares(self, ids: Rows, corrected: Floats) -> None:
        """Move the shares of the batch's bins, by corrected scores [B, K] of `ids`."""
        weights = np.exp(corrected - corrected.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        parts = self._shares(self._last) * self.tables.components(self._last, ids)
        origins = (weights * parts / parts.sum(axis=0)).sum(axis=2)
        bins, index, examples = np.unique(
            self.bins[self._last[:, 0]], return_inverse=True, return_counts=True
        )
        mean = np.stack([np.bincount(index, weights=origin) / examples for origin in origins], axis=1)
        wanted = (1.0 - LASTING) * mean + LASTING * self.first_shares[bins]
        self.shares[bins] += self.rate * (wanted - self.shares[bins])

    def state(self) -> State:
        """The shares, the tables that learn and those that are drawn from, and the number of steps."""
        tables = self.tables
        arrays = {
            "shares": self.shares,
            "unigram": tables.unigram,
            "followers": tables.followers,
            "drawn_unigram": tables.drawn_unigram,
            "drawn_followers": tables.drawn_followers,
            "steps": np.array(self.steps),
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def restore(self, state: State) -> None:
        arrays = {name: tensor.numpy().copy() for name, tensor in state.items()}
        self.shares, self.steps = arrays["shares"], int(arrays["steps"])
        self.tables.unigram, self.tables.followers = arrays["unigram"], arrays["followers"]
        self.tables.draw_from(arrays["drawn_unigram"], arrays["drawn_followers"])


def first_in_line(ids: Rows) -> NDArray[np.bool_]:
    """True [B, K] where an item comes for the first time in its line."""
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(ids, order, axis=1)
    new = np.ones(ids.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty(ids.shape, dtype=bool)
    np.put_along_axis(first, order, new, axis=1)
    return first


def _column(rows: Tensor) -> Rows:
    column: Rows = rows.cpu().numpy()[:, None]
    return column


def _float64(values: Tensor) -> Floats:
    array: Floats = values.double().cpu().numpy()
    return array
