"""The errors of the service: each message names the value, the place and the remedy."""

from typing import TypeVar

from turret.data.errors import TurretError
from turret.tower.errors import EncodingError, FilterError

Error = TypeVar("Error", bound=BaseException)


class ServiceError(TurretError):
    """The base of all errors here: an invalid setting or request, or a failed operation."""


class RequestError(ServiceError):
    """A request that is refused with `status`: the field at fault, its value, and a message with the remedy.

    `retry_after`: seconds after which the same request may succeed, None if it never does. `position`: index
    of the request in its batch, None outside of a batch. `others`: further fields at fault.
    """

    status = 422
    position: int | None = None
    others: "tuple[RequestError, ...]" = ()
    __str__ = Exception.__str__

    def __init__(
        self,
        field: str,
        value: object,
        message: str,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.retry_after = retry_after
        if status is not None:
            self.status = status


class AccessError(RequestError):
    """The key is missing or unknown (401), lacks the scope of the call (403), or exceeds its rate (429)."""

    status = 401


class BodyError(RequestError):
    """The body is incomplete or no JSON (400), late (408), too large (413), or of another type (415)."""

    status = 400


class InvalidFieldError(RequestError):
    """A field or parameter has a value outside of its domain."""


def invalid_fields(error: EncodingError | FilterError) -> list[InvalidFieldError]:
    """The refusals of all fields that an error of a version names; the error loses its frames."""
    without_frames(error)
    return [InvalidFieldError(fault.field, fault.value, str(fault)) for fault in (error, *error.others)]


class NotFoundError(RequestError):
    """No such item, user, version or path."""

    status = 404


class ConflictError(RequestError):
    """The request is well formed, but the current state of the service does not allow it."""

    status = 409


class NotReadyError(RequestError):
    """This process cannot answer the request yet, or no longer."""

    status = 503


class TimedOutError(NotReadyError):
    """The answer took longer than a request may take."""

    def __init__(self) -> None:
        super().__init__("service", None, "request timed out; lower k, split the batch, or retry", 1)


class UnavailableError(RequestError):
    """A `part` of the service that a request needs is unavailable."""

    status = 503
    part = "version"
    __str__ = ServiceError.__str__  # the message may name the address of a store
    retry_after: float

    def __init__(self, message: str, retry_after: float = 2.0) -> None:
        super().__init__(self.part, None, message, retry_after)


class HistoryUnavailableError(UnavailableError):
    """The history store is locked, full, damaged or too slow."""

    part = "store"


class HistoryDamagedError(HistoryUnavailableError):
    """The stored history of one user is not valid; the histories of other users may be."""


class ItemsUnavailableError(UnavailableError):
    """The item store is locked, full, damaged or too slow."""

    part = "store"


class ReplicasUnavailableError(UnavailableError):
    """The record that the replicas of a service share can't be read or written."""


class BusyError(UnavailableError):
    """A lock was not free in time; the same call may succeed later."""


class NothingLiveError(UnavailableError):
    """The request needs a version, but none is live yet."""

    part = "bundles"


def without_frames(error: Error) -> Error:
    """Remove the frames of an error that is kept or has been answered, and of the errors that it replaced.

    Often a frame in the traceback of an error refers to that error again, and to the body of its request.
    Such cycles wait for a full garbage collection, which stops the event loop: for 160 ms after 2,000
    refusals.
    """
    replaced: BaseException | None = error
    while replaced is not None and replaced.__traceback__ is not None:
        replaced.__traceback__ = None
        replaced = replaced.__cause__ or replaced.__context__
    return error
