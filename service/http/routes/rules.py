"""Stored rules: named filters and caps that requests refer to, the same in every worker and replica."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from turret.service.components import Components
from turret.service.errors import ConflictError, InvalidFieldError
from turret.service.http.routes.dependencies import Parts, Reads, json_response
from turret.service.http.routes.versions import KeyName, behind, refusals
from turret.service.schemas.requests import RulesRequest
from turret.service.versions.record import Routes, Rule, RuleSet, now

router = APIRouter(prefix="/v1", tags=["rules"])


@router.get("/rules")
async def rules(parts: Parts) -> Response:
    """Show the stored rules, and when and by which key they were set."""
    return json_response(_shown(parts))


@router.put("/rules")
async def set_rules(
    body: Annotated[RulesRequest, Depends(Reads(RulesRequest))], parts: Parts, key_name: KeyName
) -> Response:
    """Replace all rules, in every worker of every replica; the answer comes when they have them.

    A rule has to fit the catalog of the live version.
    """
    rules = {name: Rule.model_validate(rule.model_dump()) for name, rule in body.rules.items()}
    given = RuleSet(rules=rules, time=now(), who=key_name)
    live = parts.model_holder.answering
    if fault := given.fault(live.bundle.catalog):
        name, error = fault
        raise InvalidFieldError(f"rules.{name}.{error.field}", error.value, str(error))

    def later(routes: Routes) -> Routes:
        if body.since is not None and body.since != routes.rules.time:
            message = f"{routes.rules.who} has changed the rules meanwhile; GET them and send yours again"
            raise ConflictError("since", body.since, message)
        return routes.ruled(given)

    return await _changed(parts, later)


@router.post("/rules/rollback")
async def roll_back_rules(parts: Parts, key_name: KeyName) -> Response:
    """Set the rules before the present ones again; a second call undoes that."""

    def earlier(routes: Routes) -> Routes:
        before = routes.rules_before
        if before is None:
            raise ConflictError("rules", None, "no rules were set before; PUT /v1/rules sets them")
        if fault := before.fault(parts.model_holder.answering.bundle.catalog):
            name, error = fault
            raise ConflictError("rules", name, f"the live version can't apply this earlier rule ({error})")
        return routes.ruled(before.model_copy(update={"time": now(), "who": f"{key_name} (rollback)"}))

    return await _changed(parts, earlier)


async def _changed(parts: Components, change: Callable[[Routes], Routes]) -> Response:
    with refusals("rules", parts):
        late = await parts.activator.route(change)
    return json_response(_shown(parts) | behind(late))


def _shown(parts: Components) -> dict[str, Any]:
    rules = parts.model_holder.traffic.routes.rules
    return {
        "rules": {name: rule.model_dump(mode="json") for name, rule in rules.rules.items()},
        "since": rules.time or None,
        "who": rules.who or None,
    }
