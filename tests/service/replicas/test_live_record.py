import json
from typing import Any

import pytest

from turret.service.errors import ReplicasUnavailableError
from turret.service.models.traffic_split import Route, Routes
from turret.service.replicas.live_record import LiveRecord, Report, read_record, read_report

RECORD = LiveRecord(number=7, version="v2", manifest="ab" * 32, previous="v1", who="ann", time="now")


def test_a_record_is_read_as_it_was_written() -> None:
    routes = Routes(canary=Route(version="v3", share=0.5, manifest="cd" * 32), salt="00ff")
    record = RECORD.model_copy(update={"routes": routes, "routes_number": 3})
    assert read_record(record.encoded()) == record
    assert read_record(b"") is None


def test_fields_of_a_later_release_are_ignored() -> None:
    """During an upgrade both releases read the record."""
    assert read_record(json.dumps(RECORD.model_dump() | {"mood": 1}).encode()) == RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"version": "../v2"},
        {"version": "current"},
        {"manifest": "xyz"},
        {"number": 0},
        {"number": 1 << 62},
        {"routes": 1},
    ],
)
def test_a_record_that_could_not_be_served_is_an_error_in_words(change: dict[str, Any]) -> None:
    with pytest.raises(ReplicasUnavailableError, match=r"no record of this service .* delete the key"):
        read_record(json.dumps(RECORD.model_dump() | change).encode())


@pytest.mark.parametrize("foreign", [b"", b"text", b"[]", b'{"number": "x"}'])
def test_a_foreign_report_reports_nothing(foreign: bytes) -> None:
    assert read_report(foreign) == Report()
