"""`turret retrain`: run and print."""

import json
import sys

from turret.data.errors import TurretError
from turret.data.text import text_table
from turret.retraining.record import Figures, RetrainRecord, read_records
from turret.retraining.retrain import retrain
from turret.retraining.settings import RetrainSettings

WIDTH = 140


class NotActivatedError(TurretError):
    """The new version has not become live; `exit_status` is that of `turret activate`."""

    def __init__(self, record: RetrainRecord) -> None:
        super().__init__(record.message)
        self.exit_status = record.status


def retrain_once(settings: RetrainSettings, as_json: bool) -> None:
    """Retrain, and print the decision. Raises NotActivatedError if the new version is not good enough."""
    record = retrain(settings)
    if as_json:
        print(record.model_dump_json(indent=2, exclude_none=True))
    if record.status:
        raise NotActivatedError(record)
    if not as_json:
        print(f"{record.decision}: {record.message}")


def print_history(settings: RetrainSettings, as_json: bool) -> None:
    """Print the records of the work folder, oldest first."""
    records = read_records(settings.work)
    if as_json:
        print(json.dumps([record.model_dump(mode="json", exclude_none=True) for record in records], indent=2))
        return
    if not records:
        print(f"{settings.work} has no records yet; `turret retrain` writes them", file=sys.stderr)
    headings = ("run", "decision", "new events", "mode", "version", "new", "live", "difference", "s")
    print(text_table(headings, map(_row, records), width=WIDTH, right=("new events", "s")))


def _row(record: RetrainRecord) -> list[str]:
    return [
        record.run,
        record.decision + (f" ({record.step})" if record.step else ""),
        "" if record.new_events is None else f"{record.new_events:,}",
        record.mode or "",
        record.version or "",
        *_figures(record.figures),
        f"{record.seconds:,.0f}",
    ]


def _figures(figures: Figures | None) -> list[str]:
    if figures is None:
        return ["", "", ""]
    return [
        f"{figures.metric} {figures.new:.4f}",
        f"{figures.live:.4f}",
        f"{figures.new - figures.live:+.4f} [{figures.low:+.4f}, {figures.high:+.4f}]",
    ]
