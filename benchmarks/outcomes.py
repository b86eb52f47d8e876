"""Whether the statements of `turret outcomes` hold, in shops whose truth is known.

Of pairs of equal versions that are looked at every hour for two weeks, `false_alarms` is the share that is
ever called different, the larger one of purchases and of revenue; `of_plain_intervals` is the same with
intervals that hold at one look, and `by_answer` with plain intervals that take answers for independent. Users
arrive during two thirds of the time, differ in their visits and tastes, and come back. `power` is the share
of canaries with a 5 % lift that are called better within two weeks, with users as in `traffic`.

For the value of versions that were never live, logs are drawn from a large shop with exploration. `covered`
is the share of simulations whose 95 % interval, of the doubly robust estimate, holds the true value: the
least of an equal, a better and a worse version; `covered_by` has all estimates.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Options, run
from turret.data.answers.lift import LEAST_BUYERS, Totals, lift
from turret.data.synthetic.answers import AnswersConfig, World, show
from turret.outcomes.value import Logged, value_of

HOURS = 14 * 24
Floats = NDArray[np.float64]
PAIRS, USERS = 1_000, (40_000, 10_000)  # a route: live and canary
POWER_PAIRS, POWER_USERS, LIFT = 100, 100_000, 0.05
VISITS, BUYS = 3.0, 0.12
SIMULATIONS, SHOP_USERS, LOG_USERS = 1_000, 20_000, 8_000
SHOP = AnswersConfig(users=SHOP_USERS, items=60, pool=20, explore=0.5)
NOISE = {"better": 0.3, "equal": None, "worse": 3.0}  # of the ranking of the same pool


class Hours(NamedTuple):
    """The sums of a route at the end of each hour, all float64 [HOURS]: those of `Totals`, and the visits."""

    users: Floats
    buyers: Floats
    total: Floats
    squares: Floats
    visits: Floats

    @property
    def relative_variance(self) -> Floats:
        """As `Totals.relative_variance`."""
        spread = np.maximum(self.squares / self.total**2 - 1 / self.users, 0)
        return spread * self.users / np.maximum(self.users - 1, 1)


def route(users: int, gain: float, has_prices: bool, random: np.random.Generator) -> Hours:
    """Simulate a route: visits by a gamma rate a user, purchases by a beta chance a user and visit."""
    rate = random.gamma(0.6, VISITS / 0.6, users)
    start = random.random(users) * 0.7 * HOURS * (random.random(users) < 0.6)
    user = np.repeat(np.arange(users), random.poisson(rate * (1 - start / HOURS)))
    hour = (start[user] + random.random(len(user)) * (HOURS - start[user])).astype(np.int64)
    chance = random.beta(BUYS * 5, (1 - BUYS) * 5, users) * (1 + gain)
    buys = random.random(len(user)) < chance[user]
    order = np.lexsort((hour, user))
    user, hour, buys = user[order], hour[order], buys[order]
    buyer, when = user[buys], hour[buys]
    values = random.lognormal(0.0, 1.0, len(buyer)) if has_prices else np.ones(len(buyer))
    is_first = np.append(True, buyer[1:] != buyer[:-1])[: len(buyer)]
    summed = np.cumsum(values) - values
    # The sum of a user's earlier purchases: the square of the user's sum grows by 2 · earlier · v + v².
    earlier = summed - np.repeat(summed[is_first], np.diff(np.append(np.flatnonzero(is_first), len(buyer))))

    def by_hour(hours: NDArray[np.int64], weights: Floats | None = None) -> Floats:
        return np.cumsum(np.bincount(hours, weights, HOURS)).astype(np.float64)

    arrivals = hour[np.append(True, user[1:] != user[:-1])[: len(user)]]
    squares = by_hour(when, (2 * earlier + values) * values)
    return Hours(by_hour(arrivals), by_hour(when[is_first]), by_hour(when, values), squares, by_hour(hour))


def is_told_apart(live: Hours, canary: Hours, hour: int) -> bool:
    """Whether the function of `turret outcomes` calls the versions different at the end of an hour."""
    of_both = (
        Totals(
            int(side.users[hour]), int(side.buyers[hour]), float(side.total[hour]), float(side.squares[hour])
        )
        for side in (live, canary)
    )
    result = lift(*of_both)
    return result is not None and result.is_decided


def _plain(live: Hours, canary: Hours, by_answer: bool) -> bool:
    """Whether an interval for one look excludes 0 at any hour with enough users who buy."""
    seen = np.minimum(live.buyers, canary.buyers) >= LEAST_BUYERS
    with np.errstate(divide="ignore", invalid="ignore"):
        if by_answer:
            theta = np.log(canary.total / canary.visits / (live.total / live.visits))
            variance = 1 / live.total - 1 / live.visits + 1 / canary.total - 1 / canary.visits
        else:
            theta = np.log(canary.total / canary.users / (live.total / live.users))
            variance = live.relative_variance + canary.relative_variance
        return bool((seen & (np.abs(theta) > 1.96 * np.sqrt(variance))).any())


def _alarms(pairs: int, has_prices: bool) -> dict[str, float]:
    random, counts = np.random.default_rng(int(has_prices)), np.zeros(3)
    for _ in range(pairs):
        live, canary = (route(users, 0.0, has_prices, random) for users in USERS)
        counts[0] += any(is_told_apart(live, canary, hour) for hour in range(HOURS))
        counts[1] += _plain(live, canary, by_answer=False)
        counts[2] += not has_prices and _plain(live, canary, by_answer=True)
    shares = dict(zip(("false_alarms", "of_plain_intervals"), (counts[:2] / pairs).tolist(), strict=True))
    return shares if has_prices else {**shares, "by_answer": float(counts[2] / pairs)}


def _power(pairs: int) -> dict[str, Any]:
    random, hours, per_user = np.random.default_rng(2), [], 0.0
    for _ in range(pairs):
        live, canary = (route(POWER_USERS, gain, False, random) for gain in (0.0, LIFT))
        hours.append(next((hour for hour in range(HOURS) if is_told_apart(live, canary, hour)), HOURS))
        per_user += live.total[-1] / live.users[-1] / pairs
    told = [hour for hour in hours if hour < HOURS]
    return {
        "power": len(told) / pairs,
        "median_days": float(np.median(told)) / 24 if told else None,
        "traffic": {
            "users_a_route": POWER_USERS,
            "visits_a_user": VISITS,
            "purchases_a_user": round(float(per_user), 3),
        },
    }


def _coverage(name: str, simulations: int) -> dict[str, Any]:
    """The share of simulations that hold the true value, by estimate, and the mean width and size."""
    noise, random = NOISE[name], np.random.default_rng(len(name))
    world = World.of(SHOP, random)
    live = world.ranking(SHOP.live_noise, SHOP.pool, random)
    scores = -np.arange(SHOP.pool, dtype=np.float64) + np.zeros(live.shape)
    if noise is not None:
        scores = np.log(np.take_along_axis(world.relevance, live, 1)) + noise * random.standard_normal(
            live.shape
        )
    order = np.argsort(-scores, axis=1, kind="stable")[:, : SHOP.places]
    version, own = np.take_along_axis(live, order, 1), np.take_along_axis(scores, order, 1)
    of_items = np.full(world.relevance.shape, np.nan)
    np.put_along_axis(of_items, live, scores, 1)
    truth = float(world.values(np.arange(SHOP.users), version).sum(axis=1).mean())
    held: dict[str, int] = {}
    widths, sizes = [], []
    for _ in range(simulations):
        # Users are drawn from the shop, so the shop's mean is the true value.
        people = random.integers(0, SHOP.users, LOG_USERS)
        number = np.repeat(np.arange(LOG_USERS), random.negative_binomial(1, 1 / 7, LOG_USERS))
        user = people[number]
        shown, propensities = show(live[user], SHOP.places, SHOP.explore, random)
        bought = (random.random(shown.shape) < world.values(user, shown)).astype(np.float64)
        ones = np.ones(shown.shape)
        is_same = shown == version[user]
        of_logged = of_items[user[:, None], shown]
        logged = Logged(number, ones > 0, propensities, bought, is_same, of_logged, own[user], ones, ones)
        value = value_of(logged)
        for estimate, interval in value.estimates.items():
            held[estimate] = held.get(estimate, 0) + (interval.low <= truth <= interval.high)
        robust = value.estimates["doubly_robust"]
        widths.append((robust.high - robust.low) / 2 / truth)
        sizes.append(value.effective_size)
    return {
        "version": name,
        "true_value": round(truth, 4),
        "covered_by": {estimate: count / simulations for estimate, count in held.items()},
        "half_width": round(float(np.mean(widths)), 4),
        "effective_size": round(float(np.mean(sizes))),
    }


def outcomes(options: Options) -> dict[str, Any]:
    """The figures of all statements, each measured in a process of its own."""
    pairs, simulations = (20, 5) if options.quick else (PAIRS, SIMULATIONS)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as processes:
        of_alarms = {
            name: processes.submit(_alarms, pairs, name == "revenue") for name in ("purchases", "revenue")
        }
        of_power = processes.submit(_power, 2 if options.quick else POWER_PAIRS)
        of_versions = [processes.submit(_coverage, name, simulations) for name in NOISE]
        alarms = {name: future.result() for name, future in of_alarms.items()}
        power, versions = of_power.result(), [future.result() for future in of_versions]
    return {
        "false_alarms": max(figures["false_alarms"] for figures in alarms.values()),
        "covered": min(version["covered_by"]["doubly_robust"] for version in versions),
        **power,
        "pairs": pairs,
        "simulations": simulations,
        "users_a_route": USERS,
        "alarms": alarms,
        "log": {"users": LOG_USERS, "answers_a_user": 6, "places": SHOP.places, "explore": SHOP.explore},
        "versions": versions,
    }


if __name__ == "__main__":
    run(outcomes, needs_data=False)
