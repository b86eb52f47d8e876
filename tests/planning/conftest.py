from dataclasses import replace
from typing import Any

import pytest

from turret.planning.figures import Figures, Quantity
from turret.planning.request import Machine, PlanRequest

MEASURED = {"users": 1e6, "items": 1e6, "events": 1e8, "dimension": 128.0, "history": 200.0}


def quantity(base: float = 0.0, **rates: float) -> Quantity:
    factors = {"numbers": ("items", "dimension"), "root_numbers": ("items", "dimension")}
    names = {factor for name in rates for factor in factors.get(name, (name,))}
    return Quantity(base, rates, {name: MEASURED[name] for name in names}, "invented")


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
    "service.redis.read_seconds": quantity(5e-5),
    "proxy.request_seconds": quantity(8e-5),
    "histories.sqlite.disk": quantity(events=140),
    "histories.sqlite.load_seconds": quantity(events=2e-5),
    "histories.redis.memory": quantity(events=275, users=1100),
    "histories.redis.disk": quantity(events=115),
    "histories.redis.load_seconds": quantity(events=3e-5),
}
SOURCE = {"date": "2026-01-02T03:04:05+00:00", "cores": 2, "processor": "x86_64"}


@pytest.fixture
def figures() -> Figures:
    """Invented figures, without an engine."""
    return Figures(QUANTITIES, {"invented": SOURCE}, ("youtubednn",), {})


def with_engines(figures: Figures, **engines: dict[str, Any]) -> Figures:
    return replace(figures, engines=engines)


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
