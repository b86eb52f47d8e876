"""The limits that connections share: places, slices of time, held bytes; the clocks are the tests' own."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from turret.service.latency import LOOP_SECONDS
from turret.service.wire import eager
from turret.service.wire.admission import Admission

LIMITS = {"recommend": 3, "batch": 1, "store": 2}
RECOMMEND = "POST", "/v1/recommend"


class Clocks:
    """A wall clock and a processor clock, which go on only where a test says so."""

    def __init__(self) -> None:
        self.wall = self.processor = 100.0

    def compute(self, seconds: float) -> None:
        self.wall += seconds
        self.processor += seconds

    def stand_still(self, seconds: float) -> None:
        """As if another process ran."""
        self.wall += seconds

    def admission(self, **limits: Any) -> Admission:
        queue_seconds = limits.pop("queue_seconds", 10.0)
        return Admission(
            LIMITS | limits, 30.0, queue_seconds, None, lambda: self.wall, lambda: self.processor
        )


class Flow:
    """A connection whose client reads at once."""

    write_paused = False


class Cycle:
    """As much of uvicorn's as a limiter looks at."""

    response_started = False
    flow = Flow()
    transport = None


def admit(admitting: Admission, app: Any, path: str = "/v1/recommend") -> Any:
    """What the protocol does with a request: None if it is refused, else what it runs."""
    limiter = admitting.limiter("POST", path)
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


async def done_by_turn(admitting: Admission, work: Any, count: int) -> list[int]:
    """How many of so many requests are done in each turn of the loop."""
    tasks = [asyncio.create_task(admit(admitting, work)) for _ in range(count)]
    turns, before = [], 0
    while before < count:
        await asyncio.sleep(0)
        done = sum(task.done() for task in tasks)
        turns.append(done - before)
        before = done
    return turns


@pytest.mark.parametrize("writing", ["PUT", "DELETE"])
def test_writes_of_items_and_reads_take_no_place_of_recommendations_or_of_the_operator(writing: str) -> None:
    admitting = Admission(LIMITS)
    for method in (writing, "GET"):
        while admitting.limiter(method, "/v1/items/7").try_acquire():
            pass

    def has_room(method: str, path: str) -> bool:
        return admitting.limiter(method, path).has_room()

    assert not has_room("POST", "/v1/events")
    assert not has_room("GET", "/v1/fields")
    assert has_room("POST", "/v1/recommend")
    assert has_room("POST", "/admin/rollback")
    assert has_room("GET", "/metrics")


def test_a_full_limiter_refuses_and_the_others_do_not() -> None:
    """A request that ends, or fails, releases its place."""

    async def scenario() -> None:
        release = asyncio.Event()

        async def waiting(*_: Any) -> None:
            await release.wait()

        async def failing(*_: Any) -> None:
            raise ValueError("a fault")

        admitting = Admission(LIMITS)
        running = [asyncio.create_task(admit(admitting, waiting)) for _ in range(3)]
        assert admit(admitting, waiting) is None
        release.set()
        assert await admit(admitting, waiting, "/v1/events") == 200
        await asyncio.gather(*running)
        with pytest.raises(ValueError, match="a fault"):
            await admit(admitting, failing)
        counts = {one.name: (one.active, one.refused) for one in admitting.limiters}
        assert counts == dict.fromkeys(counts, (0, 0)) | {"recommend": (0, 1)}

    asyncio.run(scenario())


def test_the_loop_reads_between_slices_and_requests_run_in_order() -> None:
    clocks, done = Clocks(), list[int]()

    async def scenario() -> None:
        admitting = clocks.admission(recommend=100)

        def working(number: int) -> Any:
            async def work(*_: Any) -> None:
                clocks.compute(LOOP_SECONDS * 0.4)
                done.append(number)

            return work

        tasks = [asyncio.create_task(admit(admitting, working(number))) for number in range(30)]
        while len(done) < 30:
            before = len(done)
            await asyncio.sleep(0)
            assert len(done) - before <= 3
        await asyncio.gather(*tasks)
        assert done == list(range(30))
        assert admitting.waiting == 0

    asyncio.run(scenario())


def test_a_slice_is_of_processor_time() -> None:
    """Of a process that hardly runs: by the wall clock, each request would fill a slice."""
    clocks = Clocks()

    async def work(*_: Any) -> None:
        clocks.stand_still(LOOP_SECONDS)
        clocks.compute(LOOP_SECONDS / 16)

    turns = asyncio.run(done_by_turn(clocks.admission(recommend=100), work, 60))
    assert len(turns) == 4


def test_a_request_that_waits_too_long_for_a_slice_is_refused() -> None:
    clocks = Clocks()

    async def work(*_: Any) -> None:
        clocks.compute(0.02)

    async def scenario() -> None:
        admitting = clocks.admission(recommend=100, queue_seconds=0.11)
        statuses = await asyncio.gather(*(admit(admitting, work) for _ in range(40)))
        assert statuses.count(200) == 7
        recommend = admitting.limiter(*RECOMMEND)
        assert statuses.count(503) == recommend.refused == 33
        assert recommend.active == 0

    asyncio.run(scenario())


@pytest.mark.fault(37)
def test_probes_are_answered_at_once_and_outside_the_slice() -> None:
    clocks = Clocks()

    async def work(*_: Any) -> None:
        clocks.compute(LOOP_SECONDS * 2)

    async def scenario() -> None:
        admitting = clocks.admission(queue_seconds=-1.0)  # nobody may wait
        assert await admit(admitting, lambda *_: asyncio.sleep(0)) == 200  # begins a slice
        for _ in range(3):
            assert await admit(admitting, work, "/livez") == 200
        assert [await admit(admitting, work) for _ in range(2)] == [200, 503]
        assert await admit(admitting, work, "/livez") == 200

    asyncio.run(scenario())


SETTING: ContextVar[str] = ContextVar("SETTING", default="outer")


def test_eager_work_without_a_wait_ends_at_once_and_else_goes_on_in_a_task_of_its_context() -> None:
    ran: list[object] = []

    async def work(seconds: list[float]) -> None:
        SETTING.set("inner")
        for each in seconds:
            await asyncio.sleep(each)
        ran.append(SETTING.get())
        if seconds:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(10)
            ran.append(asyncio.current_task())

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert eager.start(loop, work([])) is None
        assert ran == ["inner"]
        assert SETTING.get() == "outer"
        task = eager.start(loop, work([0, 0]))
        assert task is not None
        while len(ran) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await task
        assert ran == ["inner", "inner", task]

    asyncio.run(scenario())
