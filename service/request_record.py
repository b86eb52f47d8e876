"""The record of a request while it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turret.service.calls import Call
from turret.service.keys.keys import Key


@dataclass(slots=True)
class RequestRecord:
    """The record of a request, which all layers share.

    `http.edge` puts it into the scope under "turret"; inner layers fill it, and the log has it at the end.

    Attributes:
        headers: by name in small letters; the last of repeated headers.
        received: the time when the request came, in milliseconds since 1970.
        key: the key of the caller, if the call needs one.
        body: the whole body, once it has arrived.
        stages: seconds of the stages of an answer, by name.
        version: the version that has answered.
        source: `towers`, `popular_now` or `popular`, of a recommendation or a search.
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
    source: str | None = None
    degraded: Sequence[str] = ()
