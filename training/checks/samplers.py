"""The contract of a sampler: unbiased counts, draws from its proposal, masks, states and snapshots."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from turret.tower.config import ScoringConfig
from turret.training.checks.holds import about, close, holds
from turret.training.errors import TrainingError
from turret.training.estimator import Estimator
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax
from turret.training.objectives.checks import check_draw
from turret.training.randomness import stream
from turret.training.registry import maker
from turret.training.samplers.core.contract import CountingSampler, DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.core.settings import Counts, SamplerContext, SamplerSettings
from turret.training.samplers.fixed.popularity import UniformConfig
from turret.training.samplers.registry import SAMPLERS, MixedConfig

_CPU = torch.device("cpu")
_DOT = ScoringConfig(kind="dot", temperature=1.0)
_ITEMS, _WIDTH, _SIZE = 20, 4, 64
# How often each item is a positive: strongly unequal, so that wrong counts show.
_COUNTS = np.array([400, 200, 120, 80, 60, 40, 30, 20, 15, 10, 8, 6, 5, 4, 3, 2, 2, 1, 1, 1])
# The chance that a right sampler exceeds a limit: one in a million, at fixed seeds.
_Z = 4.75
# How many candidates a distribution is told by, and in how many steps at least and at most.
_CANDIDATES, _FEWEST, _MOST = 40_000, 100, 400


def check_sampler(sampler: str | SamplerSettings) -> None:
    """Check a sampler against the contract of all samplers, on a catalog of twenty items.

    Counts are to be exact: a sampler that estimates them, as from frequencies that it learns, does not pass.

    Args:
        sampler: settings, such as `samplers.quadratic(negatives=16)`; or a kind, which stands for its
            defaults. With few candidates a draw repeats fewer items, and the check sees more.

    Raises:
        AssertionError: it breaks the contract; the sentence says in what.
    """
    settings = maker(SAMPLERS, sampler, "sampler")() if isinstance(sampler, str) else sampler
    with about(f"the sampler {settings.kind!r}"):
        trial = _Trial(settings)
        _check_proposal(trial)
        _check_draws(trial)
        _check_states(trial)
        if settings.counts_positives:
            _check_counting(trial)
        if trial.made().holds_vectors:
            _check_vectors(trial)
        _check_symmetry(trial)
        if settings.alone:
            _check_distribution(trial)
        _check_training(settings)


@dataclass(frozen=True)
class _Catalog:
    """Counts of items and of pairs; after the sixth and the twelfth item nothing ever came."""

    item_count: int = _ITEMS

    def item_counts(self) -> Counts:
        return _COUNTS

    target_counts = positive_counts = item_counts

    def bigram_counts(self) -> tuple[Counts, Counts]:
        table = stream(7, "pairs", 0).poisson(np.geomspace(0.05, 9.0, _ITEMS), size=(_ITEMS, _ITEMS))
        table[[5, 11]] = 0
        pairs = np.flatnonzero(table)
        return pairs, table.ravel()[pairs].astype(np.int64)


@dataclass(frozen=True)
class _Trial:
    """A sampler's settings, and steps of it."""

    settings: SamplerSettings
    scoring: ScoringConfig = _DOT

    def built(self) -> Sampler:
        """A fresh sampler."""
        return self.settings.build(SamplerContext(_Catalog(), self.scoring, 0, _CPU))

    def made(self) -> Sampler:
        """A sampler that has copied the item vectors, and has made its first draws."""
        sampler = self.built()
        sampler.refresh(self.vectors())
        for step in range(max(1, self.settings.remembered_batches)):
            self.draw(sampler, 1_000_000 + step)
        return sampler

    @property
    def steps_to_follow(self) -> int:
        """How many steps it may take to follow the whole catalog."""
        return max(int(getattr(part, "refresh_every", 1)) for part in self.settings.members)

    def vectors(self) -> Tensor:
        """Item vectors [N, D], neither centred nor of one length."""
        return torch.from_numpy(stream(3, "vectors", 0).normal(0.2, 0.6, size=(_ITEMS, _WIDTH))).float()

    def query(self, size: int = _SIZE) -> Tensor:
        """User vectors [B, D]."""
        return torch.from_numpy(stream(4, "query", 0).normal(0.1, 0.8, size=(size, _WIDTH))).float()

    def positives(self, step: int, size: int = _SIZE) -> Tensor:
        """Positives [B] by their counts."""
        shares = _COUNTS / _COUNTS.sum()
        return torch.from_numpy(stream(1, "positives", step).choice(_ITEMS, size=size, p=shares))

    def context(self, step: int, size: int = _SIZE) -> DrawContext:
        """The context of a step."""
        last = torch.from_numpy(stream(5, "last", step).integers(_ITEMS, size=size))
        vectors = self.vectors()
        return DrawContext(
            stream(2, "draw", step), last, vectors[self.positives(step, size)], vectors.__getitem__
        )

    def draw(self, sampler: Sampler, step: int, query: Tensor | None = None) -> Draw:
        """The draw of a step, with the right shapes and types."""
        query = self.query() if query is None else query
        size = len(query)
        draw = sampler.draw(query, self.positives(step, size), self.context(step, size))
        check_draw(draw, sampler, size)
        inside = ((draw.ids >= 0) & (draw.ids < _ITEMS)).all()
        holds(inside, f"it draws rows outside of 0 to {_ITEMS - 1}")
        return draw

    def proposal(self, sampler: Sampler, step: int) -> Tensor:
        """The probabilities [B, N] of a step's candidates, without the positive where it is left out."""
        q = sampler.probability(self.query(), self.context(step))
        if self.settings.counts_positives:
            return q
        q = q.scatter(1, self.positives(step)[:, None], 0.0)
        return q / q.sum(dim=1, keepdim=True)


def _check_proposal(trial: _Trial) -> None:
    q = trial.made().probability(trial.query(), trial.context(0))
    holds(q.shape == (_SIZE, _ITEMS), f"probability returns the shape {tuple(q.shape)}, not [B, N]")
    holds((q >= 0.0).all(), "it has a negative probability")
    close(q.sum(dim=1), torch.ones(_SIZE), "probabilities do not sum to one", atol=1e-5)


def _check_draws(trial: _Trial) -> None:
    """Masks, counts of positives, and what a draw depends on."""
    sampler, positives = trial.made(), trial.positives(0)
    draw = trial.draw(sampler, 0)
    hits = draw.ids.expand(_SIZE, -1) == positives[:, None]
    holds(not (hits & draw.valid).any(), "a candidate that is the example's positive is not masked")
    if trial.settings.counts_positives:
        holds((hits | draw.valid).all(), "it masks candidates that are not the example's positive")
    else:
        none = (draw.positive_log_count == -math.inf).all()
        holds(none, "it counts positives, though counts_positives is False")
    holds(draw.log_count.isfinite().all(), "a candidate has no finite log count")
    if trial.settings.fixed_size:
        sizes = {trial.draw(sampler, step).ids.shape[-1] for step in range(20)}
        holds(len(sizes) == 1, f"draws have {min(sizes)} to {max(sizes)} candidates; fixed_size is True")
    again = trial.draw(trial.made(), 0)
    same = torch.equal(again.ids, draw.ids) and torch.equal(again.log_count, draw.log_count)
    holds(same, "the same random stream gives another draw; draw with context.random alone")
    half = trial.query().bfloat16()
    found, expected = (trial.draw(trial.made(), 1, query) for query in (half, half.float()))
    same = torch.equal(found.ids, expected.ids) and torch.equal(found.log_count, expected.log_count)
    types = {found.log_count.dtype, found.positive_log_count.dtype}
    holds(same and types == {torch.float32}, "user vectors of half precision have other counts")
    trial.draw(trial.made(), 2, trial.query(1))


def _check_states(trial: _Trial) -> None:
    """A fresh sampler goes on from a state as the original does, also after it has learned."""
    original, other = trial.made(), trial.built()
    for step in range(3):
        draw = trial.draw(original, step)
        if original.observes_scores:
            scores = torch.from_numpy(stream(9, "scores", step).normal(size=(_SIZE, draw.ids.shape[-1] + 1)))
            original.observe(draw, scores[:, 0].float(), scores[:, 1:].float())
        original.update(lambda rows: 0.5 * trial.vectors()[rows])
    other.restore({name: tensor.clone() for name, tensor in original.state().items()})
    for step in range(3, 5):
        expected, found = trial.draw(original, step), trial.draw(other, step)
        same = torch.equal(found.ids, expected.ids) and torch.equal(found.log_count, expected.log_count)
        holds(same, "a restored state draws otherwise than the original")


def _check_distribution(trial: _Trial) -> None:
    """Every item weighs one in the estimated sum; and draws follow q.

    What never holds an item twice, as a draw without replacement, is told by the sums alone.
    """
    weights, drawn, expected, repeats = [], np.zeros(_ITEMS), np.zeros(_ITEMS), False
    counts_positives = trial.settings.counts_positives
    for draw, positives, q in _steps(trial):
        ids = draw.ids.expand(_SIZE, -1)
        counted = draw.valid | ((ids == positives[:, None]) & counts_positives)
        weights.append(_weights(draw, counted, positives, counts_positives))
        # Of candidates that examples share, one example's are counted: the others have the same.
        alone = slice(1 if draw.ids.dim() == 1 or draw.shared else None)
        drawn += np.bincount(ids[alone][counted[alone]].numpy(), minlength=_ITEMS)
        expected += (counted[alone].sum(dim=1, keepdim=True) * q[alone]).sum(dim=0).double().numpy()
        repeats = repeats or len(set(ids[0].tolist())) < ids.shape[1]
    seen = torch.stack(weights)
    mean, error = seen.mean(dim=0), seen.std(dim=0) / math.sqrt(len(seen))
    for item in range(_ITEMS):
        holds(
            abs(mean[item] - 1.0) <= _Z * error[item] + 1e-3,
            f"item {item} weighs {mean[item]:.3f} in the estimated sum, not 1: its expected counts are "
            "not those of the draws",
        )
    if repeats:
        reached = expected > 0
        holds(not drawn[~reached].any(), "an item of probability zero is drawn")
        statistic = float(((drawn - expected)[reached] ** 2 / expected[reached]).sum())
        holds(
            statistic < _chi_square_limit(int(reached.sum()) - 1),
            f"draws do not follow `probability`: {drawn.tolist()} instead of {expected.round(1).tolist()}",
        )


def _steps(trial: _Trial) -> Iterator[tuple[Draw, Tensor, Tensor]]:
    """Independent draws, their positives and what each example's candidates are drawn from."""
    sampler, apart = trial.made(), max(1, trial.settings.remembered_batches)
    candidates = trial.draw(sampler, 0).ids.numel()
    for number in range(1, 1 + min(_MOST, max(_FEWEST, _CANDIDATES // max(1, candidates)))):
        for step in range(number * apart, (number + 1) * apart):
            draw = trial.draw(sampler, step)
        yield draw, trial.positives(step), trial.proposal(sampler, step)


def _weights(draw: Draw, counted: Tensor, positives: Tensor, counts_positives: bool) -> Tensor:
    """What each item weighs in a step's estimate of sum_i exp(s_i), a sum of exp(s_j - l_j): [N].

    Accidental hits count, as they do in the sum over the whole catalog; where the positive is left out of a
    draw, each item is looked at in the examples of the others.
    """
    terms = torch.where(counted, (-draw.log_count.double()).exp(), 0.0)
    by_item = torch.zeros(_SIZE, _ITEMS, dtype=torch.float64)
    by_item.scatter_add_(1, draw.ids.expand(_SIZE, -1), terms)
    if counts_positives:
        return by_item.mean(dim=0)
    others = torch.arange(_ITEMS) != positives[:, None]
    return (by_item * others).sum(dim=0) / others.sum(dim=0)


def _chi_square_limit(degrees: int) -> float:
    """The chi-square value that one in a million right samples exceeds (Wilson & Hilferty 1931)."""
    ninth = 2.0 / (9.0 * degrees)
    return float(degrees * (1.0 - ninth + _Z * math.sqrt(ninth)) ** 3)


def _check_counting(trial: _Trial) -> None:
    """A part of a mixed draw is asked for the counts of any item, shared or each example's own."""
    sampler, positives = trial.made(), trial.positives(0)
    if not isinstance(sampler, CountingSampler):
        holds(not trial.settings.mixable, "mixable is True, and build returns no CountingSampler")
        return
    draw = trial.draw(sampler, 0)
    everything = torch.arange(_ITEMS)
    drawn, own, shared, repeated = (
        sampler.log_expected(trial.query(), positives, ids)
        for ids in (draw.ids, positives[:, None], everything, everything.expand(_SIZE, -1))
    )
    close(
        drawn.expand(draw.log_count.shape),
        draw.log_count,
        "log_expected has other counts than the draw",
        atol=1e-4,
    )
    close(
        own[:, 0],
        draw.positive_log_count,
        "log_expected has other counts of positives than the draw",
        atol=1e-4,
    )
    close(
        repeated,
        shared.expand(_SIZE, -1),
        "log_expected has other counts for ids [B, K] than for [K]",
        atol=1e-4,
    )


def _check_vectors(trial: _Trial) -> None:
    """A sampler by item vectors draws by those of the last refresh, or of updates that came round."""
    moved = trial.vectors().flip(0)
    sampler, followed = trial.made(), trial.made()
    before = sampler.probability(trial.query(), trial.context(0))
    sampler.refresh(moved)
    trial.draw(sampler, 0)
    after = sampler.probability(trial.query(), trial.context(0))
    holds(not torch.allclose(before, after, rtol=1e-3), "a refresh changes no probability")
    for _ in range(trial.steps_to_follow):
        followed.update(moved.__getitem__)
    trial.draw(followed, 0)
    found = followed.probability(trial.query(), trial.context(0))
    close(found, after, f"{trial.steps_to_follow} updates do not come to the same as a refresh", atol=1e-6)
    broken = trial.vectors()
    broken[7, 1] = math.nan
    for vectors, what in ((broken, "not finite"), (torch.zeros(_ITEMS + 1, _WIDTH), "of another catalog")):
        _check_refused(partial(trial.made().refresh, vectors), f"vectors {what}")
    _check_refused(partial(trial.draw, trial.built(), 0), "a draw before the first refresh")


def _check_refused(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except TrainingError:
        return
    raise AssertionError(f"{what}: no TrainingError is raised")


def _check_symmetry(trial: _Trial) -> None:
    """It has the same probabilities for h and -h on absolute scores exactly if `symmetric` says so."""
    absolute = _Trial(trial.settings, _DOT.model_copy(update={"absolute": True}))
    found = []
    for query in (trial.query(), -trial.query()):
        sampler = absolute.made()
        absolute.draw(sampler, 0, query)
        found.append(sampler.probability(query, absolute.context(0)))
    near, far = found
    same = torch.allclose(near, far, rtol=1e-4, atol=1e-6)
    holds(
        same is trial.settings.symmetric,
        f"symmetric is {trial.settings.symmetric}, and h and -h have {'the same' if same else 'other'} "
        "probabilities",
    )


def _check_training(settings: SamplerSettings) -> None:
    """In an `Estimator` both towers train, and a restored one goes on as the stored one."""
    if not settings.alone:
        settings = MixedConfig.model_validate({"parts": (UniformConfig(negatives=8), settings)})
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        users, items = nn.Embedding(_SIZE, 8), nn.Embedding(_ITEMS, 8)
    positives = torch.from_numpy(np.repeat(np.arange(_ITEMS), _SIZE // _ITEMS + 1)[:_SIZE])
    pairs = (positives[:-1], positives[1:])
    estimates = [
        Estimator(settings_of(sampled_softmax)(), settings, items=_ITEMS, counts=_COUNTS, following=pairs)
        for _ in range(2)
    ]
    estimate, other = estimates
    everyone = torch.arange(_SIZE)

    def mean_loss() -> float:
        scores = users.weight @ items.weight.T
        return float(nn.functional.cross_entropy(scores.detach(), positives))

    first = mean_loss()
    optimiser = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=0.05)
    estimate.refresh(items)
    for _ in range(40):
        optimiser.zero_grad()
        out = estimate(users(everyone), positives, items, last_items=positives)
        torch.autograd.backward(out.loss)
        optimiser.step()
        estimate.update(items)
    last = mean_loss()
    holds(last < 0.7 * first, f"40 steps take the full softmax from {first:.2f} to {last:.2f}, not lower")
    other.load_state_dict(estimate.state_dict())
    found, expected = (
        one(users(everyone), positives, items, last_items=positives).loss for one in (other, estimate)
    )
    holds(torch.equal(found, expected), "an Estimator of a restored state has another loss")
