"""Whether a version is not worse than another one: a test of non-inferiority over paired users."""

import re
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError, TurretError
from turret.data.kinds import row_codes
from turret.data.moments import milliseconds
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.data.ranges import groups
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.format.manifest import Manifest
from turret.tower.kinds import CountedKinds
from turret.tower.retrieval import Retriever
from turret.tower.times import Times
from turret.training.config.metric import METRICS, RANKING_METRIC
from turret.training.evaluation.metrics import (
    LEAST_USERS,
    Values,
    difference_interval,
    metrics_at,
)

# The interval of so many users is narrow; more of them only take longer.
MOST_USERS = 20_000
_EVENTS_A_BLOCK, _USERS_A_BLOCK = 2**22, 256
Positions = NDArray[np.int64]
# Rows of the history, features, times, the bundle's codes of kinds, and the rows that answers leave out.
_Query = tuple[Positions, dict[str, Any], Times | None, Positions, Positions]


def compare_versions(
    root: Path, new: str, live: str, data: PreparedData, metric: str, margin: float
) -> "Comparison":
    """Compare two versions of the folder `root` on events of `data` that neither was trained on.

    Raises:
        TurretError: there is no such metric.
        BundleError: a version is missing or damaged.
        DataError: there are no such events.
    """
    check_metric(metric)
    bundles = [load(root, version) for version in (new, live)]
    held = held_out(data, bundles[0].manifest, bundles[1].manifest)
    values = [metric_of_users(bundle, data, held, metric) for bundle in bundles]
    return Comparison.of((new, live), metric, margin, held, values[0], values[1])


def check_metric(metric: str) -> int:
    """Return the number behind the @ of a metric's name. Raises TurretError where there is no such metric."""
    found = re.fullmatch(RANKING_METRIC, metric)
    if found is None:
        names = f"{', '.join(METRICS[:-1])} or {METRICS[-1]}"
        raise TurretError(f"--metric {metric}: it must be {names} at a number up to 9,999, such as ndcg@10")
    return int(found[1])


class WorseError(TurretError):
    """The version is worse, with confidence."""

    exit_status = 3


class UnclearError(TurretError):
    """The users are too few to show that the version is not worse."""

    exit_status = 4


@dataclass(frozen=True)
class Comparison:
    """The metric of a version (`new`) and of another one (`live`), and the difference of their means.

    `low` and `high` are the ends of the difference's 95 % interval over paired users; `margin` is
    the accepted loss, as a share of the live version's metric. `users` counts them, `rule` and `warning` are
    those of `HeldOut`.
    """

    names: tuple[str, str]
    metric: str
    margin: float
    users: int
    rule: str
    new: float
    live: float
    low: float
    high: float
    warning: str | None = None

    @classmethod
    def of(
        cls, names: tuple[str, str], metric: str, margin: float, held: "HeldOut", new: Values, live: Values
    ) -> "Comparison":
        """Compare the values [U] of the users of both versions."""
        low, high = difference_interval(new - live)
        users, means = len(held.users), (float(new.mean()), float(live.mean()))
        return cls(names, metric, margin, users, held.rule, *means, low, high, held.warning)

    def check(self) -> str:
        """Describe why the version is accepted.

        Raises:
            WorseError: the interval lies below zero, and below minus the margin at its lower end.
            UnclearError: it reaches from below minus the margin to zero, or the users are too few.
        """
        new, live = self.names
        mean, note = self.new - self.live, f" ({self.warning})" if self.warning else ""
        share = f" ({mean / self.live:+.1%})" if self.live else ""
        figures = (
            f"{self.metric} is {self.new:.4f} against {self.live:.4f} for {self.users:,} users "
            f"with events {self.rule}, a difference of {mean:+.4f}{share}, 95 % interval over "
            f"paired users [{self.low:+.4f}, {self.high:+.4f}]"
        )
        if self.users < LEAST_USERS:
            raise UnclearError(f"{figures}; at least {LEAST_USERS} users are needed{note}")
        if not self.new and not self.live:
            raise UnclearError(f"{figures}; so it can't tell {new} from {live}{note}")
        if self.low >= -self.margin * self.live:
            accepted = f"a loss of up to {100 * self.margin:g} %" if self.live else "no loss"
            return f"{new} is not worse than {live}: {figures}; {accepted} is accepted{note}"
        if self.high < 0:
            raise WorseError(f"{new} is worse than {live}: {figures}; {self._remedy()}{note}")
        raise UnclearError(
            f"{self.users:,} users are too few to show that {new} is not worse than {live}: {figures}; "
            f"{self._remedy()}{note}"
        )

    def _remedy(self) -> str:
        """The margin that would accept the version, and the number of users that could tell.

        The half width of an interval falls with the square root of the number of users. A version is only
        refused where the live one has a metric above 0.
        """
        distance = self.new - self.live + self.margin * self.live
        needed = ceil(self.users * ((self.high - self.low) / 2 / distance) ** 2) if distance > 0 else 0
        accepting = ceil(-100 * self.low / self.live) / 100
        remedies = [f"--margin {accepting:g} would accept it"] if accepting <= 1 else []
        remedies += [f"about {needed:,} users could tell"] if needed > self.users else []
        return ", and ".join(remedies) or "train again, or compare on more users"


# ---- Events that neither version knows


@dataclass(frozen=True)
class HeldOut:
    """The targets of `users` [U], rows of prepared data: their events at `starts[u]:ends[u]`, all int64 [U].

    Where the data has kinds, the event at the start is of a target kind, and only such ones are targets.
    Earlier events of a user are the history. `rule` describes the events. `warning` says that the older
    version may have been trained on some of them.
    """

    users: Positions
    starts: Positions
    ends: Positions
    rule: str
    warning: str | None = None


def held_out(data: PreparedData, new: Manifest, live: Manifest) -> HeldOut:
    """Choose the targets in `data` for a comparison of two versions.

    A version that was trained on `data` has not seen the test part, any other one no event after its
    `data_until`. The targets are those of both. Where that leaves none because of the live version, its limit
    is dropped, with a warning: the comparison is to its advantage.

    Raises DataError where it would be to the advantage of the new version, or where there is no event at all.
    """
    are_trained = [manifest.fingerprints.get("data") == data.fingerprint for manifest in (new, live)]
    starts, rules, warning = np.asarray(data.offsets[:-1]), list[str](), None
    if any(are_trained):
        starts, rules = np.asarray(data.splits[:, 1]), ["of the test part"]
    if not are_trained[0]:
        limit = _limit(data, new)
        if limit is None:
            raise DataError(
                f"version {new.version} was not trained on {data.folder}, and without times it is not known "
                "which of its events are new to it; name the data that it was trained on with --data"
            )
        starts = np.maximum(starts, _first_after(data, limit))
        rules.append(f"after {new.data_until}")
    if not _users(data, starts).size:
        raise DataError(
            f"{data.folder} has no event that version {new.version} was not trained on ({' '.join(rules)}); "
            "name the data that it was trained on, with a test part, or newer events with --data"
        )
    if not are_trained[1]:
        limit = _limit(data, live)
        later = starts if limit is None else np.maximum(starts, _first_after(data, limit))
        if limit is not None and _users(data, later).size:
            starts = later
            rules.append(f"after {live.data_until}")
        else:
            reason = f"none is after {live.data_until}" if limit else "its data or this one has no times"
            warning = (
                f"version {live.version} may have been trained on some of these events, to its advantage: "
                f"{reason}"
            )
    users = _users(data, starts)
    if len(users) > MOST_USERS:
        users = np.sort(np.random.default_rng(0).choice(users, MOST_USERS, replace=False))
    ends = np.asarray(data.offsets[users + 1])
    return HeldOut(users, data.first_targets(starts[users], ends), ends, " and ".join(rules), warning)


def _limit(data: PreparedData, manifest: Manifest) -> int | None:
    """The newest time that a version has seen, in milliseconds; None where it or the data has no times."""
    if manifest.data_until is None or data.manifest.time.kind != "timestamp":
        return None
    return milliseconds(manifest.data_until)


def _first_after(data: PreparedData, limit: int) -> Positions:
    """The position behind each user's last event up to `limit`: int64 [U]."""
    result = np.array(data.offsets[:-1])
    for first, last in pairwise(groups(data.offsets, _EVENTS_A_BLOCK).tolist()):
        start, end = int(data.offsets[first]), int(data.offsets[last])
        owners = np.repeat(np.arange(first, last), np.diff(data.offsets[first : last + 1]))
        positions = np.flatnonzero(data.times[start:end] <= limit)
        # The positions of a user ascend, and the last assignment counts.
        result[owners[positions]] = start + positions + 1
    return result


def _users(data: PreparedData, starts: Positions) -> Positions:
    """The users with a target from `starts` [U] on."""
    return np.flatnonzero(data.first_targets(starts, data.offsets[1:]) < data.offsets[1:])


# ---- Rankings


def metric_of_users(bundle: Bundle, data: PreparedData, held: HeldOut, metric: str) -> Values:
    """The values of a metric for each user of `held`: float64 [U].

    A target that the bundle doesn't know is a miss. Items of the history are left out as the bundle says, and
    users without a known item get popular items. Events of a kind that its histories don't have are not read.
    """
    found = map(bundle.vocabulary.row, data.item_ids.ids(range(len(data.item_ids))))
    rows = np.array([-1 if row is None else row for row in found], dtype=np.int64)
    retriever, counted = Retriever(bundle), CountedKinds(bundle.manifest)
    k = check_metric(metric)
    hits = np.zeros((len(held.users), k), dtype=bool)
    relevant = np.empty(len(held.users), dtype=np.int64)
    with progress(f"ranking by {bundle.manifest.version}", len(held.users)) as advance:
        for first in range(0, len(held.users), _USERS_A_BLOCK):
            indices = range(first, min(first + _USERS_A_BLOCK, len(held.users)))
            queries = [
                _query(bundle, data, rows, counted, int(held.users[index]), int(held.starts[index]))
                for index in indices
            ]
            for index, ranked in zip(indices, _ranked(retriever, bundle, queries, k), strict=True):
                events = data.only_targets(np.arange(held.starts[index], held.ends[index]))
                targets = np.unique(data.event_items[events])
                hits[index, : len(ranked)] = np.isin(ranked, rows[targets])
                relevant[index] = len(targets)
            advance(len(indices))
    return metrics_at(hits, relevant, [k])[metric]


def _query(
    bundle: Bundle, data: PreparedData, rows: Positions, counted: CountedKinds, user: int, end: int
) -> _Query:
    """The history of `user` before the event at `end` as the bundle has it, asked at the event's time.

    `rows` [N] has the bundle's row of each item of the data, -1 for none.
    """
    positions = np.arange(end if data.has_queries else data.offsets[user], end)
    items, when = data.event_items[positions], data.times[positions]
    kinds: list[str] = []
    if data.kinds is not None:
        given = data.given_negatives(np.array([user]), np.array([end]))
        items, when = np.append(given.items, items), np.append(given.times, when)
        order = np.argsort(when, kind="stable")
        items, when = items[order], when[order]
        names = {code: name for name, code in row_codes(data.manifest.kinds).items()}
        kinds = [names[code] for code in np.append(given.kinds, data.kinds[positions])[order].tolist()]
    values = data.user_values(user) if bundle.user_features else {}
    features = {one.name: values[one.name] for one in bundle.user_features if one.name in values}
    has_times = data.manifest.time.kind == "timestamp"
    found = counted.count(items.tolist(), kinds, when.tolist() if has_times else None, int(data.times[end]))
    own = rows[items]
    are_read, are_left_out = found.are_read & (own >= 0), found.are_left_out & (own >= 0)
    times = None
    if bundle.manifest.uses_times and has_times:
        times = Times(when[are_read] / 1_000.0, float(data.times[end]) / 1_000.0)
    return own[are_read], features, times, found.codes[are_read], own[are_left_out]


def _ranked(retriever: Retriever, bundle: Bundle, queries: list[_Query], k: int) -> list[Positions]:
    """The best k rows of the bundle for each query."""
    result = [retriever.popular(0 if bundle.manifest.reads_queries else k).rows] * len(queries)
    known = [index for index, one in enumerate(queries) if bundle.encoder.can_encode(one[0], one[1])]
    if known:
        histories, features, times, kinds, excluded = zip(*(queries[index] for index in known), strict=True)
        vectors = retriever.encode(histories, features, times, kinds=kinds)
        bonuses = retriever.bonus_of_each(histories, times, kinds)
        rankings = retriever.nearest_of_each(vectors, [k] * len(known), excluded, bonuses)
        for index, ranking in zip(known, rankings, strict=True):
            result[index] = ranking.rows
    return result
