import asyncio
from collections.abc import Callable, Sequence

import pytest

from turret.service.errors import HistoryUnavailableError
from turret.service.stores.breaker import Breaker
from turret.service.stores.contract import Event, History
from turret.service.stores.memory import MemoryHistory
from turret.service.stores.reading import Stored, read_histories
from turret.tower.engines.circuit import Circuit


class Counted(MemoryHistory):
    """Records of each call the number of users, the limit, and the number of returned events."""

    def __init__(self, **lengths: int) -> None:
        super().__init__()
        self.calls: list[tuple[int, int, int]] = []
        self.slow_from = 10**9
        for user, length in lengths.items():
            self._by_user[user] = [Event(f"{n}", user, n, n) for n in range(length)]

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        found = await super().recent(users, limit)
        self.calls.append((len(users), limit, sum(len(one.items) for one in found.values())))
        if len(self.calls) > self.slow_from:
            await asyncio.sleep(60)
        return found


def all_of_it(_: History) -> bool:
    return False


def read(store: Counted | Breaker, users: Sequence[str], limit: int = 10_000, seconds: float = 9.0) -> Stored:
    wanted: dict[str, Callable[[History], bool]] = dict.fromkeys(users, all_of_it)
    return asyncio.run(read_histories(store, wanted, limit, seconds))


def lengths(stored: Stored) -> dict[str, int]:
    return {user: len(one.items) for user, one in stored.histories.items()}


def test_most_are_read_in_one_call() -> None:
    names = {f"u{n}": n for n in range(100)}
    store = Counted(**names)
    assert lengths(read(store, list(names))) == names
    assert store.calls == [(100, 100, sum(names.values()))]


@pytest.mark.parametrize(("limit", "calls"), [(7, [7]), (1_000, [1_000]), (10_000, [1_000, 10_000])])
def test_a_long_history_is_read_up_to_the_limit(limit: int, calls: list[int]) -> None:
    store = Counted(u=20_000)
    stored = read(store, ["u"], limit)
    assert stored.histories["u"].items == [*range(20_000 - limit, 20_000)]
    assert [asked for _, asked, _ in store.calls] == calls
    assert not stored.truncated


def test_a_history_that_ends_where_a_portion_does_is_whole() -> None:
    for length in (999, 1_000, 1_001, 9_999, 10_000, 10_001):
        stored = read(Counted(u=length), ["u"])
        assert (lengths(stored), set(stored.truncated)) == ({"u": min(length, 10_000)}, set())


def test_only_those_who_have_more_are_read_again() -> None:
    store = Counted(**{f"short{n}": 50 for n in range(90)}, **{f"long{n}": 400 for n in range(10)})
    stored = read(store, list(store._by_user))
    assert set(lengths(stored).values()) == {50, 400}
    assert [call[:2] for call in store.calls] == [(100, 100), (10, 1_000)]


def test_a_batch_of_long_histories_is_read_in_bounded_portions() -> None:
    """All get the newest events that the tower needs; truncated histories are marked."""
    store = Counted(**{f"u{n}": 10_000 for n in range(100)})
    stored = read(store, list(store._by_user))
    assert max(given for _, _, given in store.calls) <= 10_000
    assert sum(given for _, _, given in store.calls) <= 110_000
    assert all(len(one.items) >= 100 for one in stored.histories.values())
    assert all(one.items[-1] == 9_999 for one in stored.histories.values())
    assert (
        {user for user, count in lengths(stored).items() if count < 10_000} == set(stored.truncated) != set()
    )


def test_what_is_enough_is_not_read_on() -> None:
    store = Counted(u=20_000, v=20_000)
    wanted = {"u": lambda newest: len(newest.items) >= 1_000, "v": all_of_it}
    stored = asyncio.run(read_histories(store, wanted, 10_000, 9.0))
    assert (lengths(stored), set(stored.truncated)) == ({"u": 1_000, "v": 10_000}, set())


def test_the_size_of_what_is_asked_for_is_no_failure_of_the_store() -> None:
    """If time runs out in a later portion, the events read so far are used and the circuit stays closed."""
    store = Counted(u=20_000)
    store.slow_from = 1
    breaker = Breaker(store, 0.05, 0.05, lambda: Circuit(1, 60.0))
    for _ in range(3):
        store.calls.clear()
        stored = read(breaker, ["u"], seconds=0.05)
        assert (lengths(stored), set(stored.truncated)) == ({"u": 1_000}, {"u"})
    assert (breaker.circuits["read"].state, breaker.circuits["read"].failed) == ("closed", 0)


def test_a_store_that_does_not_answer_at_first_has_failed() -> None:
    store = Counted(u=20_000)
    store.slow_from = 0
    breaker = Breaker(store, 0.05, 0.05, lambda: Circuit(1, 60.0))
    with pytest.raises(HistoryUnavailableError):
        read(breaker, ["u"], seconds=0.05)
    assert breaker.circuits["read"].state == "open"


def test_a_store_that_fails_later_leaves_what_was_read() -> None:
    class Failing(Counted):
        async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
            if limit > 1_000:
                raise HistoryUnavailableError("gone")
            return await super().recent(users, limit)

    stored = read(Failing(u=1_000, v=20_000), ["u", "v"])
    assert (lengths(stored), set(stored.truncated)) == ({"u": 1_000, "v": 1_000}, {"u", "v"})
