"""The outcomes of each version and route, and the lift of the canary over the live version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from turret.data.answers.form import CANARY, LIVE
from turret.data.answers.lift import Totals, as_json, lift
from turret.data.errors import EmptyDataError
from turret.data.text import text_table
from turret.outcomes.attribution import attribute, distinct

_DAY = 86_400_000  # milliseconds
_BOTH_ROUTES = 0.01  # the share of users with answers of both routes from which a warning says so


@dataclass(frozen=True)
class Outcomes:
    """A row for each version and route, the comparison of the routes, and warnings.

    Of a row: `version`, `route`, `answers`, `users`, `with_outcome` (the share of answers), `outcomes`,
    `by_place` (the shares of items shown at each place that had one), and `revenue` if items have values.
    `comparison` is None where the log has one route alone.
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
        if self.comparison is not None:
            versions = " beside ".join(self.comparison[route]["version"] for route in (CANARY, LIVE))
            end = f"{versions}: {self.comparison['sentence']}"
        return "\n".join([table, *(f"warning: {warning}" for warning in self.warnings), end])


def outcomes_of(
    answers: pl.LazyFrame, events: pl.DataFrame, within: int, values: Mapping[str, float] | None = None
) -> Outcomes:
    """Attribute events to answers and compare the routes.

    `answers` have the columns of the log and `events` those of `attribution.EVENTS`, of the kinds that count.
    An outcome is worth the value of its item; without `values` each is worth 1. Raises EmptyDataError where
    there are no answers.
    """
    answers = distinct(answers)
    outcomes = _with_values(attribute(answers, events, within), values)
    rows, unknown = _rows(answers, outcomes, values is not None), outcomes["value"].null_count()
    if not rows:
        raise EmptyDataError("the log has no answers of this time; name another time, or another folder")
    warnings = []
    if unknown:
        warnings.append(
            f"{unknown:,} of {outcomes.height:,} outcomes are of items without a value, and count 0"
        )
    comparison = _comparison(answers, outcomes.with_columns(pl.col("value").fill_null(0.0)), warnings)
    return Outcomes(rows, comparison, warnings)


def _with_values(outcomes: pl.DataFrame, values: Mapping[str, float] | None) -> pl.DataFrame:
    if values is None:
        return outcomes.with_columns(value=pl.lit(1.0))
    table = pl.DataFrame(
        {"item": list(values), "value": list(values.values())},
        schema={"item": pl.String, "value": pl.Float64},
    )
    return outcomes.join(table, on="item", how="left", maintain_order="left")


def _rows(answers: pl.LazyFrame, outcomes: pl.DataFrame, has_values: bool) -> list[dict[str, Any]]:
    """The rows of `Outcomes`, live versions first."""
    key = ["version", "route"]
    of_answers, of_places = pl.collect_all(
        [
            answers.group_by(key).agg(
                answers=pl.len(), users=pl.col("visitor").filter(pl.col("visitor") != "").n_unique()
            ),
            answers.select(*key, "places").explode("places").drop_nulls().group_by([*key, "places"]).len(),
        ]
    )
    place_counts = {tuple(row[:3]): row[3] for row in of_places.sort("places").iter_rows()}
    rows = []
    for row in of_answers.sort("route", "version", descending=[True, False]).iter_rows(named=True):
        chosen = outcomes.filter(pl.col("version") == row["version"], pl.col("route") == row["route"])
        counts = dict(chosen.group_by("place").len().iter_rows())
        fields = {
            **row,
            "with_outcome": chosen["answer_id"].n_unique() / row["answers"],
            "outcomes": chosen.height,
            "by_place": [
                {"place": place, "shown": shown, "share": counts.get(place, 0) / shown}
                for (version, route, place), shown in place_counts.items()
                if (version, route) == (row["version"], row["route"])
            ],
        }
        rows.append({**fields, "revenue": chosen["value"].sum()} if has_values else fields)
    return rows


def _comparison(answers: pl.LazyFrame, outcomes: pl.DataFrame, warnings: list[str]) -> dict[str, Any] | None:
    """Compare the newest version of each route, over the time in which both answered, by user."""
    spans = (
        answers.group_by("route", "version")
        .agg(first=pl.col("time").min(), last=pl.col("time").max())
        .sort("last", "first", "version")
        .collect()
    )
    newest = {row["route"]: row for row in spans.iter_rows(named=True)}
    if not newest.keys() >= {LIVE, CANARY}:
        return None
    live, canary = newest[LIVE], newest[CANARY]
    first, last = max(live["first"], canary["first"]), min(live["last"], canary["last"])
    versions = pl.DataFrame({"route": [LIVE, CANARY], "version": [live["version"], canary["version"]]})

    def of_both(table: pl.LazyFrame) -> pl.LazyFrame:
        return table.filter(pl.col("time").is_between(first, last), pl.col("visitor") != "").join(
            versions.lazy(), on=["route", "version"], how="semi"
        )

    users = of_both(answers).group_by("visitor").agg(pl.col("route").unique()).collect()
    in_both = int((users["route"].list.len() > 1).sum())
    if in_both > _BOTH_ROUTES * max(users.height, 1):
        warnings.append(
            f"{in_both:,} of {users.height:,} users had answers of both routes and count for neither; if the "
            "share of the canary was changed, begin after the change with --since"
        )
    users = users.filter(pl.col("route").list.len() == 1).with_columns(pl.col("route").list.first())
    sums = of_both(outcomes.lazy()).group_by("visitor").agg(pl.col("value").sum()).collect()
    totals = totals_of(users.join(sums, on="visitor", how="left"))
    days = max((last - first).total_seconds() * 1_000 / _DAY, 0.0)
    result = lift(totals[LIVE], totals[CANARY])
    return {
        **{
            route: {
                "version": newest[route]["version"],
                "users": totals[route].users,
                "users_with_outcome": totals[route].buyers,
                "value_a_user": totals[route].mean,
            }
            for route in (LIVE, CANARY)
        },
        "users_of_both": in_both,
        **as_json(result, totals[LIVE], totals[CANARY], days),
    }


def totals_of(users: pl.DataFrame) -> dict[str, Totals]:
    """The sums of each route over its users: a row a user, with `route` and `value`, null for no outcome."""
    value = pl.col("value").fill_null(0.0)
    sums = users.group_by("route").agg(
        users=pl.len(), buyers=(value > 0).sum(), total=value.sum(), squares=(value**2).sum()
    )
    rows = {row["route"]: row for row in sums.iter_rows(named=True)}
    empty = {"users": 0, "buyers": 0, "total": 0.0, "squares": 0.0}
    fields = {route: {**empty, **rows.get(route, {})} for route in (LIVE, CANARY)}
    return {route: Totals(**{name: row[name] for name in empty}) for route, row in fields.items()}
