"""The measured part of docs/scale.md: what one machine holds, plans, and how far they were from runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.plan_check import compared
from turret.planning.amounts import byte_text, count_text, time_text
from turret.planning.figures import Figures, load_figures
from turret.planning.plan import make_plan
from turret.planning.request import EXPERIMENT, Machine, PlanRequest

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
MACHINES = (Machine(4, 16e9, 200e9), Machine(16, 64e9, 1e12))
STORES = {"sqlite": "SQLite", "redis": "Redis"}
SHOP = PlanRequest(
    users=1e6,
    items=1e5,
    events=5e7,
    requests=100.0,
    machine=MACHINES[0],
    dimension=64,
    history=50,
    experiment="youtubednn",
    epochs=10,
    hours=8.0,
)
SHOPS = (
    replace(SHOP, users=1e5, items=2e4, events=5e6),
    replace(SHOP, users=1e6, items=2e5, events=5e7, requests=500.0),
    replace(SHOP, users=1e7, items=1e6, events=5e8, requests=5_000.0, machine=MACHINES[1]),
)


def scale_section(*results: dict[str, Any]) -> str:
    """The section in Markdown, from the results of `NAMES` in their order."""
    preparation, scale, training, service, requests, histories, check = results
    figures = load_figures()
    return "\n".join(
        [
            "### Measured",
            "",
            *_measured_data(preparation, scale),
            *_measured_training(training),
            *_measured_service(service, requests),
            *_measured_histories(histories),
            "",
            f"{figures.source_line()}. Times of export, index and requests are processor time.",
            "",
            "### Where one machine ends",
            "",
            *_limits(figures),
            "",
            "### Three shops",
            "",
            *_shops(figures),
            "",
            "![Memory by items](../benchmarks/results/scale.svg)",
            "",
            "Lines are planned, points measured; dashes lie beyond the largest measured catalog.",
            "",
            "### Plans and runs",
            "",
            *_checked(check, figures),
            "",
        ]
    )


NAMES = (
    "preparation",
    "scale_preparation",
    "scale_training",
    "scale_service",
    "scale_requests",
    "scale_histories",
    "plan_check",
)


def _measured_data(preparation: dict[str, Any], scale: dict[str, Any]) -> list[str]:
    log = preparation["rows"][-1]
    prepared = max(scale["points"], key=lambda row: row["events"])
    return [
        "| part | size | |",
        "|---|---|---|",
        f"| preparation | {log['events']:,} events | {time_text(log['prepare']['seconds'])}, "
        f"{log['prepare']['peak_gb']:.1f} GB of memory |",
        f"| prepared data | {prepared['events']:,} events | "
        f"{1e6 * prepared['prepared_mb'] / prepared['events']:.1f} bytes an event, "
        f"{1e6 * prepared['work_mb'] / prepared['events']:.0f} while it is prepared |",
    ]


def _measured_training(training: dict[str, Any]) -> list[str]:
    lines = []
    for experiment, figures in training["points"].items():
        step, run = figures["steps"][0], figures["runs"][-1]
        rate = 1e6 / step["processor_us_per_example"]
        lines += [
            f"| training, `{experiment}` | dimension {step['dimension']}, history {step['history']} | "
            f"{rate:,.0f} examples/s of a core |",
            f"| training, `{experiment}` | {run['items']:,} items, dimension {run['dimension']} | "
            f"{run['peak_mb'] / 1e3:.1f} GB of memory |",
        ]
    return lines


def _measured_service(service: dict[str, Any], requests: dict[str, Any]) -> list[str]:
    return [
        *(
            f"| export and index (`{row['kind']}`), service | {row['items']:,} items, dimension "
            f"{row['dimension']} | indexed in {time_text(row['index']['processor_seconds'])}; bundle "
            f"{byte_text(1e6 * row['bundle_mb'])}, one worker "
            f"{byte_text(1e6 * row['service']['sqlite']['resident_mb'])} of memory |"
            for row in service["points"]
        ),
        *(
            f"| requests of stored users | {row['items']:,} items, dimension {row['dimension']} | "
            + ", ".join(f"{name} {1e3 / row[key]['request_ms']:,.0f}" for key, name in STORES.items())
            + " requests/s of a core |"
            for row in requests["points"]
        ),
    ]


def _measured_histories(histories: dict[str, Any]) -> list[str]:
    stored = histories["points"][-1]
    return [
        f"| histories | {stored['users']:,} users of {stored['events_per_user']} events | SQLite "
        f"{1e6 * stored['sqlite_mb'] / stored['events']:.0f} bytes an event on disk, Redis "
        f"{1e6 * stored['redis']['memory_mb'] / stored['events']:.0f} in memory |"
    ]


def _limits(figures: Figures) -> list[str]:
    plans = [make_plan(replace(SHOP, machine=machine), figures) for machine in MACHINES]
    heads = " | ".join(_machine(machine) for machine in MACHINES)
    lines = [
        f"For {SHOP.users:,.0f} users, {SHOP.items:,.0f} items, {SHOP.events:,.0f} events, "
        f"`{SHOP.experiment}` with dimension {SHOP.dimension}: the largest size of each kind, the others "
        "as given.",
        "",
        f"| until | {heads} | then |",
        "|---|---|---|---|",
    ]
    for limits in zip(*(plan.limits for plan in plans), strict=True):
        mosts = " | ".join(
            "any" if one.most is None else f"{count_text(one.most)} {_noun(one.size)}" for one in limits
        )
        lines.append(f"| {limits[0].reason} | {mosts} | {limits[0].remedy} |")
    return lines


def _noun(size: str) -> str:
    return "requests/s" if size == "requests" else size


def _machine(machine: Machine) -> str:
    return f"{machine.cores} cores, {byte_text(machine.memory)}, disk {byte_text(machine.disk)}"


def _shops(figures: Figures) -> list[str]:
    lines = ["| shop | part | memory | disk | time | machines |", "|---|---|---|---|---|---|"]
    for shop in SHOPS:
        title = (
            f"{shop.users:,.0f} users, {shop.items:,.0f} items, {shop.events:,.0f} events, "
            f"{shop.requests:,.0f} requests/s, machines of {_machine(shop.machine)}"
        )
        for part in make_plan(shop, figures).parts:
            memory = byte_text(part.most_memory) if part.most_memory else ""
            disk = byte_text(part.most_disk) if part.most_disk else ""
            seconds = time_text(part.seconds.value) if part.seconds else ""
            lines.append(f"| {title} | {part.name} | {memory} | {disk} | {seconds} | {part.machines} |")
            title = ""
    return lines


def _checked(check: dict[str, Any], figures: Figures) -> list[str]:
    sizes, rows = check["sizes"], compared(check, figures)
    ratios = [row.ratio for row in rows]
    return [
        f"A shop that is not among the figures: {sizes['users']:,} users, {sizes['items']:,} items, "
        f"{sizes['events']:,} events, dimension {sizes['dimension']}, one epoch of `{EXPERIMENT}` "
        f"(`python -m benchmarks.plan_check --json`). Measured over planned lies between {min(ratios):.2f} "
        f"and {max(ratios):.2f}:",
        "",
        "| part | planned | measured | ratio |",
        "|---|---|---|---|",
        *(
            f"| {row.name} | {_value(row.name, row.planned)} | {_value(row.name, row.measured)} "
            f"| {row.ratio:.2f} |"
            for row in rows
        ),
    ]


def _value(name: str, value: float) -> str:
    if name.endswith("a request"):
        return f"{1e3 * value:.2f} ms"
    return time_text(value) if name.endswith("seconds") else byte_text(value)
