"""The value that a version would have had at the places of logged answers, estimated from their propensities.

Item-position model (Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay and Wen, "Offline evaluation of ranking
policies with click models", 2018): the reward of an item depends on the request, the item and its place. At
place k the logged item has the propensity p and the reward r, and the weight is w = pi / p, where pi is 1 if
the version has the same item there, and else 0. Over the answers, with a model q of the reward:

    inverse propensity     mean(w r)
    self-normalised        sum(w r) / sum(w)
    doubly robust          mean(q(item of the version) + w (r - q(logged item)))

and the value of an answer is the sum over the places. The effective size of a place is sum(w)² / sum(w²).
Its support is mean(w): about 1 where the log could show every item of the version at the place. The intervals
are for one look, by the normal distribution and by user.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.text import text_table

Floats = NDArray[np.float64]
CLIP = 1_000.0
LEAST_SIZE = 1_000
LEAST_SUPPORT = 0.8
_NORMAL = 1.959964  # the 97.5 % quantile
_CALIBRATED = 50_000  # items of a half at most; an unsteady calibration costs precision, and no truth
_STEPS, _RIDGE = 30, 1e-3  # of Newton's method; the ridge keeps a place without rewards finite


@dataclass(frozen=True)
class Logged:
    """A answers with up to K places, and the answers of a version to the same requests, place by place.

    users: int64 [A], the number of each answer's user.
    is_shown: bool [A, K], whether the answer has an item at the place.
    propensities, rewards: float64 [A, K].
    is_same: bool [A, K], whether the version has the logged item at the place.
    scores, of_version: float64 [A, K], the scores by the version of the logged items and of its own, in any
        scale; NaN for an item without one.
    values, values_of_version: float64 [A, K], the rewards of the same items if they have an outcome.
    """

    users: NDArray[np.int64]
    is_shown: NDArray[np.bool_]
    propensities: Floats
    rewards: Floats
    is_same: NDArray[np.bool_]
    scores: Floats
    of_version: Floats
    values: Floats
    values_of_version: Floats


@dataclass(frozen=True)
class Estimate:
    """An estimated value an answer, with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def as_json(self) -> dict[str, float]:
        """Return the fields."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Value:
    """The estimates of the value of a version at the explored places with support, and of the log there.

    `places` has the estimates, the effective size and the support of each. `clipped` is the share of the
    positive weights that exceeded the clip. `unsupported` are the explored places with less support than
    LEAST_SUPPORT, which are left out: there an estimate would leave out a part of the version's items.
    """

    logged: Estimate
    estimates: dict[str, Estimate]
    places: list[dict[str, Any]]
    effective_size: float
    clipped: float
    clip: float
    unsupported: list[int]

    def text(self, version: str) -> str:
        """Describe the value of a version, for people."""
        of_all = (self.logged, *self.estimates.values())
        rows = [
            (
                str(row["place"]),
                *(f"{row[name]:.4f}" for name in ("logged", *self.estimates)),
                f"{row['effective_size']:,.0f}",
                f"{row['support']:.2f}",
            )
            for row in self.places
        ]
        rows.append(("all", *(f"{estimate.value:.4f}" for estimate in of_all), "", ""))
        names = [name.replace("_", " ") for name in self.estimates]
        headings = ("place", "logged", *names, "effective size", "support")
        lines = [text_table(headings, rows, f"value an answer of {version}", right=headings)]
        if self.unsupported:
            lines.append(
                f"left out: the places {', '.join(map(str, self.unsupported))}, where the log could not show "
                f"a fifth or more of the items of {version}"
            )
        lines.append(f"weights above {self.clip:,.0f} are clipped: {self.clipped:.2%} of them")
        lines.append(
            f"{version} would have had {self.estimates['doubly_robust']} an answer at {len(self.places)} "
            f"explored places, beside {self.logged} of the log (doubly robust; 95 % at one look)"
        )
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the fields of `turret outcomes --of --json`."""
        return {
            "logged": self.logged.as_json(),
            **{name: estimate.as_json() for name, estimate in self.estimates.items()},
            "effective_size": self.effective_size,
            "clip": self.clip,
            "clipped": self.clipped,
            "unsupported_places": self.unsupported,
            "places": self.places,
        }


def value_of(logged: Logged, clip: float = CLIP, least_size: float = LEAST_SIZE) -> Value:
    """Estimate the value of a version. Raises DataError where no statement is possible."""
    every = np.where(logged.is_same & logged.is_shown, 1 / logged.propensities, 0.0)
    explored, unsupported = _stated_places(logged, np.minimum(every, clip))
    unclipped = every[:, explored]
    weights = np.minimum(unclipped, clip)
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0)
    size = float(np.nan_to_num(sizes).min())
    if size < least_size:
        place = int(explored[np.nan_to_num(sizes).argmin()]) + 1
        raise DataError(
            f"the effective size at place {place} is {size:,.0f} answers, and {least_size:,} are needed; "
            "log for longer, explore more, or compare a version that is closer to the live one"
        )
    rewards, is_shown = logged.rewards[:, explored], logged.is_shown[:, explored]
    expected, of_version = (part[:, explored] for part in predicted(logged))
    count = is_shown.sum(axis=0)
    ratio = (weights * rewards).sum(axis=0) / weights.sum(axis=0)
    parts = {
        "inverse_propensity": weights * rewards,
        # The estimate of a ratio and its linear terms, whose mean is the ratio.
        "self_normalised": ratio * is_shown + weights * (rewards - ratio) * count / weights.sum(axis=0),
        "doubly_robust": of_version * is_shown + weights * (rewards - expected),
    }
    places = [
        {
            "place": int(place) + 1,
            **{name: float(part[:, column].mean()) for name, part in parts.items()},
            "logged": float(rewards[:, column].mean()),
            "effective_size": float(sizes[column]),
            "support": float(weights[:, column].sum() / max(count[column], 1)),
        }
        for column, place in enumerate(explored)
    ]
    estimates = {name: by_user(part.sum(axis=1), logged.users) for name, part in parts.items()}
    clipped = float((unclipped > clip).sum() / max((unclipped > 0).sum(), 1))
    left_out = (unsupported + 1).tolist()
    return Value(by_user(rewards.sum(axis=1), logged.users), estimates, places, size, clipped, clip, left_out)


def _stated_places(logged: Logged, weights: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The explored places with support, and those without it, from 0. Raises DataError for none with it."""
    explored = np.flatnonzero(((logged.propensities < 1) & logged.is_shown).any(axis=0))
    if not explored.size:
        raise DataError(
            "propensities are 1 or 0: no statement is possible about a version that was never live; let a "
            "route explore, and log its answers"
        )
    support = (weights.sum(axis=0) / np.maximum(logged.is_shown.sum(axis=0), 1))[explored]
    if support.max() < LEAST_SUPPORT:
        raise DataError(
            f"the log could show at most {support.max():.0%} of the version's items at a place, and "
            f"{LEAST_SUPPORT:.0%} are needed for a statement: explore among more items"
        )
    return explored[support >= LEAST_SUPPORT], explored[support < LEAST_SUPPORT]


def by_user(terms: Floats, users: NDArray[np.int64]) -> Estimate:
    """The mean of the answers' terms [A], with an interval that takes the users as independent.

    The mean is a ratio, of the sum of the terms to the number of answers, and its variance that of the linear
    terms: V = n / (n - 1) · sum over users of (sum of (term - mean))² / A².
    """
    mean = float(terms.mean())
    sums = np.bincount(users, terms - mean)
    count = np.unique(users).size
    error = float(np.sqrt(count / max(count - 1, 1) * (sums**2).sum())) / len(terms)
    return Estimate(mean, mean - _NORMAL * error, mean + _NORMAL * error)


def predicted(logged: Logged) -> tuple[Floats, Floats]:
    """The expected rewards of the logged items and of the version's items [A, K].

    A logistic regression of the outcomes on the scores and the places calibrates the scores. The users are
    halved, and each half is predicted from the other, so that no outcome predicts itself. A long log is
    calibrated on every n-th answer with all of its places: every n-th item may be of one place alone.
    """
    half = (logged.users % 2).astype(np.bool_)
    results = np.zeros_like(logged.rewards), np.zeros_like(logged.rewards)
    for is_predicted in (half, ~half):
        rows = ~is_predicted[:, None] & logged.is_shown
        place = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
        step = max(np.count_nonzero(rows) // _CALIBRATED, 1)
        others = np.flatnonzero(~is_predicted)[::step]
        shown = logged.is_shown[others]
        chosen = _inputs(logged.scores[others][shown], place[others][shown], rows.shape[1])
        weights = logistic(chosen, logged.rewards[others][shown] > 0)
        for result, scores, values in zip(
            results,
            (logged.scores, logged.of_version),
            (logged.values, logged.values_of_version),
            strict=True,
        ):
            every = place[is_predicted].ravel()
            logits = _inputs(scores[is_predicted].ravel(), every, rows.shape[1]) @ weights
            chance = 1 / (1 + np.exp(-logits.reshape(-1, rows.shape[1])))
            result[is_predicted] = chance * values[is_predicted]
    return results


def _inputs(scores: Floats, places: NDArray[np.int64], count: int) -> Floats:
    """The score, whether there is none, and one column a place [R, 2 + K]."""
    is_missing = np.isnan(scores)
    columns = [np.where(is_missing, 0.0, scores), is_missing.astype(np.float64)]
    return np.column_stack([*columns, np.eye(count)[places]])


def logistic(inputs: Floats, is_positive: NDArray[np.bool_]) -> Floats:
    """The weights of a logistic regression with a small ridge, by Newton's method.

    inputs [R, F], is_positive [R].
    """
    weights = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        slope = inputs.T @ (chance - is_positive) + _RIDGE * weights
        curve = (inputs * (chance * (1 - chance))[:, None]).T @ inputs
        step = np.linalg.solve(curve + _RIDGE * np.eye(len(weights)), slope)
        weights = weights - step
        if np.abs(step).max() < 1e-6:
            break
    return weights
