"""The limits that connections share: places, slices of time, held bytes; the clocks are the tests' own."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from tests.support.virtual_time import in_virtual_time
from turret.service.latency import LOOP_SECONDS
from turret.service.settings import Settings
from turret.service.wire import eager
from turret.service.wire.admission import Admission, admission
from turret.service.wire.connection_reaper import ConnectionReaper

LIMITS = {"recommend": 3, "batch": 1, "store": 2, "other": 1}


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
    limiters = admission(Settings.model_validate(given)).limiters
    assert [(one.name, one.limit, one.seconds) for one in limiters[:4]] == [
        ("recommend", 7, 3),
        ("batch", 5, 3),
        ("store", 9, 3),
        ("other", 128, None),  # an activation takes as long as it takes
    ]


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
        assert [(one.active, one.refused) for one in admitting.limiters[:3]] == [(0, 1), (0, 0), (0, 0)]

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
        recommend = admitting.limiter("/v1/recommend")
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


def test_the_pause_grows_with_the_number_of_refused_connections() -> None:
    admitting = Admission(LIMITS)
    pauses = []
    for paused in (0, 250, 100_000):
        admitting.paused = paused
        pauses.append(admitting.pause_seconds())
    assert pauses == [0.05, pytest.approx(0.5), 1.0]


@pytest.mark.parametrize("seconds", [LOOP_SECONDS * 2, LOOP_SECONDS / 8])
def test_the_pause_grows_as_the_processor_share_falls(seconds: float) -> None:
    """Whether slices are used up, or there is one short task in each turn, and refusals in the rest."""
    clocks = Clocks()

    async def work(*_: Any) -> None:
        clocks.compute(seconds)
        clocks.stand_still(3 * seconds)

    async def scenario() -> Admission:
        admitting = clocks.admission()
        for _ in range(1_000):
            await admit(admitting, work)
            admitting.begin_slice()
            await asyncio.sleep(0)
        return admitting

    admitting = asyncio.run(scenario())
    admitting.paused = 100
    assert admitting.processor_share == pytest.approx(0.25, rel=0.05)
    assert admitting.pause_seconds() == pytest.approx(0.2 / admitting.processor_share)


def test_time_in_which_the_loop_waits_is_not_counted() -> None:
    clocks = Clocks()

    async def work(*_: Any) -> None:
        clocks.compute(0.001)

    async def scenario() -> None:
        admitting = clocks.admission()
        for _ in range(30):
            await admit(admitting, work)
            await asyncio.sleep(0)
            clocks.stand_still(0.004)
        assert admitting.processor_share == pytest.approx(1)

    asyncio.run(scenario())


class Connection:
    """A connection that notes when its deadlines are checked."""

    def __init__(self) -> None:
        self.looked_at: list[float] = []

    def check_deadlines(self, now: float) -> None:
        self.looked_at.append(now)


@in_virtual_time
async def test_connections_are_looked_over_each_second_until_they_go() -> None:
    """The timer ends with the last connection, and begins with the next."""
    loop, reaper, first, second = asyncio.get_running_loop(), ConnectionReaper(), Connection(), Connection()
    reaper.add(first, loop)
    reaper.add(second, loop)
    await asyncio.sleep(2.5)
    reaper.remove(first)
    await asyncio.sleep(1)
    assert (first.looked_at, second.looked_at) == ([1, 2], [1, 2, 3])
    reaper.remove(second)
    await asyncio.sleep(7)
    reaper.add(first, loop)
    await asyncio.sleep(1)
    assert first.looked_at == [1, 2, loop.time()]


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
