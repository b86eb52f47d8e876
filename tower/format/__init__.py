"""The files of a bundle: manifest, checksums, safe opening, the pointer to the current version."""

__all__ = [
    "checksums",
    "index_settings",
    "listing",
    "manifest",
    "safe_open",
    "sections",
]
