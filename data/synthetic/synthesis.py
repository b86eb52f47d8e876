"""The users of an invented shop, their events, and its files."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.files import new_folder
from turret.data.progress import progress
from turret.data.synthetic.messy import MessyConfig, messy_tables
from turret.data.synthetic.shop import DAY, DAYS, OPENING, Shop, SyntheticConfig, create_catalog, ids_of

AGE_GROUPS = ("under 18", "18-24", "25-34", "35-49", "50-64", "65+")
COUNTRIES = ("Brazil", "France", "India", "Japan", "Kenya", "Mexico", "Poland", "Vietnam")
_TRIES = 8  # rejection draws before an exact one
_MOOD = 1.6  # standard deviation of a mood's logits around the lasting tastes


@dataclass(frozen=True)
class Log:
    """E events in order of time, and U shoppers in order of their first event."""

    user: NDArray[np.int64]  # [E]
    item: NDArray[np.int64]  # [E]
    time: NDArray[np.int64]  # [E], seconds since 1970
    age: NDArray[np.int64]  # [U], into AGE_GROUPS
    country: NDArray[np.int64]  # [U], into COUNTRIES


def simulate(shop: Shop, config: SyntheticConfig, random: np.random.Generator) -> Log:
    """Simulate the shoppers, who take each item at most once and none before its release.

    A shopper takes the next part of the last item's series with probability `follow`, else an item by weight
    from a genre. The genre is drawn from the softmax of a mood that returns to the lasting tastes by
    `drift` a step while noise carries it away (an AR(1) process); age and country shift the lasting tastes.
    """
    users = config.users
    age, country = random.integers(0, len(AGE_GROUPS), users), random.integers(0, len(COUNTRIES), users)
    times = _times(config, random)
    taste = _tastes(age, country, len(shop.genres), random)
    mood = taste + _MOOD * random.standard_normal(taste.shape)
    sampler = _GenreSampler(shop)
    taken = np.full(times.shape, -1)
    lengths = (times >= 0).sum(axis=1)  # [U], falling
    keep = 1 - config.drift
    with progress("simulating shoppers", total=times.shape[1]) as advance:
        for step in range(times.shape[1]):
            active = int(np.searchsorted(-lengths, -step))  # users with more than `step` events
            noise = random.standard_normal((active, mood.shape[1]))
            mood = (
                taste[:active]
                + keep * (mood[:active] - taste[:active])
                + _MOOD * (1 - keep**2) ** 0.5 * noise
            )
            taken[:active, step] = _take(
                sampler, taken[:active, : step + 1], times[:active, step], mood, config, random
            )
            advance(1)
    return _in_order(taken, times, age, country)


def _times(config: SyntheticConfig, random: np.random.Generator) -> NDArray[np.int64]:
    """Ascending event times [U, longest], longest history first, padded with -1."""
    users = config.users
    extra = random.gamma(1.3, (config.events_per_user - config.shortest_history) / 1.3, users)
    lengths = np.minimum(config.shortest_history + np.round(extra), config.longest_history).astype(np.int64)
    lengths[::-1].sort()
    # Gamma gaps with a small shape come in bursts, as visits do.
    gaps = random.gamma(0.3, size=(users, int(lengths[0]))) + 1e-4
    gaps[np.arange(gaps.shape[1]) >= lengths[:, None]] = 0
    along = np.cumsum(gaps, axis=1) / gaps.sum(axis=1, keepdims=True)
    start = random.random(users) * 0.8 * DAYS
    stay = np.minimum(lengths * random.uniform(1, 9, users), DAYS - start)
    seconds = ((start[:, None] + along * stay[:, None]) * (DAY - 1)).astype(np.int64)
    # One second per event: a shopper's times are distinct.
    times = OPENING + seconds + np.arange(gaps.shape[1])
    return np.where(np.arange(gaps.shape[1]) < lengths[:, None], times, -1)


def _tastes(
    age: NDArray[np.int64], country: NDArray[np.int64], genres: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Lasting taste logits [U, genres], partly explained by age and country."""
    of_age = 0.7 * random.standard_normal((len(AGE_GROUPS), genres))
    of_country = 0.4 * random.standard_normal((len(COUNTRIES), genres))
    own = 0.4 * random.standard_normal((len(age), genres))
    logits: NDArray[np.float64] = of_age[age] + of_country[country] + own
    return logits


class _GenreSampler:
    """Draws items of a genre by weight; a second genre counts half."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        has_second = np.flatnonzero(shop.second_genre >= 0)
        genre = np.concatenate([shop.genre, shop.second_genre[has_second]])
        rows = np.concatenate([np.arange(len(shop.genre)), has_second])
        weight = np.concatenate([shop.weight, 0.5 * shop.weight[has_second]])
        order = np.argsort(genre, kind="stable")
        self._rows = rows[order]
        self._summed = np.concatenate([[0.0], np.cumsum(weight[order])])
        self._bounds = np.searchsorted(genre[order], np.arange(len(shop.genres) + 1))

    def draw(self, genre: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Draw one item [U] of each genre [U], by weight."""
        low, high = self._summed[self._bounds[genre]], self._summed[self._bounds[genre + 1]]
        points = low + random.random(len(genre)) * (high - low)
        # Rounding may put a point at the end of its genre.
        positions = (
            np.minimum(np.searchsorted(self._summed, points, side="right"), self._bounds[genre + 1]) - 1
        )
        rows: NDArray[np.int64] = self._rows[positions]
        return rows


def _take(
    sampler: _GenreSampler,
    before: NDArray[np.int64],
    times: NDArray[np.int64],
    mood: NDArray[np.float64],
    config: SyntheticConfig,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the next item of each shopper [U]; the last column of `before` [U, step + 1] is still empty."""
    follows = random.random(len(times)) < config.follow
    last = before[:, -2] if before.shape[1] > 1 else np.full(len(times), -1)
    choice = np.where(follows & (last >= 0), sampler.shop.next_part[last], -1)
    # Gumbel-max: the argmax of logits with Gumbel noise is a draw from their softmax.
    genre = np.argmax(mood + random.gumbel(size=mood.shape), axis=1)
    for _ in range(_TRIES):
        unfit = np.flatnonzero(~_fits(sampler.shop, choice, before, times))
        if not len(unfit):
            return choice
        choice[unfit] = sampler.draw(genre[unfit], random)
    for user in np.flatnonzero(~_fits(sampler.shop, choice, before, times)):
        choice[user] = _draw_exactly(sampler.shop, before[user], times[user], random)
    return choice


def _fits(
    shop: Shop, choice: NDArray[np.int64], before: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.bool_]:
    is_new = ~(before == choice[:, None]).any(axis=1)
    fits: NDArray[np.bool_] = (choice >= 0) & is_new & (shop.released[choice] <= times)
    return fits


def _draw_exactly(shop: Shop, before: NDArray[np.int64], time: np.int64, random: np.random.Generator) -> int:
    """Draw an item by weight among those the shopper can take; half the items are released before opening."""
    weight = np.where(shop.released <= time, shop.weight, 0.0)
    weight[before[before >= 0]] = 0.0
    return int(random.choice(len(weight), p=weight / weight.sum()))


def _in_order(
    taken: NDArray[np.int64], times: NDArray[np.int64], age: NDArray[np.int64], country: NDArray[np.int64]
) -> Log:
    """Number shoppers by their first event, and sort events by time."""
    by_start = np.argsort(times[:, 0], kind="stable")
    user, step = np.nonzero(times[by_start] >= 0)
    time = times[by_start][user, step]
    order = np.argsort(time, kind="stable")
    item = taken[by_start][user, step]
    return Log(user[order], item[order], time[order], age[by_start], country[by_start])


__all__ = ["MessyConfig", "SyntheticConfig", "synthesise"]

_FILES = ("events.csv", "items.csv", "users.csv")


@dataclass(frozen=True)
class Report:
    """The output of `synthesise`."""

    folder: Path
    users: int
    items: int
    events: int
    first: datetime
    last: datetime


def synthesise(config: SyntheticConfig | MessyConfig, target: Path, overwrite: bool = False) -> Report:
    """Write `events.csv`, `items.csv` and `users.csv` of a synthetic shop into the new folder `target`.

    `events.csv` has user_id, item_id and timestamp (seconds since 1970) in order of time; `items.csv` has
    item_id, title, genres (separated by |), price and released (a date); `users.csv` has user_id, age_group
    and country. Those of a messy shop have other columns: see `messy_tables`.

    Raises `DataError` when `target` exists, unless `overwrite` is given and it holds nothing but these files.
    """
    if overwrite and target.exists() and (foreign := _foreign_files(target)):
        raise DataError(
            f"{target} also holds {foreign[0]!r}, so it is not overwritten; choose another folder"
        )
    with new_folder(target, overwrite) as folder:
        random = np.random.default_rng(config.seed)
        if isinstance(config, MessyConfig):
            *tables, times = messy_tables(config, random)
        else:
            shop = create_catalog(config, random)
            log = simulate(shop, config, random)
            *tables, times = *_tables(shop, log), log.time
        for name, table in zip(_FILES, tables, strict=True):
            table.write_csv(folder / name, float_precision=2)
    first, last = (datetime.fromtimestamp(int(times[at]), UTC) for at in (0, -1))
    return Report(target, len(tables[2]), config.items, len(times), first, last)


def _foreign_files(target: Path) -> list[str]:
    return (
        sorted({path.name for path in target.iterdir()} - set(_FILES)) if target.is_dir() else [target.name]
    )


def _tables(shop: Shop, log: Log) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    user_ids = ids_of("u", len(log.age), width=5)
    item_ids = ids_of("i", len(shop.titles), width=4)
    events = pl.DataFrame({"user_id": user_ids.gather(log.user), "item_id": item_ids.gather(log.item)})
    items = pl.DataFrame(
        {
            "item_id": item_ids,
            "title": shop.titles,
            "genres": [shop.genre_names(row) for row in range(len(shop.titles))],
            "price": shop.price,
            "released": pl.from_epoch(pl.Series(shop.released)).dt.date(),
        }
    )
    users = pl.DataFrame(
        {
            "user_id": user_ids,
            "age_group": pl.Series(AGE_GROUPS).gather(log.age),
            "country": pl.Series(COUNTRIES).gather(log.country),
        }
    )
    return events.with_columns(timestamp=pl.Series(log.time)), items, users
