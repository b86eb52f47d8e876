import asyncio
import time
from typing import Any

import pytest

from turret.service.latency import LOOP_SECONDS
from turret.service.settings import Settings
from turret.service.wire.admission import Admission, admission

LIMITS = {"recommend": 3, "batch": 1, "store": 2, "other": 1}


class Flow:
    """A connection whose client reads at once."""

    write_paused = False


class Cycle:
    """As much of uvicorn's as a limiter looks at."""

    response_started = False
    flow = Flow()
    transport = None


def compute(seconds: float) -> None:
    """Take so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def admit(admitting: Admission, app: Any, path: str = "/v1/recommend") -> Any:
    """What the protocol does with a request: None if it is refused, else what it runs."""
    limiter = admitting.limiter(path)
    if not limiter.try_acquire():
        return None
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> int:
        cycle: Any = Cycle()
        await admitting.run(app, limiter, cycle, {"type": "http"}, send, send)  # type: ignore[arg-type]
        return sent[0]["status"] if sent else 200

    return run()


@pytest.mark.parametrize(
    ("path", "limiter"),
    [
        ("/v1/recommend", "recommend"),
        ("/v1/items/7/similar", "recommend"),
        ("/v1/recommend/batch", "batch"),
        ("/v1/events", "store"),
        ("/v1/users/7", "store"),
        ("/livez", "probe"),
        ("/readyz", "probe"),
        ("/docs", "open"),
        ("/openapi.json", "open"),
        ("/metrics", "other"),
        ("/admin/activate", "other"),
        ("/v1/versions", "other"),
        ("/nowhere", "recommend"),
    ],
)
def test_every_path_has_a_limiter(path: str, limiter: str) -> None:
    assert Admission(LIMITS).limiter(path).name == limiter


def test_the_settings_are_the_limits() -> None:
    given = {"queue_limit": 7, "batch_limit": 5, "store_limit": 9, "request_seconds": 3}
    admitting = admission(Settings.model_validate(given)).limiters
    assert [(one.name, one.limit, one.seconds) for one in admitting[:3]] == [
        ("recommend", 7, 3),
        ("batch", 5, 3),
        ("store", 9, 3),
    ]
    assert admitting[3].seconds is None  # an activation takes as long as it takes


def test_a_full_limiter_refuses_and_the_others_do_not() -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def waiting(*_: Any) -> None:
            await release.wait()

        admitting = Admission(LIMITS)
        running = [asyncio.create_task(admit(admitting, waiting)) for _ in range(3)]
        assert admit(admitting, waiting) is None
        release.set()
        assert await admit(admitting, waiting, "/v1/events") == 200
        await asyncio.gather(*running)
        assert await admit(admitting, waiting) == 200
        assert [(one.active, one.refused) for one in admitting.limiters[:3]] == [
            (0, 1),
            (0, 0),
            (0, 0),
        ]

    asyncio.run(scenario())


def test_a_failed_request_releases_its_limiter() -> None:
    async def scenario() -> None:
        async def failing(*_: Any) -> None:
            raise ValueError("a fault")

        admitting = Admission(LIMITS)
        for _ in range(5):
            with pytest.raises(ValueError, match="a fault"):
                await admit(admitting, failing)

    asyncio.run(scenario())


def test_the_loop_reads_between_slices_and_requests_run_in_order() -> None:
    """Thirty requests of 2 ms: what else the loop has to do waits for three of them, not for all."""

    async def scenario() -> None:
        done: list[int] = []

        def working(number: int) -> Any:
            async def work(*_: Any) -> None:
                compute(0.002)  # slices are of processor time
                done.append(number)

            return work

        admitting = Admission({**LIMITS, "recommend": 100}, queue_seconds=10)
        turns = 0
        tasks = [asyncio.create_task(admit(admitting, working(number))) for number in range(30)]
        while len(done) < 30:
            await asyncio.sleep(0)
            turns += 1
        await asyncio.gather(*tasks)
        assert done == list(range(30))
        assert turns >= 30 * 0.002 / (LOOP_SECONDS + 0.002)
        assert admitting.waiting == 0

    asyncio.run(scenario())


def test_a_request_that_waits_too_long_for_a_slice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All in processor time, so that other processes don't matter."""
    monkeypatch.setattr("turret.service.wire.admission.monotonic", time.thread_time)

    async def scenario() -> None:
        async def working(*_: Any) -> None:
            compute(0.02)

        admitting = Admission({**LIMITS, "recommend": 100}, queue_seconds=0.1)
        statuses = await asyncio.gather(*(admit(admitting, working) for _ in range(40)))
        assert statuses.count(200) >= 5
        recommend = admitting.limiter("/v1/recommend")
        assert statuses.count(503) == recommend.refused >= 20
        assert recommend.active == 0

    asyncio.run(scenario())


def test_the_pause_grows_with_the_number_of_refused_connections() -> None:
    admitting = Admission(LIMITS)
    assert admitting.pause_seconds() == 0.05
    admitting.paused = 250
    assert admitting.pause_seconds() == pytest.approx(0.5)
    admitting.paused = 100_000
    assert admitting.pause_seconds() == 1.0


def test_a_slice_is_of_processor_time() -> None:
    """Of a process that isn't run for most of the time: its tasks have short turns by the clock."""

    async def scenario() -> tuple[int, float]:
        done = 0

        async def work(*_: Any) -> None:
            nonlocal done
            time.sleep(0.002)  # as if another process ran
            compute(0.0002)
            done += 1

        admitting = Admission({**LIMITS, "recommend": 100}, queue_seconds=10)
        tasks = [asyncio.create_task(admit(admitting, work)) for _ in range(60)]
        turns = 0
        while done < 60:
            await asyncio.sleep(0)
            turns += 1
        await asyncio.gather(*tasks)
        return turns, admitting.processor_share

    turns, share = asyncio.run(scenario())
    assert turns < 15  # by the clock, three of them would fill a turn
    assert share < 1


def test_the_pause_grows_as_the_processor_share_falls() -> None:
    async def scenario() -> Admission:
        async def work(*_: Any) -> None:
            compute(0.003)
            time.sleep(0.012)

        admitting = Admission({**LIMITS, "recommend": 100}, queue_seconds=10)
        admitting.paused = 100
        await asyncio.gather(*(admit(admitting, work) for _ in range(100)))
        return admitting

    admitting = asyncio.run(scenario())
    assert 0.1 < admitting.processor_share < 0.6
    assert admitting.pause_seconds() == pytest.approx(0.2 / admitting.processor_share)


def test_the_processor_share_is_known_where_no_slice_is_used_up() -> None:
    """One short task in each turn of the loop, and refusals in the rest of its time."""

    async def scenario() -> float:
        async def work(*_: Any) -> None:
            compute(0.0005)

        admitting = Admission(LIMITS)
        for _ in range(100):
            await admit(admitting, work)
            admitting.begin_slice()
            time.sleep(0.002)  # as if another process ran
            await asyncio.sleep(0)
        return admitting.processor_share

    assert asyncio.run(scenario()) < 0.4


@pytest.mark.nightly  # a busy machine does not run it either
def test_time_in_which_the_loop_waits_is_not_counted() -> None:
    async def scenario() -> float:
        async def work(*_: Any) -> None:
            compute(0.001)

        admitting = Admission(LIMITS)
        for _ in range(30):
            await admit(admitting, work)
            await asyncio.sleep(0.004)
        return admitting.processor_share

    assert asyncio.run(scenario()) > 0.6
