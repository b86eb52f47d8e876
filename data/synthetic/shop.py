"""An invented shop of films: its catalog, its shoppers and their events."""

from dataclasses import dataclass
from itertools import count
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from turret.data.progress import progress

# Adjectives and nouns by genre; genres share no word.
_WORDS = """\
Adventure: Lost Uncharted Daring Distant Perilous Roaming Farthest Untamed
    Expedition Island Treasure Compass Voyage Jungle Canyon Caravan Summit River
Comedy: Clumsy Awkward Hilarious Cheeky Goofy Tipsy Giggling Hapless
    Wedding Roommate Holiday Uncle Prank Butler Waiter Parrot Babysitter Clown
Cooking: Spicy Roasted Savoury Crispy Sweet Buttered Smoked Pickled
    Kitchen Recipe Bakery Noodle Dumpling Oven Feast Pantry Orchard Skillet
Fantasy: Enchanted Elven Ancient Cursed Runic Golden Forsaken Mystic
    Dragon Sorcerer Throne Amulet Griffin Wizard Prophecy Realm Unicorn Spell
History: Imperial Medieval Royal Roman Victorian Colonial Forgotten Noble
    Empire Dynasty Castle Crusade Queen Legion Revolution Siege Monarch Treaty
Horror: Haunted Bleeding Screaming Rotten Ghastly Undead Sinister Howling
    Crypt Cellar Ghoul Asylum Coffin Graveyard Nightmare Vampire Swamp Doll
Mystery: Missing Secret Hidden Poisoned Anonymous Locked Stolen Vanishing
    Detective Alibi Witness Clue Murder Inspector Suspect Letter Burglar Verdict
Nature: Wild Migrating Blooming Arctic Tropical Nesting Alpine Coral
    Forest Whale Glacier Meadow Eagle Reef Wolf Butterfly Savanna Penguin
Romance: Tender Passionate Longing Beloved Devoted Blushing Heartfelt Moonlit
    Kiss Promise Bride Sweetheart Embrace Serenade Ballroom Rose Valentine Waltz
Science Fiction: Quantum Stellar Cybernetic Orbital Galactic Synthetic Lunar Neutron
    Android Starship Colony Reactor Wormhole Cosmonaut Nebula Robot Asteroid Clone
Sport: Winning Undefeated Olympic Sprinting Heavyweight Unbeaten Rookie Athletic
    Championship Goalkeeper Marathon Coach Stadium Boxer Relay Trophy League Cyclist
Thriller: Deadly Silent Double Ruthless Covert Lethal Wanted Explosive
    Agent Hostage Conspiracy Sniper Cartel Assassin Fugitive Ransom Traitor Bomb
"""
_LINES = _WORDS.splitlines()
GENRES = {
    line.partition(": ")[0]: (line.partition(": ")[2].split(), nouns.split())
    for line, nouns in zip(_LINES[::2], _LINES[1::2], strict=True)
}
_GENRES = list(GENRES)
# Place names make more titles of the same words.
_PLACES = """\
Abbeville Brackwater Calder Dunmore Eastmarch Fairhaven Greywick Hollowmere Ivydale Kingsferry Larkspur
Millbrook Northcliff Oakhurst Pinecrest Ravenna Saltmarsh Thornbury Underwood Westport Yarrow Zephyrton
"""
_AGE_GROUPS = ["under 18", "18-24", "25-34", "35-49", "50-64", "65+"]
COUNTRIES = ["Brazil", "France", "India", "Japan", "Kenya", "Mexico", "Poland", "Vietnam"]

DAY = 86_400  # seconds
_OPENING = 1_640_995_200  # 2022-01-01T00:00:00Z
_DAYS = 730  # of the log
_SERIES_SHARE = 0.5  # of the works, with 3 to 8 parts
_LATE_PART_WEIGHT = 0.02  # few start a series in the middle
_FOLLOW = 0.8  # the probability that the next item continues the series
_POPULARITY = 0.8  # the weight of the work on rank r is r to the power of -0.8 (Zipf)
_DRIFT = 0.25  # reversion of moods to the lasting tastes, per event
_MOOD = 1.6  # standard deviation of a mood's logits around the lasting tastes
_TRIES = 8  # rejection draws before an exact one

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class SyntheticConfig(BaseModel, frozen=True, extra="forbid"):
    """The size of the shop."""

    users: int = Field(5_000, ge=1, le=1_000_000, description="Number of users.")
    items: int = Field(2_000, ge=40, le=1_000_000, description="Number of items.")
    events_per_user: float = Field(40, gt=0, description="Mean length of a history.")
    shortest_history: int = Field(10, ge=1, description="No user has fewer events.")
    longest_history: int = Field(150, ge=1, description="No user has more events.")
    seed: int = Field(0, ge=0, description="The same seed and settings give the same files, byte by byte.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.shortest_history <= self.events_per_user <= self.longest_history:
            raise ValueError(
                f"events_per_user = {self.events_per_user:g} has to lie between shortest_history = "
                f"{self.shortest_history} and longest_history = {self.longest_history}"
            )
        if self.items < 4 * self.longest_history:
            raise ValueError(
                f"items = {self.items} is too few for longest_history = {self.longest_history}, as users "
                f"take no item twice; give at least {4 * self.longest_history} items, or shorter histories"
            )
        return self


def shop_tables(
    config: SyntheticConfig, random: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, Ints]:
    """Generate events, items and users, and the times of the events in seconds since 1970.

    Events have user_id, item_id and timestamp in order of time; items have item_id, title, genres (separated
    by |), price and released (a date); users have user_id, age_group and country.
    """
    shop = _create_catalog(config.items, random)
    user, item, time, age, country = _simulate(shop, config, random)
    user_ids, item_ids = ids_of("u", config.users, 5), ids_of("i", config.items, 4)
    genres = [
        "|".join(_GENRES[number] for number in pair if number >= 0)
        for pair in zip(shop.genre.tolist(), shop.second_genre.tolist(), strict=True)
    ]
    events = {"user_id": user_ids.gather(user), "item_id": item_ids.gather(item), "timestamp": time}
    released = pl.from_epoch(pl.Series(shop.released)).dt.date()
    items = {"item_id": item_ids, "title": shop.titles, "genres": genres, "price": shop.price}
    users = {"age_group": pl.Series(_AGE_GROUPS).gather(age), "country": pl.Series(COUNTRIES).gather(country)}
    return (
        pl.DataFrame(events),
        pl.DataFrame({**items, "released": released}),
        pl.DataFrame({"user_id": user_ids, **users}),
        time,
    )


def ids_of(letter: str, count: int, width: int) -> pl.Series:
    """Return `count` ids, zero-padded to one width of at least `width`, so that they sort."""
    width = max(width, len(str(count - 1)))
    return pl.Series([f"{letter}{number:0{width}d}" for number in range(count)])


@dataclass(frozen=True)
class _Shop:
    """The catalog, one row an item, in order of release; all arrays are [N]."""

    titles: list[str]
    genre: Ints  # the number of the main genre
    second_genre: Ints  # -1 for none
    next_part: Ints  # row of the series' next part, -1 for none
    weight: Floats  # relative frequency as a first item
    released: Ints  # seconds since 1970, at midnight UTC
    price: Floats


def _create_catalog(items: int, random: np.random.Generator) -> _Shop:
    """Generate the items.

    Works have Zipf weights. At least half of the items are released before the opening, so that no user runs
    out of items; the others are released over the two years, the parts of a series in order.
    """
    lengths = np.where(random.random(items) < _SERIES_SHARE, random.integers(3, 9, items), 1)
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), items)) + 1]  # parts of each work [works]
    lengths[-1] -= lengths.sum() - items
    works = len(lengths)
    weights = np.arange(1, works + 1, dtype=np.float64) ** -_POPULARITY
    random.shuffle(weights)
    genre = random.integers(0, len(_GENRES), works)
    second = np.where(random.random(works) < 0.3, random.integers(0, len(_GENRES), works), genre)
    price = np.round(random.lognormal(2.3, 0.4, works)) + 0.99

    work = np.repeat(np.arange(works), lengths)
    part = np.arange(items) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # from 0
    day = _release_days(lengths, random)
    order = np.argsort(day, kind="stable")
    row = np.empty(items, dtype=np.int64)
    row[order] = np.arange(items)
    next_part = np.where(part == lengths[work] - 1, -1, np.append(row[1:], -1))
    titles = _titles(genre, lengths)
    return _Shop(
        titles=[titles[at] for at in order],
        genre=genre[work][order],
        second_genre=np.where(second == genre, -1, second)[work][order],
        next_part=next_part[order],
        weight=(weights[work] * np.where(part == 0, 1.0, _LATE_PART_WEIGHT))[order],
        released=_OPENING + day[order] * DAY,
        price=price[work][order],
    )


def _release_days(lengths: Ints, random: np.random.Generator) -> Ints:
    """Return release days relative to the opening [items]; earlier days are negative."""
    gaps = random.integers(20, 90, lengths.sum())
    first = np.cumsum(lengths) - lengths
    gaps[first] = 0
    since_first = np.cumsum(gaps) - np.repeat(np.cumsum(gaps)[first], lengths)
    span = since_first[np.cumsum(lengths) - 1]
    is_old = first < lengths.sum() / 2
    before = -span - random.integers(1, 1_500, len(lengths))
    after = (random.random(len(lengths)) * np.maximum(0.9 * _DAYS - span, 1)).astype(np.int64)
    days: Ints = np.repeat(np.where(is_old, before, after), lengths) + since_first
    return days


def _titles(genre: Ints, lengths: Ints) -> list[str]:
    numbers = [count() for _ in _GENRES]
    titles = []
    for which, length in zip(genre.tolist(), lengths.tolist(), strict=True):
        name = _title(which, next(numbers[which]))
        titles += [name] if length == 1 else [f"{name} part {part}" for part in range(1, length + 1)]
    return titles


def _title(genre: int, number: int) -> str:
    """Return title `number` (from 0) of a genre; titles are distinct."""
    (adjectives, nouns), places = GENRES[_GENRES[genre]], _PLACES.split()
    # Both words change with each number: 8 x 10 pairs, then again with each place.
    round_, pair = divmod(number, len(adjectives) * len(nouns))
    shift, noun = divmod(pair, len(nouns))
    name = f"The {adjectives[(noun + shift) % len(adjectives)]} {nouns[noun]}"
    if round_ == 0:
        return name
    edition, place = divmod(round_ - 1, len(places))
    return f"{name} of {places[place]}" + (f" {edition + 1}" if edition else "")


def _simulate(shop: _Shop, config: SyntheticConfig, random: np.random.Generator) -> tuple[Ints, ...]:
    """Simulate the shoppers: each takes an item at most once, and none before its release.

    A shopper takes the next part of the last item's series with probability `_FOLLOW`, else an item by weight
    from a genre. The genre is drawn from the softmax of a mood that returns to the lasting tastes by
    `_DRIFT` a step while noise carries it away (an AR(1) process); age and country shift the lasting tastes.

    Returns the users, items and times of E events in order of time, and the age group and the country of U
    shoppers in order of their first event.
    """
    users = config.users
    age, country = random.integers(0, len(_AGE_GROUPS), users), random.integers(0, len(COUNTRIES), users)
    times = _times(config, random)
    taste = _tastes(age, country, random)
    mood = taste + _MOOD * random.standard_normal(taste.shape)
    by_genre = _items_by_genre(shop)
    taken = np.full(times.shape, -1)
    lengths = (times >= 0).sum(axis=1)  # [U], falling
    keep = 1 - _DRIFT
    spread = _MOOD * (1 - keep**2) ** 0.5
    with progress("simulating shoppers", total=times.shape[1]) as advance:
        for step in range(times.shape[1]):
            active = int(np.searchsorted(-lengths, -step))  # users with more than `step` events
            noise = random.standard_normal((active, mood.shape[1]))
            mood = taste[:active] + keep * (mood[:active] - taste[:active]) + spread * noise
            before, now = taken[:active, : step + 1], times[:active, step]
            taken[:active, step] = _take(shop, by_genre, before, now, mood, random)
            advance(1)
    # Shoppers are numbered by their first event, and events sorted by time.
    by_start = np.argsort(times[:, 0], kind="stable")
    user, step_of = np.nonzero(times[by_start] >= 0)
    time = times[by_start][user, step_of]
    order = np.argsort(time, kind="stable")
    item = taken[by_start][user, step_of]
    return user[order], item[order], time[order], age[by_start], country[by_start]


def _times(config: SyntheticConfig, random: np.random.Generator) -> Ints:
    """Return ascending event times [U, longest], longest history first, padded with -1."""
    users = config.users
    extra = random.gamma(1.3, (config.events_per_user - config.shortest_history) / 1.3, users)
    lengths = np.minimum(config.shortest_history + np.round(extra), config.longest_history).astype(np.int64)
    lengths[::-1].sort()
    # Gamma gaps with a small shape come in bursts, as visits do.
    gaps = random.gamma(0.3, size=(users, int(lengths[0]))) + 1e-4
    gaps[np.arange(gaps.shape[1]) >= lengths[:, None]] = 0
    along = np.cumsum(gaps, axis=1) / gaps.sum(axis=1, keepdims=True)
    start = random.random(users) * 0.8 * _DAYS
    stay = np.minimum(lengths * random.uniform(1, 9, users), _DAYS - start)
    seconds = ((start[:, None] + along * stay[:, None]) * (DAY - 1)).astype(np.int64)
    # One second per event: a shopper's times are distinct.
    times = _OPENING + seconds + np.arange(gaps.shape[1])
    return np.where(np.arange(gaps.shape[1]) < lengths[:, None], times, -1)


def _tastes(age: Ints, country: Ints, random: np.random.Generator) -> Floats:
    """Return lasting taste logits [U, genres], partly explained by age and country."""
    of_age = 0.7 * random.standard_normal((len(_AGE_GROUPS), len(_GENRES)))
    of_country = 0.4 * random.standard_normal((len(COUNTRIES), len(_GENRES)))
    personal = 0.4 * random.standard_normal((len(age), len(_GENRES)))
    logits: Floats = of_age[age] + of_country[country] + personal
    return logits


_ByGenre = tuple[Ints, Floats, Ints]


def _items_by_genre(shop: _Shop) -> _ByGenre:
    """Return the rows [R] of items by genre, the cumulated weights before each, and the bounds of the genres.

    A second genre counts half.
    """
    has_second = np.flatnonzero(shop.second_genre >= 0)
    genre = np.concatenate([shop.genre, shop.second_genre[has_second]])
    rows = np.concatenate([np.arange(len(shop.genre)), has_second])
    weight = np.concatenate([shop.weight, 0.5 * shop.weight[has_second]])
    order = np.argsort(genre, kind="stable")
    summed = np.concatenate([[0.0], np.cumsum(weight[order])])
    return rows[order], summed, np.searchsorted(genre[order], np.arange(len(_GENRES) + 1))


def _take(
    shop: _Shop, by_genre: _ByGenre, before: Ints, times: Ints, mood: Floats, random: np.random.Generator
) -> Ints:
    """Return the next item of each shopper [U]; the last column of `before` [U, step + 1] is still empty."""

    def unfit() -> Ints:
        is_new = ~(before == choice[:, None]).any(axis=1)
        return np.flatnonzero(~((choice >= 0) & is_new & (shop.released[choice] <= times)))

    follows = random.random(len(times)) < _FOLLOW
    last = before[:, -2] if before.shape[1] > 1 else np.full(len(times), -1)
    choice = np.where(follows & (last >= 0), shop.next_part[last], -1)
    # Gumbel-max: the argmax of logits with Gumbel noise is a draw from their softmax.
    genre = np.argmax(mood + random.gumbel(size=mood.shape), axis=1)
    rows, summed, bounds = by_genre
    for _ in range(_TRIES):
        if not len(left := unfit()):
            return choice
        first, end = bounds[genre[left]], bounds[genre[left] + 1]
        points = summed[first] + random.random(len(left)) * (summed[end] - summed[first])
        # Rounding may put a point at the end of its genre.
        choice[left] = rows[np.minimum(np.searchsorted(summed, points, side="right"), end) - 1]
    for user in unfit():  # an exact draw by weight among all items that the shopper can take
        weight = np.where(shop.released <= times[user], shop.weight, 0.0)
        weight[before[user][before[user] >= 0]] = 0.0
        choice[user] = int(random.choice(len(weight), p=weight / weight.sum()))
    return choice
