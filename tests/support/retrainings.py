"""Records of retrainings that never were."""

from typing import Any

from turret.retraining.state import DataSize, Retraining

MOMENT = "2026-05-01T03:00:00.000+00:00"


def size(events: int, items: int = 10) -> DataSize:
    return DataSize(fingerprint=f"data-{events}-{items}", events=events, items=items)


def record(run: str, **fields: Any) -> Retraining:
    """An activated version with the name of its run."""
    plain = {"decision": "activated", "status": 0, "message": "", "version": run, "mode": "warm"}
    moments = {"started": MOMENT, "ended": MOMENT, "seconds": 1.0}
    return Retraining.model_validate({"run": run, **moments, **plain, **fields})
