"""The record of the live version and its routes that all replicas share, and the report of a replica."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turret.service.errors import ReplicasUnavailableError
from turret.service.versions.activation_log import MOST_NUMBERS, Digest, VersionName
from turret.service.versions.traffic_split import Routes


class LiveRecord(BaseModel):
    """The last activation of all replicas.

    `number` grows with every activation, `routes_number` with every change of the routes. `manifest` is the
    SHA-256 of the version's manifest: a replica serves no other content of that name.
    `previous`, `who` and `time` are those of the activation log.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int = Field(ge=1, lt=MOST_NUMBERS)
    version: VersionName
    manifest: Digest
    previous: str | None = None
    who: str = ""
    time: str = ""
    routes: Routes = Routes()
    routes_number: int = Field(default=0, ge=0, lt=MOST_NUMBERS)

    def encoded(self) -> bytes:
        """The record as it is stored."""
        return self.model_dump_json().encode()


class Report(BaseModel):
    """The numbers of the activation, routes and item change that all workers of a replica have."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int = 0
    routes: int = 0
    items: int = 0


def read_record(stored: bytes) -> LiveRecord | None:
    """Parse a stored record; None if there is none. Raises ReplicasUnavailableError for another content."""
    if not stored:
        return None
    try:
        return LiveRecord.model_validate_json(stored)
    except ValidationError as error:
        first = error.errors()[0]
        reason = ": ".join([*map(str, first["loc"]), first["msg"]])
        raise ReplicasUnavailableError(
            f"the key replicas:GROUP:live of the replicas holds no record of this service ({reason}); "
            "delete the key, or choose another database, prefix or TURRET_REPLICA_GROUP"
        ) from None


def read_report(stored: bytes) -> Report:
    """Parse a report; a foreign one reports nothing."""
    try:
        return Report.model_validate_json(stored)
    except ValidationError:
        return Report()
