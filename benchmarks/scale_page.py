"""The measured part of docs/scale.md: what one machine holds, plans, and how far they were from runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from turret.planning.amounts import byte_text, count_text, time_text
from turret.planning.figures import Figures, load_figures
from turret.planning.plan import make_plan
from turret.planning.request import Machine, PlanRequest

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
MACHINES = (Machine(4, 16e9, 200e9), Machine(16, 64e9, 1e12))
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
    preparation, scale, training, service, histories, check = results
    figures = load_figures()
    return "\n".join(
        [
            "### Measured",
            "",
            *_measured(preparation, scale, training, service, histories),
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
            *_checked(check),
            "",
        ]
    )


NAMES = (
    "preparation",
    "scale_preparation",
    "scale_training",
    "scale_service",
    "scale_histories",
    "plan_check",
)


def _measured(
    preparation: dict[str, Any],
    scale: dict[str, Any],
    training: dict[str, Any],
    service: dict[str, Any],
    histories: dict[str, Any],
) -> list[str]:
    log = preparation["rows"][-1]
    prepared = max(scale["points"], key=lambda row: row["events"])
    catalogs, stored = service["points"], histories["points"][-1]
    lines = [
        "| part | size | |",
        "|---|---|---|",
        f"| preparation | {log['events']:,} events | {time_text(log['prepare']['seconds'])}, "
        f"{log['prepare']['peak_gb']:.1f} GB of memory |",
        f"| prepared data | {prepared['events']:,} events | "
        f"{1e6 * prepared['prepared_mb'] / prepared['events']:.1f} bytes an event, "
        f"{1e6 * prepared['work_mb'] / prepared['events']:.0f} while it is prepared |",
    ]
    for experiment, figures in training["points"].items():
        step = figures["steps"][0]
        run = figures["runs"][-1]
        lines += [
            f"| training, `{experiment}` | dimension {step['dimension']}, history {step['history']} | "
            f"{1e6 / step['processor_us_per_example']:,.0f} examples/s of a core |",
            f"| | {run['items']:,} items, dimension {run['dimension']} | "
            f"{run['peak_mb'] / 1e3:.1f} GB of memory |",
        ]
    for row in catalogs:
        served, index = row["service"], row["index"]
        lines.append(
            f"| export, index (`{row['kind']}`), service | {row['items']:,} items, dimension "
            f"{row['dimension']} | index {time_text(index['processor_seconds'])}; bundle "
            f"{byte_text(1e6 * row['bundle_mb'])}; service "
            f"{byte_text(1e6 * served['sqlite']['resident_mb'])}, "
            f"{1e3 / served['sqlite']['request_ms']:,.0f} requests/s of a core |"
        )
    lines.append(
        f"| histories | {stored['users']:,} users of {stored['events_per_user']} events | SQLite "
        f"{1e6 * stored['sqlite_mb'] / stored['events']:.0f} bytes an event on disk, Redis "
        f"{1e6 * stored['redis']['memory_mb'] / stored['events']:.0f} in memory |"
    )
    return lines


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


def _checked(check: dict[str, Any]) -> list[str]:
    sizes = check["sizes"]
    rows = check["rows"]
    return [
        f"A shop that is not among the figures: {sizes['users']:,} users, {sizes['items']:,} items, "
        f"{sizes['events']:,} events, dimension {sizes['dimension']}, one epoch "
        "(`python -m benchmarks.plan_check --json`). Measured over planned lies between "
        f"{check['least_ratio']:.2f} and {check['greatest_ratio']:.2f}:",
        "",
        "| part | planned | measured | ratio |",
        "|---|---|---|---|",
        *(
            f"| {name} | {_value(name, row['planned'])} | {_value(name, row['measured'])} "
            f"| {row['ratio']:.2f} |"
            for name, row in rows.items()
        ),
    ]


def _value(name: str, value: float) -> str:
    if name.endswith("a request"):
        return f"{1e3 * value:.2f} ms"
    return time_text(value) if name.endswith("seconds") else byte_text(value)
