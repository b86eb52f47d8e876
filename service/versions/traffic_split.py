"""The routes of traffic to a canary and a shadow, kept in `<bundles>/routes.json`."""

import hashlib
import secrets
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turret.data.files.staging import new_file
from turret.service.errors import ServiceError
from turret.tower.format.safe_open import no_link

ROUTES = "routes.json"
_LIMIT = 100_000


class Route(BaseModel):
    """A version, and its share of users or requests, above 0 and at most 1.

    `manifest` is the SHA-256 of its manifest when it was checked; a version with another one is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    share: float = Field(gt=0, le=1, allow_inf_nan=False)
    manifest: str | None = None


class Routes(BaseModel):
    """`canary` answers its share of the users; `shadow` answers its share of requests, unseen.

    `salt`, in hexadecimal, selects the users of the canary: the same ones while the salt is the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    canary: Route | None = None
    shadow: Route | None = None
    salt: str = Field(default="", pattern="^([0-9a-f]{2}){0,64}$")

    def takes(self, user: str) -> bool:
        """Whether the canary answers a user; a larger share keeps the users of a smaller one."""
        if self.canary is None:
            return False
        return canary_position(user, self.salt) < self.canary.share


def canary_position(user: str, salt: str) -> float:
    """Map a user to [0, 1) by a keyed hash: uniform and deterministic."""
    digest = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=7, key=bytes.fromhex(salt))
    return int.from_bytes(digest.digest(), "big") / (1 << 56)


def salted(routes: Routes, before: Routes) -> Routes:
    """Give routes the salt of `before` if the version of the canary is the same, else a new one."""
    same = routes.canary and before.canary and routes.canary.version == before.canary.version
    return routes.model_copy(update={"salt": before.salt if same and before.salt else secrets.token_hex(16)})


def read_routes(root: Path) -> Routes:
    """Read the routes of a bundles folder. Raises ServiceError if the file is not valid."""
    path = root / ROUTES
    try:
        with open(path, "rb", opener=no_link) as file:
            return Routes.model_validate_json(file.read(_LIMIT))
    except FileNotFoundError:
        return Routes()
    except OSError as error:
        raise ServiceError(
            f"{path} can't be read ({error.strerror}); the live version answers all requests"
        ) from None
    except ValidationError as error:
        raise ServiceError(
            f"{path} is not a valid routes file ({error.errors()[0]['msg']}); "
            "the live version answers all requests; send the routes again to /admin/routes"
        ) from None


def stored_routes(root: Path) -> Routes:
    """Read the routes file; an invalid one holds none."""
    with suppress(ServiceError):
        return read_routes(root)
    return Routes()


def write_routes(root: Path, routes: Routes) -> None:
    """Replace the routes by rename. Raises ServiceError if the folder can't be written."""
    path = root / ROUTES
    try:
        with new_file(path) as fresh:
            fresh.write_text(routes.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ServiceError(f"{path} can't be written ({error.strerror}); the routes are unchanged") from None
