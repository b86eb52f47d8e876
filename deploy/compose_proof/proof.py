"""The state that the checks share, and how one of them fails."""

import json
import re
from dataclasses import dataclass
from typing import Any

from deploy.compose_proof.calls import Answer, call
from deploy.compose_proof.load import Load
from deploy.compose_proof.project import Project

REPLICAS = 2


class CheckError(Exception):
    """A check has failed."""


@dataclass
class Proof:
    """The project, the load that runs against it, and its API key."""

    project: Project
    load: Load
    key: str

    def ask(self, method: str, path: str, body: Any = None, container: str | None = None) -> Answer:
        """Call the service through the proxy, or one replica itself."""
        if container:
            host, port = self.project.address(container), 8000
        else:
            host, port = "127.0.0.1", self.project.port
        return call(host, port, method, path, body, self.key)

    def serves(self, version: str, why: str) -> None:
        """Both replicas answer with this version, and so does the load from now on."""
        found = self.project.replica_versions()
        require(found == [version] * REPLICAS, f"{why}: the replicas serve {found}, not {version}")
        seen = self.load.seen_versions(2)
        require(seen == {version}, f"{why}: answers came from {sorted(seen)}, not only {version}")


def require(condition: Any, message: str) -> None:
    """Fail the check unless the condition holds."""
    if not condition:
        raise CheckError(message)


def in_words(output: str) -> str:
    """The sentence of a refusal: its last line, which is no traceback."""
    require("Traceback" not in output, f"a traceback instead of a sentence: {output[-600:]}")
    lines = [line for line in output.strip().splitlines() if len(line) > 3]
    sentence = next((line for line in reversed(lines) if re.match(r"(turret|deploy/\w+): ", line)), "")
    require(sentence, f"no sentence says why: {output[-600:]}")
    return sentence[:300]


def last_json(output: str) -> Any:
    """The last line of an output that is JSON."""
    for line in reversed(output.strip().splitlines()):
        if line.startswith(("{", "[")):
            return json.loads(line)
    raise CheckError(f"no JSON in {output[-300:]}")
