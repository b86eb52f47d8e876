"""A shop with an answer log: histories, then two weeks of answers, and the outcomes of a known click model.

A user looks at place k of an answer with the probability `examination`, and then takes the item with the
probability `relevance` of the user and the item, independently of the other places (the position-based
model). A version ranks by relevance with noise; the canary has less noise, so it sells more. Answers are
drawn from the pool of their version with the probability `explore`; the others show its best items.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from turret.data.answers.form import CANARY, LIVE, answer_id_of, visitor_of
from turret.data.answers.log import SCHEMA
from turret.data.synthetic.shop import DAY, Floats, Ints, ids_of

_OPENING = 1_772_323_200  # 2026-03-01T00:00:00Z, in seconds
_HISTORY_DAYS = 60  # before the first answer
_GENRES = ("Adventure", "Comedy", "Cooking", "Fantasy", "History", "Mystery", "Nature", "Romance")
_TASTE, _APPEAL = 0.9, 0.6  # standard deviations of the logarithm of the relevance
_DECAY = 0.7  # place k is examined with the probability k to the power of -0.7
_BUYS_WITHIN = 1_800  # seconds after the answer
_MOST_PAIRS = 50_000_000
VERSIONS = ("spring", "summer")  # live and canary
KEY = b"the-key-of-visitors-of-a-synthetic-shop"  # a service accepts it


class AnswersConfig(BaseModel, frozen=True, extra="forbid"):
    """The size of the shop, its two versions and their exploration."""

    users: int = Field(4_000, ge=20, le=200_000, description="Number of users.")
    items: int = Field(300, ge=40, le=20_000, description="Number of items.")
    events_per_user: float = Field(12, ge=2, le=30, description="Mean purchases before the first answer.")
    answers_per_user: float = Field(6, gt=0, le=200, description="Mean answers in the time of the log.")
    days: int = Field(14, ge=1, le=365, description="Days of the log.")
    places: int = Field(10, ge=1, le=20, description="Items of an answer.")
    pool: int = Field(30, ge=20, le=40, description="The best items, from which exploration draws.")
    explore: float = Field(0.2, ge=0, le=1, description="The share of answers that are drawn from the pool.")
    canary_share: float = Field(0.5, gt=0, lt=1, description="The share of users whom the canary answers.")
    relevance: float = Field(0.01, gt=0, le=0.2, description="The median relevance of an item to a user.")
    live_noise: float = Field(0.8, ge=0, le=10, description="The noise of the live version's ranking.")
    canary_noise: float = Field(0.6, ge=0, le=10, description="The noise of the canary's ranking.")
    shared_noise: float = Field(
        0.0, ge=0, le=10, description="The noise of an item that a version makes for all users."
    )
    seed: int = Field(0, ge=0, description="The same seed and settings give the same files, byte by byte.")

    @model_validator(mode="after")
    def _fits_memory(self) -> Self:
        if self.users * self.items > _MOST_PAIRS:
            raise ValueError(
                f"users = {self.users} and items = {self.items} make more pairs than {_MOST_PAIRS:,}, "
                "which memory holds; give fewer of either"
            )
        return self


@dataclass(frozen=True)
class World:
    """The truth: genres [N] and prices [N] of items, relevance [U, N], and examination [K] of places."""

    genre: Ints
    price: Floats
    relevance: Floats
    examination: Floats

    @classmethod
    def of(cls, config: AnswersConfig, random: np.random.Generator) -> "World":
        """Draw a world."""
        genre = random.integers(0, len(_GENRES), config.items)
        taste = _TASTE * random.standard_normal((config.users, len(_GENRES)))
        appeal = _APPEAL * random.standard_normal(config.items)
        relevance = config.relevance * np.exp(taste[:, genre] + appeal)
        price = np.round(random.lognormal(2.3, 0.4, config.items)) + 0.99
        places = np.arange(1, config.places + 1, dtype=np.float64)
        return cls(genre, price, np.minimum(relevance, 0.9), places**-_DECAY)

    def ranking(
        self, noise: float, pool: int, random: np.random.Generator, shared_noise: float = 0.0
    ) -> Ints:
        """The pool of each user by a version with this noise, best first [U, pool].

        `shared_noise` is the part that is one for all users: items that the version ranks wrongly everywhere.
        """
        scores = np.log(self.relevance) + noise * random.standard_normal(self.relevance.shape)
        if shared_noise:
            scores += shared_noise * random.standard_normal(self.relevance.shape[1])
        best: Ints = np.argsort(-scores, axis=1, kind="stable")[:, :pool]
        return best

    def values(self, users: Ints, items: Ints) -> Floats:
        """The expected purchases at each place of answers with the items [A, K] to users [A]."""
        expected: Floats = self.examination * self.relevance[users[:, None], items]
        return expected


def show(rankings: Ints, places: int, explore: float, random: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw the items of answers from the pool of each [A, P]; return them and their propensities [A, K].

    With the probability `explore` the items of an answer are drawn evenly from the pool, else they are the
    best of it in their order.
    """
    best, pool = np.arange(places), rankings.shape[1]
    is_drawn = random.random((len(rankings), 1)) < explore
    drawn = np.argsort(random.random(rankings.shape), axis=1)[:, :places]
    chosen = np.where(is_drawn, drawn, best)
    items: Ints = np.take_along_axis(rankings, chosen, axis=1)
    return items, explore / pool + (1 - explore) * (chosen == best)


@dataclass(frozen=True)
class AnswersTables:
    """Events before the answers, events after them, items, users, the answer log, and the true values."""

    events: pl.DataFrame
    outcomes: pl.DataFrame
    items: pl.DataFrame
    users: pl.DataFrame
    answers: pl.DataFrame
    truth: dict[str, Any]


def answer_tables(config: AnswersConfig) -> AnswersTables:
    """Generate the shop.

    Events have user_id, item_id, timestamp and kind, and outcomes also the answer_id that led to each. The
    answers have the columns of `SCHEMA`, in order of time; all of an hour are in its first minute, so that
    the log has a few hundred files.
    """
    random = np.random.default_rng(config.seed)
    world = World.of(config, random)
    user_ids, item_ids = ids_of("u", config.users, 5), ids_of("i", config.items, 4)
    events = _histories(world, config, random)
    rankings = [
        world.ranking(noise, config.pool, random, config.shared_noise)
        for noise in (config.live_noise, config.canary_noise)
    ]
    is_canary = random.random(config.users) < config.canary_share
    count = random.negative_binomial(1, 1 / (1 + config.answers_per_user), config.users)
    users = np.repeat(np.arange(config.users), count)
    hours = random.integers(0, config.days * 24, len(users))
    times = (_OPENING + hours * 3_600) * 1_000 + random.integers(0, 60_000, len(users))
    order = np.argsort(times, kind="stable")
    users, times = users[order], times[order]
    pools = np.where(is_canary[users, None], rankings[1][users], rankings[0][users])
    shown, propensities = show(pools, config.places, config.explore, random)
    ids = pl.Series([answer_id_of(int(time), random.bytes(10)) for time in times], dtype=pl.String)
    answer, place = np.nonzero(random.random(shown.shape) < world.values(users, shown))
    bought = times[answer] // 1_000 + random.integers(10, _BUYS_WITHIN, len(answer))
    outcomes = pl.DataFrame(
        {
            "user_id": user_ids.gather(users[answer]),
            "item_id": item_ids.gather(shown[answer, place]),
            "timestamp": bought,
            "kind": pl.repeat("purchase", len(answer), eager=True),
            "answer_id": ids.gather(answer),
        }
    )
    answers = _log(ids, times, user_ids.gather(users), is_canary[users]).with_columns(
        **_shown(item_ids, shown, propensities)
    )
    items = {"item_id": item_ids, "genres": [_GENRES[genre] for genre in world.genre], "price": world.price}
    return AnswersTables(
        events.with_columns(
            user_id=user_ids.gather(events["user_id"]), item_id=item_ids.gather(events["item_id"])
        ),
        outcomes.sort("timestamp", maintain_order=True),
        pl.DataFrame(items),
        pl.DataFrame({"user_id": user_ids}),
        answers.select(SCHEMA.names()).cast(SCHEMA),
        _truth(world, config, rankings, users),
    )


def _log(ids: pl.Series, times: Ints, users: pl.Series, is_canary: NDArray[np.bool_]) -> pl.DataFrame:
    """The columns of the log with one value an answer."""
    visitors = {user: visitor_of(user, KEY) for user in users.unique()}
    return pl.DataFrame(
        {
            "answer_id": ids,
            "time": pl.Series(times).cast(pl.Datetime("ms", "UTC")),
            "call": pl.repeat("recommend", len(ids), eager=True),
            "version": _either(VERSIONS, is_canary),
            "route": _either((LIVE, CANARY), is_canary),
            "visitor": pl.Series([visitors[user] for user in users], dtype=pl.String),
            "context": pl.repeat("{}", len(ids), eager=True),
            "rules": pl.Series([[]] * len(ids), dtype=pl.List(pl.String)),
        }
    )


def _either(texts: tuple[str, str], is_second: NDArray[np.bool_]) -> pl.Series:
    return pl.Series(texts).gather(is_second.astype(np.uint32))


def _shown(item_ids: pl.Series, shown: Ints, propensities: Floats) -> dict[str, pl.Series]:
    """The columns of lists, one entry an item of the answers [A, K]."""
    places = np.broadcast_to(np.arange(1, shown.shape[1] + 1), shown.shape)
    columns = {
        "items": item_ids.gather(shown.ravel()),
        "places": pl.Series(places.ravel()),
        "scores": pl.Series(-places.ravel()),
        "sources": pl.repeat("towers", shown.size, eager=True),
        "propensities": pl.Series(propensities.ravel()),
    }
    return {name: values.reshape(shown.shape).arr.to_list() for name, values in columns.items()}


def _histories(world: World, config: AnswersConfig, random: np.random.Generator) -> pl.DataFrame:
    """The purchases before the answers, as rows: each user takes different items, by relevance."""
    counts = np.clip(random.poisson(config.events_per_user, config.users), 2, config.items // 2)
    # The largest sums of log weights and Gumbel noise are draws by weight without replacement.
    keys = np.log(world.relevance) + random.gumbel(size=world.relevance.shape)
    best = np.argsort(-keys, axis=1, kind="stable")[:, : counts.max()]
    user, step = np.nonzero(np.arange(best.shape[1]) < counts[:, None])
    times = _OPENING - 1 - random.integers(0, _HISTORY_DAYS * DAY, len(user))
    columns = {"user_id": user, "item_id": best[user, step], "timestamp": times}
    return pl.DataFrame(columns).sort("timestamp", maintain_order=True).with_columns(kind=pl.lit("purchase"))


def _truth(world: World, config: AnswersConfig, rankings: list[Ints], users: Ints) -> dict[str, Any]:
    """The expected purchases and revenue an answer of both versions to the same users, and the lifts.

    `purchases` and `revenue` are with exploration, `best` are the purchases without it.
    """
    versions: dict[str, Any] = {}
    for route, ranking in zip((LIVE, CANARY), rankings, strict=True):
        best = ranking[users, : config.places]
        of_each = {}
        for name, price in (("purchases", np.ones_like(world.price)), ("revenue", world.price)):
            value = (world.values(users, best) * price[best]).sum()
            # A draw shows each item of the pool at each place equally often.
            pool = (
                (world.relevance[users[:, None], ranking[users]] * price[ranking[users]]).mean(axis=1).sum()
            )
            drawn = pool * world.examination.sum()
            of_each[name] = float((1 - config.explore) * value + config.explore * drawn) / max(len(users), 1)
        alone = float(world.values(users, best).sum() / max(len(users), 1))
        versions[route] = {**of_each, "best": alone}
    live, canary = versions[LIVE], versions[CANARY]
    lift = {name: canary[name] / live[name] - 1 if live[name] else 0.0 for name in ("purchases", "revenue")}
    return {"versions": versions, "lift": lift, "examination": world.examination.tolist()}
