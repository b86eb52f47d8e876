"""Objects of the tests, written and read by fsspec alone."""

import fsspec


def write(url: str, content: str | bytes) -> str:
    """Write an object and return its URL."""
    with fsspec.open(url, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    return url


def read(url: str) -> bytes:
    """Return the bytes of an object."""
    with fsspec.open(url, "rb") as stream:
        content: bytes = stream.read()
    return content


def remove(url: str) -> None:
    """Remove an object."""
    store, path = fsspec.url_to_fs(url)
    store.rm_file(path)


def names(url: str) -> list[str]:
    """Return the names of all objects below a URL."""
    store, path = fsspec.url_to_fs(url)
    store.invalidate_cache()
    return sorted(found[len(path.rstrip("/")) + 1 :] for found in store.find(path))
