"""Scores every user of a source into a Parquet file, block by block, in a thread for each core."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import polars as pl

from turret.data.errors import ConfigurationError, without_credentials
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.progress import progress
from turret.scoring.conditions import request_of, resolved
from turret.scoring.data_users import DataUsers
from turret.scoring.parts import opened as opened_parts
from turret.scoring.scorer import Block, QueryBlock, Scorer
from turret.scoring.stored_users import OpenStore, StoreUsers, stored_rules
from turret.scoring.users import FileUsers, Load, UserSource, file_identity
from turret.service.overlay.fresh import FreshItems, empty_overlay
from turret.service.ranking.query import Query, add_rules
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import read_settings
from turret.service.stores.contract import now_ms
from turret.service.versions.record import Rule, RuleSet
from turret.tower.bundle.bundle import Bundle

# A part has so many users. Each takes some kilobytes while it is ranked, and a part of fewer is slower.
PART = 4_096


@dataclass(frozen=True)
class Users:
    """The source of the users: prepared data or the store of a service, perhaps the users that a file names.

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


@dataclass(frozen=True)
class Run:
    """A run over the users of `source` into the Parquet file `target`.

    Attributes:
        conditions: the fields of the request of each user.
        by_index: search the bundle's own index.
        part: the users of a part.
        history: the part of the data before which histories end.
    """

    bundle: Bundle
    source: Users
    target: Path
    conditions: Mapping[str, Any] = field(default_factory=dict)
    by_index: bool = False
    part: int = PART
    history: HistoryEnd = "end"

    def settings(self, kind: str, opened: "OpenSource") -> dict[str, Any]:
        """The settings by which a run that goes on knows its parts."""
        return {
            **opened.request.model_dump(mode="json", exclude_defaults=True),
            "kind": kind,
            "bundle": self.bundle.digest,
            "source": self.source.identity(opened.data),
            "history": self.history,
            "index": self.by_index,
            "part": self.part,
            "rules": {name: rule.model_dump() for name, rule in opened.chosen_rules.items()},
        }


def score(run: Run) -> ScoreReport:
    """Write the recommendations of every user; raises as `write_tables`."""
    return write_tables("scores", Scorer.table, run)


def write_tables(kind: str, table: Table, run: Run, metadata: Mapping[str, str] | None = None) -> ScoreReport:
    """Write a table of every block of users into one file, with this metadata.

    A run of the same `kind` that was killed goes on after its complete parts. Raises ConfigurationError for
    conditions that no request or this version can have, and for parts of another run.
    """
    begun = monotonic()
    with (
        opened_source(run) as opened,
        opened_parts(run.target, run.settings(kind, opened), now_ms()) as parts,
    ):
        scorer = opened.scorer()
        users = opened.users(scorer, parts.begun, parts.folder)

        def work(number: int, load: Load) -> int:
            block = opened.with_rules(load())
            parts.write(number, table(scorer, block, users.is_whole))
            return len(block.users)

        count = _in_threads(users, parts.is_complete, work, run.part)
        return ScoreReport(count, parts.join(metadata), monotonic() - begun)


@dataclass(frozen=True)
class OpenSource:
    """An opened source of users, with the overlay and the rules that answers depend on.

    `query` is that of a user without a history, resolved.
    """

    run: Run
    request: RecommendRequest
    store: OpenStore | None
    data: PreparedData | None
    fresh: FreshItems
    rules: RuleSet
    query: Query

    @property
    def chosen_rules(self) -> Mapping[str, Rule]:
        """The rules that the request names, else the default ones."""
        return self.rules.chosen(self.request.rules)

    def scorer(self) -> Scorer:
        """A scorer of the version with the conditions of the run."""
        return Scorer(self.run.bundle, self.fresh, self.query, self.chosen_rules, self.run.by_index)

    def users(self, scorer: Scorer, now: int, folder: Path) -> UserSource:
        """The users, whose answers are of the time `now`; `folder` takes the list of the users of a store."""
        run, file = self.run, self.run.source.users
        if self.store is not None:
            return StoreUsers(self.store, scorer.model, self.request, now, folder, self.rules, file)
        if self.data is not None:
            limit = read_settings().stored_history_limit
            return DataUsers(self.data, self.request, now, limit, scorer, file, run.history)
        assert file is not None
        return FileUsers(file, run.conditions, now, scorer.model.bundle)

    def with_rules(self, block: Block) -> Block:
        """The block with the rules in its queries; the queries of a store have them already."""
        if isinstance(block, QueryBlock) and self.chosen_rules and self.store is None:
            for query in block.queries:
                add_rules(query, self.rules)
        return block


@contextmanager
def opened_source(run: Run) -> Iterator[OpenSource]:
    """Open the source of users of a run, and check its conditions; raises as `write_tables`."""
    request, source, bundle = request_of(run.conditions), run.source, run.bundle
    with ExitStack() as stack:
        store = None
        if source.store is not None:
            store = stack.enter_context(OpenStore(read_settings(store=source.store)))
        fresh = empty_overlay(bundle) if store is None else store.fresh(bundle)
        rules = (store.rules if store else stored_rules)(bundle.folder.parent)
        query = resolved(request, rules, bundle, fresh)
        data = None if source.data is None else PreparedData.open(source.data)
        yield OpenSource(run, request, store, data, fresh, rules, query)


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
    with ThreadPoolExecutor(cores) as pool, progress("Scoring", users.count) as advance:
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
