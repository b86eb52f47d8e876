"""A shop with kinds of events, repeated purchases, strangers and robots, in files as people bring them."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from turret.data.synthetic.shop import COUNTRIES, DAY, Floats, Ints, ids_of

# Shelves: their products, and the mean days after which a person buys one again; - for durable goods.
_SHELVES = """\
Food > Coffee: Beans Ground Capsules: 18
Food > Tea: Green Black Herbal: 25
Food > Snacks: Nuts Chocolate Crisps: 12
Food > Breakfast: Muesli Oats Jam: 20
Pets > Cats: Pouches Litter Treats: 15
Pets > Dogs: Kibble Chews Biscuits: 22
Home > Cleaning: Detergent Soap Sponges: 35
Beauty > Skin: Cream Lotion Sunscreen: 40
Electronics > Audio: Headphones Speakers Turntables: -
Electronics > Kitchen: Grinders Kettles Toasters: -
Home > Lights: Lamps Lanterns Spotlights: -
Home > Furniture: Chairs Shelves Desks: -
Clothing > Shoes: Boots Sandals Trainers: -
Clothing > Jackets: Parkas Raincoats Fleeces: -
Sport > Camping: Tents Stoves Backpacks: -
Toys > Games: Puzzles Cards Blocks: -
"""
_BRANDS = ["Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gorse", "Hazel", "Ivy", "Juniper"]
_KINDS = ["view", "cart", "purchase", "return"]
_VIEW, _CART, _PURCHASE, _RETURN = range(4)

_OPENING = 1_735_689_600  # 2025-01-01T00:00:00Z
_DAYS = 300  # of the log
_STRANGERS = 0.6  # people without an account, for each with one
_LOYALTY = 0.6  # the share of bought consumables bought again
_EVENTS_A_VISIT = 7.5  # the mean that results
_BROWSING, _CHECKOUT = 900, 1_500  # seconds after the begin of a visit
_IN_CART, _BOUGHT = 0.4, 0.6  # of the items viewed, and of those in the cart
_COMES_BACK = [0.06, 0.4, 0.0]  # at the next visit: for an item viewed, in the cart, bought
_RETURNED = [0.01, 0.1]  # of the consumables, and of the durable goods
_LOGS_IN_LATER, _NEVER_LOGS_IN = 0.25, 0.15  # of the visits of people with an account
_DOUBLE_CLICKS, _BAD_ROWS = 0.02, 0.0005
_NO_TIMES = ["00.00.0000", "soon", ""]


class MessyConfig(BaseModel, frozen=True, extra="forbid"):
    """The size of the shop and of its mess."""

    users: int = Field(4_000, ge=1, le=500_000, description="People with an account.")
    items: int = Field(1_500, ge=100, le=1_000_000, description="Number of items.")
    events_per_user: float = Field(80, ge=8, le=500, description="About the mean events of these people.")
    robots: int = Field(3, ge=0, le=1_000, description="Accounts that are no people.")
    robot_events: int = Field(3_000, ge=1, le=100_000, description="The events of each.")
    seed: int = Field(0, ge=0, description="The same seed and settings give the same files, byte by byte.")


@dataclass(frozen=True)
class _Catalog:
    """Items [N], sorted by product; products [L] are the last levels of the paths."""

    product: Ints  # [N]
    summed: Floats  # [N], cumulated popularity; that of a product sums to 1
    companion: Ints  # [N], the item that is looked at next
    interval: Floats  # [L], days until it is bought again; nan for durable goods
    paths: list[str]  # [L]


@dataclass(frozen=True)
class _Visits:
    """Visits [V] sorted by person and day; people with an account come first."""

    person: Ints
    day: Ints
    start: Ints  # seconds since 1970

    def interests(self, person: Ints, day: Ints, item: Ints) -> Ints:
        """Return items that are bought at the first visit, if any, from a day on, as `_explore` does."""
        visit = np.searchsorted(self.person * _DAYS + self.day, person * _DAYS + day)
        is_there = (day < _DAYS) & (np.append(self.person, -1)[visit] == person)
        return np.stack([visit, item, np.full(len(item), _PURCHASE)])[:, is_there]


def messy_tables(
    config: MessyConfig, random: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, Ints]:
    """Generate events, items and users, and the times of the events in seconds since 1970.

    People visit on days of their own, look at items of products they like, and at an item's companion. Some
    items get into the cart, some of these are bought, and some of the others are bought at the next visit. A
    consumable that was bought is bought again each time a personal interval is over, with a probability that
    differs between people; durable goods are not, and are returned more often. Strangers visit up to three
    times with one session id. An account logs in at once, in the middle of a visit, or not at all.
    """
    catalog = _create_catalog(config, random)
    people = config.users + round(config.users * _STRANGERS)
    visits = _visits(config, people, random)
    explored = _explore(catalog, visits, people, random)
    again = _buy_again(explored, catalog, visits, random)
    interests = np.hstack([again, _come_back(explored, visits, random), explored])
    _, is_first = np.unique(interests[0] * config.items + interests[1], return_index=True)
    log = _clicks(interests[:, is_first], catalog, visits, config.users, random)
    log = np.hstack([log, _robots(config, len(visits.person), random)])
    log = np.hstack([log, log[:, random.random(log.shape[1]) < _DOUBLE_CLICKS]])
    log = log[:, np.argsort(log[-1], kind="stable")]
    # Ids are shuffled, so the numbers of robots tell nothing.
    user_ids = ids_of("u", config.users + config.robots, 5)
    user_ids = user_ids.gather(random.permutation(len(user_ids)))
    session_ids = ids_of("s", len(visits.person) + config.robots, 6)
    names = [user_ids, session_ids, ids_of("i", config.items, 4), pl.Series(_KINDS)]
    return _events(log, names, random), _items(catalog, random), _users(user_ids, random), log[-1]


def _create_catalog(config: MessyConfig, random: np.random.Generator) -> _Catalog:
    paths, intervals = [], []
    for shelf, products, days in (line.split(": ") for line in _SHELVES.splitlines()):
        paths += [f"{shelf} > {product}" for product in products.split()]
        intervals += [np.nan if days == "-" else float(days)] * len(products.split())
    product = np.arange(config.items) * len(paths) // config.items
    popularity = 1.0 / random.permutation(np.arange(1, config.items + 1)) ** 0.7
    summed = np.cumsum(popularity / np.bincount(product, popularity)[product])
    companion = _draw(summed, random.permutation(len(paths))[product], random)
    return _Catalog(product, summed, companion, np.array(intervals), paths)


def _draw(summed: Floats, group: Ints, random: np.random.Generator) -> Ints:
    """Draw a position of each group by weights that sum to 1 in each; `summed` are the cumulated weights."""
    points = group + random.uniform(1e-9, 1 - 1e-9, len(group))
    return np.minimum(np.searchsorted(summed, points), len(summed) - 1)


def _visits(config: MessyConfig, people: int, random: np.random.Generator) -> _Visits:
    mean = config.events_per_user / _EVENTS_A_VISIT - 1
    count = 1 + random.poisson(random.gamma(2.0, mean / 2.0, people))
    count[config.users :] = random.integers(1, 4, people - config.users)
    person = np.repeat(np.arange(people), count)
    # Most people knew the shop before the log. People visit it once a day.
    since = np.where(random.random(people) < 0.7, 0.0, random.uniform(0, 0.7, people))[person]
    moment = (since + (1 - since) * random.random(len(person))) * _DAYS
    person_day = np.unique(person * _DAYS + moment.astype(np.int64))
    person, day = person_day // _DAYS, person_day % _DAYS
    seconds = np.clip(random.normal(19, 3, len(person)) * 3_600, 0, 22 * 3_600).astype(np.int64)
    return _Visits(person, day, _OPENING + day * DAY + seconds)


def _explore(catalog: _Catalog, visits: _Visits, people: int, random: np.random.Generator) -> Ints:
    """Return the items that people find, mostly of one product in a visit, and their companions.

    The rows are the visit, the item, and the last kind of event that each item gets to.
    """
    taste = random.gamma(0.15, size=(people, len(catalog.paths))) + 1e-6
    summed = np.cumsum(taste / taste.sum(axis=1, keepdims=True))

    def liked(person: Ints) -> Ints:
        return _draw(summed, person, random) - person * len(catalog.paths)

    visit = np.repeat(np.arange(len(visits.person)), 1 + random.poisson(0.5, len(visits.person)))
    mood, other = liked(visits.person)[visit], liked(visits.person[visit])
    item = _draw(catalog.summed, np.where(random.random(len(visit)) < 0.6, mood, other), random)
    follows = random.random(len(visit)) < 0.4
    visit, item = np.append(visit, visit[follows]), np.append(item, catalog.companion[item[follows]])
    in_cart, bought = random.random((2, len(visit))) < [[_IN_CART], [_BOUGHT]]
    return np.stack([visit, item, np.where(in_cart, np.where(bought, _PURCHASE, _CART), _VIEW)])


def _come_back(interests: Ints, visits: _Visits, random: np.random.Generator) -> Ints:
    """Return the items that were not bought, and are bought at the next visit."""
    visit, item, _ = interests[:, random.random(interests.shape[1]) < np.array(_COMES_BACK)[interests[2]]]
    return visits.interests(visits.person[visit], visits.day[visit] + 1, item)


def _buy_again(interests: Ints, catalog: _Catalog, visits: _Visits, random: np.random.Generator) -> Ints:
    """Return consumables that are due at regular intervals and bought at the next visit, until habits end."""
    people = visits.person[-1] + 1
    pace, stays = random.lognormal(0, 0.35, people), random.beta(2 * _LOYALTY, 2 * (1 - _LOYALTY), people)
    interval = catalog.interval[catalog.product[interests[1]]]
    is_habit = np.isfinite(interval) & (random.random(len(interval)) < stays[visits.person[interests[0]]])
    begun = np.flatnonzero(is_habit & (interests[2] == _PURCHASE))
    count = random.geometric(1 / 12, len(begun))
    each = np.repeat(begun, count)
    visit, item, _ = interests[:, each]
    gaps = random.gamma(8.0, 1 / 8.0, len(each)) * interval[each] * pace[visits.person[visit]]
    due = np.cumsum(gaps)
    first = np.cumsum(count) - count
    due -= np.repeat(due[first] - gaps[first], count)
    return visits.interests(visits.person[visit], visits.day[visit] + np.ceil(due).astype(np.int64), item)


def _clicks(
    interests: Ints, catalog: _Catalog, visits: _Visits, users: int, random: np.random.Generator
) -> Ints:
    """Return the events of people, in rows: user (-1: unknown), session (-1: none), item, kind and time."""
    count = interests.shape[1]
    views = np.minimum(random.geometric(0.55, count), 6)
    steps = views + interests[2]  # an event for the cart, and one for the purchase
    step = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
    begin, pace = random.integers(0, _BROWSING, count), random.integers(5, 60, count)
    visit, item, _, views, begin, pace = np.repeat(np.vstack([interests, views, begin, pace]), steps, axis=1)
    kind = np.maximum(step - views + 1, _VIEW)
    after = np.where(kind == _PURCHASE, _CHECKOUT + begin // 30, begin + step * pace)
    time = visits.start[visit] + after

    # From second `login` of a visit on, its account is known; a stranger's cookie has one session id.
    manner, middle = random.random(len(visits.start)), random.integers(1, _CHECKOUT, len(visits.start))
    login = np.where(manner < _LOGS_IN_LATER, middle, 0)
    login[(manner > 1 - _NEVER_LOGS_IN) | (visits.person >= users)] = DAY
    user = np.where(after >= login[visit], visits.person[visit], -1)
    first = np.searchsorted(visits.person, visits.person)
    number = np.where(visits.person < users, np.arange(len(first)), first)
    log = np.stack([user, random.permutation(len(first))[number[visit]], item, kind, time])

    is_durable = np.isnan(catalog.interval[catalog.product[item]]).astype(np.int64)
    back = log[
        :, (kind == _PURCHASE) & (user >= 0) & (random.random(len(kind)) < np.array(_RETURNED)[is_durable])
    ]
    back[1], back[3] = -1, _RETURN
    back[4] += random.integers(2 * DAY, 25 * DAY, back.shape[1])
    return np.hstack([log, back[:, back[4] < _OPENING + _DAYS * DAY]])


def _robots(config: MessyConfig, sessions: int, random: np.random.Generator) -> Ints:
    """Return the events of accounts that look at all items in turn, within hours, as `_clicks` does."""
    robot, turn = np.divmod(np.arange(config.robots * config.robot_events), config.robot_events)
    seconds = random.integers(1, 4, (config.robots, config.robot_events)).cumsum(axis=1).ravel()
    begin = _OPENING + random.integers(0, (_DAYS - 5) * DAY, config.robots)
    item, kind = (turn * 7 + robot) % config.items, np.full(len(turn), _VIEW)
    return np.stack([config.users + robot, sessions + robot, item, kind, begin[robot] + seconds])


def _events(log: Ints, names: list[pl.Series], random: np.random.Generator) -> pl.DataFrame:
    """Write numbers as ids and times as texts, and lose some times and items."""
    count = log.shape[1]
    user, session, item, kind = (
        of.gather(pl.Series(row).replace(-1, None)) for of, row in zip(names, log, strict=False)
    )
    time = pl.from_epoch(pl.Series(log[-1])).dt.strftime("%Y-%m-%d %H:%M:%S")
    loss = np.where(random.random(count) < _BAD_ROWS, random.integers(0, 2 * len(_NO_TIMES), count), -1)
    is_lost = pl.Series((loss >= 0) & (loss < len(_NO_TIMES)))
    lost = pl.Series(_NO_TIMES).gather(loss.clip(0) % len(_NO_TIMES))
    item = pl.Series([None], dtype=pl.String).zip_with(pl.Series(loss >= len(_NO_TIMES)), item)
    return pl.DataFrame(
        {
            "user_id": user,
            "session_id": session,
            "item_id": item,
            "event": kind,
            "time": lost.zip_with(is_lost, time),
        }
    )


def _items(catalog: _Catalog, random: np.random.Generator) -> pl.DataFrame:
    count = len(catalog.product)
    brand = pl.Series(_BRANDS).gather(random.integers(0, len(_BRANDS), count))
    usual = random.lognormal(3.0, 1.0, len(catalog.paths)) * np.where(np.isnan(catalog.interval), 8, 0.5)
    price = np.maximum(np.round(usual[catalog.product] * random.lognormal(0, 0.3, count)), 1) - 0.01
    path = pl.Series(catalog.paths).gather(catalog.product)
    number = np.arange(count) - np.searchsorted(catalog.product, catalog.product) + 1
    listed = _OPENING - random.integers(1, 900, count) * DAY
    words = zip(brand, path.str.split(" > ").list.last(), number, strict=True)
    return pl.DataFrame(
        {
            "item_id": ids_of("i", count, 4),
            "title": [f"{name} {product} no. {place}" for name, product, place in words],
            "brand": brand,
            "category": path,
            "price": [f"${value:,.2f}" for value in price],
            "stock": np.where(random.random(count) < 0.1, 0, random.integers(1, 200, count)),
            "on_sale": random.random(count) < 0.15,
            "fair_trade": random.random(count) < 0.3,
            "listed": pl.from_epoch(pl.Series(listed)).dt.date(),
        }
    )


def _users(ids: pl.Series, random: np.random.Generator) -> pl.DataFrame:
    joined = _OPENING - random.integers(-20, 1_500, len(ids)) * DAY
    return pl.DataFrame(
        {
            "user_id": ids.sort(),
            "country": pl.Series(COUNTRIES).gather(random.integers(0, len(COUNTRIES), len(ids))),
            "newsletter": random.random(len(ids)) < 0.4,
            "joined": pl.from_epoch(pl.Series(joined)).dt.date(),
        }
    )
