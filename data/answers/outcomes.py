"""The outcomes of each version and route, and the lift of the canary over the live version, from a log.

Two passes over the answers: the first finds the times of the versions, the second counts. Memory holds a
block of answers, the events, and 32 bytes for each user of a version.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turret.data.answers.attribution import Attribution, Integers, names_of
from turret.data.answers.events import NAME, Names, OutcomeEvents
from turret.data.answers.files import Answers, Distinct
from turret.data.answers.form import CANARY, LIVE, ROUTES
from turret.data.answers.lift import Totals, as_json, lift
from turret.data.errors import EmptyDataError
from turret.data.text import text_table

_DAY = 86_400_000  # milliseconds
_BOTH_ROUTES = 0.01  # the share of users with answers of both routes from which a warning says so
Floats = NDArray[np.float64]
EventReader = Callable[[int], OutcomeEvents]
"""Returns the events that count, given the time of the first answer in milliseconds since 1970."""


@dataclass(frozen=True)
class Outcomes:
    """A row for each version and route, the comparison of the routes, and warnings.

    Of a row: `version`, `route`, `answers`, `users`, `with_outcome` (the share of answers), `outcomes`,
    `by_place` (the shares of items shown at each place that had one), and `revenue` if items have values.
    `comparison` is None where the log has one route alone, or no canary beside the newest live version, as
    after a canary has become live.
    """

    rows: Sequence[Mapping[str, Any]]
    comparison: Mapping[str, Any] | None
    warnings: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields of `turret outcomes --json`."""
        return {"versions": list(self.rows), "comparison": self.comparison, "warnings": list(self.warnings)}

    def text(self) -> str:
        """Describe the outcomes, for people."""
        headings = ["version", "route", "answers", "users", "with an outcome", "places 1, 2, 3"]
        has_revenue = bool(self.rows) and "revenue" in self.rows[0]
        rows = [
            (
                row["version"],
                row["route"],
                f"{row['answers']:,}",
                f"{row['users']:,}",
                f"{row['with_outcome']:.2%}",
                ", ".join(f"{place['share']:.2%}" for place in row["by_place"][:3]),
                *([f"{row['revenue']:,.2f}"] if has_revenue else []),
            )
            for row in self.rows
        ]
        columns = (*headings, "revenue") if has_revenue else (*headings,)
        right = ("answers", "users", "with an outcome", "revenue")
        table = text_table(columns, rows, "outcomes of the answers", right=right)
        end = "the log has one route alone; a canary makes a comparison"
        if self.comparison is None and len({row["route"] for row in self.rows}) > 1:
            end = (
                "no canary answered beside the newest live version; name a time in which one did beside "
                "another: --since, --until"
            )
        if self.comparison is not None:
            versions = " beside ".join(self.comparison[route]["version"] for route in (CANARY, LIVE))
            end = f"{versions}: {self.comparison['sentence']}"
        return "\n".join([table, *(f"warning: {warning}" for warning in self.warnings), end])


class Visitors:
    """Distinct visitors. Parts of about equal size are merged, so that each name is sorted a few times."""

    def __init__(self) -> None:
        self._parts: list[Names] = []

    def add(self, names: Names) -> None:
        """Add visitors; "" is nobody."""
        self._parts.append(np.unique(names[names != b""]))
        while len(self._parts) > 1 and len(self._parts[-2]) < 2 * len(self._parts[-1]):
            last = self._parts.pop()
            self._parts[-1] = np.union1d(self._parts[-1], last)

    def all(self) -> Names:
        """Return the distinct visitors, in order."""
        return np.unique(np.concatenate([np.empty(0, NAME), *self._parts]))


class _Span(NamedTuple):
    first: int
    last: int


class _Period(NamedTuple):
    """The time in which the newest version of each route answered, and these versions by route."""

    versions: Mapping[str, str]
    first: int
    last: int


@dataclass
class _Group:
    """The counts of a version and a route."""

    number: int
    answers: int = 0
    visitors: Visitors = field(default_factory=Visitors)
    places: Integers = field(default_factory=lambda: np.zeros(0, np.int64))


class _Groups:
    """The counts of all versions and routes, by both names."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], _Group] = {}

    def number(self, table: pa.Table) -> Integers:
        """The numbers of the groups of some answers [N]; new ones are made."""
        return np.array(
            [self.of.setdefault(key, _Group(len(self.of))).number for key in _keys(table)], np.int64
        )

    def visitors(self) -> Names:
        """Return the visitors of all groups."""
        return np.concatenate([np.empty(0, NAME), *(group.visitors.all() for group in self.of.values())])

    def add(self, table: pa.Table, numbers: Integers) -> None:
        """Count some answers, their visitors and their places."""
        visitors = names_of(table["visitor"])
        parents, places = _places(table)
        for group in self.of.values():
            is_of_group = numbers == group.number
            group.answers += int(is_of_group.sum())
            group.visitors.add(visitors[is_of_group])
            counts = np.bincount(places[is_of_group[parents]], minlength=len(group.places))
            counts[: len(group.places)] += group.places
            group.places = counts


def outcomes_of(
    answers: Answers, read: EventReader, within: int, values: Mapping[str, float] | None = None
) -> Outcomes:
    """Attribute events to answers and compare the routes; `read` returns the events of the kinds that count.

    An outcome is worth the value of its item; without `values` each is worth 1. Raises EmptyDataError where
    there are no answers, SourceError for a file that can't be read.
    """
    spans = _spans(answers)
    period = _common_period(spans)
    events = read(min(span.first for span in spans.values()))
    groups, found = _Groups(), Attribution(events, within)
    distinct, of_route = Distinct(), {route: Visitors() for route in ROUTES}
    for block in answers.blocks("answer_id", "time", "version", "route", "visitor", "items", "places"):
        table = distinct.of(block)
        numbers = groups.number(table)
        groups.add(table, numbers)
        found.add(table, numbers)
        if period is not None:
            _add_compared(of_route, period, groups, table, numbers)
    worth, warnings = _values_of(events, found, values), list[str]()
    if unknown := int(np.isnan(worth).sum()):
        total = int((found.groups >= 0).sum())
        warnings.append(f"{unknown:,} of {total:,} outcomes are of items without a value, and count 0")
        worth = np.nan_to_num(worth)
    if len(events.times) and not np.isin(events.visitors, groups.visitors()).any():
        warnings.append(
            "the log has no answer to a user with such an event; is --key the key that the service hashes "
            "users with?"
        )
    rows = _rows(groups, found, worth, values is not None)
    if period is None:
        return Outcomes(rows, None, warnings)
    return Outcomes(rows, _comparison(period, groups, of_route, found, worth, warnings), warnings)


def _keys(table: pa.Table) -> list[tuple[str, str]]:
    return list(zip(table["version"].to_pylist(), table["route"].to_pylist(), strict=True))


def _places(table: pa.Table) -> tuple[Integers, Integers]:
    """The row of the answer and the place of each item."""
    lists = table["places"].to_pylist()
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    places = np.fromiter((place for places in lists for place in places), np.int64, int(lengths.sum()))
    return np.repeat(np.arange(len(lists)), lengths), places


def _spans(answers: Answers) -> dict[tuple[str, str], _Span]:
    """The times of the first and the last answer of each version and route. Raises EmptyDataError."""
    spans: dict[tuple[str, str], _Span] = {}
    for table in answers.blocks("version", "route", "time"):
        times = table["time"].cast(pa.int64()).to_pylist()
        of_key = defaultdict[tuple[str, str], list[int]](list)
        for key, time in zip(_keys(table), times, strict=True):
            of_key[key].append(time)
        for key, some in of_key.items():
            before = spans.get(key, _Span(some[0], some[0]))
            spans[key] = _Span(min(before.first, *some), max(before.last, *some))
    if not spans:
        raise EmptyDataError("the log has no answers of this time; name another time, or another folder")
    return spans


def _common_period(spans: Mapping[tuple[str, str], _Span]) -> _Period | None:
    """The period of the newest version of each route.

    None where the log has one route alone, or where the canary ended before the live version was live.
    """
    newest: dict[str, tuple[int, int, str]] = {}
    for (version, route), span in spans.items():
        entry = (span.last, span.first, version)
        newest[route] = max(newest.get(route, entry), entry)
    if not newest.keys() >= {LIVE, CANARY}:
        return None
    first, last = (
        max(newest[route][1] for route in ROUTES),
        min(newest[route][0] for route in ROUTES),
    )
    versions = {route: newest[route][2] for route in ROUTES}
    has_ended = versions[LIVE] == versions[CANARY] or newest[LIVE][1] > newest[CANARY][0]
    return None if has_ended else _Period(versions, first, last)


def _add_compared(
    of_route: Mapping[str, Visitors], period: _Period, groups: _Groups, table: pa.Table, numbers: Integers
) -> None:
    """Add the visitors of the compared versions."""
    times = table["time"].cast(pa.int64()).to_numpy()
    is_within = (times >= period.first) & (times <= period.last)
    visitors = names_of(table["visitor"])
    for route, version in period.versions.items():
        if (group := groups.of.get((version, route))) is not None:
            of_route[route].add(visitors[is_within & (numbers == group.number)])


def _values_of(events: OutcomeEvents, found: Attribution, values: Mapping[str, float] | None) -> Floats:
    """The value of each event [E]: 0 where it is no outcome, NaN where its item has none."""
    worth = np.zeros(len(found.groups))
    chosen = np.flatnonzero(found.groups >= 0)
    if values is None:
        worth[chosen] = 1.0
    else:
        items = events.items.take(pa.array(chosen)).to_pylist()
        worth[chosen] = [values.get(item, np.nan) for item in items]
    return worth


def _rows(groups: _Groups, found: Attribution, worth: Floats, has_values: bool) -> list[dict[str, Any]]:
    """The rows of `Outcomes`, live versions first."""
    rows = list[dict[str, Any]]()
    order = sorted(groups.of.items(), key=lambda entry: (entry[0][1] != LIVE, entry[0][1], entry[0][0]))
    for (version, route), group in order:
        chosen = found.groups == group.number
        counts = np.bincount(found.places[chosen], minlength=len(group.places))
        fields = {
            "version": version,
            "route": route,
            "answers": group.answers,
            "users": len(group.visitors.all()),
            "with_outcome": len(np.unique(found.answers[chosen])) / group.answers,
            "outcomes": int(chosen.sum()),
            "by_place": [
                {"place": place, "shown": int(shown), "share": float(counts[place] / shown)}
                for place, shown in enumerate(group.places.tolist())
                if shown
            ],
        }
        rows.append({**fields, "revenue": float(worth[chosen].sum())} if has_values else fields)
    return rows


def _comparison(
    period: _Period,
    groups: _Groups,
    of_route: Mapping[str, Visitors],
    found: Attribution,
    worth: Floats,
    warnings: list[str],
) -> dict[str, Any]:
    """Compare the newest version of each route, over the time in which both answered, by user."""
    users = {route: visitors.all() for route, visitors in of_route.items()}
    both = np.intersect1d(users[LIVE], users[CANARY], assume_unique=True)
    count = sum(map(len, users.values())) - len(both)
    if len(both) > _BOTH_ROUTES * max(count, 1):
        warnings.append(
            f"{len(both):,} of {count:,} users had answers of both routes and count for neither; if the "
            "share of the canary was changed, begin after the change: turret outcomes --since"
        )
    totals = {}
    for route, version in period.versions.items():
        names = np.setdiff1d(users[route], both, assume_unique=True)
        chosen = (found.groups == groups.of[version, route].number) & (found.visitors != b"")
        chosen &= (found.times >= period.first) & (found.times <= period.last)
        totals[route] = totals_of(names, found.visitors[chosen], worth[chosen])
    days = (period.last - period.first) / _DAY
    result = lift(totals[LIVE], totals[CANARY])
    return {
        **{
            route: {
                "version": period.versions[route],
                "users": totals[route].users,
                "users_with_outcome": totals[route].buyers,
                "value_a_user": totals[route].mean,
            }
            for route in (LIVE, CANARY)
        },
        "users_of_both": len(both),
        **as_json(result, totals[LIVE], totals[CANARY], max(days, 0.0)),
    }


def totals_of(users: Names, visitors: Names, values: Floats) -> Totals:
    """The sums over some users, in order: `visitors` [O] have outcomes with these `values` [O]."""
    sums: Floats = np.zeros(len(users))
    if len(users):
        places = np.minimum(np.searchsorted(users, visitors), len(users) - 1)
        is_user = users[places] == visitors
        np.add.at(sums, places[is_user], values[is_user])
    return Totals(len(users), int((sums > 0).sum()), float(sums.sum()), float((sums**2).sum()))
