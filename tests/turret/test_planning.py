"""`turret plan`: parts of invented figures, computed by hand, and the command with the shipped figures."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import turret.cli
from turret.plan import Figures, Machine, PlanRequest, Quantity, make_plan, parse_count, plan_text

MEASURED = {"users": 1e6, "items": 1e6, "events": 1e8, "dimension": 128.0, "history": 200.0}


def quantity(base: float = 0.0, **rates: float) -> Quantity:
    factors = {"numbers": ("items", "dimension"), "root_numbers": ("items", "dimension")}
    names = {factor for name in rates for factor in factors.get(name, (name,))}
    return Quantity(base, rates, {name: MEASURED[name] for name in names})


QUANTITIES = {
    "preparation.memory": quantity(4e8, users=200, items=200),
    "preparation.disk": quantity(events=32),
    "preparation.seconds": quantity(1.0, events=3e-7),
    "training.youtubednn.memory": quantity(6e8, numbers=8),
    "training.youtubednn.disk": quantity(1e6, numbers=6),
    "training.youtubednn.example_seconds": quantity(1e-5),
    "training.validation_seconds": quantity(numbers=4e-11),
    "export.memory": quantity(6e8, numbers=12),
    "export.seconds": quantity(10.0, items=1e-5),
    "index.memory": quantity(2e8, numbers=8),
    "index.seconds": quantity(1.0, items=1e-4),
    "bundle.disk": quantity(items=100, numbers=9),
    "service.memory": quantity(1.3e8, items=50, numbers=5),
    "service.worker_memory": quantity(5e7),
    "service.sqlite.request_seconds": quantity(4e-4, root_numbers=1e-9),
    "service.redis.request_seconds": quantity(5e-4, root_numbers=1e-9),
    "histories.sqlite.disk": quantity(events=140),
    "histories.redis.memory": quantity(events=275, users=1100),
    "histories.redis.disk": quantity(events=115),
}


FIGURES = Figures(QUANTITIES, "2 cores", {"youtubednn": {"validation_users": 20_000}})
# One machine of two cores holds it easily.
SMALL = PlanRequest(
    users=1e5,
    items=1e5,
    events=1e7,
    requests=100.0,
    machine=Machine(2, 16e9, 200e9),
    dimension=64,
    history=50,
    experiment="youtubednn",
    epochs=10,
    hours=8.0,
)


def test_each_part_is_computed_from_its_figures() -> None:
    plan = make_plan(SMALL, FIGURES)
    values = {name: (one.memory, one.disk, one.seconds) for name, one in plan.parts.items()}
    numbers, bundle = 6.4e6, 1e7 + 9 * 6.4e6
    served = 1.3e8 + 5e6 + 5 * numbers
    steps = 10 * (1e7 - 1e5) * 1e-5
    validation = 10 * 20_000 * 4e-11 * numbers
    expected = {
        "preparation": (4.4e8, 3.2e8, 4.0),
        "training": (6e8 + 8 * numbers, 1e6 + 6 * numbers, steps + validation),
        "export and index": (6e8 + 12 * numbers, bundle, 22.0),
        "service": (served + 1.5 * bundle, 0.0, 0.0),
        "histories in sqlite": (0.0, 1.4e9, 0.0),
    }
    assert list(values) == list(expected)
    for name, needs in expected.items():
        assert values[name] == pytest.approx(needs), name
    assert not any(one.beyond for one in plan.parts.values())


def test_each_limit_takes_a_share_of_the_machine_and_the_largest_comes_first() -> None:
    plan = make_plan(SMALL, FIGURES)
    disks = sum(one.disk for one in plan.parts.values())
    assert plan.shares["disk: all parts"] == pytest.approx(disks / 200e9)
    assert plan.shares["memory: training"] == pytest.approx((6e8 + 8 * 6.4e6) / 16e9)
    seconds = plan.parts["training"].seconds
    assert plan.shares["time: training in 8 h"] == pytest.approx(seconds / 28_800)
    # A core answers .6 / (.0004 + 1e-9 * sqrt(1e5) * 64) requests/s with SQLite.
    assert plan.requests == pytest.approx(2 * 0.6 / (4e-4 + 1e-9 * 1e5**0.5 * 64))
    assert plan.shares["requests/s"] == pytest.approx(100 / plan.requests)
    assert list(plan.shares.values()) == sorted(plan.shares.values(), reverse=True)
    slow = make_plan(replace(SMALL, hours=0.01), FIGURES)
    assert next(iter(slow.shares)) == "time: training in 0.01 h"
    assert "First limit: time: training in 0.01 h" in plan_text(slow)


def test_more_requests_than_a_machine_answers_take_several_and_a_redis() -> None:
    """A core answers .6 / .00042 = 1,428 requests/s with SQLite, and .6 / .00052 = 1,153 with a Redis."""
    assert make_plan(replace(SMALL, requests=2_840.0), FIGURES).machines == 1
    plan = make_plan(replace(SMALL, requests=9_000.0), FIGURES)
    assert plan.machines == 4
    assert plan.parts["histories in redis"].memory == pytest.approx(275e7 + 1.1e8)
    assert plan.shares["memory: histories in redis"] == pytest.approx(286e7 / 16e9)


def test_sizes_beyond_the_measured_ones_are_named() -> None:
    parts = make_plan(replace(SMALL, items=2e6, events=1e9), FIGURES).parts
    assert parts["preparation"].beyond == {"events": 1e8, "items": 1e6}
    assert parts["histories in sqlite"].beyond == {"events": 1e8}


def test_counts_are_written_in_several_ways() -> None:
    written = ("250000", "250,000", "2_000", "250k", "2.5M", "1e8")
    assert [parse_count("--users", text) for text in written] == [250e3, 250e3, 2e3, 250e3, 2.5e6, 1e8]


SHOP = ("--users", "200k", "--items", "100k", "--events", "10M")
MACHINE = ("--cores", "2", "--memory", "16", "--disk", "200")


def planned(*words: str) -> str:
    shown = CliRunner().invoke(turret.cli.app, ["plan", *SHOP, *MACHINE, *words])
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_a_plan_is_printed_with_its_first_limit_and_its_source() -> None:
    shown = planned("--requests", "100")
    assert shown.startswith("200,000 users, 100,000 items, 10,000,000 events, 100 requests/s; youtubednn")
    for text in ("│ preparation", "│ histories in sqlite", "First limit: ", "Measured on"):
        assert text in shown


def test_a_plan_is_json_too() -> None:
    plan = json.loads(planned("--dimension", "32", "--json"))
    assert plan["request"]["dimension"] == 32
    assert plan["request"]["machine"] == {"cores": 2, "memory": 16e9, "disk": 200e9}
    assert set(plan["parts"]) >= {"preparation", "training", "export and index", "service"}
    assert plan["parts"]["preparation"]["seconds"] > 1
