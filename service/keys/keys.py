"""API keys: creation, storage and look-up.

A key is its name and 32 random bytes: `turret_shop_Zk3...`. Only its SHA-256 is stored. A slow hash (bcrypt,
scrypt) protects passwords, as it makes guesses expensive; 2^256 keys can't be guessed at any speed, and a
slow hash would let senders of wrong keys keep the processor busy. So no key may be short enough to be
guessed, not even one that an operator chooses, such as TURRET_ADMIN_KEY.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from turret.service.calls import Scope

MIN_LENGTH = 32  # characters of a key without its name


class Key(BaseModel):
    """The stored record of a key, without the key itself.

    `rate` is in requests a second (None: no limit), `burst` the number that may come at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,39}$")
    scopes: tuple[Scope, ...] = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    created: AwareDatetime
    expires: AwareDatetime | None = None
    rate: float | None = Field(default=None, gt=0, le=1e6)
    burst: float | None = Field(default=None, ge=1, le=1e6)

    @property
    def bucket_size(self) -> float:
        """The burst, by default the requests of one second, and at least one."""
        return self.burst or max(1.0, self.rate or 1.0)


def new_key(name: str) -> str:
    """Create a random key; only the client stores it."""
    return f"turret_{name}_{secrets.token_urlsafe(32)}"


def fault_of(key: str) -> str:
    """Return the fault of a key that an operator chooses, empty if it has none."""
    if len(key) < MIN_LENGTH:
        return f"it has fewer than {MIN_LENGTH} characters, and such keys can be guessed"
    if not re.fullmatch("[!-~]+", key):
        return "it has a blank or a character outside ASCII, which a header can't carry"
    return ""


def digest_of(key: bytes) -> str:
    """Hash a key: the SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(key).hexdigest()


def record(name: str, key: str, scopes: Sequence[str], **rest: object) -> Key:
    """Make the record of a key; `rest` are fields of Key. Raises ValueError for invalid ones."""
    fields = {"scopes": list(dict.fromkeys(scopes)), "created": datetime.now(UTC), **rest}
    return Key.model_validate({"name": name, "sha256": digest_of(key.encode()), **fields})


def admin_record(key: str) -> Key:
    """Make the record of the admin key, which has the scope admin, no name and no limit."""
    sha256 = digest_of(key.encode())
    return Key.model_construct(name="", scopes=("admin",), sha256=sha256, created=datetime.now(UTC))


def by_digest(keys: Iterable[Key]) -> dict[str, Key]:
    """Arrange keys for `find_key`."""
    return {key.sha256: key for key in keys}


def find_key(keys: Mapping[str, Key], authorization: bytes | None, now: float) -> Key | None:
    """Return the key of `Bearer KEY` that is valid at `now` (seconds since 1970), or None.

    `keys` are by digest. The time of a look-up tells a sender at most something about a digest, which is no
    step towards a key. A secret of fewer than MIN_LENGTH characters is refused even if the file has it.
    """
    # The scheme is case-insensitive (RFC 9110, section 11.1), the key is not.
    if authorization is None or authorization[:7].lower() != b"bearer ":
        return None
    key = authorization[7:]
    found = keys.get(digest_of(key))
    if found is None or len(key.removeprefix(f"turret_{found.name}_".encode())) < MIN_LENGTH:
        return None
    return None if found.expires is not None and found.expires.timestamp() <= now else found
