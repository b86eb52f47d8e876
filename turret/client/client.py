"""`Client` and `AsyncClient`: they send the calls, retry where that is safe, and type the answers."""

import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from itertools import count
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import httpx2
from pydantic import ValidationError

from turret.client import calls, version_calls
from turret.client.answers import ErrorAnswer, EventsAnswer
from turret.client.errors import AnswerError, ClientError
from turret.client.requests import Call, Event
from turret.data.errors import shown, without_credentials

Answered = TypeVar("Answered")
Arguments = ParamSpec("Arguments")
Http = TypeVar("Http", httpx2.Client, httpx2.AsyncClient)
Outcome = httpx2.Response | httpx2.RequestError
_LONGEST = 1e6  # the longest timeout, in seconds
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 30.0  # seconds before a retry; a longer Retry-After is left to the caller
# A service on this machine is reached without a proxy.
_DIRECT = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
# Nor over TLS: reading the certificates takes 18 ms of processor time, a twentieth of `turret recommend`.
_PLAIN = re.compile(r"http://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?(?:/|$)")


class _Method(Generic[Arguments, Answered]):
    """A call as a method of both clients, with the arguments of its function."""

    def __init__(self, make: Callable[Arguments, Call[Answered]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Arguments, Call[Answered]]: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[Arguments, Answered]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[Arguments, Awaitable[Answered]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> Callable[Arguments, Any]:
        if client is None:
            return self._make

        @wraps(self._make)
        def send(*arguments: Arguments.args, **named: Arguments.kwargs) -> Any:
            return client.send(self._make(*arguments, **named))

        return send


class _Calls(Generic[Http]):
    """The calls of the API as methods; their functions are in `turret.client.calls` and `version_calls`."""

    recommend = _Method(calls.recommend)
    recommend_batch = _Method(calls.recommend_batch)
    search = _Method(calls.search)
    user = _Method(calls.user)
    forget_user = _Method(calls.forget_user)
    random_user = _Method(calls.random_user)
    find_items = _Method(calls.find_items)
    similar_items = _Method(calls.similar_items)
    popular = _Method(calls.popular)
    vectors = _Method(calls.vectors)
    item = _Method(calls.item)
    put_item = _Method(calls.put_item)
    patch_item = _Method(calls.patch_item)
    withdraw_item = _Method(calls.withdraw_item)
    change_items = _Method(calls.change_items)
    rules = _Method(version_calls.rules)
    set_rules = _Method(version_calls.set_rules)
    roll_back_rules = _Method(version_calls.roll_back_rules)
    fields = _Method(calls.fields)
    item_map = _Method(calls.item_map)
    map_points = _Method(calls.map_points)
    map_colours = _Method(calls.map_colours)
    map_items = _Method(calls.map_items)
    version = _Method(version_calls.version)
    versions = _Method(version_calls.versions)
    activations = _Method(version_calls.activations)
    activate = _Method(version_calls.activate)
    roll_back = _Method(version_calls.roll_back)
    routes = _Method(version_calls.routes)
    set_routes = _Method(version_calls.set_routes)
    outcomes = _Method(version_calls.outcomes)
    open_comparison = _Method(version_calls.open_comparison)
    comparison = _Method(version_calls.comparison)
    close_comparison = _Method(version_calls.close_comparison)
    compare = _Method(version_calls.compare)
    overlap = _Method(version_calls.overlap)
    alive = _Method(calls.alive)
    ready = _Method(calls.ready)
    metrics = _Method(calls.metrics)

    _connect: Callable[[bool], Http]  # whether to verify certificates

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        http: Http | None = None,
    ) -> None:
        if not _is_address(url):
            raise ClientError(
                f"{without_credentials(str(url))!r} is not the address of a service; give one like "
                "http://127.0.0.1:8000, without user and password, and the key of the service apart"
            )
        if key is not None and not (isinstance(key, str) and re.fullmatch(r"[!-~]+", key)):
            raise ClientError(
                "this is no key of a service: a key is one line of ASCII characters without spaces"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < _LONGEST:
            raise ClientError(f"timeout can't be {shown(timeout)}: give seconds above 0")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ClientError(f"retries can't be {shown(retries)}: give a whole number of at least 0")
        self.url = url.rstrip("/")
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout, self._retries, self._is_own = timeout, retries, http is None
        self._http: Http = self._connect(not _PLAIN.match(url)) if http is None else http

    def _request(self, call: Call[Any]) -> httpx2.Request:
        if self._http.is_closed:
            raise ClientError(f"{self.url}{call.path}: this client is closed; make a new one")
        try:
            return self._http.build_request(
                call.method,
                self.url + call.path,
                content=call.content,
                params=call.parameters or None,
                headers=self._headers
                | ({} if call.content is None else {"Content-Type": "application/json"}),
                timeout=max(self._timeout, call.seconds),
            )
        except (httpx2.InvalidURL, UnicodeEncodeError) as error:
            raise ClientError(f"{self.url}{call.path}: the parameters can't be sent ({error})") from None

    def _pause(self, call: Call[Any], attempt: int, outcome: Outcome) -> float | None:
        """The seconds to wait before `call` is sent again; None where `outcome` is final."""
        if attempt >= self._retries or call.retried == "never":
            return None
        wait = _FIRST_WAIT * 2**attempt * random.uniform(0.5, 1)
        if isinstance(outcome, httpx2.Response):
            if outcome.status_code != 429 and (outcome.status_code != 503 or call.retried != "always"):
                return None
            wait = _retry_after(outcome) or wait
        elif call.retried != "always" and not isinstance(outcome, httpx2.ConnectError):
            return None
        return wait if wait <= _LONGEST_WAIT else None

    def _read(self, call: Call[Answered], outcome: Outcome) -> Answered:
        """Read an answer. Raises ClientError, and AnswerError for a refusal."""
        if isinstance(outcome, httpx2.TimeoutException):
            raise ClientError(
                f"{self.url}{call.path}: no answer within {max(self._timeout, call.seconds):g} s"
            ) from None
        if isinstance(outcome, httpx2.RequestError):
            raise ClientError(
                f"{self.url}: no service answers there ({outcome}); start one with `turret serve`, or give "
                "the address of one that runs"
            ) from None
        if outcome.status_code != 200:
            raise self._refusal(outcome)
        try:
            return call.read(outcome.content)
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc'])) or 'the answer'}: {first['msg']}"
        except UnicodeDecodeError as error:
            reason = str(error)
        raise ClientError(
            f"{self.url}{call.path} answers, but not as Turret does ({reason}); is it a Turret service of "
            "this release?"
        )

    def _refusal(self, response: httpx2.Response) -> AnswerError:
        status, retry_after = response.status_code, _retry_after(response)
        try:
            answer: ErrorAnswer = ErrorAnswer.model_validate_json(response.content)
        except ValidationError:
            message = f"{self.url} answered {status}: it did not say why; is it a Turret service?"
            return AnswerError(message, status, retry_after=retry_after)
        error = answer.error
        messages = (
            f"{detail.field}: {detail.message}" if detail.field else detail.message
            for detail in (error, *answer.others)
        )
        message = f"{self.url} answered {status}: {'; '.join(messages)}"
        return AnswerError(message, status, error.field, error.value, retry_after)


def _is_address(url: object) -> bool:
    if not isinstance(url, str) or not re.fullmatch(r"https?://[^@\s]+", url):
        return False
    try:
        return bool(httpx2.URL(url).host)
    except httpx2.InvalidURL:
        return False


def _retry_after(response: httpx2.Response) -> float | None:
    header = response.headers.get("Retry-After", "")
    return float(header) if re.fullmatch(r"[0-9]{1,6}", header) else None


class Client(_Calls[httpx2.Client]):
    """A client of the service at `url`, with a key of `turret keys new` where the service requires one.

    Admin calls go to the admin port, with an admin key: they need a client of their own. A call that fails
    is sent again up to `retries` times, after the seconds of `Retry-After` or some tenths of a second, where
    that cannot repeat an effect: `activate` and `roll_back` only if the service has not received them, the
    probes never. `timeout` is in seconds, for each attempt; an activation has ten minutes. `http` replaces
    the connection: for proxies, certificates, or an application in the same process.

    Each method raises ClientError where no service answers, and AnswerError where it refuses. Clients may be
    shared by threads.
    """

    _connect = staticmethod(lambda verify: httpx2.Client(verify=verify, mounts=_DIRECT))

    def send(self, call: Call[Answered]) -> Answered:
        """Send a call of `turret.client.calls`."""
        request, attempts = self._request(call), count()
        while True:
            try:
                outcome: Outcome = self._http.send(request)
            except httpx2.RequestError as error:
                outcome = error
            if (pause := self._pause(call, next(attempts), outcome)) is None:
                return self._read(call, outcome)
            time.sleep(pause)

    def store_events(self, events: Iterable[Event]) -> EventsAnswer:
        """Store any number of events, 1,000 a call. After an error, send all again: an id counts once.

        That needs an `event_id` for each event; without it an event gets a new random id in each call.
        """
        return calls.sum_of([self.send(call) for call in calls.event_calls(events)])

    def close(self) -> None:
        """Close the connections; those of `http` stay open."""
        if self._is_own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Calls[httpx2.AsyncClient]):
    """Like `Client`, for asyncio: each method is awaited. Tasks of one event loop may share a client."""

    _connect = staticmethod(lambda verify: httpx2.AsyncClient(verify=verify, mounts=_DIRECT))

    async def send(self, call: Call[Answered]) -> Answered:
        """Send a call of `turret.client.calls`."""
        from asyncio import sleep  # a `Client` starts without it

        request, attempts = self._request(call), count()
        while True:
            try:
                outcome: Outcome = await self._http.send(request)
            except httpx2.RequestError as error:
                outcome = error
            if (pause := self._pause(call, next(attempts), outcome)) is None:
                return self._read(call, outcome)
            await sleep(pause)

    async def store_events(self, events: Iterable[Event]) -> EventsAnswer:
        """Store any number of events, like `Client.store_events`."""
        return calls.sum_of([await self.send(call) for call in calls.event_calls(events)])

    async def close(self) -> None:
        """Close the connections; those of `http` stay open."""
        if self._is_own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
