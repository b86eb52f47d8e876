"""The conditions of a run over all users: those of a request, checked by the schema of requests."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from turret.data.errors import ConfigurationError, shown
from turret.service.errors import RequestError
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query, add_rules
from turret.service.ranking.resolving import resolve
from turret.service.schemas.bodies import field_error
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.record import RuleSet
from turret.tower.bundle.bundle import Bundle


def request_of(conditions: Mapping[str, Any], where: str = "") -> RecommendRequest:
    """Make the request that each user sends, from its fields; None leaves a field out.

    Raises ConfigurationError, which begins with `where`, for the first field that a request can't have.
    """
    fields = {name: value for name, value in conditions.items() if value is not None}
    try:
        return RecommendRequest.model_validate(fields)
    except ValidationError as error:
        raise refused(field_error(error.errors(include_url=False)[0]), where) from None


def refused(error: RequestError, where: str = "") -> ConfigurationError:
    """The refusal of a request as the error of a command: the field, its value, and the remedy."""
    value = "" if error.value is None else f" = {shown(error.value)}"
    return ConfigurationError(f"{where}{error.field}{value}: {error}")


def parsed(option: str, text: str | None) -> Any:
    """Parse the JSON of an option; None for None. Raises ConfigurationError for another text."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--{option} {shown(text)} is not JSON ({error}); write it as in a request"
        ) from None


def resolved(request: RecommendRequest, rules: RuleSet, bundle: Bundle, fresh: FreshItems) -> Query:
    """Resolve the request of a user without a history, with the rules that apply at any time to all users.

    Raises ConfigurationError for conditions that a version can't apply, before any user is scored.
    """
    manifest = bundle.manifest
    if manifest.reads_queries:
        message = (
            f"version {manifest.version} answers queries, not users; score a version that reads histories"
        )
        raise ConfigurationError(message)
    query = Query(request, (), None, 0, 0)
    try:
        add_rules(query, rules)
        resolve([query], ItemView(bundle, fresh))
    except RequestError as error:
        raise refused(error) from None
    return query
