"""The errors of the service. Their messages name the value, the place and the remedy."""

from collections.abc import Mapping
from typing import ClassVar

from turret.data.errors import TurretError


class ServiceError(TurretError):
    """The base of all: an invalid setting or request, or a failed operation."""


class AnswerError(ServiceError):
    """A running service has refused a call of the command line with this HTTP `status`."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class BusyError(ServiceError):
    """A lock was not free in time; the same call may succeed later."""


class UnavailableError(ServiceError):
    """A part of the service that a request needs is unavailable.

    The response has `status`, the name of the `part`, the `remedy` at the end of the message, and the seconds
    `retry_after`.
    """

    status = 503
    part = "store"
    remedy = "; retry"

    def __init__(self, message: str, retry_after: float = 2.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class HistoryUnavailableError(UnavailableError):
    """The history store is locked, full, damaged or too slow."""

    remedy = "; retry, an event counts once"


class HistoryDamagedError(HistoryUnavailableError):
    """The stored history of one user is not valid; those of others may be."""


class ItemsUnavailableError(UnavailableError):
    """The item store is locked, full, damaged or too slow."""

    remedy = "; retry, the call is idempotent"


class ReplicasUnavailableError(ServiceError):
    """The record that the replicas of a service share can't be read or written."""


class NothingLiveError(UnavailableError):
    """The request needs a version, but none is live yet."""

    part = "bundles"
    remedy = ""


class RequestError(ServiceError):
    """A request that is refused: the field at fault, its value, and a message with the remedy.

    A subclass states the reason: its HTTP `status`, and `headers` of the response. `retry_after`: seconds
    after which the same request may succeed, None if it never does. `position`: index of the request in its
    batch, None outside of a batch.
    """

    status = 422
    headers: ClassVar[Mapping[str, str]] = {}
    position: int | None = None

    def __init__(self, field: str, value: object, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.retry_after = retry_after


class MalformedBodyError(RequestError):
    """The body is not complete, strict JSON."""

    status = 400


class UnauthenticatedError(RequestError):
    """The key is missing or unknown."""

    status = 401
    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": "Bearer"}


class ForbiddenError(RequestError):
    """The key lacks the scope of the call."""

    status = 403


class NotFoundError(RequestError):
    """No such item or path."""

    status = 404


class ConflictError(RequestError):
    """The request is well formed, but the current state of the service does not allow it."""

    status = 409


class BodyTypeError(RequestError):
    """The body is not plain JSON, by the head of its request."""

    status = 415


class LateBodyError(RequestError):
    """The body has not arrived in time; the connection is closed."""

    status = 408
    headers: ClassVar[Mapping[str, str]] = {"Connection": "close"}


class TooLargeError(RequestError):
    """The body or a part of it exceeds its size limit."""

    status = 413


class InvalidFieldError(RequestError):
    """A field or parameter has a value outside of its domain."""


class RateLimitError(RequestError):
    """The key has used up its rate."""

    status = 429


class TimedOutError(RequestError):
    """The answer took longer than a request may take; the connection is closed."""

    status = 503
    headers: ClassVar[Mapping[str, str]] = {"Connection": "close"}

    def __init__(
        self,
        field: str = "service",
        value: object = None,
        message: str = "request timed out; lower k, split the batch, or retry",
        retry_after: float = 1,
    ) -> None:
        super().__init__(field, value, message, retry_after)


class NotReadyError(RequestError):
    """This process cannot answer the request yet, or no longer."""

    status = 503
