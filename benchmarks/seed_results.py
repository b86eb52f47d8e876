"""What `benchmarks.quality` keeps of every seed: results/quality/SET/EXPERIMENT_SEED.json."""

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

QUALITY = RESULTS / "quality"


def keep(set_name: str, row: dict[str, Any]) -> None:
    """Write the figures of one seed, which have `experiment` and `seed`."""
    folder = QUALITY / set_name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{row['experiment']}_{row['seed']}.json"
    path.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


def kept(set_name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """The figures of all seeds of a set, by experiment and seed."""
    folder = folder or QUALITY
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / set_name).glob("*.json")]
    return sorted(rows, key=lambda row: (row["experiment"], row["seed"]))
