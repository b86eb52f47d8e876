"""Scores every user of a source into a Parquet file, block by block, in a thread for each core."""

import gc
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import polars as pl

from turret.data.errors import ConfigurationError, without_credentials
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.progress import progress
from turret.scoring.conditions import check, request_of
from turret.scoring.parts import opened as opened_parts
from turret.scoring.scorer import Block, Scorer
from turret.scoring.stored_users import OpenStore, StoreUsers, stored_rules
from turret.scoring.users import DataUsers, FileUsers, Load, UserSource, file_identity
from turret.service.overlay.fresh import FreshItems, empty_overlay
from turret.service.ranking.query import add_rules
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import read_settings
from turret.service.stores.contract import now_ms
from turret.service.versions.record import Rule, RuleSet
from turret.tower.bundle.bundle import Bundle

# Users of a part. Each takes some kilobytes while it is ranked, and a part of fewer is slower.
PART = 4_096


@dataclass(frozen=True)
class Users:
    """Where the users come from: prepared data or the store of a service, perhaps those that a file names.

    Without `data` and `store`, the rows of the file `users` have the histories.
    """

    data: Path | None = None
    store: str | None = None
    users: Path | None = None

    def __post_init__(self) -> None:
        if self.data is not None and self.store is not None:
            raise ConfigurationError(
                "the histories are in the data or in the store; name --data or --store, not both"
            )
        if self.data is None and self.store is None and self.users is None:
            raise ConfigurationError("no users are named; add --data DIR, --store URL or --users FILE")

    def identity(self, data: PreparedData | None) -> str:
        """The source as text, without credentials, by which a run that goes on knows it."""
        named = file_identity(self.users)
        if data is not None:
            return f"data {data.fingerprint} {named}"
        return f"file {named}" if self.store is None else f"store {without_credentials(self.store)} {named}"


@dataclass(frozen=True)
class ScoreReport:
    """The numbers of users of this run, of rows of the file, and the seconds taken."""

    users: int
    rows: int
    seconds: float

    def sentence(self, target: Path) -> str:
        """Describe the run, for people."""
        rate = self.users / max(self.seconds, 1e-9)
        took = f"{self.seconds:.1f} s, {rate:,.0f} users/s"
        return f"{self.rows:,} rows are in {target}; this run has scored {self.users:,} users ({took})"


Table = Callable[[Scorer, Block, bool], pl.DataFrame]  # the rows of a block; true: ids are whole numbers


def score(
    bundle: Bundle,
    source: Users,
    target: Path,
    conditions: Mapping[str, Any],
    by_index: bool = False,
    part: int = PART,
) -> ScoreReport:
    """Write the recommendations of every user into the Parquet file `target`; raises as `run`.

    `conditions` are the fields of a request.
    """
    return run("scores", Scorer.table, bundle, source, target, conditions, by_index, part)


def run(
    kind: str,
    table: Table,
    bundle: Bundle,
    source: Users,
    target: Path,
    conditions: Mapping[str, Any],
    by_index: bool = False,
    part: int = PART,
    metadata: Mapping[str, str] | None = None,
    history: HistoryEnd = "end",
) -> ScoreReport:
    """Write a table of every block of users into the Parquet file `target`, with this metadata.

    A run of the same `kind` that was killed goes on after its complete parts. Raises ConfigurationError for
    conditions that no request or this version can have, and for parts of another run.
    """
    begun = monotonic()
    with opened_source(bundle, source, conditions) as opened:
        settings = {
            **opened.request.model_dump(mode="json", exclude_defaults=True),
            "kind": kind,
            "bundle": bundle.digest,
            "source": source.identity(opened.data),
            "index": by_index,
            "part": part,
            "rules": {name: rule.model_dump() for name, rule in opened.chosen_rules.items()},
        }
        with opened_parts(target, settings, now_ms()) as parts:
            scorer = Scorer(bundle, opened.fresh, by_index)
            users = opened.users(scorer, parts.begun, parts.folder, history)

            def work(number: int, load: Load) -> int:
                block = opened.with_rules(load())
                parts.write(number, table(scorer, block, users.is_whole))
                return len(block.users)

            count = _in_threads(users, parts.is_complete, work, part)
            return ScoreReport(count, parts.join(metadata), monotonic() - begun)


@dataclass(frozen=True)
class OpenSource:
    """An opened source of users, with the overlay and the rules that answers depend on."""

    source: Users
    conditions: Mapping[str, Any]
    request: RecommendRequest
    store: OpenStore | None
    data: PreparedData | None
    fresh: FreshItems
    rules: RuleSet

    @property
    def chosen_rules(self) -> Mapping[str, Rule]:
        """The rules that the request names, else the default ones."""
        return self.rules.chosen(self.request.rules)

    def users(self, scorer: Scorer, now: int, folder: Path, history: HistoryEnd = "end") -> UserSource:
        """The users, asked about at `now`; `folder` takes the list of those of a store."""
        bundle, file = scorer.model.bundle, self.source.users
        if self.store is None:
            return users_of(self.source, self.data, bundle, self.conditions, now, history)
        return StoreUsers(self.store, scorer.model, self.request, now, folder, self.rules, file)

    def with_rules(self, block: Block) -> Block:
        """The block with the rules in its queries; those of a store have them."""
        for query in block.queries if self.chosen_rules and self.store is None else ():
            add_rules(query, self.rules)
        return block


@contextmanager
def opened_source(bundle: Bundle, source: Users, conditions: Mapping[str, Any]) -> Iterator[OpenSource]:
    """Open a source of users, and check the conditions of the run; raises as `run`."""
    request = request_of(conditions)
    with ExitStack() as stack:
        store = None
        if source.store is not None:
            store = stack.enter_context(OpenStore(read_settings(store=source.store)))
        fresh = empty_overlay(bundle) if store is None else store.fresh(bundle)
        rules = (store.rules if store else stored_rules)(bundle.folder.parent)
        check(request, rules, bundle, fresh)
        data = None if source.data is None else PreparedData.open(source.data)
        yield OpenSource(source, conditions, request, store, data, fresh, rules)


def users_of(
    source: Users,
    data: PreparedData | None,
    bundle: Bundle,
    conditions: Mapping[str, Any],
    now: int,
    history: HistoryEnd = "end",
) -> UserSource:
    """The users of prepared data, or those of a file with their histories."""
    features = [feature.name for feature in bundle.user_features]
    if data is not None:
        limit = read_settings().stored_history_limit
        return DataUsers(data, request_of(conditions), now, limit, features, source.users, history)
    assert source.users is not None
    return FileUsers(source.users, conditions, now, features)


@contextmanager
def _frozen() -> Iterator[None]:
    """Keep the garbage collector from the objects that exist now, which it would pass over again and again.

    The queries of a part are so many new objects that it looks at all objects several times a part.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _in_threads(
    users: UserSource, is_complete: Callable[[int], bool], work: Callable[[int, Load], int], part: int
) -> int:
    """Call `work` for each part that is not complete, one a core at a time; return the number of users.

    A few parts are read ahead, so memory does not grow with the users.
    """
    cores, done = len(os.sched_getaffinity(0)), 0
    blocks: Iterator[tuple[int, Load]] = enumerate(users.blocks(part))
    first = next(blocks, None)  # a store knows its users from here on
    if first is None:
        raise ConfigurationError("the source holds no users, so nothing is written; name another")
    with _frozen(), ThreadPoolExecutor(cores) as pool, progress("Scoring", users.count) as advance:
        pending: deque[Future[int]] = deque()

        def take() -> int:
            count = pending.popleft().result()
            advance(count)
            return count

        try:
            for number, load in chain([first], blocks):
                if is_complete(number):
                    advance(part)
                    continue
                pending.append(pool.submit(work, number, load))
                done += take() if len(pending) > cores else 0
            while pending:
                done += take()
        finally:
            for future in pending:
                future.cancel()
    return done
