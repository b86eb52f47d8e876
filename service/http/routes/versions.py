"""The versions: which is live, and the calls that change or compare them.

Also stored rules: named filters and caps that requests refer to, the same in every worker and replica.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from turret.service.components import Components
from turret.service.errors import ConflictError, InvalidFieldError, RequestError, ServiceError
from turret.service.http.routes.dependencies import CHECKED, K, Parts, Reads, Recorded, json_response
from turret.service.schemas.fields import KIND_LENGTH, VersionName, show_time
from turret.service.schemas.requests import BOOSTS, BOOSTS_OF_AN_ANSWER
from turret.service.schemas.version_requests import (
    ActivateRequest,
    ComparedRequest,
    ComparisonRequest,
    RollbackRequest,
    RoutesRequest,
    RulesRequest,
    RulesRollbackRequest,
)
from turret.service.versions.activation import Swap
from turret.service.versions.folder import latest_lines
from turret.service.versions.folder_commands import checked_versions
from turret.service.versions.record import RULES_BYTES, Routes, Rule, RuleSet, now
from turret.tower.errors import BundleError

_ACTIVATIONS, _COMPARED_USERS = 100, 1_000
_OUTCOME_KINDS, _FIELD_LENGTH, _PAUSE_LENGTH = 20, 200, 32
KindName = Annotated[str, Query(min_length=1, max_length=KIND_LENGTH)]
router = APIRouter(prefix="/v1", tags=["versions"], dependencies=CHECKED)
admin = APIRouter(prefix="/admin", tags=["admin"], dependencies=CHECKED)
stored_rules = APIRouter(prefix="/v1", tags=["rules"], dependencies=CHECKED)


@router.get("/version")
async def live_version(parts: Parts) -> Response:
    """Describe the live version: scoring, metrics, measured recall."""
    live = parts.model_holder.answering
    described = live.bundle.manifest.model_dump(mode="json", exclude={"files"})
    return json_response({**described, "since": live.since.isoformat()})


@router.get("/versions")
async def all_versions(parts: Parts) -> Response:
    """List every bundle of the folder with its metrics and recall; `error` says why one can't be read.

    `gate` is the result of its last check before an activation.
    """
    versions = await asyncio.to_thread(checked_versions, parts.model_holder.root)
    listed = [version.model_dump(mode="json") for version in versions]
    return json_response({"live": parts.model_holder.version, "versions": listed})


@router.get("/activations")
async def activations(parts: Parts) -> Response:
    """List the latest 100 activations and refused versions, newest first, with reasons."""
    lines = await asyncio.to_thread(latest_lines, parts.model_holder.root, _ACTIVATIONS)
    return json_response({"activations": [line.model_dump(mode="json") for line in lines]})


async def _key_name(record: Recorded) -> str:
    """The name of the request's key; the key that the service made for itself has no name."""
    return (record.key.name if record.key else None) or "admin"


KeyName = Annotated[str, Depends(_key_name)]


@admin.post("/activate")
async def activate(
    body: Annotated[ActivateRequest, Depends(Reads(ActivateRequest))], parts: Parts, key_name: KeyName
) -> Response:
    """Make a version live in every worker, after it has passed the gate.

    The answer comes when all workers of all replicas serve it; `behind` lists the processes of this replica
    that are late, `replicas_behind` the other replicas; `warning` says that nobody could be asked.
    """
    return await _swap(parts, parts.activator.activate(body.version, body.force, key_name, body.compared))


@admin.post("/rollback")
async def rollback(
    body: Annotated[RollbackRequest, Depends(Reads(RollbackRequest))], parts: Parts, key_name: KeyName
) -> Response:
    """Replace the live version, which the call names, by the one before it.

    `warning` says that its vector engine has lost it, so that the exact search answers.
    """
    return await _swap(parts, parts.activator.roll_back(body.version, key_name))


@admin.get("/routes")
async def routes(parts: Parts) -> Response:
    """Show the live version, the canary and the shadow, and what is explored."""
    return json_response(_shown(parts))


@admin.post("/routes")
async def route(body: Annotated[RoutesRequest, Depends(Reads(RoutesRequest))], parts: Parts) -> Response:
    """Let a canary answer a share of the users, or a shadow a share of the requests, unseen.

    `explore` lets some places of some answers be drawn: those of the live version, or, among the fields of
    `canary`, those of the canary. An omitted field stays; null removes it.
    """
    changes = body.model_dump(exclude_unset=True)
    with _refusals("routes", parts):
        late = await parts.activator.route(lambda old: Routes.model_validate(old.model_dump() | changes))
    return json_response(_shown(parts) | late.shown())


@admin.get("/outcomes")
async def outcomes(
    parts: Parts,
    kind: Annotated[list[KindName] | None, Query(max_length=_OUTCOME_KINDS)] = None,
    within: Annotated[str, Query(min_length=1, max_length=_PAUSE_LENGTH)] = "24h",
    value: Annotated[str | None, Query(min_length=1, max_length=_FIELD_LENGTH)] = None,
) -> Response:
    """Count the outcomes of the logged answers, and compare the canary with the live version.

    Events of `kind` count, or all; one without an answer id belongs to the newest answer that showed its item
    at most `within` before. `value` names the field of items with their value, such as a price. A report is
    kept for 60 seconds, and answered until the next one is counted; `age_seconds` is its age.
    """
    return json_response(await parts.outcomes.read(kind or (), within, value))


@admin.post("/comparison")
async def open_comparison(
    body: Annotated[ComparisonRequest, Depends(Reads(ComparisonRequest))], parts: Parts
) -> Response:
    """Open a version beside the live one, in place of any other, after it has passed the gate."""
    return json_response(await parts.comparison.open(body.version))


@admin.get("/comparison")
async def show_comparison(parts: Parts, version: VersionName | None = None) -> Response:
    """Show which version is compared, if any; `version` asks for that one alone."""
    return json_response(parts.comparison.state(version))


@admin.delete("/comparison")
async def close_comparison(parts: Parts, version: VersionName | None = None) -> Response:
    """End the comparison; with `version`, only if it is of that one."""
    return json_response(await parts.comparison.end(version))


@admin.post("/comparison/recommend")
async def recommend(
    body: Annotated[ComparedRequest, Depends(Reads(ComparedRequest))],
    parts: Parts,
    version: VersionName | None = None,
) -> Response:
    """Answer one request from both versions. `version` opens another one first, here and below."""
    return json_response(await parts.comparison.recommend(body, version))


@admin.get("/comparison/overlap")
async def overlap(
    parts: Parts,
    version: VersionName | None = None,
    users: Annotated[int, Query(ge=1, le=_COMPARED_USERS)] = 200,
    k: K = 10,
) -> Response:
    """Measure the overlap of both versions' answers over stored users, or over recorded queries."""
    return json_response(await parts.comparison.overlap(users, k, version))


@stored_rules.get("/rules")
async def rules(parts: Parts) -> Response:
    """Show the stored rules, and when and by which key they were set."""
    return json_response(_rules_of(parts))


@stored_rules.put("/rules")
async def set_rules(
    body: Annotated[RulesRequest, Depends(Reads(RulesRequest))], parts: Parts, key_name: KeyName
) -> Response:
    """Replace all rules, in every worker of every replica; the answer comes when they have them.

    A rule has to fit the catalog of the live version. Rules that are set already stay, with their time.
    """
    new = {name: Rule.model_validate(rule.model_dump(by_alias=True)) for name, rule in body.rules.items()}
    replacing = RuleSet(rules=new, time=now(), who=key_name)
    if (size := len(replacing.encoded().encode())) > RULES_BYTES:
        message = f"the rules take {size} bytes as JSON; send at most {RULES_BYTES}"
        raise InvalidFieldError("rules", None, message)
    live = parts.model_holder.answering
    if fault := replacing.fault(live.bundle.catalog):
        name, error = fault
        raise InvalidFieldError(f"rules.{name}.{error.field}", error.value, str(error))
    fresh, _ = await parts.overlay.for_answer(live.bundle)
    for name, rule in new.items():
        for place, pin in enumerate(rule.pin):
            if fresh.row(pin.item) is None:
                message = f"version {live.version} has no such item, and none was added; check the id"
                raise InvalidFieldError(f"rules.{name}.pin.{place}.item", pin.item, message)
    boosts = sum(len(new[name].boost) for name in replacing.defaults)
    if boosts > BOOSTS_OF_AN_ANSWER - BOOSTS:
        message = f"the default rules have {boosts} boosts; at most {BOOSTS_OF_AN_ANSWER - BOOSTS} may apply"
        raise InvalidFieldError("rules", None, f"{message} to every answer, beside those of a request")

    def later(routes: Routes) -> Routes:
        if routes.rules.encoded() == replacing.encoded():  # perhaps by this call, which a proxy repeats
            return routes
        if body.since is not None:
            _check_since(body.since, routes.rules)
        return routes.ruled(replacing)

    return await _changed(parts, later)


@stored_rules.post("/rules/rollback")
async def roll_back_rules(
    body: Annotated[RulesRollbackRequest, Depends(Reads(RulesRollbackRequest))],
    parts: Parts,
    key_name: KeyName,
) -> Response:
    """Replace the present rules, which the call names by their time, by those before them.

    Named in turn, those set by a rollback are undone by another.
    """

    def earlier(routes: Routes) -> Routes:
        before = routes.rules_before
        if body.since == routes.rules.undone:
            return routes
        _check_since(body.since, routes.rules)
        if before is None:
            raise ConflictError("rules", None, "no rules were set before; PUT /v1/rules sets them")
        if fault := before.fault(parts.model_holder.answering.bundle.catalog):
            name, error = fault
            raise ConflictError("rules", name, f"the live version can't apply this earlier rule ({error})")
        return routes.ruled(
            before.model_copy(update={"time": now(), "who": f"{key_name} (rollback)", "undone": body.since})
        )

    return await _changed(parts, earlier)


def _check_since(since: str, rules: RuleSet) -> None:
    if since != rules.time:
        who = f"{rules.who} has changed the rules meanwhile" if rules.who else "no rules were set yet"
        raise ConflictError("since", since, f"{who}; GET them and send yours again, with their `since`")


async def _changed(parts: Components, change: Callable[[Routes], Routes]) -> Response:
    with _refusals("rules", parts):
        late = await parts.activator.route(change)
    return json_response(_rules_of(parts) | late.shown())


def _rules_of(parts: Components) -> dict[str, Any]:
    stored = parts.model_holder.traffic.routes.rules
    return {
        "rules": {name: _shown_rule(rule) for name, rule in stored.rules.items()},
        "since": stored.time or None,
        "who": stored.who or None,
    }


def _shown_rule(rule: Rule) -> dict[str, Any]:
    """A rule as it is sent, with its times in ISO 8601."""
    shown = rule.model_dump(mode="json")
    times = {name: show_time(shown[name]) for name in ("from", "until") if shown[name] is not None}
    return shown | times


async def _swap(parts: Components, replacing: Awaitable[Swap]) -> Response:
    with _refusals("version", parts):
        swap = await replacing
    parts.metrics.activations.labels("activated").inc()
    answer: dict[str, Any] = {"version": swap.version, "previous": swap.replaced}
    return json_response(answer | swap.late.shown())


@contextmanager
def _refusals(field: str, parts: Components) -> Iterator[None]:
    """Raise the errors of a change of the live version, or of the routes, as errors of the request."""
    try:
        yield
    except BundleError as error:
        parts.metrics.reload_failures.labels(error.reason).inc()
        unchanged = "the routes are unchanged"
        if field == "version":
            parts.metrics.activations.labels("refused").inc()
            version = parts.model_holder.version
            unchanged = f"version {version} stays live" if version else "no version is live yet"
        raise ConflictError("version", None, f"{error}; {unchanged}") from None
    except RequestError:
        raise
    except ServiceError as error:  # the folder can't be opened or written
        raise ConflictError(field, None, str(error)) from None


def _shown(parts: Components) -> dict[str, Any]:
    route, holder = {"version", "share"}, parts.model_holder
    routes = holder.traffic.routes.model_dump(
        mode="json", include={"canary": {*route, "explore"}, "shadow": route, "explore": True}
    )
    return {"live": holder.version} | routes
