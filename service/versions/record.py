"""The record that workers and replicas share: the live version, those before it, the routes, the rules."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from turret.service.errors import ConflictError, ReplicasUnavailableError
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.conditions import Condition, Kept
from turret.tower.catalog.filters import compile_filter, compile_filters
from turret.tower.errors import FilterError
from turret.tower.format.listing import is_version

_MOST_BEFORE = 100
# A record in JSON has two sets of rules, of at most so many bytes each, and the activations of a hundred
# versions.
RULES_BYTES, RECORD_BYTES = 1_000_000, 4_000_000
COMPARISON_SECONDS = 1800  # that a version stays open for comparison


def _checked(version: str) -> str:
    if not is_version(version):
        raise ValueError("this is no version name")
    return version


VersionName = Annotated[str, AfterValidator(_checked)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Number = Annotated[int, Field(ge=1, le=2**62)]  # JSON of an answer has 64 bits


class Stored(BaseModel):
    """A frozen model, read from JSON; fields of a later release are ignored."""

    model_config = ConfigDict(frozen=True, validate_by_name=True, serialize_by_alias=True)


class Boost(Stored):
    """A number that is added to the scores of the items that a filter selects."""

    filter: dict[str, Any]
    by: float


class Pin(Stored):
    """An item, and its position in an answer, from 1."""

    item: int | str
    position: int


class CompiledRule(NamedTuple):
    """The conditions of a rule on the items of one catalog: that of its filter, and those of its boosts."""

    condition: Condition | None
    boosts: tuple[tuple[Condition, float], ...]


class Rule(Stored):
    """A rule of a shop for answers: a filter on catalog fields, caps, boosts and pins.

    A cap says how many items of an answer may share a value of a field. The rule applies from `from_` until
    `until` (ms since 1970), to a `share` of the users, and with `default` to answers whose request names no
    rules.
    """

    filter: dict[str, Any] | None = None
    cap: dict[str, int] = {}
    boost: tuple[Boost, ...] = ()
    pin: tuple[Pin, ...] = ()
    from_: int | None = Field(default=None, alias="from")
    until: int | None = None
    share: float = 1.0
    default: bool = False
    # A request compiles no rule: one of a thousand values takes half a millisecond, and its mask ten.
    _compiled: WeakKeyDictionary[Catalog, CompiledRule] = PrivateAttr(default_factory=WeakKeyDictionary)

    def compiled(self, catalog: Catalog) -> CompiledRule:
        """The conditions on the items of a catalog.

        Raises FilterError for a field that the catalog lacks, of the caps too.
        """
        if catalog in self._compiled:
            return self._compiled[catalog]
        for name in self.cap:
            if name not in catalog.kinds:
                known = ", ".join(catalog.kinds) or "none"
                raise FilterError(f"cap.{name}", None, f"the catalog has no field {name!r}; it has: {known}")
        condition = Kept(compile_filter(self.filter, catalog).condition) if self.filter else None
        filters = compile_filters(
            {f"boost.{place}.filter": boost.filter for place, boost in enumerate(self.boost)}, catalog
        )
        numbers = [boost.by for boost in self.boost]
        boosts = zip((Kept(filtering.condition) for filtering in filters), numbers, strict=True)
        return self._compiled.setdefault(catalog, CompiledRule(condition, tuple(boosts)))

    def applies(self, name: str, time: int, user: str | None) -> bool:
        """Whether the rule of this name applies to a user's request of a time, in ms since 1970.

        A rule for a share of the users applies to no request without a user.
        """
        if (self.from_ is not None and time < self.from_) or (self.until is not None and time >= self.until):
            return False
        return self.share >= 1 or (user is not None and draw_of(user, name) < self.share)


class RuleSet(Stored):
    """All rules by name, and when (ISO 8601) and by which key they were set.

    `undone` is the time of those that a rollback replaced by these.
    """

    rules: dict[str, Rule] = {}
    time: str = ""
    who: str = ""
    undone: str = ""

    def encoded(self) -> str:
        """The rules alone, as they are stored."""
        return self.model_dump_json(include={"rules"}, exclude_defaults=True)

    @cached_property
    def defaults(self) -> tuple[str, ...]:
        """The names of the rules of answers whose request names none."""
        return tuple(name for name, rule in self.rules.items() if rule.default)

    def chosen(self, names: Iterable[str] | None) -> dict[str, Rule]:
        """The rules that a request names; the default ones of one that names none (None).

        Raises ConflictError for an unknown name.
        """
        rules = {}
        for name in self.defaults if names is None else names:
            if name not in self.rules:
                known = ", ".join(self.rules) or "none; PUT /v1/rules sets them"
                raise ConflictError("rules", name, f"there is no such rule; there are: {known}")
            rules[name] = self.rules[name]
        return rules

    def fault(self, catalog: Catalog) -> tuple[str, FilterError] | None:
        """The name of the first rule that a catalog can't apply, and why; None if it can apply all."""
        for name, rule in self.rules.items():
            try:
                rule.compiled(catalog)
            except FilterError as error:
                return name, error
        return None


def draw_of(user: str, name: str) -> float:
    """A number from 0 to 1 for a user: uniform over users, and independent between names.

    So a larger share of the users includes those of a smaller one of the same name. A name counts with its
    first 64 bytes.
    """
    digest = hashlib.blake2b(
        user.encode("utf-8", "surrogatepass"), digest_size=7, key=name.encode("utf-8", "surrogatepass")[:64]
    )
    return int.from_bytes(digest.digest(), "big") / (1 << 56)


class Activation(Stored):
    """An activation, or a refusal: an entry of the record, and a line of `activations.jsonl`.

    `number` counts the activations; a refusal has none. `who`: the name of the key, or `start`, `pointer`
    (moved while no service ran), `fallback` (a version is not loadable any more). `failed`: the failed checks
    of a forced activation or a refusal. `manifest`: the SHA-256 of the version's manifest: no other content
    of that name is served. `words`: the reason.
    """

    time: str
    version: VersionName
    who: str
    outcome: Literal["activated", "refused"]
    number: Number | None = None
    previous: str | None = None
    manifest: Digest | None = None
    forced: bool = False
    failed: tuple[str, ...] = ()
    words: str = ""


class Explore(Stored):
    """The exploration of a route: in a `share` of its answers, `places` (from 1) are drawn from candidates.

    The candidates are the best items `near` the first place, or `new` ones; `epsilon` draws uniformly, and
    `plackett_luce` by the softmax of the scores. A new item has so many `views` by draws.
    """

    places: tuple[int, int]
    share: float = Field(gt=0, le=1, allow_inf_nan=False)
    among: Literal["new", "near"] = "near"
    method: Literal["epsilon", "plackett_luce"] = "epsilon"
    views: int = 1_000


class Route(Stored):
    """A version, and its share of users or requests, above 0 and at most 1.

    `manifest` is the SHA-256 of its manifest when it was checked; a version with another one is refused.
    `opened` is when a comparison began, in ms since 1970. `explore` is the exploration of a canary.
    """

    version: str
    share: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    manifest: str | None = None
    opened: int = Field(default=0, ge=0, le=2**62)
    explore: Explore | None = None

    @property
    def expires(self) -> int:
        """When a comparison is over, in ms since 1970."""
        return self.opened + 1000 * COMPARISON_SECONDS


class Routes(Stored):
    """`canary` answers its share of the users; `shadow` answers its share of requests, unseen.

    `candidate` answers only the calls of a comparison. `rules` apply to the requests that name them, and
    `rules_before` are those before them. `explore` is the exploration of the live version.
    """

    explore: Explore | None = None
    canary: Route | None = None
    shadow: Route | None = None
    candidate: Route | None = None
    rules: RuleSet = RuleSet()
    rules_before: RuleSet | None = None

    def takes(self, user: str) -> bool:
        """Whether the canary answers a user; a larger share keeps the users of a smaller one."""
        return self.canary is not None and draw_of(user, self.canary.version) < self.canary.share

    def ruled(self, rules: RuleSet) -> "Routes":
        """The routes with another set of rules."""
        return self.model_copy(update={"rules": rules, "rules_before": self.rules})

    def without(self, version: str) -> "Routes":
        """The routes without a canary and a candidate of a version that has become live."""
        routes = (("canary", self.canary), ("candidate", self.candidate))
        ended = [name for name, route in routes if route and route.version == version]
        return self.model_copy(update=dict.fromkeys(ended))


class Record(Stored):
    """The live version, the versions before it (newest first, each at its last activation), and the routes.

    `number` grows with every change; 0: it is merely that of a folder, see `unconfirmed`.
    """

    live: Activation
    before: tuple[Activation, ...] = ()
    routes: Routes = Routes()
    number: Number = 1

    def activation_of(self, version: str) -> Activation | None:
        """The last activation of a version, if it is among the newest 100 versions."""
        return next((entry for entry in (self.live, *self.before) if entry.version == version), None)

    def activated(self, activation: Activation) -> "Record":
        """The record after an activation."""
        before = [entry for entry in (self.live, *self.before) if entry.version != activation.version]
        number = (self.live.number or 0) + 1
        live = activation.model_copy(update={"number": number, "previous": self.live.version})
        changed = self.routed(self.routes.without(activation.version))
        return changed.model_copy(update={"live": live, "before": tuple(before[:_MOST_BEFORE])})

    def routed(self, routes: Routes) -> "Record":
        """The record with other routes."""
        return self.model_copy(update={"routes": routes, "number": self.number + 1})

    def unconfirmed(self) -> "Record":
        """The record of a folder: any record of the replicas replaces it, and any version of one is newer."""
        live = self.live.model_copy(update={"number": 0})
        return self.model_copy(update={"live": live, "number": 0})

    def is_behind(self, other: "Record") -> bool:
        """Whether this record is older than `other`, or has another content of the same number."""
        if self.number == other.number:
            return self.encoded() != other.encoded()  # equal rules may differ in their caches
        return self.number < other.number

    def encoded(self) -> bytes:
        """The record as it is stored."""
        return self.model_dump_json(exclude_defaults=True).encode()


class Report(Stored):
    """The numbers of the record and of the item change that a member has."""

    number: int = 0
    items: int = 0

    def has(self, record: int, items: int) -> bool:
        """Whether a member has the record and the item change of these numbers."""
        return self.number >= record and self.items >= items


def read_record(stored: bytes) -> Record | None:
    """Parse a stored record; None if there is none. Raises ReplicasUnavailableError for another content."""
    if not stored:
        return None
    try:
        return Record.model_validate_json(stored)
    except ValidationError as error:
        words = "delete the key, or choose another database, prefix or TURRET_REPLICA_GROUP"
        fault = f"the key replicas:GROUP:record holds no record of this service ({fault_of(error)})"
        raise ReplicasUnavailableError(f"{fault}; {words}") from None


def fault_of(error: ValidationError) -> str:
    """The first fault of a record: the field, and the value that it should hold."""
    first = error.errors()[0]
    return ": ".join([*map(str, first["loc"]), first["msg"]])


def read_report(stored: bytes) -> Report:
    """Parse a report; a foreign one reports nothing."""
    try:
        return Report.model_validate_json(stored)
    except ValidationError:
        return Report()


def new_activation(version: str, who: str, **more: Any) -> Activation:
    """An activation at this moment, the first one until a record counts it."""
    return Activation(time=now(), version=version, who=who, outcome="activated", number=1, **more)


def now() -> str:
    """The current time in the format of the records; no two changes are of one."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
