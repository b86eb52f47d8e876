"""Served events are retrained on, and a worse model is refused by the gate."""

import random
import time
from datetime import UTC, datetime
from typing import Any

from deploy.compose_proof.proof import Proof, in_words, last_json, require

FANS = 300
_TRAINING = ["--mode", "anew", "--experiment", "demo", "--set", "training.epochs=4"]


def check_retraining(proof: Proof) -> str:
    """The next version learns two rare items that users take in turn; a worse version is refused."""
    first, second = _rare_pair(proof)
    before = _rank(proof, first, second)
    _send_fans(proof, "fan", first, second)
    (old,) = set(proof.project.replica_versions())
    told = proof.project.run("retrain", *_TRAINING, "--margin", "0.5")
    (new,) = set(proof.project.replica_versions())
    require(new != old, f"the retrained version isn't live: {told[-500:]}")
    proof.serves(new, "after the retraining")
    after = _rank(proof, first, second)
    require(after < before, f"{second} after {first} was at {before} and is at {after} now")

    _send_fans(proof, "admirer", first, second)
    bad = ["--set", "training.learning_rate=1e-7", "--set", "training.epochs=1"]
    refused = in_words(proof.project.run("retrain", *_TRAINING[:4], *bad, accept=True))
    proof.serves(new, "after a worse model")
    records = last_json(_compact(proof.project.run("retrain", "--history", "--json")))
    decisions = [record["decision"] for record in records]
    require(decisions[0] == "activated", f"the record says {decisions}")
    require(decisions[-1] == "refused", f"the record says {decisions}: {refused}")
    ranks = f"{second} after {first} went from rank {before} to {after}"
    return f"{ranks}; record: {decisions}; refused: {refused!r}"


def _compact(output: str) -> str:
    """JSON of several lines as one."""
    return " ".join(output[output.index("[") : output.rindex("]") + 1].split())


def _rare_pair(proof: Proof) -> tuple[Any, Any]:
    """Two items that nobody is recommended."""
    top = [
        item["id"]
        for user in proof.load.users[:40]
        for item in proof.ask("POST", "/v1/recommend", {"user_id": user, "k": 20}).value["items"]
    ]
    rare = [item for item in proof.load.items if item not in top]
    require(len(rare) > 1, "every item is recommended to somebody")
    return rare[0], rare[-1]


def _rank(proof: Proof, history: Any, item: Any) -> int:
    """The position of `item` in the answer to a history of one item, from 1; 101 if it is not in it."""
    body = {"history": [history], "k": 100}
    found = [one["id"] for one in proof.ask("POST", "/v1/recommend", body).value["items"]]
    return found.index(item) + 1 if item in found else 101


def _send_fans(proof: Proof, name: str, first: Any, second: Any) -> None:
    """Events of new users in the last seconds, half of whom take both items last, the others first."""
    draw = random.Random(name)
    begin = time.time() - 5
    for number in range(FANS):
        others = draw.sample([item for item in proof.load.items if item not in (first, second)], 3)
        taken = [*others, first, second] if number % 2 else [first, second, *others]
        events = [
            {
                "event_id": f"{name}-{number}-{position}",
                "user_id": f"{name}-{number}",
                "item_id": item,
                "time": datetime.fromtimestamp(begin + number / 100 + position / 1000, UTC).isoformat(),
            }
            for position, item in enumerate(taken)
        ]
        answer = proof.ask("POST", "/v1/events", {"events": events})
        require(answer.status == 200, f"events are refused: {answer.value}")
