"""The sets of `benchmarks.quality` that are split by time, and how a model is kept fresh on each.

Time is cut into periods. At the beginning of each period, all may read the log before it: the model is
updated by a warm start, the baselines count anew. Then all answer the same questions of that period.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.next_items import HOUR, Answers, co_occurring, most_recent, popular, read_clicks

DAY = 24 * HOUR
CONTEXT = ("environment", "device_group", "os", "country", "region", "referrer_type")
Baseline = Callable[[pl.DataFrame], Answers]
"""Makes answers from the log before a period."""


@dataclass(frozen=True)
class Recipe:
    """The training of the model: an experiment, and the settings that are changed in it.

    The first model is trained on the `base_window` before the first period. After `every` periods (0: never)
    it is updated: it reads the `window` before, and learns the last `since` of it. With a `half_life`, an
    event counts half as much as one that is that much younger. These four are in milliseconds.
    """

    experiment: str
    base: tuple[str, ...]
    base_window: int
    update: tuple[str, ...]
    window: int
    since: int
    every: int
    half_life: int | None = None

    def in_hours(self) -> dict[str, Any]:
        """The recipe for JSON, with lengths of time in hours."""
        return {
            "base": list(self.base),
            "base_hours": self.base_window / HOUR,
            "update": list(self.update),
            "update_reads_hours": self.window / HOUR,
            "update_predicts_hours": self.since / HOUR,
            "periods_between_updates": self.every,
            "half_life_hours": None if self.half_life is None else self.half_life / HOUR,
        }


@dataclass(frozen=True)
class TimedSet:
    """A set that is split by time: its periods, the recipe of the model, and the baselines.

    Attributes:
        name: the folder of the data.
        protocol: some sentences for people.
        file: the file below the folder.
        read: reads `session_id`, `item_id` and `timestamp_ms` from that file, in order within a session.
        begins: when the first period of the test begins, in milliseconds since 1970.
        period: its length in milliseconds.
        periods: how many there are.
        repeats: whether an item that its session has had before can be a target.
        recipe: the recommended recipe, which was chosen on the periods before `begins`.
        features: columns that the model may read of a session's first click, or of each click.
        baselines: the baselines by name.
        by_click: whether the features are the context of each click, and not those of the first one.
    """

    name: str
    protocol: str
    file: str
    read: Callable[[Path], pl.DataFrame]
    begins: int
    period: int
    periods: int
    repeats: bool
    recipe: Recipe
    features: tuple[str, ...]
    baselines: dict[str, Baseline]
    by_click: bool = False

    def with_context(self) -> "TimedSet":
        """The set whose features are the context of each click."""
        before, after = "tower.user.features=", "tower.user.context_features="
        base = tuple(setting.replace(before, after) for setting in self.recipe.base)
        return replace(self, by_click=True, recipe=replace(self.recipe, base=base))


def day_of(text: str) -> int:
    """A date, or a date and a time, in UTC, in milliseconds since 1970."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def read_news(path: Path) -> pl.DataFrame:
    """Clicks, and the context of each as texts: its codes are names, not numbers."""
    return read_clicks(path, CONTEXT).with_columns(pl.col(CONTEXT).cast(pl.String))


def read_purchases(path: Path) -> pl.DataFrame:
    """The purchases of known customers, without returns: those of one customer are one session.

    Lines of one invoice have one time, and stay in the order of the file; `invoice_no` names the invoice.
    """
    lines = pl.read_parquet(path).filter(pl.col("user_id").is_not_null() & (pl.col("quantity") > 0))
    bought = lines.select(
        pl.col("user_id").alias("session_id"),
        "item_id",
        (pl.col("timestamp") * 1000).alias("timestamp_ms"),
        "invoice_no",
    )
    return bought.sort("session_id", "timestamp_ms", maintain_order=True)


def last(length: int, baseline: Callable[[pl.DataFrame], Answers]) -> Baseline:
    """The baseline over the last `length` milliseconds up to the newest click: a shop may close for a day."""

    def counted(before: pl.DataFrame) -> Answers:
        times = before["timestamp_ms"].to_numpy()
        return baseline(before.filter(pl.col("timestamp_ms") > times.max() - length))

    return counted


_GLOBO = TimedSet(
    name="globo",
    protocol=(
        "the last day of the log, hour by hour: before each hour the model goes on (`turret train --from`) "
        "and the baselines count anew. Asked is every click of the hour but the first of its session, from "
        "the session's clicks before it; intervals over sessions. The model also reads device, system, "
        "country, region and referrer of the first click. Settings were chosen on the day before"
    ),
    file="clicks.parquet",
    read=read_news,
    begins=day_of("2017-10-16T03:00"),
    period=HOUR,
    periods=24,
    repeats=True,
    recipe=Recipe(
        experiment="youtubednn",
        base=(
            "tower.user.history_length=20",
            "tower.user.dropout=0.3",
            'tower.user.features="all"',
            'objective={loss="full_softmax"}',
            "training.epochs=8",
            "training.batch_size=512",
        ),
        base_window=DAY,
        update=("training.epochs=5",),
        window=DAY,
        since=6 * HOUR,
        every=1,
        half_life=7 * HOUR // 10,
    ),
    features=CONTEXT,
    baselines={
        "popular in the last hour": last(HOUR, popular),
        "most recent": most_recent,
        "co-occurrence": last(HOUR, lambda clicks: co_occurring(clicks, newest=3)),
        "popularity": popular,
    },
)
_RETAIL = TimedSet(
    name="online-retail",
    protocol=(
        "the last month of the log, day by day: before each day the baselines count anew, and every seventh "
        "day the model goes on. Asked is every line of the day's invoices but the first of a new customer, "
        "from all that the customer bought before, which is masked; intervals over customers. Settings were "
        "chosen on the month before"
    ),
    file="transactions.parquet",
    read=read_purchases,
    begins=day_of("2011-11-09"),
    period=DAY,
    periods=31,
    repeats=False,
    recipe=Recipe(
        experiment="youtubednn",
        base=(
            'objective={loss="full_softmax"}',
            "tower.user.history_length=5",
            "tower.user.dropout=0.2",
            "training.epochs=12",
        ),
        base_window=400 * DAY,
        update=("training.epochs=3", "training.learning_rate=2e-3", "training.batch_size=512"),
        window=400 * DAY,
        since=7 * DAY,
        every=7,
    ),
    features=(),
    baselines={
        "popular in the last day": last(DAY, popular),
        "popular in the last week": last(7 * DAY, popular),
        "most recent": most_recent,
        "co-occurrence": lambda before: co_occurring(before, newest=1, together="invoice_no"),
        "popularity": popular,
    },
)
TIMED = {timed_set.name: timed_set for timed_set in (_GLOBO, _RETAIL)}
