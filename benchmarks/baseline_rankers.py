"""The baselines of `turret evaluate` on a prepared log: NDCG and recall, seconds and memory.

    python -m benchmarks.baseline_rankers var/prepared --json

Each baseline is fitted and ranked in a process of its own, so that its peak memory is its own; `start_mb` is
the peak of that process before the fit.
"""

import argparse
import json
import resource
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.baselines.registry import ALL, chosen_baselines
from turret.training.evaluation.evaluation import measure, relevant_items
from turret.training.evaluation.ranking import rank
from turret.training.process import set_up_process

K = 10


def _peak() -> float:
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _measured(folder: Path, name: str) -> dict[str, Any]:
    """Metrics, seconds and memory of one baseline on the test part."""
    set_up_process()
    data = PreparedData.open(folder)
    relevant = relevant_items(data, "test")
    (baseline,) = (one for one in chosen_baselines([name], data, True)[0] if one.name == name)
    start, clock = _peak(), time.perf_counter()
    fitted = baseline.fit(data, "test")
    fitting, clock = time.perf_counter() - clock, time.perf_counter()
    ranked = rank(fitted.scores_of, data, relevant.users, "test", K, True)
    values, _ = measure(ranked, relevant, [K], len(data.item_ids), name)
    return {
        **{metric: float(values[metric].mean()) for metric in (f"ndcg@{K}", f"recall@{K}")},
        "fit_seconds": round(fitting, 2),
        "rank_seconds": round(time.perf_counter() - clock, 2),
        "peak_mb": round(_peak()),
        "start_mb": round(start),
        "limits": fitted.limits,
    }


def main() -> None:
    """Measure every baseline that fits the data, and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="prepared data")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    data = PreparedData.open(arguments.data)
    chosen, left_out = chosen_baselines([ALL], data, True)
    results = {}
    for baseline in chosen:
        with get_context("spawn").Pool(1) as pool:
            results[baseline.name] = pool.apply(_measured, (arguments.data, baseline.name))
        if not arguments.json:
            print(
                baseline.name, *(f"{key} {value}" for key, value in results[baseline.name].items()), sep="  "
            )
    if arguments.json:
        counts = data.manifest.counts.model_dump()
        print(json.dumps({"counts": counts, "baselines": results, "left_out": left_out}, indent=2))


if __name__ == "__main__":
    main()
