"""The measured part of docs/distributed.md."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
_NAMES = {
    "transformer": "`--experiment transformer`, full softmax over 10,000 items",
    "transformer_sampled": "the same with 256 uniform candidates of each process",
    "in_batch": "pooled tower, candidates of the whole batch",
    "split_table": "pooled tower with a split table of 200,000 rows",
}
# Of those with candidates from the batch, an example of half a batch has half the candidates.
_OF_ONE_WORK = ("transformer", "transformer_sampled")


def distributed_section(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/distributed.json`."""
    machine, trainings = results["machine"], results["trainings"]
    difference = f"{results['loss_difference']:.0e}"
    return "\n".join(
        [
            "| training | 2 processes over 1, one thread each (least, greatest round) | over 1 of 2 threads "
            "| 1 process, half batches over whole ones | sent a step by a process "
            "| peak memory of a process: 2, 1 |",
            "|---|---|---|---|---|---|",
            *(_measured(name, trainings[name]) for name in _NAMES),
            "",
            f"Batches of 4,096 examples on {machine['cores']} cores, over the loopback, in turns in one run "
            f"({machine['date'][:10]}; `python -m benchmarks.distributed --json`). Losses of the same steps "
            f"differ by {difference} at most where no process draws; of a split table and its moments each "
            f"of two processes holds {results['memory_share_of_table']:.2f}. Each of two processes computes "
            "half a batch; where half batches cost more an example, two processes are less than twice as "
            "fast before anything is sent: raise `training.batch_size` with the number of processes.",
            "",
            f"On a network of {results['network_gbit_per_s']:.0f} Gbit/s with 50 microseconds a message, "
            "2,048 examples a worker, and nothing sent while anything is computed:",
            "",
            "| training | workers | sent a step by a worker | time of a step | share of it that computes |",
            "|---|---|---|---|---|",
            *(_modelled(name, cost) for name in _NAMES for cost in trainings[name]["cost_model"]),
            "",
        ]
    )


def _measured(name: str, figures: dict[str, Any]) -> str:
    over = figures["over_one"]
    sent = ", ".join(
        f"{kind} {size / 1e6:.2f} MB"
        for kind, size in figures["bytes_sent_a_step"].items()
        if kind != "figures"
    )
    peak = figures["peak_mb"]
    cells = [
        _NAMES[name],
        f"{over['ratio']:.2f} ({over['ratio_least']:.2f}, {over['ratio_greatest']:.2f})",
        f"{figures['over_two_threads']['ratio']:.2f}",
        f"{figures['half_over_one']['ratio']:.2f}" if name in _OF_ONE_WORK else "",
        sent,
        f"{peak['2 processes']:.0f}, {peak['1 process']:.0f} MB",
    ]
    return f"| {' | '.join(cells)} |"


def _modelled(name: str, cost: dict[str, Any]) -> str:
    cells = [
        _NAMES[name],
        f"{cost['workers']}",
        f"{sum(cost['sent_mb'].values()):.1f} MB",
        f"{1e3 * cost['seconds']:.0f} ms",
        f"{100 * cost['share_computing']:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"
