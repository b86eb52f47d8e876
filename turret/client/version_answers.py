"""The answers about versions: the live one, activations, routes, stored rules, and the comparison of two."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from turret.client.answers import Answer, Id, RecommendAnswer


class MeasuredRecall(Answer):
    """The share of the true best `k` that the index finds among a share `selectivity` of the items."""

    k: int
    selectivity: float
    recall: float


class VersionAnswer(Answer):
    """The live version, and since when it is live; docs/bundle.md describes its parts.

    `exported`: the time of the export, where a later reindexing `created` the bundle. `data_until`: the time
    of the newest event of the data. `kinds`: role, weight and consumption of each kind of event, by name.
    `exclude_seen`: the default of requests; None: the kinds that consume, or all events without kinds.
    `repeats`: the weights of the repeat term, if there is one.
    """

    version: str
    since: str
    created: str
    exported: str | None
    data_until: str | None
    kinds: dict[str, dict[str, Any]]
    default_kind: str | None
    reads_kinds: bool = False
    dimension: int
    item_count: int
    history_length: int
    reads_times: bool
    reads_queries: bool = False
    exclude_seen: bool | tuple[str, ...] | None
    repeats: dict[str, Any] | None = None
    scoring: dict[str, Any]
    index: dict[str, Any]
    index_choice: dict[str, Any] | None
    recall: tuple[MeasuredRecall, ...]
    metrics: dict[str, Any]
    fingerprints: dict[str, str]


class Check(Answer):
    """The result of one check, in `words`."""

    name: str
    passed: bool
    words: str


class GateReport(Answer):
    """The checks in their order, up to the first that failed.

    `forced`: a failed metric or overlap was accepted.
    """

    version: str
    time: str
    forced: bool
    checks: tuple[Check, ...]


class ListedVersion(Answer):
    """A bundle of the folder; `error` says why it can't be read, `gate` is the report of its last check."""

    version: str
    is_current: bool
    created: str | None
    data_until: str | None
    item_count: int | None
    dimension: int | None
    metrics: dict[str, Any]
    recall: tuple[MeasuredRecall, ...]
    error: str | None
    gate: GateReport | None


class VersionsAnswer(Answer):
    """The live version, if there is one yet, and every bundle in the folder, oldest first."""

    live: str | None
    versions: tuple[ListedVersion, ...]


class LoggedActivation(Answer):
    """An activation, or a refusal, which has no `number`; `words`: the reason.

    `who`: the name of the key, or `start`, `pointer` (moved while no service ran), `fallback` (a version is
    not loadable any more). `failed`: the failed checks of a forced activation or a refusal.
    """

    time: str
    version: str
    who: str
    outcome: Literal["activated", "refused"]
    number: int | None
    previous: str | None
    forced: bool
    failed: tuple[str, ...]
    words: str


class ActivationsAnswer(Answer):
    """The latest activations and refusals, newest first."""

    activations: tuple[LoggedActivation, ...]


class ActivateAnswer(Answer):
    """The live version, the previous one if there was one, and the processes and replicas that are late.

    `warning`: the version's vector engine doesn't hold it, or nobody could be asked who is late.
    """

    version: str
    previous: str | None
    behind: tuple[int, ...] = ()
    replicas_behind: tuple[str, ...] = ()
    warning: str | None = None


class Exploration(Answer):
    """The places (the first and the last) that a share of a version's answers draws from candidates."""

    places: tuple[int, int]
    share: float
    among: Literal["new", "near"]
    method: Literal["epsilon", "plackett_luce"]
    views: int


class RouteShare(Answer):
    """A version, its share of users or of requests, and the exploration of a canary's answers."""

    version: str
    share: float
    explore: Exploration | None = None


class RoutesAnswer(Answer):
    """The live version, the canary and the shadow, and the processes and replicas that are late.

    `explore` is the exploration of the live version's answers.
    """

    live: str | None
    canary: RouteShare | None
    shadow: RouteShare | None
    explore: Exploration | None = None
    behind: tuple[int, ...] = ()
    replicas_behind: tuple[str, ...] = ()
    warning: str | None = None


class PlaceOutcomes(Answer):
    """The items `shown` at a place, and the share of them with an outcome."""

    place: int
    shown: int
    share: float


class VersionOutcomes(Answer):
    """The answers of a version and a route, their users and outcomes, and the share of answers with one.

    `revenue` is the sum of the values, where `value` was asked for.
    """

    version: str
    route: str
    answers: int
    users: int
    with_outcome: float
    outcomes: int
    by_place: tuple[PlaceOutcomes, ...]
    revenue: float | None = None


class ComparedUsers(Answer):
    """The users of one route, those with an outcome, and the value of a user."""

    version: str
    users: int
    users_with_outcome: int
    value_a_user: float


class ComparedOutcomes(Answer):
    """The newest version of each route, by user, over the `days` in which both answered.

    `lift` is the relative difference of the canary, between `low` and `high` at every look; `decided` tells
    whether these exclude 0, and `sentence` says so. `days_left` is the time until it is decided, if the
    difference stays.
    """

    live: ComparedUsers
    canary: ComparedUsers
    users_of_both: int
    decided: bool
    lift: float | None = None
    low: float | None = None
    high: float | None = None
    days_left: float | None = None
    days: float
    sentence: str


class OutcomesAnswer(Answer):
    """The outcomes at `time`, which was `age_seconds` ago, of answers by version and route.

    `comparison` is null where no canary has answered beside the newest live version.
    """

    time: str
    age_seconds: float
    kinds: tuple[str, ...]
    within: str
    value: str | None
    versions: tuple[VersionOutcomes, ...]
    comparison: ComparedOutcomes | None
    warnings: tuple[str, ...]


class ComparisonAnswer(Answer):
    """The compared version and the live one, since when, and the seconds until the comparison ends.

    `version` is null if no version is compared.
    """

    version: str | None
    live: str | None
    opened: str | None = None
    expires_seconds: float | None = None


class Move(Answer):
    """An item of either answer with its ranks, from 1; null: it isn't in that answer."""

    id: Id
    live_rank: int | None
    other_rank: int | None


class ComparedAnswer(Answer):
    """Both versions' answers, the share of items in both, and the moves of all items."""

    live: RecommendAnswer
    other: RecommendAnswer
    overlap: float
    moves: tuple[Move, ...]


class OverlapAnswer(Answer):
    """The overlap of both versions' best k over `histories` histories.

    `source`: the first stored users of a scan, or the recorded queries of the live version if none is stored.
    `overlap_histogram` counts the histories by tenth of their overlap; `changed_first` is the share of
    histories with another best item.
    """

    version: str
    live: str
    source: Literal["users", "golden"]
    histories: int
    overlap_mean: float
    overlap_histogram: tuple[int, ...]
    changed_first: float


class RuleBoost(Answer):
    """A number that is added to the scores of the items that a filter selects."""

    filter: dict[str, Any]
    by: float


class RulePin(Answer):
    """An item, and its position in an answer, from 1."""

    item: Id
    position: int


class RuleAnswer(Answer):
    """A stored rule, the times from and until which it applies, and the share of the users it is for."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True, defer_build=True)

    filter: dict[str, Any] | None
    cap: dict[str, int]
    boost: tuple[RuleBoost, ...]
    pin: tuple[RulePin, ...]
    from_: str | None = Field(alias="from")
    until: str | None
    share: float
    default: bool


class RulesAnswer(Answer):
    """The stored rules, and when and by which key they were set; null if they never were.

    `behind` and `replicas_behind`: processes and replicas that don't have them yet; `warning`: they could
    not be asked.
    """

    rules: dict[str, RuleAnswer]
    since: str | None
    who: str | None
    behind: tuple[int, ...] = ()
    replicas_behind: tuple[str, ...] = ()
    warning: str | None = None
