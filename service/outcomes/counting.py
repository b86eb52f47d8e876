"""Counts the outcomes of an answer log once, and writes the report."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from turret.data.answers.events import EventCollector, OutcomeEvents
from turret.data.answers.files import AnswerFolder
from turret.data.answers.outcomes import outcomes_of
from turret.data.errors import ConfigurationError, TurretError
from turret.data.files import locked, new_file
from turret.data.vocabulary import Vocabulary
from turret.service.errors import ServiceError
from turret.service.outcomes.request import CountReport, CountRequest, read_report
from turret.service.settings import read_settings
from turret.service.stores.contract import CLOCK_SKEW, now_ms
from turret.service.stores.registry import open_stores
from turret.tower.catalog.catalog import Catalog
from turret.tower.errors import BundleError
from turret.tower.format.manifest import read_manifest

MOST_EVENTS = 5_000_000  # in memory, 100 bytes each
_MOST_REPORTS = 8  # that are kept, with other parameters
_LOCK = "outcomes.lock"


def count_once(request: CountRequest) -> None:
    """Count, and write the report; one call at a time counts on a machine, and the others wait.

    Raises OSError where the report can't be written.
    """
    folder, begun = request.report.parent, now_ms()
    (folder / _LOCK).touch(0o600)
    with locked(folder / _LOCK):
        before = read_report(request.report)
        if before is not None and abs(begun - before.time) <= request.fresh_ms:
            return
        report = _counted(request, now_ms())
        with new_file(request.report, 0o600) as fresh:
            fresh.write_text(report.model_dump_json(), encoding="utf-8")
        reports = sorted(folder.glob(f"*{request.report.suffix}"), key=lambda path: path.stat().st_mtime)
        for old in reports[:-_MOST_REPORTS]:
            old.unlink(missing_ok=True)


def _counted(request: CountRequest, now: int) -> CountReport:
    field = "value"
    try:
        values = None if request.value is None else item_values(request.value, request.bundles)
        field = "kind"

        def read(first: int) -> OutcomeEvents:
            # An event that names an answer may be a little before it, by another clock.
            return asyncio.run(_events(request, first - CLOCK_SKEW, now + request.within))

        outcomes = outcomes_of(AnswerFolder(request.answers), read, request.within, values)
    except ConfigurationError as error:
        return CountReport(time=now, error=str(error), field=field)
    except TurretError as error:
        return CountReport(time=now, error=str(error))
    return CountReport(time=now, outcomes=outcomes.as_json())


async def _events(request: CountRequest, first: int, last: int) -> OutcomeEvents:
    """The events that count of the store. Raises ServiceError, and ConfigurationError for an unknown kind."""
    collector = EventCollector(bytes.fromhex(request.key), request.kinds)
    stores = open_stores(read_settings(store=request.store))
    try:
        async for events in stores.histories.scan(first, last):
            collector.add(events)
            if len(collector) > MOST_EVENTS:
                raise ServiceError(
                    f"more than {MOST_EVENTS:,} events may be outcomes; name the kinds that count, or use "
                    "turret outcomes"
                )
    finally:
        await stores.close()
    return collector.events()


def item_values(field: str, bundles: Iterable[Path]) -> dict[str, float]:
    """The values of items by id, of the first bundle that has each.

    Raises ConfigurationError for a field that no item has as a number, BundleError for a bundle that can't be
    read.
    """
    values: dict[str, float] = {}
    for folder in bundles:
        try:
            ids = Vocabulary.load(folder / "vocabulary.json").all_ids
            catalog = Catalog.load(folder, read_manifest(folder).item_count)
        except OSError as error:
            raise BundleError(f"{folder} can't be read: {error.strerror}; copy it again") from None
        for row, item in enumerate(ids):
            number = catalog.of(row).get(field)
            if isinstance(number, int | float) and not isinstance(number, bool):
                values.setdefault(str(item), float(number))
    if not values:
        names = ", ".join(folder.name for folder in bundles)
        raise ConfigurationError(
            f"no item of {names} has a number in the field {field!r}; name another field"
        )
    return values
