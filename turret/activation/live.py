"""The versions of a running service or of a folder: the live one, activation, canary and shadow."""

import os
from pathlib import Path

from turret.client import Client
from turret.client.version_answers import ActivateAnswer, OutcomesAnswer, RoutesAnswer
from turret.service.errors import ServiceError
from turret.service.versions.folder_commands import activate_in_folder
from turret.tower.format.listing import current

# A service that counts outcomes answers 503 after 20 seconds, and names 5 more.
_COUNT_RETRIES = 30


def activate_version(
    version: str, bundles: Path, url: str | None, force: bool = False, compared: bool = False
) -> str:
    """Activate in a running service, or move the folder's pointer; return a message."""
    if url is None:
        return activate_in_folder(version, bundles, force, compared)
    with admin_client(bundles, url) as client:
        return _swapped(url, client.activate(version, force=force, compared=compared))


def roll_back(bundles: Path, url: str) -> str:
    """Roll a running service back to its previous version; return a message."""
    with admin_client(bundles, url) as client:
        if (live := client.routes().live) is None:
            raise ServiceError(f"{url} serves no version yet; turret activate makes one live")
        return _swapped(url, client.roll_back(live))


def live_version(bundles: Path, url: str | None) -> str | None:
    """The version that the running service serves, or the current one of the folder, if there is one."""
    return current(bundles) if url is None else read_routes(bundles, url).live


def read_routes(bundles: Path, url: str) -> RoutesAnswer:
    """The live version of a running service, its canary and its shadow."""
    with admin_client(bundles, url) as client:
        return client.routes()


def set_canary(bundles: Path, url: str, version: str | None, share: float = 1.0) -> None:
    """Let a version answer a share of the users; None ends the canary."""
    with admin_client(bundles, url) as client:
        client.set_routes(canary=None if version is None else {"version": version, "share": share})


def read_outcomes(bundles: Path, url: str, kind: str, within: str, value: str | None) -> OutcomesAnswer:
    """The outcomes of the answers that a running service has logged, by events of a kind.

    Waits until they are counted, for about twelve minutes at most.
    """
    with admin_client(bundles, url, _COUNT_RETRIES) as client:
        return client.outcomes([kind], within=within, value=value)


def admin_client(bundles: Path, url: str, retries: int = 3) -> Client:
    """A client with the admin key of TURRET_ADMIN_KEY, TURRET_ADMIN_KEY_FILE or the folder of bundles."""
    if key := os.environ.get("TURRET_ADMIN_KEY"):
        return Client(url, key, retries=retries)
    path = Path(os.environ.get("TURRET_ADMIN_KEY_FILE") or bundles / "admin.key")
    try:
        return Client(url, path.read_text(encoding="utf-8").strip(), retries=retries)
    except OSError as error:
        raise ServiceError(
            f"{path}: the admin key can't be read ({error.strerror}); set TURRET_ADMIN_KEY, "
            "or name the service's folder with --bundles"
        ) from None


def _swapped(url: str, answer: ActivateAnswer) -> str:
    behind = f" Processes {list(answer.behind)} have not switched yet." if answer.behind else ""
    late = answer.replicas_behind
    replicas = f" The replicas {', '.join(late)} do not serve it yet." if late else ""
    warning = f" Warning: {answer.warning}." if answer.warning else ""
    before = answer.previous or "nothing"
    return f"{url} serves {answer.version} now (before: {before}).{behind}{replicas}{warning}"
