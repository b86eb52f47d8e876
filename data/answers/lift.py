"""The lift of a canary over the live version, by user, with an interval that holds at every look.

Routes are drawn by user, so the users are the independent units, and not their answers: the value of a user
is the sum over all answers so far. With n users of a route, mean value m and variance s² of the values, the
estimate is theta = log(m_canary / m_live) with the variance v = sum over both routes of s² / (n m²) (delta
method). The interval is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas
("Time-uniform central limit theory and asymptotic confidence sequences", 2024, theorem 2.2, after the normal
mixture of Robbins), with the information I = 1 / v in the place of their t / sigma²:

    theta ± sqrt((I + tau) / I² · log((I + tau) / (tau alpha²)))

The probability that it ever misses the true value, at any number of looks, is at most alpha. The proof needs
estimates with the covariance Cov(theta_s, theta_t) = v_t for looks s < t, as of means over more and more
users. The mean of a user's growing sum over a period has it too, if the visits of the user are exchangeable:
a lasting taste is in both looks, and the noise averages out. A greater covariance, as of users who arrive
later, makes a miss rarer (Slepian's inequality). `benchmarks.outcomes` counts the misses.

This module needs neither Polars nor SciPy, as the service may count the sums itself.
"""

import math
from dataclasses import dataclass
from typing import Any

ALPHA = 0.05
# The interval is the narrowest at the information that decides about this lift; a choice before any data.
TIGHTEST = 0.05
# The normal limit holds for sums of so many users at least; fewer give no interval.
LEAST_BUYERS = 50
_MOST_DAYS = 365.0
_LEAST_VARIANCE = 1e-12  # of users who all have the same value


@dataclass(frozen=True)
class Totals:
    """Sums over the users of a route: users, those with a value, values, and squares of values."""

    users: int
    buyers: int
    total: float
    squares: float

    @property
    def mean(self) -> float:
        """The value a user."""
        return self.total / self.users if self.users else 0.0

    @property
    def is_positive(self) -> bool:
        """Whether the logarithm of the mean and its variance are finite: prices may be negative, or huge."""
        return self.total > 0 and 0 < self.total * self.total < math.inf and self.squares < math.inf

    @property
    def relative_variance(self) -> float:
        """The variance of the mean over the square of the mean."""
        return max(self.squares / self.total**2 - 1 / self.users, 0.0) * self.users / max(self.users - 1, 1)


@dataclass(frozen=True)
class Lift:
    """The relative difference of a canary to the live version, such as 0.031, and its interval.

    `information` is 1 / variance of the logarithm.
    """

    ratio: float
    low: float
    high: float
    information: float

    @property
    def is_decided(self) -> bool:
        """Whether the interval excludes that both versions are equal."""
        return self.low > 0 or self.high < 0

    def days_left(self, days: float) -> float | None:
        """Return the days until the interval excludes 0 if the difference stays, after `days` of users.

        None if it would take more than a year. Information is taken to grow as it has so far.
        """
        if days <= 0:
            return None
        wanted, needed = abs(math.log1p(self.ratio)), self.information
        while radius(needed) > wanted:
            needed *= 1.01
            if days * (needed / self.information - 1) > _MOST_DAYS:
                return None
        return days * (needed / self.information - 1)


def mixture(tightest: float = TIGHTEST, alpha: float = ALPHA) -> float:
    """Return tau: the interval is the narrowest, among all tau, where its radius is `tightest`.

    At the information I*, tau = I* / (-2 log alpha + log(-2 log alpha) + 1) is the best (the same paper,
    section 2.3); the radius there is `tightest`.
    """
    ratio = -2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1
    return (1 + 1 / ratio) * math.log((ratio + 1) / alpha**2) / tightest**2 / ratio


_TAU = mixture()


def radius(information: float, tau: float = _TAU, alpha: float = ALPHA) -> float:
    """Return the radius of the interval of the logarithm at an information."""
    return math.sqrt((information + tau) / information**2 * math.log((information + tau) / (tau * alpha**2)))


def lift(live: Totals, canary: Totals) -> Lift | None:
    """Return the lift of the canary.

    None where a route has fewer than LEAST_BUYERS users with a value, or values that are not positive.
    """
    if min(live.buyers, canary.buyers) < LEAST_BUYERS or not (live.is_positive and canary.is_positive):
        return None
    variance = live.relative_variance + canary.relative_variance
    theta = math.log(canary.mean / live.mean)
    information = 1 / max(variance, _LEAST_VARIANCE)
    bound = radius(information)
    return Lift(math.expm1(theta), math.expm1(theta - bound), math.expm1(theta + bound), information)


def sentence(result: Lift | None, live: Totals, canary: Totals, days: float) -> str:
    """Describe a lift after `days` of users, and whether it is enough for a decision."""
    if result is None:
        least = min(live.buyers, canary.buyers)
        if not least:
            return (
                f"not yet: no user of one route has an outcome, and {LEAST_BUYERS} of each route are needed"
            )
        if least >= LEAST_BUYERS:
            return (
                "not yet: the values of one route have a sum of 0 or less, or one too large to compare; name "
                "a field with values above 0"
            )
        wait = _wait(days * (LEAST_BUYERS / least - 1))
        return f"not yet: {wait} until {LEAST_BUYERS} users of each route buy"
    more = f"{abs(result.ratio):.1%}".replace("%", " %")
    amount = f"canary sells {more} {'less' if result.ratio < 0 else 'more'}"
    text = f"{amount} [{100 * result.low:+.1f}, {100 * result.high:+.1f}]"
    if result.is_decided:
        return f"{text}: enough to decide"
    left = result.days_left(days)
    return f"{text}: not yet: " + (
        f"{_wait(left)} if the difference stays"
        if left is not None
        else "a difference as small as this can't be told within a year of this traffic"
    )


def _wait(days: float) -> str:
    count = max(math.ceil(days), 1)
    return f"about {count} more day{'s' if count > 1 else ''}"


def as_json(result: Lift | None, live: Totals, canary: Totals, days: float) -> dict[str, Any]:
    """Return the fields of a lift; those of the interval are missing where there is none."""
    fields: dict[str, Any] = {"days": days, "sentence": sentence(result, live, canary, days)}
    if result is None:
        return {"decided": False, **fields}
    interval = {"lift": result.ratio, "low": result.low, "high": result.high}
    return {"decided": result.is_decided, **interval, "days_left": result.days_left(days), **fields}
