"""Events as members of a sorted set, and back; what isn't one of ours is found out."""

from collections.abc import Sequence

import orjson

from service.history.contract import Event
from service.history.redis_scripts import ARRIVAL_DIGITS


def written(event: Event) -> bytes:
    """Write what isn't in the key or in the score as JSON: the event id, the item, the kind."""
    return orjson.dumps([event.event_id, event.item, event.kind])


def read(user: str, reply: object) -> list[Event]:
    """Read members with their scores, newest first; gives them oldest first. Raises ValueError for others."""
    if not isinstance(reply, list) or len(reply) % 2:
        raise ValueError("this isn't a list of members and scores")
    members, scores = reply[-2::-2], reply[::-2]
    return [_event(user, member, score) for member, score in zip(members, scores, strict=True)]


def _event(user: str, member: bytes, score: bytes) -> Event:
    if not isinstance(member, bytes) or not member[:ARRIVAL_DIGITS].isdigit():
        raise ValueError("a member has no number of arrival")
    fields = orjson.loads(member[ARRIVAL_DIGITS:])
    if not isinstance(fields, list) or len(fields) != 3:
        raise ValueError("a member isn't an event")
    event_id, item, kind = fields
    if type(event_id) is not str or type(item) not in (int, str) or not (kind is None or type(kind) is str):
        raise ValueError("a member's fields aren't those of an event")
    return Event(event_id, user, item, _time(score), kind)


def _time(score: bytes) -> int:
    try:
        return int(score)
    except ValueError:  # as 2.5e+14, or no whole number
        time = float(score)
    if not time.is_integer():
        raise ValueError("a score isn't a time")
    return int(time)


def counted(reply: object) -> int:
    """Read a whole number. Raises ValueError for anything else."""
    if type(reply) is not int or reply < 0:
        raise ValueError("this isn't a count")
    return reply


def texts(reply: Sequence[object]) -> list[str]:
    """Read texts, one for each; what isn't one becomes an empty one."""
    return [one.decode("utf-8", "replace") if isinstance(one, bytes) else "" for one in reply]
