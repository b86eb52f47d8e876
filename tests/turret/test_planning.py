"""`turret plan`: parts of invented figures, computed by hand, and the command with the shipped figures."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

import turret.cli
from turret.plan import (
    VALIDATION_USERS,
    Figures,
    Machine,
    Part,
    Plan,
    PlanRequest,
    Quantity,
    experiment_defaults,
    make_plan,
    parse_count,
    plan_text,
)
from turret.training.config.experiment import TrainingConfig, load_experiment

MEASURED = {"users": 1e6, "items": 1e6, "events": 1e8, "dimension": 128.0, "history": 200.0}


def quantity(base: float = 0.0, **rates: float) -> Quantity:
    factors = {"numbers": ("items", "dimension"), "root_numbers": ("items", "dimension")}
    names = {factor for name in rates for factor in factors.get(name, (name,))}
    return Quantity(base, rates, {name: MEASURED[name] for name in names})


QUANTITIES = {
    "preparation.memory": quantity(4e8, users=200, items=200),
    "preparation.disk": quantity(events=12, users=30),
    "preparation.passing_disk": quantity(events=32),
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
    "histories.sqlite.seconds": quantity(events=2e-5),
    "histories.redis.memory": quantity(events=275, users=1100),
    "histories.redis.disk": quantity(events=115),
    "histories.redis.seconds": quantity(events=3e-5),
}


@pytest.fixture
def figures() -> Figures:
    return Figures(QUANTITIES, "2 cores", ("youtubednn",))


@pytest.fixture
def shop() -> PlanRequest:
    """A shop that one machine of two cores holds easily."""
    return PlanRequest(
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


def part(plan: Plan, name: str) -> Part:
    (found,) = (one for one in plan.parts if one.name == name)
    return found


def test_each_part_is_computed_from_its_figures(shop: PlanRequest, figures: Figures) -> None:
    plan = make_plan(shop, figures)
    values = {
        one.name: (one.memory, one.passing_memory, one.disk, one.passing_disk, one.seconds)
        for one in plan.parts
    }
    numbers, bundle = 6.4e6, 1e7 + 9 * 6.4e6
    served = 1.3e8 + 5e6 + 5 * numbers
    assert values["preparation"] == pytest.approx((4.4e8, None, 1.23e8, 3.2e8, 4.0))
    steps = 10 * (1e7 - 1e5) * 1e-5
    validation = 10 * 20_000 * 4e-11 * numbers
    assert values["training"] == pytest.approx(
        (6e8 + 8 * numbers, None, 1e6 + 6 * numbers, None, steps + validation)
    )
    assert values["export and index"] == pytest.approx((6e8 + 12 * numbers, None, bundle, None, 22.0))
    assert values["service"] == pytest.approx((served, served + 1.5 * bundle, None, None, None))
    assert values["histories"] == pytest.approx((None, None, 1.4e9, None, 200.0))
    assert not any(one.beyond for one in plan.parts)
    assert [one.machines for one in plan.parts] == [1] * 5


def test_histories_shorter_than_the_tower_reads_are_those_of_the_users(shop: PlanRequest) -> None:
    assert shop.sizes()["history"] == 50
    assert replace(shop, events=4e6).sizes()["history"] == 40


def test_more_requests_than_a_machine_answers_take_several_and_a_redis(
    shop: PlanRequest, figures: Figures
) -> None:
    """A core answers .6 / .00042 = 1,428 requests/s with SQLite, and .6 / .00052 = 1,153 with a Redis."""
    assert part(make_plan(replace(shop, requests=2_850.0), figures), "service").machines == 1
    plan = make_plan(replace(shop, requests=9_000.0), figures)
    assert part(plan, "service").machines == 4
    assert part(plan, "histories").memory == pytest.approx(275e7 + 1.1e8)
    assert any("--store redis://HOST:6379/0" in command for command in plan.commands)
    plan = make_plan(replace(shop, requests=9_000.0, events=2e8), figures)
    assert [one.is_exceeded for one in plan.limits if "one Redis" in one.reason] == [True]


def test_sizes_beyond_the_measured_ones_are_named(shop: PlanRequest, figures: Figures) -> None:
    plan = make_plan(replace(shop, items=2e6, events=1e9), figures)
    assert part(plan, "preparation").beyond == {"events": 1e8, "items": 1e6}
    assert part(plan, "histories").beyond == {"events": 1e8}


def test_a_part_that_the_machine_does_not_hold_is_marked(shop: PlanRequest, figures: Figures) -> None:
    small = replace(shop, machine=Machine(2, 0.7e9, 2e9), items=1e6)
    shown = plan_text(make_plan(small, figures))
    assert re.search(r"│ training +│ +1\.1 GB ! │", shown)
    assert re.search(r"│ preparation +│ +620 MB │", shown)


def limits_of(plan: Plan) -> dict[str, float | None]:
    return {one.reason: one.most for one in plan.limits}


def test_the_limits_are_where_the_parts_stop_fitting(shop: PlanRequest, figures: Figures) -> None:
    found = limits_of(make_plan(shop, figures))
    assert found["the ids fill the memory of the preparation"] == pytest.approx((16e9 - 4e8) / 200 - 1e5)
    assert found["preparing them fills the disk"] == pytest.approx(200e9 / 32)
    assert found["training or export fills the memory"] == pytest.approx((16e9 - 6e8) / 12 / 64)
    assert found["training takes 8 hours"] == pytest.approx(
        (28_800 - 10 * 20_000 * 4e-11 * 6.4e6) / 10 / 1e-5 + 1e5
    )
    an_item = 50 + 5 * 64 + 1.5 * (100 + 9 * 64)
    assert found["an activation fills the memory of the service"] == pytest.approx((16e9 - 1.3e8) / an_item)
    assert found["all cores are busy for 60 % of the time"] == pytest.approx(
        2 * 0.6 / (4e-4 + 1e-9 * 1e5**0.5 * 64)
    )


def test_counts_are_written_in_several_ways() -> None:
    written = ("250000", "250,000", "2_000", "250k", "2.5M", "1e8")
    assert [parse_count("--users", text) for text in written] == [250e3, 250e3, 2e3, 250e3, 2.5e6, 1e8]


@pytest.mark.parametrize("name", ["youtubednn", "transformer"])
def test_the_defaults_are_those_of_the_experiment(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment_defaults(name) == {
        "dimension": experiment.tower.dimension,
        "history": experiment.tower.user.history_length,
        "epochs": experiment.training.epochs,
    }


def test_the_copied_default_is_that_of_the_training() -> None:
    """Its module imports much."""
    assert TrainingConfig().validation_users == VALIDATION_USERS


SHOP = ("--users", "200k", "--items", "100k", "--events", "10M")
MACHINE = ("--cores", "2", "--memory", "16", "--disk", "200")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(turret.cli.app, ["plan", *words])


def test_a_plan_is_printed_with_limits_commands_and_assumptions() -> None:
    shown = invoke(*SHOP, *MACHINE, "--requests", "100")
    assert shown.exit_code == 0, shown.output
    for text in (
        "200,000 users, 100,000 items, 10,000,000 events, 100 requests/s; youtubednn, dimension 64",
        "│ preparation",
        "│ histories",
        "turret data prepare LOG --to var/prepared",
        "Measured on",
    ):
        assert text in shown.stdout
    assert "!" not in shown.stdout


def test_a_plan_is_json_too() -> None:
    plan = json.loads(invoke(*SHOP, *MACHINE, "--dimension", "32", "--json").stdout)
    assert plan["request"]["dimension"] == 32
    assert plan["request"]["machine"] == {"cores": 2, "memory": 16e9, "disk": 200e9}
    parts = {part["name"]: part for part in plan["parts"]}
    assert set(parts) >= {"preparation", "training", "export and index", "service", "histories"}
    assert parts["preparation"]["seconds"] > 1
