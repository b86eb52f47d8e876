"""The nine checks, in the order in which they run."""

from collections.abc import Callable

from tests.compose.checks.absent import check_absent_replica
from tests.compose.checks.backups import check_backup
from tests.compose.checks.kills import check_kills
from tests.compose.checks.kinds import check_index_kind_and_rollback
from tests.compose.checks.refusals import check_refusals
from tests.compose.checks.retraining import check_retraining
from tests.compose.checks.rolls import check_rolls
from tests.compose.checks.versions import check_new_version
from tests.compose.checks.watching import check_watching
from tests.compose.proof import Proof

CHECKS: dict[int, tuple[str, Callable[[Proof], str]]] = {
    1: ("a new version is trained, exported and activated", check_new_version),
    2: ("another kind of index, and a rollback", check_index_kind_and_rollback),
    3: ("a replica and the Redis are killed", check_kills),
    4: ("a replica is down during an activation", check_absent_replica),
    5: ("full disk, corrupt bundle, two activations at once", check_refusals),
    6: ("a code roll and back", check_rolls),
    7: ("retraining on served events, and the gate", check_retraining),
    8: ("backup, destroyed volumes, restore", check_backup),
    9: ("Prometheus, alerts and the dashboard", check_watching),
}
