"""What is known of a request while it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turret.service.calls import Call
from turret.service.keys.keys import Key


@dataclass(slots=True)
class RequestRecord:
    """What the layers know of a request.

    `http.edge` puts it into the scope under "turret"; inner layers fill it, and the log has it at the end.

    Attributes:
        headers: by name in small letters, of repeated ones the last.
        received: when the request came, in milliseconds since 1970.
        key: that of the call, if it needs one.
        body: all of it, once it has arrived.
        stages: seconds of the stages of an answer, by name.
        version: that of the answer.
        degraded: the names of the parts that the answer has to do without.
    """

    call: Call
    headers: Mapping[bytes, bytes]
    request_id: str
    received: int
    key: Key | None = None
    body: bytes = b""
    stages: dict[str, float] = field(default_factory=dict)
    version: str | None = None
    degraded: Sequence[str] = ()
