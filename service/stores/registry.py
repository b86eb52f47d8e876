"""The kinds of store by URL scheme: those shipped here, and those of other packages' entry points."""

from importlib.metadata import EntryPoint, entry_points

from turret.data.errors import without_credentials
from turret.data.extras import load
from turret.service.errors import ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import StoreKind, Stores

GROUP = "turret.stores"
# Kinds are loaded by name, like those of other packages: only services on a Redis import its client (0.1 s).
SHIPPED = {
    "sqlite": "turret.service.stores.sqlite.histories:SQLITE",
    "redis": "turret.service.stores.redis.histories:REDIS",
    "rediss": "turret.service.stores.redis.histories:REDIS",
    "redis+cluster": "turret.service.stores.redis.histories:REDIS",
    "rediss+cluster": "turret.service.stores.redis.histories:REDIS",
    "memory": "turret.service.stores.sqlite.histories:MEMORY",
}


def open_stores(settings: Settings) -> Stores:
    """Open the stores at `settings.store`; a remote server need not answer yet.

    Raises ServiceError for an unknown or faulty address, and for a store that can't be opened.
    """
    return store_kind(settings.store).open(settings)


def store_kind(address: str) -> StoreKind:
    """Find the registry entry of an address by its scheme. Raises ServiceError."""
    scheme, separator, _ = address.partition("://")
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    shipped = {name: EntryPoint(name, value, GROUP) for name, value in SHIPPED.items()}
    entry = (others | shipped).get(scheme) if separator else None
    if entry is None:
        known = ", ".join(f"{name}://" for name in (*shipped, *others))
        raise ServiceError(
            f"no store has the address {without_credentials(address)!r}; name sqlite:///PATH or another that "
            f"begins with one of {known}, or install a package that has an entry point for another scheme in "
            f"{GROUP}"
        )
    kind: StoreKind = load(entry, StoreKind, ServiceError)
    return kind
