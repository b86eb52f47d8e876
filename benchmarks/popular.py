"""The answers of the service to people without a history, on a day of news: the items that are popular now.

The protocol is that of `benchmarks.quality` for `globo`: the last day of the log, hour by hour. Asked is
every click of an hour but the first of its session; items that the session has clicked before are left out.
A news site's way: a version is trained on the day before; before each hour, the articles that have appeared
are put into `POST /v1/items`, the clicks of the hour before are posted to `POST /v1/events`, and a stranger
asks `POST /v1/recommend`. All times are moved so that the day ends now. `recall@20` is that of the answers,
whose sources are counted; `trained` is the same of a service that counts no events.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from benchmarks.next_items import HOUR, METRICS, K, between, by_order, gains, questions
from benchmarks.processes import post, running_service, turret
from benchmarks.timed_sets import TIMED

SET = TIMED["globo"]
# Chosen on the day before: of 6 minutes to an hour, a quarter of an hour has the best recall.
HALF_LIVES = "quarter=15m,hour=1h,week=7d"
# Clicks before the first hour that are posted, and those that the version is trained on.
BEFORE, TRAINED = 6 * HOUR, 24 * HOUR
_MOST, _AT_ONCE = 200, 1_000


def published(clicks: pl.DataFrame, work: Path) -> Path:
    """Train a version on the day before, whose item tower reads when an article was clicked first."""
    day = between(clicks, SET.begins - TRAINED, SET.begins)
    day.write_parquet(work / "clicks.parquet")
    articles(day).write_parquet(work / "items.parquet")
    columns = ("--user", "session_id", "--item", "item_id", "--time", "timestamp_ms", "--item-id", "item_id")
    features = ("--set", 'item_features={number=["hours"]}')
    prepared, trained = work / "prepared", work / "run"
    turret(
        *("data", "prepare", work / "clicks.parquet", "--items", work / "items.parquet", "--to", prepared),
        *(*columns, *features),
    )
    settings = ("--set", "training.epochs=1", "--set", 'tower.item.features=["hours"]')
    turret("train", "--data", prepared, "--run", trained, *settings)
    turret("export", trained, "--bundles", work / "bundles", "--version", "v1")
    return work / "bundles"


def articles(clicks: pl.DataFrame) -> pl.DataFrame:
    """Each item with the hours from the beginning of the log to its first click."""
    first = clicks.group_by("item_id").agg(pl.col("timestamp_ms").min())
    return first.select("item_id", hours=(pl.col("timestamp_ms") - SET.begins) / HOUR)


def put(url: str, items: pl.DataFrame) -> None:
    """Put articles, as lines of JSON."""
    lines = [json.dumps({"id": item, "features": {"hours": hours}}) for item, hours in items.iter_rows()]
    for first in range(0, len(lines), _AT_ONCE):
        body = "\n".join(lines[first : first + _AT_ONCE])
        answer = post(url, "/v1/items", body, {"Content-Type": "application/x-ndjson"})
        if json.loads(answer)["refused"]:
            raise SystemExit(f"articles are refused: {answer[:500]}")


def send(url: str, clicks: pl.DataFrame, shift: int) -> None:
    """Post clicks as events."""
    rows = clicks.select("session_id", "item_id", "timestamp_ms").iter_rows()
    events = [
        {
            "event_id": f"{session}-{item}-{at}",
            "user_id": session,
            "item_id": item,
            "time": (at + shift) / 1000,
        }
        for session, item, at in rows
    ]
    for first in range(0, len(events), _AT_ONCE):
        post(url, "/v1/events", json.dumps({"events": events[first : first + _AT_ONCE]}))


def answers(
    clicks: pl.DataFrame, hours: Sequence[int], bundles: Path, half_lives: str
) -> tuple[list[list[int]], list[str]]:
    """The answer before each hour, and its source."""
    shift = time.time_ns() // 1_000_000 - (SET.begins + SET.periods * HOUR)
    lists, sources = list[list[int]](), list[str]()
    with running_service(bundles, popular=half_lives) as service:
        since = SET.begins - BEFORE
        for hour in hours:
            arrived = articles(between(clicks, SET.begins - TRAINED, hour))
            put(service.url, arrived.filter(pl.col("hours") >= (since - SET.begins) / HOUR))
            send(service.url, between(clicks, since, hour), shift)
            since = hour
            time.sleep(2.0)  # within which every process counts an acknowledged event
            body = {"k": _MOST, "at": (hour + shift) / 1000}
            answer = json.loads(post(service.url, "/v1/recommend", json.dumps(body)))
            lists.append([item["id"] for item in answer["items"]])
            sources.append(answer["items"][0]["source"])
    return lists, sources


def measure(options: Options) -> dict[str, Any]:
    """Replay the day with and without counts, and compare the answers with the clicks of each hour."""
    clicks = SET.read(options.data / SET.name / SET.file)
    count = 2 if options.quick else SET.periods
    hours = [SET.begins + number * SET.period for number in range(count)]
    asked = [questions(clicks, hour, hour + SET.period, SET.repeats) for hour in hours]
    total = sum(len(each.targets) for each in asked)
    with TemporaryDirectory() as work:
        bundles = published(clicks, Path(work))
        figures: dict[str, Any] = {"questions": total, "hours": count, "half_lives": HALF_LIVES}
        for name, half_lives in (("popular_now", HALF_LIVES), ("trained", "")):
            lists, sources = answers(clicks, hours, bundles, half_lives)
            values = [
                gains(by_order(best), each).sum(axis=0) for best, each in zip(lists, asked, strict=True)
            ]
            metrics = dict(zip(METRICS, (sum(values) / total).tolist(), strict=True))
            figures[name] = {**metrics, "sources": {source: sources.count(source) for source in set(sources)}}
    return {f"recall@{K}": figures["popular_now"][f"recall@{K}"], **figures}


if __name__ == "__main__":
    run(measure)
