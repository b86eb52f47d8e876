"""Stored rules: named filters and caps that requests refer to."""

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, PrivateAttr

from turret.service.errors import ConflictError
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.conditions import Condition
from turret.tower.catalog.filters import compile_filter
from turret.tower.errors import FilterError


class Rule(BaseModel):
    """A filter on catalog fields, and caps: how many items of an answer may share a value of a field."""

    model_config = ConfigDict(frozen=True)

    filter: dict[str, Any] | None = None
    cap: dict[str, int] = {}
    # A request compiles no rule: one of a thousand values takes half a millisecond.
    _compiled: WeakKeyDictionary[Catalog, Condition | None] = PrivateAttr(default_factory=WeakKeyDictionary)

    def condition(self, catalog: Catalog) -> Condition | None:
        """The condition on the items of a catalog; None without a filter.

        Raises FilterError for a field that the catalog lacks, of the caps too.
        """
        if catalog in self._compiled:
            return self._compiled[catalog]
        for name in self.cap:
            if name not in catalog.kinds:
                known = ", ".join(catalog.field_names) or "none"
                raise FilterError(f"cap.{name}", None, f"the catalog has no field {name!r}; it has: {known}")
        condition = compile_filter(self.filter, catalog).condition if self.filter else None
        self._compiled[catalog] = condition
        return condition


class RuleSet(BaseModel):
    """All rules by name, and when (ISO 8601) and by which key they were set."""

    model_config = ConfigDict(frozen=True)

    rules: dict[str, Rule] = {}
    time: str = ""
    who: str = ""

    def chosen(self, names: Iterable[str]) -> dict[str, Rule]:
        """The rules of a request. Raises ConflictError for an unknown name."""
        found = {}
        for name in names:
            if name not in self.rules:
                known = ", ".join(self.rules) or "none; PUT /v1/rules sets them"
                raise ConflictError("rules", name, f"there is no such rule; there are: {known}")
            found[name] = self.rules[name]
        return found

    def fault(self, catalog: Catalog) -> tuple[str, FilterError] | None:
        """The name of the first rule that a catalog can't apply, and why; None if it can apply all."""
        for name, rule in self.rules.items():
            try:
                rule.condition(catalog)
            except FilterError as error:
                return name, error
        return None


def lowest_caps(caps: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """For each field the lowest of several caps."""
    lowest: dict[str, int] = {}
    for cap in caps:
        for name, most in cap.items():
            lowest[name] = min(most, lowest.get(name, most))
    return lowest


def conditions_of(rules: Mapping[str, Rule], catalog: Catalog, version: str) -> list[Condition]:
    """The conditions of rules. Raises ConflictError for one that the version's catalog can't apply."""
    found = []
    for name, rule in rules.items():
        try:
            condition = rule.condition(catalog)
        except FilterError as error:
            message = f"version {version} can't apply this rule ({error}); change the rule, or leave it out"
            raise ConflictError("rules", name, message) from None
        if condition is not None:
            found.append(condition)
    return found
