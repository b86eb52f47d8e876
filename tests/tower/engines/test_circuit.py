import pytest

from turret.tower.engines.circuit import Circuit


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuit(clock: Clock) -> Circuit:
    return Circuit(failures=3, seconds=10.0, clock=clock)


def enter(circuit: Circuit) -> object:
    token = circuit.admit()
    assert token is not None
    return token


def fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        circuit.fail(enter(circuit))


def test_it_opens_after_so_many_failures_in_a_row(circuit: Circuit) -> None:
    fail(circuit, 2)
    circuit.succeed(enter(circuit))
    fail(circuit, 2)
    assert (circuit.state, circuit.wait()) == ("closed", 0)
    fail(circuit, 1)
    assert (circuit.state, circuit.wait()) == ("open", 10)
    assert circuit.admit() is None
    assert (circuit.failed, circuit.opened, circuit.refused) == (5, 1, 1)


def test_after_its_time_one_call_tries_and_the_others_are_refused(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 9.9
    assert circuit.admit() is None
    clock.now += 0.1
    assert circuit.wait() == 0
    trial = enter(circuit)
    states = [circuit.state]
    assert circuit.admit() is None
    circuit.succeed(trial)
    fail(circuit, 2)
    assert [*states, circuit.state] == ["half_open", "closed"]


def test_a_trial_that_fails_opens_it_for_as_long_again(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 10
    fail(circuit, 1)
    assert (circuit.state, circuit.wait(), circuit.opened) == ("open", 10, 2)
    clock.now += 10
    assert circuit.admit() is not None


def test_a_trial_whose_caller_went_away_is_left_to_the_next(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 10
    circuit.cancel(enter(circuit))
    circuit.succeed(enter(circuit))
    assert circuit.state == "closed"


def test_answers_to_calls_from_before_it_opened_change_nothing(circuit: Circuit, clock: Clock) -> None:
    """An old success doesn't close it, an old failure doesn't keep it open for longer."""
    early, late, gone = enter(circuit), enter(circuit), enter(circuit)
    fail(circuit, 3)
    circuit.succeed(early)
    clock.now += 5
    circuit.fail(late)
    circuit.cancel(gone)
    assert (circuit.state, circuit.wait(), circuit.opened) == ("open", 5, 1)


def test_who_listens_is_told_of_each_new_state(circuit: Circuit, clock: Clock) -> None:
    told: list[str] = []
    circuit.on_change = told.append
    fail(circuit, 3)
    clock.now += 10
    fail(circuit, 1)
    clock.now += 10
    circuit.succeed(enter(circuit))
    circuit.succeed(enter(circuit))
    assert told == ["open", "half_open", "open", "half_open", "closed"]
