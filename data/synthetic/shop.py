"""The catalog of an invented shop: series, genres, titles and releases."""

from dataclasses import dataclass
from itertools import count
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

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
GENRES: dict[str, tuple[str, str]] = {
    line.partition(": ")[0]: (line.partition(": ")[2], nouns.strip())
    for line, nouns in zip(_LINES[::2], _LINES[1::2], strict=True)
}

# Place names make more titles of the same words.
_PLACES = (
    "Abbeville Brackwater Calder Dunmore Eastmarch Fairhaven Greywick Hollowmere Ivydale Kingsferry Larkspur "
    "Millbrook Northcliff Oakhurst Pinecrest Ravenna Saltmarsh Thornbury Underwood Westport Yarrow Zephyrton"
)


def title(genre: str, number: int) -> str:
    """Return title `number` (from 0) of `genre`; titles are distinct."""
    adjectives, nouns = (words.split() for words in GENRES[genre])
    places = _PLACES.split()
    # Both words change with each number: 8 x 10 pairs, then again with each place.
    round_, pair = divmod(number, len(adjectives) * len(nouns))
    noun, shift = pair % len(nouns), pair // len(nouns)
    name = f"The {adjectives[(noun + shift) % len(adjectives)]} {nouns[noun]}"
    if round_ == 0:
        return name
    edition, place = divmod(round_ - 1, len(places))
    return f"{name} of {places[place]}" + (f" {edition + 1}" if edition else "")


def ids_of(letter: str, count: int, width: int) -> pl.Series:
    """Return `count` ids, zero-padded to one width of at least `width`, so that they sort."""
    width = max(width, len(str(count - 1)))
    return pl.Series([f"{letter}{number:0{width}d}" for number in range(count)])


DAY = 86_400  # seconds
OPENING = 1_640_995_200  # 2022-01-01T00:00:00Z
DAYS = 730  # of the log
_LATE_PART_WEIGHT = 0.02  # few start a series in the middle


class SyntheticConfig(BaseModel, frozen=True, extra="forbid"):
    """The size of the shop and the behavior of its shoppers."""

    users: int = Field(5_000, ge=1, le=1_000_000, description="Number of users.")
    items: int = Field(2_000, ge=40, le=1_000_000, description="Number of items.")
    events_per_user: float = Field(40, gt=0, description="Mean length of a history.")
    shortest_history: int = Field(10, ge=1, description="No user has fewer events.")
    longest_history: int = Field(150, ge=1, description="No user has more events.")
    genres: int = Field(12, ge=2, le=len(GENRES), description="Number of genres.")
    series_share: float = Field(
        0.5, ge=0, le=1, description="The share of works that are series of 3 to 8 parts."
    )
    follow: float = Field(0.8, ge=0, le=1, description="Probability that the next item continues the series.")
    drift: float = Field(0.25, gt=0, le=1, description="Reversion of moods per event: 1 forgets them.")
    popularity_exponent: float = Field(
        0.8, ge=0, le=3, description="The weight of the work on rank r is r^-x (Zipf)."
    )
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


@dataclass(frozen=True)
class Shop:
    """The catalog, one row an item, in order of release; all arrays are [N]."""

    titles: list[str]
    genres: tuple[str, ...]  # the genres' names
    genre: NDArray[np.int64]  # the number of the main genre
    second_genre: NDArray[np.int64]  # -1 for none
    next_part: NDArray[np.int64]  # row of the series' next part, -1 for none
    weight: NDArray[np.float64]  # relative frequency as a first item
    released: NDArray[np.int64]  # seconds since 1970, at midnight UTC
    price: NDArray[np.float64]

    def genre_names(self, row: int) -> str:
        """The genres of an item, main genre first, separated by a bar."""
        numbers = (self.genre[row], self.second_genre[row])
        return "|".join(self.genres[number] for number in numbers if number >= 0)


def create_catalog(config: SyntheticConfig, random: np.random.Generator) -> Shop:
    """Generate the items.

    Works have Zipf weights rank^-`popularity_exponent`. At least half of the items are released before the
    opening, so that no user runs out of items; the others are released over the two years, the parts of a
    series in order.
    """
    items, genres = config.items, config.genres
    lengths = _lengths(items, config.series_share, random)
    works = len(lengths)
    weights = np.arange(1, works + 1, dtype=np.float64) ** -config.popularity_exponent
    random.shuffle(weights)
    genre = random.integers(0, genres, works)
    second = np.where(random.random(works) < 0.3, random.integers(0, genres, works), genre)
    price = np.round(random.lognormal(2.3, 0.4, works)) + 0.99

    work = np.repeat(np.arange(works), lengths)
    part = np.arange(items) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # from 0
    day = _release_days(lengths, random)
    order = np.argsort(day, kind="stable")
    row = np.empty(items, dtype=np.int64)
    row[order] = np.arange(items)
    is_last = part == lengths[work] - 1
    next_part = np.where(is_last, -1, np.append(row[1:], -1))

    names = tuple(GENRES)[:genres]
    titles = _titles(genre, lengths, names)
    return Shop(
        titles=[titles[at] for at in order],
        genres=names,
        genre=genre[work][order],
        second_genre=np.where(second == genre, -1, second)[work][order],
        next_part=next_part[order],
        weight=(weights[work] * np.where(part == 0, 1.0, _LATE_PART_WEIGHT))[order],
        released=OPENING + day[order] * DAY,
        price=price[work][order],
    )


def _lengths(items: int, series_share: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Parts of each work [works], `items` in total."""
    lengths = np.where(random.random(items) < series_share, random.integers(3, 9, items), 1)
    works = int(np.searchsorted(np.cumsum(lengths), items)) + 1
    lengths = lengths[:works]
    lengths[-1] -= lengths.sum() - items
    return lengths


def _release_days(lengths: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Release days relative to the opening [items]; negative for earlier ones."""
    gaps = random.integers(20, 90, lengths.sum())
    first = np.cumsum(lengths) - lengths
    gaps[first] = 0
    since_first = np.cumsum(gaps) - np.repeat(np.cumsum(gaps)[first], lengths)
    span = since_first[np.cumsum(lengths) - 1]
    is_old = first < lengths.sum() / 2
    before = -span - random.integers(1, 1_500, len(lengths))
    after = (random.random(len(lengths)) * np.maximum(0.9 * DAYS - span, 1)).astype(np.int64)
    days: NDArray[np.int64] = np.repeat(np.where(is_old, before, after), lengths) + since_first
    return days


def _titles(genre: NDArray[np.int64], lengths: NDArray[np.int64], names: tuple[str, ...]) -> list[str]:
    numbers = [count() for _ in names]
    titles = []
    for which, length in zip(genre.tolist(), lengths.tolist(), strict=True):
        name = title(names[which], next(numbers[which]))
        titles += [name] if length == 1 else [f"{name} part {part}" for part in range(1, length + 1)]
    return titles
