"""The files of a bundle: manifest, checksums, safe opening, the pointer to the current version."""

__all__ = [
    "atomic_publish",
    "checksums",
    "engine_settings",
    "index_kinds",
    "index_settings",
    "integrity",
    "item_map",
    "listing",
    "manifest",
    "pointer",
    "safe_open",
    "sections",
    "snapshot",
]
