"""Ids of answers: derived from the time and the request, and kept nowhere."""

from hashlib import blake2b
from itertools import count
from secrets import token_bytes

from turret.data.answers.form import answer_id_of


class AnswerIds:
    """Makes the ids of the answers of a process; ids sort by time.

    The last 20 digits hash the id of the request, the place of the answer in a batch, and a counter, under a
    key that each process draws for itself. So an id is never made twice, also where a client repeats the id
    of its request, and nobody can derive the id of an answer that was not his.
    """

    def __init__(self) -> None:
        self._key = token_bytes(16)
        self._counter = count()

    def new(self, time: int, request_id: str, place: int = 0) -> str:
        """Make the id of an answer at `time`, in milliseconds since 1970."""
        text = f"{request_id}:{place}:{next(self._counter)}"
        return answer_id_of(time, blake2b(text.encode(), digest_size=10, key=self._key).digest())
