"""Plans of invented figures, whose parts are computed by hand."""

import json
from dataclasses import replace

import pytest

from tests.planning.conftest import with_engines
from turret.data.errors import ConfigurationError
from turret.planning.figures import Figures
from turret.planning.parts import Part
from turret.planning.plan import Plan, make_plan
from turret.planning.request import Machine, PlanRequest


def part(plan: Plan, name: str) -> Part:
    (found,) = (one for one in plan.parts if one.name == name)
    return found


def test_each_part_is_computed_from_its_figures(shop: PlanRequest, figures: Figures) -> None:
    plan = make_plan(shop, figures)
    values = {
        one.name: tuple(
            amount and amount.value
            for amount in (one.memory, one.passing_memory, one.disk, one.passing_disk, one.seconds)
        )
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
    assert values["histories in SQLite"] == pytest.approx((None, None, 1.4e9, None, 200.0))
    assert values["versions kept"][2] == pytest.approx(7 * (1e6 + 6 * numbers) + 14 * bundle)
    assert values["one backup"][2] == pytest.approx(1.4e9 + 14 * bundle)
    assert not plan.warnings
    assert not plan.beyond
    assert [one.machines for one in plan.parts] == [1] * 7


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
    assert "the proxy in front takes 1.2 cores" in part(plan, "service").notes
    redis = part(plan, "histories in a Redis")
    assert redis.machines == 1
    assert redis.memory is not None
    assert redis.memory.value == pytest.approx(275e7 + 1.1e8)
    assert any("--store redis://HOST:6379/0" in command for command in plan.commands)


def test_histories_that_one_redis_can_not_hold_go_into_a_cluster(shop: PlanRequest, figures: Figures) -> None:
    plan = make_plan(replace(shop, requests=9_000.0, events=2e8), figures)
    assert part(plan, "histories in a Redis Cluster").machines == 4
    assert any("--store redis+cluster://HOST:6379" in command for command in plan.commands)
    assert [one.is_exceeded for one in plan.limits if "one Redis" in one.reason] == [True]


def test_sizes_beyond_the_measured_ones_are_named(shop: PlanRequest, figures: Figures) -> None:
    plan = make_plan(replace(shop, items=2e6, events=1e9), figures)
    assert plan.beyond == {"events": 1e8, "items": 1e6}
    assert "items" not in part(plan, "histories in SQLite").beyond


def test_a_part_that_the_machine_does_not_hold_is_a_warning(shop: PlanRequest, figures: Figures) -> None:
    small = replace(shop, machine=Machine(2, 0.7e9, 2e9), items=1e6)
    plan = make_plan(small, figures)
    text = "\n".join(plan.warnings)
    assert "training needs 1.1 GB of memory, and the machine has 700 MB" in text
    assert "service needs" in text
    assert "all parts need" in text


def test_each_machine_of_the_service_holds_the_whole_catalog(shop: PlanRequest, figures: Figures) -> None:
    """Seven machines of 16 GB do not hold what one does not; a Redis Cluster is split over its machines."""
    several = replace(shop, items=2e7, requests=2e4)
    plan = make_plan(several, figures)
    machines = part(plan, "service").machines
    assert machines > 3
    text = "\n".join(plan.warnings)
    assert f"of memory on each of its {machines} machines, and a machine has 16 GB" in text
    assert "histories" not in text


def limits_of(plan: Plan) -> dict[str, float | None]:
    return {one.reason: one.most for one in plan.limits}


def test_the_limits_are_where_the_parts_stop_fitting(shop: PlanRequest, figures: Figures) -> None:
    found = limits_of(make_plan(shop, figures))
    assert found["preparing them fills the disk"] == pytest.approx(200e9 / 32)
    assert found["training or export fills the memory"] == pytest.approx((16e9 - 6e8) / 12 / 64)
    assert found["training takes 8 hours"] == pytest.approx(
        (28_800 - 10 * 20_000 * 4e-11 * 6.4e6) / 10 / 1e-5 + 1e5
    )
    an_item = 50 + 5 * 64 + 1.5 * (100 + 9 * 64)
    assert found["an activation fills the memory of the service"] == pytest.approx(
        (16e9 - 1.3e8 - 5e7) / an_item
    )
    assert found["all cores are busy for 60 % of the time"] == pytest.approx(
        2 * 0.6 / (4e-4 + 1e-9 * 1e5**0.5 * 64)
    )


def test_engines_are_named_only_where_they_were_measured(shop: PlanRequest, figures: Figures) -> None:
    text = json.dumps(make_plan(shop, figures).as_json())
    assert not any(word in text for word in ("milvus", "torchrun", "spark"))
    engines = with_engines(figures, retrieval={}, torchrun={"speedup_2_over_1": 1.72}, spark={})
    text = json.dumps(make_plan(shop, engines).as_json())
    # torchrun takes an option --run before `--` for its own.
    assert "torchrun --nproc-per-node N -m -- turret train" in text
    assert all(word in text for word in ("milvus://", "two were 1.7 times as fast", "spark://"))


def test_the_commands_use_the_engines_that_the_sizes_need(shop: PlanRequest, figures: Figures) -> None:
    retrieval = {"bytes_an_item": {"redis": 1900.0, "milvus": 2100.0}}
    engines = with_engines(figures, retrieval=retrieval, torchrun={"speedup_2_over_1": 1.7}, spark={})
    plan = make_plan(shop, engines)
    assert not any(word in " ".join(plan.commands) for word in ("milvus", "torchrun", "spark"))
    assert "which took 2,100 bytes for an item of 64 numbers" in json.dumps(plan.as_json())
    text = "\n".join(make_plan(replace(shop, items=5e7, events=1e10), engines).commands)
    assert "turret data prepare LOG --to var/prepared --engine spark://HOST:7077\n" in text
    assert "\ntorchrun --nproc-per-node N -m -- turret train --data" in text
    assert "\nturret publish var/bundles/first --engine milvus://HOST:19530 --version first-indexed\n" in text
    assert "turret index" not in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"events": 5e4}, "--events 50,000 with --users 100,000: a log has an event of every user at least"),
        ({"experiment": "dssm"}, "--experiment dssm: its training was not measured; choose youtubednn"),
    ],
)
def test_what_can_not_be_planned_is_a_sentence(
    shop: PlanRequest, figures: Figures, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_plan(replace(shop, **changed), figures)  # type: ignore[arg-type]


def test_settings_other_than_the_experiments_are_in_the_command(shop: PlanRequest, figures: Figures) -> None:
    plan = make_plan(replace(shop, dimension=128, epochs=3), figures)
    (train,) = (command for command in plan.commands if command.startswith("turret train"))
    assert train.endswith("--experiment youtubednn --set tower.dimension=128 --set training.epochs=3")
