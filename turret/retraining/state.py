"""The state of a run in progress: `state.json` of the work folder, which a killed run leaves."""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from turret.data.errors import TurretError
from turret.data.files import new_file, sweep
from turret.retraining.record import DataSize, Decision, EndedCanary, Figures, RetrainRecord
from turret.retraining.rule import Mode

STATE = "state.json"


class RunState(BaseModel):
    """The results of the finished steps; `step` is the next one.

    `run` names the run, its folder and its bundle. `until` is the end of the dumped time range, milliseconds
    since 1970. `data_changed`: another command has written the prepared data since the last run. `retired`
    lists the bundles and runs that retention deletes. `failures` counts errors that ended the process. The
    other fields are as in `RetrainRecord`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    started: str
    until: int
    before: DataSize
    data_changed: bool
    step: str
    seconds: float = 0.0
    after: DataSize | None = None
    new_events: int | None = None
    mode: Mode | None = None
    reason: str | None = None
    live: str | None = None
    origin: str | None = None
    version: str | None = None
    figures: Figures | None = None
    canary: EndedCanary | None = None
    decision: Decision | None = None
    status: int = 0
    message: str = ""
    retired: tuple[str, ...] = ()
    failures: int = 0

    def dump(self, work: Path) -> Path:
        """The file of the dumped events."""
        return work / f"events-{self.run}.parquet"

    def save(self, work: Path) -> None:
        """Replace the state by rename."""
        with new_file(work / STATE, 0o600) as fresh:
            fresh.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_state(work: Path) -> RunState | None:
    """Read the state of an interrupted run; None if there is none. Raises TurretError for another file."""
    path = work / STATE
    try:
        return RunState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise TurretError(
            f"{path} can't be read ({type(error).__name__}); delete it, and the next run begins anew"
        ) from None


def remove_state(work: Path, state: RunState) -> None:
    """Delete the state of a run and its dumped events."""
    state.dump(work).unlink(missing_ok=True)
    sweep(work, ".events-*.new", 0.0)  # parts of a dump that was killed
    (work / STATE).unlink(missing_ok=True)


def iso(milliseconds: int) -> str:
    """A time in milliseconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def record_of(state: RunState, ended: str) -> RetrainRecord:
    """The record of a run with this state; one without a decision has failed."""
    fields = {
        name: value
        for name, value in state.model_dump().items()
        if name in RetrainRecord.model_fields and name not in ("until", "step")
    }
    decision = state.decision or "failed"
    step = None if state.decision else state.step
    return RetrainRecord.model_validate(
        {**fields, "ended": ended, "until": iso(state.until), "decision": decision, "step": step}
    )
