"""The errors of the service. Their messages name the value, the place and the remedy."""

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


class HistoryUnavailableError(ServiceError):
    """The history store is locked, full, damaged or too slow. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float = 2.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class HistoryDamagedError(HistoryUnavailableError):
    """The stored history of one user is not valid; those of others may be."""


class ItemsUnavailableError(ServiceError):
    """The item store is locked, full, damaged or too slow."""


class ItemsOvertakenError(ServiceError):
    """Concurrent writes have used up the room that the caller counted; count again."""

    def __init__(self) -> None:
        super().__init__("other items were written at the same time; retry")


class ReplicasUnavailableError(ServiceError):
    """The record that the replicas of a service share can't be read or written."""


class NothingLiveError(ServiceError):
    """The request needs a version, but none is live yet."""


class RequestError(ServiceError):
    """A request that is refused: the field at fault, its value, and a message with the remedy.

    A subclass states the reason; `service.error_responses` gives each reason its HTTP status.
    `retry_after`: seconds after which the same request may succeed, None if it never does. `position`: index
    of the request in its batch, None outside of a batch.
    """

    position: int | None = None

    def __init__(self, field: str, value: object, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.retry_after = retry_after


class MalformedBodyError(RequestError):
    """The body is not complete, strict JSON."""


class UnauthenticatedError(RequestError):
    """The key is missing or unknown."""


class ForbiddenError(RequestError):
    """The key lacks the scope of the call."""


class NotFoundError(RequestError):
    """No such item or path."""


class ConflictError(RequestError):
    """The request is well formed, but the current state of the service does not allow it."""


class TooLargeError(RequestError):
    """The body or a part of it exceeds its size limit."""


class InvalidFieldError(RequestError):
    """A field or parameter has a value outside of its domain."""


class RateLimitError(RequestError):
    """The key has used up its rate."""


class GuessLimitError(RateLimitError):
    """An address has sent too many wrong keys."""


class NotReadyError(RequestError):
    """This process cannot answer the request yet, or no longer."""
