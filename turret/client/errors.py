"""The errors of the client."""

from typing import Any

from turret.data.errors import TurretError


class ClientError(TurretError):
    """No service answers at the address, its answer is not one of Turret, or a value has no JSON form."""


class AnswerError(ClientError):
    """The service has refused a call with this HTTP `status`.

    `field` is the field at fault and `value` its value; `retry_after` the seconds after which the same call
    may succeed, if the service gave them.
    """

    __str__ = Exception.__str__

    def __init__(
        self, message: str, status: int, field: str = "", value: Any = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.field, self.value, self.retry_after = status, field, value, retry_after
