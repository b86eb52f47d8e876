from dataclasses import replace

from benchmarks.plan_check import planned_values
from benchmarks.scale_page import SHOP
from turret.planning.figures import load_figures


def test_what_is_planned_is_what_is_measured_alone_on_one_core() -> None:
    one = replace(SHOP, machine=replace(SHOP.machine, cores=1), requests=1.0)
    planned = planned_values(one, load_figures())
    assert len(planned) == 12
    assert all(value > 0 for value in planned.values())
    two = planned_values(replace(one, dimension=128), load_figures())
    assert two["bundle: disk"] > planned["bundle: disk"]
    assert two["preparation: disk"] == planned["preparation: disk"]
