"""The calls on versions and rules: the live version, activations, routes, comparisons, stored rules."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from turret.client import version_answers
from turret.client.requests import ACTIVATION_SECONDS, Call, RecommendRequest, Routes, Rule, call, get

_COMPARISON = "/admin/comparison"


def version() -> Call[version_answers.VersionAnswer]:
    """Describe the live version: scoring, metrics, measured recall."""
    return get("/v1/version", version_answers.VersionAnswer)


def versions() -> Call[version_answers.VersionsAnswer]:
    """List every bundle of the folder with its metrics and recall."""
    return get("/v1/versions", version_answers.VersionsAnswer)


def activations() -> Call[version_answers.ActivationsAnswer]:
    """List the latest 100 activations and refused versions, newest first, with reasons."""
    return get("/v1/activations", version_answers.ActivationsAnswer)


def activate(
    version: str, *, force: bool = False, compared: bool = False
) -> Call[version_answers.ActivateAnswer]:
    """Make a version live in every worker, after it has passed the gate.

    `force` accepts a low recorded metric or none, and a low overlap; `compared` says that both versions were
    compared on the same events.
    """
    flags = {"force": force, "compared": compared}
    body = {"version": version} | {name: True for name, value in flags.items() if value}
    return _swap("/admin/activate", body)


def roll_back(version: str) -> Call[version_answers.ActivateAnswer]:
    """Replace the live version, which is `version`, by the one before it."""
    return _swap("/admin/rollback", {"version": version})


def _swap(path: str, body: dict[str, Any]) -> Call[version_answers.ActivateAnswer]:
    return call("POST", path, version_answers.ActivateAnswer, body, "unless received", ACTIVATION_SECONDS)


def routes() -> Call[version_answers.RoutesAnswer]:
    """Show the live version, the canary and the shadow."""
    return get("/admin/routes", version_answers.RoutesAnswer)


def set_routes(**routes: Unpack[Routes]) -> Call[version_answers.RoutesAnswer]:
    """Set the `canary` or the `shadow`; None ends a route, and a route that is left out stays."""
    return call("POST", "/admin/routes", version_answers.RoutesAnswer, routes, seconds=ACTIVATION_SECONDS)


def outcomes(
    kinds: Sequence[str] = (), *, within: str = "24h", value: str | None = None
) -> Call[version_answers.OutcomesAnswer]:
    """Count the outcomes of the logged answers, and compare the canary with the live version.

    Events of `kinds` count, or all; `within`, such as 24h, is for those without an answer id. `value` is the
    field with the value of items.
    """
    path, names = "/admin/outcomes", [*kinds] or None
    return get(path, version_answers.OutcomesAnswer, kind=names, within=within, value=value)


def open_comparison(version: str) -> Call[version_answers.ComparisonAnswer]:
    """Open a version beside the live one, in place of any other, after it has passed the gate."""
    body = {"version": version}
    return call("POST", _COMPARISON, version_answers.ComparisonAnswer, body, seconds=ACTIVATION_SECONDS)


def comparison(version: str | None = None) -> Call[version_answers.ComparisonAnswer]:
    """Show which version is compared, if any; `version` asks for that one alone."""
    return get(_COMPARISON, version_answers.ComparisonAnswer, version=version)


def close_comparison(version: str | None = None) -> Call[version_answers.ComparisonAnswer]:
    """End the comparison; with `version`, only if that version is compared."""
    return call("DELETE", _COMPARISON, version_answers.ComparisonAnswer, version=version)


def compare(request: RecommendRequest, *, version: str | None = None) -> Call[version_answers.ComparedAnswer]:
    """Answer one request from both versions; `version` opens another one first."""
    path = f"{_COMPARISON}/recommend"
    return call(
        "POST", path, version_answers.ComparedAnswer, request, seconds=ACTIVATION_SECONDS, version=version
    )


def overlap(
    *, version: str | None = None, users: int = 200, k: int = 10
) -> Call[version_answers.OverlapAnswer]:
    """Measure the overlap of both versions' answers over stored users, or over recorded queries."""
    path, seconds = f"{_COMPARISON}/overlap", ACTIVATION_SECONDS
    return call(
        "GET", path, version_answers.OverlapAnswer, seconds=seconds, users=users, k=k, version=version
    )


def rules() -> Call[version_answers.RulesAnswer]:
    """Show the stored rules, and when and by which key they were set."""
    return get("/v1/rules", version_answers.RulesAnswer)


def set_rules(rules: Mapping[str, Rule]) -> Call[version_answers.RulesAnswer]:
    """Replace all rules, in every worker of every replica; needs a key of the scope rules."""
    return call("PUT", "/v1/rules", version_answers.RulesAnswer, {"rules": rules}, seconds=ACTIVATION_SECONDS)


def roll_back_rules(since: str) -> Call[version_answers.RulesAnswer]:
    """Replace the rules that were set at `since` by those before; needs a key of the scope rules."""
    body = {"since": since}
    return call("POST", "/v1/rules/rollback", version_answers.RulesAnswer, body, seconds=ACTIVATION_SECONDS)
