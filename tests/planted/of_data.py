"""Faults of reading and preparing events."""

from typing import Any

from tests.planted.fault import Function, planted


@planted("turret.data.ranges:groups", "data")
def a_group_ends_before_it_reaches_its_limit(original: Function) -> Function:
    def groups(offsets: Any, limit: int) -> Any:
        return original(offsets, limit - 1)

    return groups
