"""What can go wrong with another library's environment or process."""


class PeerError(Exception):
    """A peer can't take part; the message says why, and what would help."""


class PeerMissingError(PeerError):
    """The peer's environment is not there and could not be made."""


class PeerFailedError(PeerError):
    """The peer's process ended, was too slow, or answered something else than a result."""
