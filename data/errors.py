"""Errors that a user can cause; messages state the problem, the place and a remedy."""


class TurretError(Exception):
    """The base of every error that a user can cause; its text is the whole message."""

    exit_status = 1
    """The exit status of a command that ends with it."""


class MissingExtraError(TurretError, ImportError):
    """A public name whose extra is not installed; the message has the command that installs it."""


class DataError(TurretError):
    """Events, columns, features or prepared folders that can't be used."""


class FetchError(DataError):
    """A public data set that can't be downloaded, checked or unpacked."""


class ConfigurationError(DataError):
    """Settings that do not exist, are invalid or contradict each other."""


class SourceError(DataError):
    """Files that are missing, unreadable or of an unknown format."""


class ColumnError(DataError):
    """Columns that are missing or have the wrong type."""


class BadRowsError(DataError):
    """Invalid rows in a log, unless they are to be dropped."""


class EmptyDataError(DataError):
    """A log without remaining events."""
