"""Keys for a service, and a client that asks with one of them again and again."""

import http.client
import json
import statistics
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.service_process import Process
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record

ASK = json.dumps({"history": [101], "k": 3})


def make(bundles: Path, name: str, *scopes: str, rate: float | None = None, path: Path | None = None) -> str:
    key = new_key(name)
    add_key(path or bundles.parent / "keys.json", record(name, key, scopes, rate=rate))
    return key


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Asker:
    """Asks on one connection, with as little around it as there can be."""

    def __init__(self, service: Process) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(service.urls[0]).netloc, timeout=10)

    def ask(self, key: str) -> int:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._connection.request("POST", "/v1/recommend", ASK, headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def seconds(self, key: str, times: int = 200) -> float:
        """The median time of an answer."""
        taken = []
        for _ in range(times):
            start = time.perf_counter()
            self.ask(key)
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)

    def close(self) -> None:
        self._connection.close()
