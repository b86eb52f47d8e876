"""The synthetic shop: what it promises, and what can be learnt from it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.places import ROOT
from turret.data.configuration import load_configuration
from turret.data.errors import DataError
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import MessyConfig, Report, SyntheticConfig, synthesise

SMALL: dict[str, Any] = {"users": 30, "items": 120, "events_per_user": 15, "longest_history": 30}


@dataclass(frozen=True)
class Shop:
    report: Report
    events: pl.DataFrame
    items: pl.DataFrame
    users: pl.DataFrame


def _made(config: SyntheticConfig | MessyConfig, folder: Path) -> Shop:
    report = synthesise(config, folder)
    return Shop(report, *(pl.read_csv(folder / f"{name}.csv") for name in ("events", "items", "users")))


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The shop that `turret data synth` makes when nothing is said; it takes a second."""
    return _made(SyntheticConfig(), tmp_path_factory.mktemp("default") / "shop")


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


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    first, again, other = (
        _files(synthesise(SyntheticConfig(**SMALL, seed=seed), tmp_path / name).folder)
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert again == first
    assert all(other[name] != first[name] for name in ("events.csv", "items.csv", "users.csv"))


def test_only_a_shop_is_overwritten(tmp_path: Path) -> None:
    folder, config = tmp_path / "shop", SyntheticConfig(**SMALL)
    synthesise(config, folder)
    (folder / "events.csv").write_text("")
    assert synthesise(config, folder, overwrite=True).events > 0
    assert len(_files(folder)["events.csv"]) > 0
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"also holds 'thesis\.tex', so it is not overwritten"):
        synthesise(config, folder, overwrite=True)
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_histories_are_as_long_as_was_asked_of_items_that_are_new_to_their_user(shop: Shop) -> None:
    lengths = shop.events["user_id"].value_counts()["count"].to_numpy()
    assert (lengths.min(), lengths.max() <= 150) == (10, True)
    assert (lengths > 100).sum() > 50
    assert lengths.mean() == pytest.approx(40, rel=0.1)
    for pair in (["user_id", "item_id"], ["user_id", "timestamp"]):
        assert not shop.events.select(pair).is_duplicated().any()
    released = dict(shop.items.select("item_id", pl.col("released").str.to_date()).iter_rows())
    for item, time in shop.events.select("item_id", "timestamp").iter_rows():
        assert released[item] <= datetime.fromtimestamp(time, UTC).date()


def test_the_item_before_tells_more_than_popularity(shop: Shop) -> None:
    """The last item of a user is among the 20 that most often follow the one before, or are most popular."""
    events = shop.events.with_columns(pl.col("item_id").shift().over("user_id").alias("before"))
    is_last = pl.int_range(pl.len()).over("user_id") == pl.len().over("user_id") - 1
    last, train = events.filter(is_last), events.filter(~is_last)
    popular = train["item_id"].value_counts(sort=True).head(20)["item_id"].to_list()
    counts = train.drop_nulls().group_by("before", "item_id").len().sort("len", descending=True)
    following = counts.group_by("before", maintain_order=True).head(20)
    by_transition = last.join(following, on=["before", "item_id"], how="semi").height
    assert by_transition > 3 * last["item_id"].is_in(popular).sum() > 0.1 * last.height


MESSY = MessyConfig(users=600, items=400, robots=2, robot_events=1_000)


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return _made(MESSY, tmp_path_factory.mktemp("messy") / "shop")


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
    assert _files(synthesise(MESSY, tmp_path / "again").folder) == _files(messy.report.folder)


def test_the_messy_log_in_two_files_is_that_in_one(messy: Shop, tmp_path: Path) -> None:
    """The settings that lie beside them are those that docs/messy_shop.md shows."""
    folder = synthesise(MESSY, tmp_path / "two", sources=True).folder
    shared = {
        "kinds": {"view": "signal", "cart": "signal", "purchase": "target", "return": "negative"},
        "filters.session_gap": "30m",
        "filters.duplicates": "strongest",
        "on_bad": "drop",
    }
    one = {"source": messy.report.folder / "events.csv", "columns.session": "session_id"}
    files = {"source_files": [f"web:{folder}/web.jsonl", f"orders:{folder}/orders.csv"]}
    two = load_configuration(PrepareConfig, folder / "sources.toml", {**shared, **files})
    whole = load_configuration(PrepareConfig, overrides={**shared, **one})
    reports = [prepare(config, tmp_path / name) for name, config in (("1", whole), ("2", two))]
    assert reports[0].manifest.fingerprint == reports[1].manifest.fingerprint
    page = (ROOT / "docs" / "messy_shop.md").read_text("utf-8")
    assert f"```toml\n{(folder / 'sources.toml').read_text()}```" in page
