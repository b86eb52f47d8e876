"""The process that counts outcomes, with limited time and memory and a low priority."""

import resource

from turret.service.bounded_process import ProcessFailedError, begin, limit, output_of
from turret.service.errors import ServiceError
from turret.service.outcomes.request import CountRequest
from turret.service.versions.memory import data_bytes

_MOST_BYTES = 2_000_000_000  # beyond the libraries of the process
_NICENESS = 10


async def count_in_process(request: CountRequest, seconds: float) -> None:
    """Count in a process that is killed after `seconds`, or when this call is cancelled.

    Raises ServiceError for a process that can't be started, crashes or is killed.
    """
    try:
        await output_of(__name__, request.model_dump_json().encode(), seconds, _NICENESS)
    except TimeoutError:
        raise ServiceError(
            f"counting the outcomes takes longer than {seconds:g} seconds; use turret outcomes"
        ) from None
    except ProcessFailedError as error:
        raise ServiceError(
            f"the process that counts the outcomes ended {error}; its memory is limited: use turret outcomes"
        ) from None


def main() -> None:
    """Count for the request on standard input."""
    text = begin()
    from turret.service.outcomes.counting import count_once

    if (used := data_bytes()) is not None:
        limit(resource.RLIMIT_DATA, used + _MOST_BYTES)
    count_once(CountRequest.model_validate_json(text))
