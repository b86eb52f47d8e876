"""What a user of `data` can get wrong, one sentence each: what, where, and what would work."""


class TurretError(Exception):
    """The base of every error that a user can cause; its text is the whole message."""


class DataError(TurretError):
    """Events, columns, features or prepared folders that can't be used as they are."""


class FetchError(DataError):
    """A public data set that can't be downloaded, checked or unpacked."""
