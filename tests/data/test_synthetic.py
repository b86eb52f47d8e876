"""The synthetic shop: what it promises, and what can be learnt from it."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.synthetic.synthesis import MessyConfig, Report, SyntheticConfig, synthesise

SMALL: dict[str, Any] = {"users": 30, "items": 120, "events_per_user": 15, "longest_history": 30}


@dataclass(frozen=True)
class Shop:
    report: Report
    events: pl.DataFrame
    items: pl.DataFrame
    users: pl.DataFrame

    def histories(self) -> list[list[str]]:
        """Each user's item ids in order."""
        return self.events.group_by("user_id", maintain_order=True).agg("item_id")["item_id"].to_list()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The shop that `turret data synth` makes when nothing is said; it takes a second."""
    report = synthesise(SyntheticConfig(), tmp_path_factory.mktemp("default") / "shop")
    tables = (pl.read_csv(report.folder / f"{name}.csv") for name in ("events", "items", "users"))
    return Shop(report, *tables)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _made(folder: Path, **settings: Any) -> dict[str, bytes]:
    synthesise(SyntheticConfig(**SMALL | settings), folder)
    return _files(folder)


def test_the_files_have_the_size_and_columns_that_were_promised(shop: Shop) -> None:
    assert shop.events.columns == ["user_id", "item_id", "timestamp"]
    assert shop.items.columns == ["item_id", "title", "genres", "price", "released"]
    assert shop.users.columns == ["user_id", "age_group", "country"]
    assert shop.users["user_id"].n_unique() == shop.users.height == shop.report.users == 5_000
    assert shop.items["item_id"].n_unique() == shop.items.height == shop.report.items == 2_000
    assert shop.items["title"].n_unique() == shop.items.height
    assert shop.events.height == shop.report.events
    assert set(shop.events["user_id"]) == set(shop.users["user_id"])
    assert set(shop.events["item_id"]) <= set(shop.items["item_id"])
    assert (shop.items["price"] > 0).all()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    first = _made(tmp_path / "first")
    assert _made(tmp_path / "again") == first
    other = _made(tmp_path / "other", seed=1)
    assert all(other[name] != first[name] for name in ("events.csv", "items.csv", "users.csv"))


def test_only_a_shop_is_overwritten(tmp_path: Path) -> None:
    folder, config = tmp_path / "shop", SyntheticConfig(**SMALL)
    synthesise(config, folder)
    with pytest.raises(DataError, match=r"shop exists already"):
        synthesise(config, folder)
    (folder / "events.csv").write_text("")
    assert synthesise(config, folder, overwrite=True).events > 0
    assert len(_files(folder)["events.csv"]) > 0
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"also holds 'thesis\.tex', so it is not overwritten"):
        synthesise(config, folder, overwrite=True)
    assert (folder / "thesis.tex").read_text() == "years of work"


Rows = NDArray[np.int64]


def test_histories_are_as_long_as_was_asked(shop: Shop) -> None:
    lengths = [len(history) for history in shop.histories()]
    assert min(lengths) == 10
    assert max(lengths) <= 150
    assert sum(length > 100 for length in lengths) > 50
    assert np.mean(lengths) == pytest.approx(40, rel=0.1)


def test_nobody_takes_an_item_twice_or_two_at_once(shop: Shop) -> None:
    assert not shop.events.select("user_id", "item_id").is_duplicated().any()
    assert not shop.events.select("user_id", "timestamp").is_duplicated().any()


def test_nobody_takes_an_item_before_its_release(shop: Shop) -> None:
    released = {row["item_id"]: date.fromisoformat(row["released"]) for row in shop.items.to_dicts()}
    for item, time in shop.events.select("item_id", "timestamp").iter_rows():
        assert released[item] <= datetime.fromtimestamp(time, UTC).date()


# Learnability: popularity and transition counts rank the held-out last item among the unseen items; hits are
# in the first 20.


def _codes(shop: Shop) -> tuple[Rows, Rows]:
    """Users and items as numbers [E], each user's events together and in order."""
    users = shop.events["user_id"].str.slice(1).cast(pl.Int64).to_numpy()
    items = shop.events["item_id"].str.slice(1).cast(pl.Int64).to_numpy()
    order = np.argsort(users, kind="stable")
    return users[order], items[order]


def _hit_rates(users: Rows, items: Rows, count: int) -> tuple[float, float]:
    """HR@20 of popularity and of the transition counter (ties between items go to the more popular one)."""
    last = np.flatnonzero(np.append(users[1:] != users[:-1], True))
    train = np.delete(np.arange(len(users)), last)
    popularity = np.bincount(items[train], minlength=count).astype(np.float64)
    transitions = np.zeros((count, count))
    pairs = train[1:][(np.diff(train) == 1) & (users[train[1:]] == users[train[:-1]])]
    np.add.at(transitions, (items[pairs - 1], items[pairs]), 1)
    seen = np.zeros((len(last), count), dtype=bool)
    seen[users[train], items[train]] = True
    hits = [
        _hits(np.where(seen, -np.inf, scores), items[last])
        for scores in (
            popularity[None, :],
            transitions[items[last - 1]] + popularity / (2 * popularity.max()),
        )
    ]
    return hits[0], hits[1]


def _hits(scores: NDArray[np.float64], targets: Rows) -> float:
    of_target = scores[np.arange(len(targets)), targets][:, None]
    better = (scores > of_target).sum(axis=1)
    return float(np.mean((better < 20) & np.isfinite(of_target[:, 0])))


def test_a_counter_of_transitions_beats_popularity_clearly(shop: Shop) -> None:
    popularity, transitions = _hit_rates(*_codes(shop), shop.items.height)
    assert transitions > 3 * popularity > 0.1


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    config = MessyConfig(users=600, items=400, robots=2, robot_events=1_000)
    report = synthesise(config, tmp_path_factory.mktemp("messy") / "shop")
    tables = (pl.read_csv(report.folder / f"{name}.csv") for name in ("events", "items", "users"))
    return Shop(report, *tables)


def test_the_messy_shop_has_a_funnel_repeats_strangers_logins_and_robots(messy: Shop) -> None:
    events = messy.events
    kinds = dict(events["event"].value_counts().iter_rows())
    assert kinds["view"] > kinds["cart"] > kinds["purchase"] > kinds["return"] > 0
    bought = events.filter(pl.col("event") == "purchase").drop_nulls().unique()
    carts = events.filter(pl.col("event") == "cart")
    same = ["session_id", "item_id"]
    assert bought.join(carts, on=same, how="semi").height > 0.99 * bought.height
    durable = messy.items.filter(pl.col("category").str.contains("Clothing|Electronics|Toys|Sport"))
    uses = bought.group_by("user_id", "item_id").len()
    is_durable = uses["item_id"].is_in(durable["item_id"].to_list()).to_numpy()
    again = uses["len"].to_numpy() - 1.0
    assert again[~is_durable].mean() > 10 * again[is_durable].mean()
    sessions = events.drop_nulls("session_id").group_by("session_id")
    unknown = sessions.agg(pl.col("user_id").is_null().mean())["user_id"].to_numpy()
    assert (unknown == 1).mean() > 0.1
    assert ((unknown > 0) & (unknown < 1)).mean() > 0.05
    most = events.drop_nulls("user_id")["user_id"].value_counts(sort=True).head(3)["count"].to_list()
    assert most[1] >= 1_000 > 2 * most[2]


def test_the_messy_shop_is_bad_in_few_rows_and_the_same_for_a_seed(messy: Shop, tmp_path: Path) -> None:
    events = messy.events
    assert events.columns == ["user_id", "session_id", "item_id", "event", "time"]
    times = events["time"].str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    assert 0 < times.null_count() < 0.001 * events.height
    assert times.drop_nulls().is_sorted()
    assert 0 < events["item_id"].null_count() < 0.001 * events.height
    assert 0.01 < 1 - events.unique().height / events.height < 0.04
    assert messy.items["price"].str.contains(r"^\$[\d,]+\.\d\d$").all()
    assert messy.items["category"].str.count_matches(" > ").unique().to_list() == [2]
    assert 0 < (messy.items["stock"].to_numpy() == 0).mean() < 0.2
    again = synthesise(MessyConfig(users=600, items=400, robots=2, robot_events=1_000), tmp_path / "again")
    assert _files(again.folder) == _files(messy.report.folder)
