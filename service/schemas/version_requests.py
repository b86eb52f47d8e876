"""The bodies of the calls that change versions, their routes and the stored rules."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from turret.service.schemas.bodies import Body
from turret.service.schemas.fields import Caps, Count, RuleName, Time, VersionName
from turret.service.schemas.requests import EMPTY, Boosts, Pins, RecommendRequest

RULES = 100
EXPLORED = 20  # places of an answer


class ActivateRequest(Body):
    """The version to make live.

    `force` accepts a recorded metric far below that of the live version or none, and a low overlap of their
    answers; `compared` says that both were compared on the same events, so the recorded metrics don't count.
    """

    version: VersionName
    force: bool = False
    compared: bool = False


class RollbackRequest(Body):
    """The live version to replace by the one before it: sent again, the call undoes nothing more."""

    version: VersionName


class RouteBody(Body):
    """A version, and its share of users or of requests."""

    version: VersionName
    share: float = Field(gt=0, le=1, allow_inf_nan=False)


class ExploreBody(Body):
    """In a `share` of the answers, `places` (the first and the last, from 1) are drawn from candidates.

    The candidates are the 50 best items from the first place on (`near`), or the 50 best that were added
    since the version was made (`new`). `epsilon` draws uniformly, `plackett_luce` by the softmax of the
    scores. A new item is drawn for so many `views` at most, for each replica.
    """

    places: list[Count] = Field(max_length=2, json_schema_extra={"minItems": 2})
    share: float = Field(gt=0, le=1, allow_inf_nan=False)
    among: Literal["new", "near"] = "near"
    method: Literal["epsilon", "plackett_luce"] = "epsilon"
    views: int = Field(default=1_000, ge=1, le=1_000_000_000)

    @field_validator("places")
    @classmethod
    def _are_in_order(cls, places: list[int]) -> list[int]:
        if len(places) != 2 or not places[0] <= places[1] < places[0] + EXPLORED:
            message = "send the first and the last place, such as [5, 10]; at most {most} places are drawn"
            raise PydanticCustomError("places", message, {"most": EXPLORED})
        return places


class CanaryBody(RouteBody):
    """A version, its share of users, and the exploration of its answers."""

    explore: ExploreBody | None = None


class RuleBody(Body):
    """A rule: a filter on catalog fields, caps, boosts, pins, or several of them.

    It applies from `from` until `until`, for a `share` of the users, and as a `default` to every answer whose
    request names no rules.
    """

    filter: dict[str, Any] | None = None
    cap: Caps = EMPTY
    boost: Boosts = Field(default_factory=list)
    pin: Pins = Field(default_factory=list)
    from_: Time | None = Field(default=None, alias="from")
    until: Time | None = None
    share: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    default: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> "RuleBody":
        if not (self.filter or self.cap or self.boost or self.pin):
            raise PydanticCustomError("rule", "send a `filter`, a `cap`, a `boost` or a `pin`")
        if self.from_ is not None and self.until is not None and self.from_ >= self.until:
            raise PydanticCustomError("rule", "it ends before it begins; send an `until` behind `from`")
        return self


class RulesRequest(Body):
    """All rules by name, in place of those before.

    `since`, from an answer, refuses the change if somebody else has changed the rules meanwhile.
    """

    rules: dict[RuleName, RuleBody] = Field(max_length=RULES)
    since: str | None = Field(default=None, max_length=100)


class RulesRollbackRequest(Body):
    """`since`, from an answer, of the rules to replace: sent again, the call undoes nothing more."""

    since: str = Field(min_length=1, max_length=100)


class RoutesRequest(Body):
    """`POST /admin/routes`; an omitted route stays, null removes it. `explore` is of the live version."""

    canary: CanaryBody | None = None
    shadow: RouteBody | None = None
    explore: ExploreBody | None = None


class ComparisonRequest(Body):
    """The version to compare with the live one."""

    version: VersionName


class ComparedRequest(RecommendRequest):
    """A request to both versions: that of `POST /v1/recommend`, without `cursor` and `min_version`."""

    cursor: None = None
    min_version: None = None
