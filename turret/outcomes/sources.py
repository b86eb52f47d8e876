"""The answers, the events and the values that a command names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from turret.data.answers.events import EventCollector, OutcomeEvents
from turret.data.answers.files import AnswerFolder
from turret.data.answers.form import read_key
from turret.data.answers.log import damage_told, read_answers
from turret.data.answers.outcomes import Outcomes, outcomes_of
from turret.data.errors import ConfigurationError
from turret.data.moments import milliseconds_of
from turret.history.dumping import TimeRange
from turret.outcomes.attribution import read_events, with_kinds
from turret.outcomes.replay import replay
from turret.outcomes.value import Value, value_of
from turret.scoring.stored_users import OpenStore
from turret.scoring.users import in_blocks
from turret.service.outcomes.counting import item_values as values_of_items
from turret.service.settings import read_settings
from turret.service.stores.contract import CLOCK_SKEW
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.format.listing import bundle_folder


@dataclass(frozen=True)
class Sources:
    """An answer log, the store with the events, the key of visitors, and the events that count.

    `within` is in milliseconds.
    """

    answers: Path
    store: str | None
    key: bytes
    kinds: Sequence[str]
    within: int
    times: TimeRange

    @classmethod
    def of(
        cls,
        answers: Path,
        store: str | None,
        key: str,
        kinds: Sequence[str],
        within: str,
        since: str | None = None,
        until: str | None = None,
    ) -> "Sources":
        """Read the options of a command. Raises ConfigurationError for an option that can't be read."""
        try:
            longest = round(milliseconds_of(within))
        except ValueError as error:
            raise ConfigurationError(f"--within {error}") from None
        return cls(answers, store, read_key(key), kinds, longest, TimeRange.of(since, until))

    def read_answers(self) -> pl.LazyFrame:
        """Read the answers. Raises SourceError and EmptyDataError."""
        return read_answers(self.answers, self.times.first, self.times.last)

    def read_events(self, first: int) -> pl.DataFrame:
        """Read the events from `first`, in milliseconds since 1970, to `within` after the last answer."""
        with OpenStore(read_settings(store=self.store)) as store:
            return read_events(store, self.key, first, self.times.last + self.within)

    def outcomes(self, value: str | None, bundles: Sequence[Path]) -> Outcomes:
        """Count and compare. Raises TurretError for anything that can't be read."""
        values = item_values(value, bundles)
        answers = AnswerFolder(self.answers, self.times.first, self.times.last)
        return outcomes_of(answers, self._counted_events, self.within, values)

    def _counted_events(self, begun: int) -> OutcomeEvents:
        """The events that count, from the first answer to `within` after the last one."""
        collector = EventCollector(self.key, self.kinds)
        with OpenStore(read_settings(store=self.store)) as store:
            # An event that names an answer may be a little before it, by another clock.
            events = store.events(begun - CLOCK_SKEW, self.times.last + self.within)
            for block in in_blocks(events, 100_000):
                collector.add(block)
        return collector.events()

    def value_of(self, path: Path, value: str | None, bundles: Sequence[Path]) -> tuple[str, Value]:
        """Estimate the value that a bundle would have had; return its version too. Raises TurretError."""
        values, bundle = item_values(value, bundles), open_bundle(path)
        if bundle.manifest.reads_queries:
            version = bundle.manifest.version
            raise ConfigurationError(
                f"--of {path}: version {version} answers queries, which the log does not hold; name a "
                "version that reads histories"
            )
        answers = self.read_answers()
        events = self.read_events(TimeRange.of(None, None).first)
        with damage_told(self.answers):
            logged = replay(bundle, answers, events, with_kinds(events, self.kinds), self.within, values)
        return bundle.manifest.version, value_of(logged)


def open_bundle(path: Path) -> Bundle:
    """Open a bundle, or the current one of a folder. Raises BundleError."""
    folder = bundle_folder(path).resolve()
    return load(folder.parent, folder.name)


def item_values(field: str | None, bundles: Sequence[Path]) -> dict[str, float] | None:
    """The values of items by id, of the first bundle that has each; None where no field is named.

    Raises ConfigurationError for a field without bundles, bundles without a field, and a field that no item
    has as a number.
    """
    if field is None and not bundles:
        return None
    if field is None or not bundles:
        raise ConfigurationError(
            "--value and --items go together: name the field and a bundle with the items"
        )
    return values_of_items(field, [bundle_folder(path).resolve() for path in bundles])
