"""What a service notes of its requests and answers: counts, logs, live recall, drift."""

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support import virtual_time
from tests.support.clock import Clock
from tests.support.service_app import client_of, post_events, recommended
from tests.support.until import until
from turret.service.http.admission import Admission, Capacity
from turret.service.http.edge import Edge, request_id
from turret.service.observing.answer_record import AnswerRecord
from turret.service.observing.drift import MIN_HITS, Drift, Reference, divergence, noise_of
from turret.service.observing.logs import Logs
from turret.service.observing.metrics import Metrics, tenth
from turret.service.observing.observation import Observation
from turret.service.observing.recall import RecallSampler, _Sample, recall_of
from turret.service.settings import Settings
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.engines.circuit import Circuit
from turret.tower.format.integrity import lengths_of, measure_norms
from turret.tower.format.manifest import Manifest, Scoring


def sample(text: str, name: str) -> float:
    """The value of a sample in the text of metrics, 0 where it is missing."""
    lines = [line for line in text.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[-1]) if lines else 0.0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


# --- Request ids


@pytest.mark.parametrize("usable", [b"a", b"~!#", b"x" * 128, b"6f1d-\"'<>"])
def test_a_usable_id_is_kept(usable: bytes) -> None:
    assert request_id(usable) == usable.decode()


def test_any_other_is_replaced_by_a_new_one() -> None:
    unusable = [None, b"", b"x" * 129, b"two words", b"line\nend", b"\x1b[2J", "é".encode(), b"a\x00"]
    made = {request_id(one) for one in unusable}
    assert len(made) == len(unusable)
    assert all(re.fullmatch("[0-9a-f]{16}-[0-9a-f]+", one) for one in made)


# --- Around each request


class Traces:
    """Keeps the descriptions of requests."""

    def __init__(self) -> None:
        self.described: list[tuple[str, str, Mapping[str, Any]]] = []

    def around(self, app: ASGIApp) -> ASGIApp:
        return app

    def describe(self, method: str, route: str, facts: Mapping[str, Any]) -> None:
        self.described.append((method, route, facts))

    def take_dropped(self) -> int:
        return 0

    def close(self) -> None: ...


class Desk:
    """An application of a few lines behind telemetry, with all that this notes."""

    def __init__(self, file: Any) -> None:
        self.metrics, self.traces, self._file = Metrics(), Traces(), file
        self.logs = Logs(form="json", descriptor=file.fileno())
        self.logs.start()

    def around(self, app: ASGIApp) -> TestClient:
        edge = Edge(app, self.metrics, self.traces)
        return TestClient(edge, raise_server_exceptions=False)

    def value(self, name: str) -> float:
        return sample(self.metrics.text().decode(), name)

    def lines(self) -> list[dict[str, Any]]:
        self.logs.close()
        self._file.seek(0)
        return [json.loads(line) for line in self._file]


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryFile() as file:
        desk = Desk(file)
        yield desk
        desk.logs.close()


START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def answering(status: int = 200, **facts: Any) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["turret"].update(facts)
        await send({**START, "status": status, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("boom")


async def breaking_off(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    raise ValueError("boom")


def test_a_request_is_counted_timed_traced_and_logged(desk: Desk) -> None:
    class Key:
        name = "shop"
        secret = "never-logged"

    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    stages = {"parse": 0.0002, "search": 0.003}
    app = answering(version="v7", key=Key(), degraded=("history",), stages=stages)
    headers = {"X-Request-ID": "id-1", "Authorization": "Bearer never-logged", "traceparent": parent}
    desk.around(app).post("/v1/recommend", content="never-logged", headers=headers)
    assert desk.value('turret_requests_total{route="/v1/recommend",status="200"}') == 1
    assert desk.value('turret_request_seconds_count{class="2xx",route="/v1/recommend"}') == 1
    assert desk.value('turret_stage_seconds_bucket{le="0.0002",stage="parse"}') == 1
    assert desk.value('turret_stage_seconds_sum{stage="search"}') == 0.003
    assert desk.value('turret_degraded_total{part="history"}') == 1
    (line,) = desk.lines()
    assert line.pop("seconds") > 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "message": "answered",
        "request_id": "id-1",
        "method": "POST",
        "route": "/v1/recommend",
        "status": 200,
        "version": "v7",
        "key": "shop",
        "degraded": ["history"],
        "client": "testclient",
        "trace_id": "a" * 32,
    }
    ((method, route, facts),) = desk.traces.described
    assert (method, route, facts["stages"]) == ("POST", "/v1/recommend", stages)


def test_what_nobody_handled_is_logged_once_and_answered_with_the_id(desk: Desk) -> None:
    desk.around(breaking_off).get("/v1/users")
    answer = desk.around(failing).get("/v1/version", headers={"X-Request-ID": "id-9"})
    assert answer.status_code == 500
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"] == "id-9"
    assert answer.json()["error"]["message"].endswith("under request id id-9")
    assert desk.value('turret_requests_total{route="/v1/version",status="500"}') == 1
    told, answered = desk.lines()[-2:]
    assert told["traceback"].endswith("ValueError: boom")
    assert (told["level"], told["request_id"]) == ("error", "id-9")
    assert (answered["level"], answered["status"]) == ("warning", 500)


@pytest.mark.parametrize("is_stopping", [False, True], ids=["deadline", "end of the service"])
def test_a_request_that_times_out_is_counted_and_logged_as_the_503_that_its_client_gets(
    desk: Desk, is_stopping: bool
) -> None:
    """Else the alert for errors wouldn't see a service whose requests all time out."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert desk.value("turret_in_flight") == 1
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def end_late() -> None:
        settings = Settings()
        admission = Admission(app, Capacity(settings), settings, desk.metrics.count_refusal)
        headers = [(b"x-request-id", b"id-7")]
        scope = {"type": "http", "method": "GET", "path": "/v1/version", "headers": headers}
        task = asyncio.create_task(Edge(admission, desk.metrics)(scope, receive, send))
        if is_stopping:
            await asyncio.sleep(1)
            task.cancel()
        await task
        assert int(asyncio.get_running_loop().time()) in ((1,) if is_stopping else (30, 31))

    virtual_time.run(end_late())
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert sent[0]["status"] == 503
    assert (answered["x-request-id"], answered["retry-after"]) == ("id-7", "1")
    assert answered["x-content-type-options"] == "nosniff"
    assert desk.value('turret_requests_total{route="/v1/version",status="503"}') == 1
    assert desk.value('turret_request_seconds_count{class="5xx",route="/v1/version"}') == 1
    assert desk.value('turret_refused_total{reason="time"}') == 1
    (line,) = desk.lines()
    assert (line["level"], line["status"], line["request_id"]) == ("warning", 503, "id-7")


def test_an_answer_is_timed_until_it_begins(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads slowly, or is refused and held, would else look like a slow service."""
    clock = Clock()
    monkeypatch.setattr("turret.service.http.edge.time.perf_counter", clock)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({**START})
        clock.now += 1e6
        await send({"type": "http.response.body", "body": b""})

    desk.around(app).get("/v1/version")
    monkeypatch.undo()
    assert desk.value('turret_request_seconds_sum{class="2xx",route="/v1/version"}') < 1


def test_an_answer_of_a_service_that_ends_is_the_last_of_its_connection(desk: Desk) -> None:
    for is_ending in (True, False):
        edge = Edge(answering(), desk.metrics, is_draining=partial(bool, is_ending))
        answer = TestClient(edge).get("/livez")
        assert answer.headers.get("connection") == ("close" if is_ending else None)


def test_probes_are_counted_but_not_logged_while_all_is_well(desk: Desk) -> None:
    desk.around(answering()).get("/readyz")
    desk.around(answering(503)).get("/readyz")
    assert desk.value('turret_requests_total{route="/readyz",status="200"}') == 1
    assert [line["status"] for line in desk.lines()] == [503]


# --- Counts of a whole service


def test_answers_are_counted_by_what_they_came_from(fresh_client: TestClient) -> None:
    recommended(fresh_client, history=[101, 102, "nobody", "none"], k=5)
    recommended(fresh_client, history=["nobody"])
    recommended(fresh_client, history=[101], exclude=list(range(100, 160)))
    recommended(fresh_client, history=[101], exclude=list(range(100, 150)), k=10, exclude_seen=True)
    recommended(fresh_client, history=[101], exclude=list(range(100, 155)), k=10)
    fresh_client.post("/v1/recommend/batch", json={"requests": [{"history": [101]}, {}]})
    event = {"event_id": 1, "user_id": 1, "item_id": 1}
    post_events(fresh_client, event, event, event | {"event_id": 2})
    fresh_client.post("/admin/activate", json={"version": "v1"})
    headers = {"Content-Type": "application/json"}
    fresh_client.post("/v1/recommend", content=b" " * 1_000_001, headers=headers)
    text = fresh_client.get("/metrics").text
    expected = {
        'turret_answers_total{source="towers"}': 5,
        'turret_answers_total{source="popular"}': 2,
        "turret_empty_answers_total": 1,
        "turret_short_answers_total": 1,
        "turret_history_items_total": 4 + 1 + 1 + 1 + 1 + 1,
        "turret_unknown_items_total": 3,
        "turret_batch_size_sum": 7,
        'turret_batch_size_bucket{le="1.0"}': 5,
        "turret_events_stored_total": 2,
        "turret_event_duplicates_total": 1,
        'turret_refused_total{reason="key"}': 1,
        'turret_refused_total{reason="size"}': 1,
        'turret_refused_total{reason="scope"}': 0,
        'turret_refused_total{reason="rate"}': 0,
    }
    assert {name: sample(text, name) for name in expected} == expected


@pytest.fixture
def watched(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("turret.service.observing.observation.RECALL_RATE", 1e6)
    return settings.model_copy(update={"recall_sample": 1.0, "drift_sample": 1.0})


def test_live_answers_are_searched_again(watched: Settings) -> None:
    with client_of(watched) as client:

        def value(name: str) -> float:
            return sample(client.get("/metrics").text, name)

        def searched() -> bool:
            outcomes = (f'turret_recall_samples_total{{outcome="{one}"}}' for one in ("answered", "dropped"))
            return sum(map(value, outcomes)) == 20

        for k in (5, 50):
            for item in range(101, 111):
                recommended(client, history=[item], k=k, exclude=[150])
        until(searched, "the samples of recall")
        for label in ("10", "100"):
            recall, count = (value(f'turret_recall_at_k_{part}{{k="{label}"}}') for part in ("sum", "count"))
            assert recall == count > 0  # the index of the fixture is exact
        assert value('turret_recall_samples_total{outcome="failed"}') == 0


def test_live_answers_are_compared_with_the_recorded_ones(watched: Settings) -> None:
    with client_of(watched) as client:

        def asked() -> str:
            recommended(client, history=[101, 102, 103], k=10)  # one of the recorded histories
            return client.get("/metrics").text

        until(lambda: sample(asked(), "turret_top_score_rank_count"), "a comparison")
        for _ in range(100):
            recommended(client, history=[101, 102, 103], k=10)
        text = asked()
    assert 0.3 < sample(text, 'turret_drift{of="scores"}') < 1  # the same answer is not all that was recorded
    assert 0 < sample(text, 'turret_drift_noise{of="scores"}') < 0.3


def test_a_store_that_fails_is_told_until_it_answers_again(settings: Settings) -> None:
    clock, observation = Clock(), Observation(settings, lambda: None)
    circuit = Circuit(failures=2, seconds=1.0, clock=clock)
    observation.follow_circuits({"read": circuit})

    def opened(name: str = "turret_breaker_open") -> float | None:
        return observation.metrics.registry.get_sample_value(name, {"circuit": "read"})

    def admitted() -> object:
        token = circuit.admit()
        assert token is not None
        return token

    for expected in (0, 1):
        circuit.fail(admitted())
        assert opened() == expected
    for _ in range(2):
        clock.now += 1
        circuit.fail(admitted())  # a trial
        assert opened() == 1
    clock.now += 1
    circuit.succeed(admitted())
    assert opened() == 0
    assert opened("turret_breaker_openings_total") == 1


# --- Live recall


@dataclass
class Version:
    """A live version as far as it is searched."""

    manifest: Manifest
    vectors: NDArray[np.float32]


def version(vectors: NDArray[np.float32], absolute: bool = False) -> Bundle:
    manifest = Manifest(
        version="v1",
        created="now",
        dimension=vectors.shape[1],
        item_count=len(vectors),
        scoring=Scoring(kind="dot", temperature=1.0, absolute=absolute),
        history_length=5,
        norms=measure_norms(lengths_of(vectors)),
        files={},
    )
    return cast(Bundle, Version(manifest, vectors))


EIGHT = version(np.arange(8, dtype=np.float32)[:, None])  # the higher the row, the better
ONE = np.ones(1, np.float32)
NOTHING = np.empty(0, np.int64)


def record(vector: NDArray[np.float32], k: int, rows: Any, **given: Any) -> AnswerRecord:
    arrays = {"excluded": NOTHING, "allowed": None, "scores": NOTHING, "rows": np.asarray(rows), **given}
    return AnswerRecord("towers", k, len(rows), 1, 0, vector, **arrays)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("lost", [0, 3])
def test_recall_is_the_share_of_the_best_allowed_rows(absolute: bool, lost: int) -> None:
    drawn = np.random.default_rng(0).standard_normal((20_000, 4)).astype(np.float32)
    vector = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    scores = drawn.astype(np.float64) @ vector.astype(np.float64)
    scores = np.abs(scores) if absolute else scores
    allowed = np.random.default_rng(1).random(len(drawn)) < 0.1
    scores[~allowed] = -np.inf
    excluded = np.argsort(-scores)[:5]
    scores[excluded] = -np.inf
    rows = np.argsort(-scores)[: 10 + lost]
    found = np.concatenate([rows[: 10 - lost], rows[10:]])  # the last ones are not among the ten best
    answer = record(vector, 10, found, excluded=excluded, allowed=allowed)
    assert recall_of(_Sample(version(drawn, absolute), vector, answer)) == pytest.approx(1 - lost / 10)


@pytest.mark.parametrize(
    ("scores", "k", "rows", "expected"),
    [
        ([3.0, 1.0, 1.0, 1.0, 0.0], 2, [0, 3], 1),  # a row that ties with the last of the best counts
        ([3.0, 1.0, 1.0, 1.0, 0.0], 2, [0, 4], 0.5),
        (range(8), 4, [7, 6], 0.5),  # what is too short lacks what it lacks
        (range(8), 20, [7, 6, 5, 4, 3, 2, 1, 0], 1),
        (range(8), 4, [9, 7, 8, 6], 1),  # places that fresh items took are not judged
        (range(8), 4, [9, 7, 8, 5], 0.5),
        ([], 4, [], None),
    ],
)
def test_a_row_counts_if_its_score_suffices(
    scores: list[float], k: int, rows: list[int], expected: float | None
) -> None:
    live = version(np.array(scores, np.float32)[:, None]) if scores else EIGHT
    given = {} if scores else {"allowed": np.zeros(8, np.bool_)}
    assert recall_of(_Sample(live, ONE, record(ONE, k, rows, **given))) == expected


def samples_of(metrics: Metrics, outcome: str) -> float:
    value = metrics.registry.get_sample_value("turret_recall_samples_total", {"outcome": outcome})
    assert value is not None
    return value


def test_what_is_offered_is_measured_beside_and_a_failure_ends_nothing(metrics: Metrics) -> None:
    """The buffers of an answer may be used again at once."""
    sampler = RecallSampler(metrics, share=1.0, rate=1e6)
    vector, rows, excluded = np.ones(1, np.float32), np.array([7, 6]), np.array([5])
    sampler.offer(EIGHT, record(vector, 2, rows, excluded=excluded))
    vector[:], rows[:], excluded[:] = -1, 0, 7
    sampler.offer(EIGHT, record(np.ones(3, np.float32), 2, [1]))
    sampler.offer(EIGHT, record(ONE, 2, [7, 0]))
    sampler.start()
    until(lambda: samples_of(metrics, "answered") == 2, "two measurements")
    assert samples_of(metrics, "failed") == 1
    assert metrics.registry.get_sample_value("turret_recall_at_k_sum", {"k": "10"}) == 1.5
    sampler.close()


@pytest.mark.parametrize(("share", "fewest", "most"), [(1.0, 20_000, 20_000), (0.01, 120, 290), (0.0, 0, 0)])
def test_a_share_of_the_answers_is_taken_and_what_comes_too_fast_is_dropped(
    metrics: Metrics, share: float, fewest: int, most: int
) -> None:
    """Nobody measures yet: all that are taken but 16 are counted as dropped."""
    sampler = RecallSampler(metrics, share, rate=1e12)
    for _ in range(20_000):
        sampler.offer(EIGHT, record(ONE, 2, [7, 6]))
    waiting = 16 if share else 0
    assert fewest <= samples_of(metrics, "dropped") + waiting <= most


# --- Drift


def plain_divergence(one: list[float], other: list[float]) -> float:
    """Mean relative entropy, in bits, to the mean of both."""
    total = 0.0
    for p, q in zip(np.array(one) / sum(one), np.array(other) / sum(other), strict=True):
        for part in (p, q):
            total += part * np.log2(part / ((p + q) / 2)) / 2 if part else 0.0
    return total


def test_the_divergence_is_that_of_jensen_and_shannon() -> None:
    assert divergence([1, 2, 3, 0], [10, 20, 30, 0]) == pytest.approx(0, abs=1e-12)
    assert divergence([1, 2, 0, 0], [0, 0, 5, 1]) == pytest.approx(1)
    generator = np.random.default_rng(0)
    for _ in range(20):
        one, other = (generator.integers(0, 50, 10).astype(float).tolist() for _ in range(2))
        assert divergence(one, other) == pytest.approx(plain_divergence(one, other))
        assert divergence(one, other) == pytest.approx(divergence(other, one))


def test_the_noise_is_what_samples_of_one_distribution_come_to() -> None:
    generator = np.random.default_rng(0)
    shape = [0.05, 0.3, 0.2, 0.1, 0.35]
    pairs = [(generator.multinomial(400, shape), generator.multinomial(900, shape)) for _ in range(2000)]
    measured = np.mean([divergence(one.tolist(), other.tolist()) for one, other in pairs])
    assert noise_of(*(counts.tolist() for counts in pairs[0])) == pytest.approx(measured, rel=0.05)
    assert [tenth(share) for share in (0.0, 0.0999, 0.1, 0.55, 0.95, 1.0)] == [0, 0, 0, 5, 9, 9]


def test_the_reference_is_that_of_the_recorded_queries(published: Path) -> None:
    """Popularity is the share of events of more popular items; the fixture's were used 60, 59 ... 1 times."""
    reference = Reference(load(published, "v1"))
    assert len(reference.scores) == sum(reference.counts["scores"]) == 3
    assert sum(reference.counts["popularity"]) == 3 * 10
    assert [reference.rank(score) for score in reference.scores] == pytest.approx([1 / 6, 3 / 6, 5 / 6])
    assert (reference.rank(-1e9), reference.rank(1e9)) == (0, 1)
    total = 60 * 61 / 2
    assert reference.popularity[:3] == pytest.approx([0, 60 / total, 119 / total])
    assert reference.popularity[-1] == pytest.approx(1 - 1 / total)


LIVE = object()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def drift(metrics: Metrics, clock: Clock) -> Drift:
    drift = Drift(metrics, share=1.0, window=300.0, clock=clock)
    drift.compare_with(LIVE, recorded(40))
    return drift


def recorded(queries: int) -> Any:
    """A reference of even scores from 0 to 1 and of items as popular as their row is small."""
    plain = Reference.__new__(Reference)
    plain.scores = [(place + 0.5) / queries for place in range(queries)]
    plain.popularity = np.linspace(0, 0.99, 100, dtype=np.float32)
    plain.counts = {"scores": [queries // 10] * 10, "popularity": [queries] * 10}
    return plain


def distances(drift: Drift) -> dict[tuple[str, str], float]:
    metrics: list[Any] = list(drift.distances())
    return {
        (metric.name, sample.labels["of"]): sample.value for metric in metrics for sample in metric.samples
    }


Offer = Callable[[float, int], None]


@pytest.fixture
def offer(drift: Drift) -> Offer:
    """Offer an answer with this best score, of these ten rows on."""
    return lambda score, first: drift.offer(LIVE, np.arange(first, first + 10), np.full(10, score))


def test_answers_as_recorded_are_as_near_as_chance_makes_them(drift: Drift, offer: Offer) -> None:
    generator = np.random.default_rng(0)
    for _ in range(2000):
        offer(generator.random(), 10 * int(generator.integers(10)))
    found = distances(drift)
    for of in ("scores", "popularity"):
        assert found["turret_drift", of] < 3 * found["turret_drift_noise", of] < 0.2


def test_other_scores_and_other_items_are_far_once_there_are_enough(drift: Drift, offer: Offer) -> None:
    """Another version begins from nothing, and answers of the one before are not compared with it."""
    for _ in range(MIN_HITS - 1):
        offer(0.99, 0)
    assert ("turret_drift", "scores") not in distances(drift)
    offer(0.99, 0)
    found = distances(drift)
    assert found["turret_drift", "scores"] > 0.4
    assert found["turret_drift", "popularity"] > 0.4
    drift.compare_with(object(), recorded(40))
    for _ in range(MIN_HITS):
        offer(0.99, 0)
    assert distances(drift) == {}


def test_answers_count_for_one_to_two_windows(drift: Drift, offer: Offer, clock: Clock) -> None:
    for _ in range(MIN_HITS):
        offer(0.99, 0)
    assert not drift.is_due()
    clock.now += 300
    assert drift.is_due()
    drift.begin_window()
    assert not drift.is_due()
    assert ("turret_drift", "scores") in distances(drift)
    drift.begin_window()
    assert distances(drift) == {}
