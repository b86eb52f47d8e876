"""The supported public data sets, with checksums and terms of use."""

from pydantic import BaseModel

_GROUPLENS_TERMS = (
    "For research, with acknowledgement (Harper & Konstan 2015, doi:10.1145/2827872); "
    "no commercial use without GroupLens' permission, and its README says who may redistribute it."
)


class Dataset(BaseModel, frozen=True, extra="forbid"):
    """A published zip: address, checksums and terms of use."""

    name: str
    title: str
    url: str
    size: int  # bytes of the zip
    checksums: dict[str, str]  # hashlib's name of the algorithm -> hexadecimal digest; all must match
    checksum_source: str
    terms: str

    @property
    def file(self) -> str:
        """The name of the zip, the same on every mirror."""
        return self.url.rsplit("/", 1)[1]


def _movielens(name: str, title: str, file: str, size: int, md5: str, sha256: str) -> Dataset:
    return Dataset(
        name=name,
        title=title,
        url=f"https://files.grouplens.org/datasets/movielens/{file}",
        size=size,
        checksums={"md5": md5, "sha256": sha256},
        checksum_source=f"GroupLens publishes the MD5 beside the zip, as {file}.md5.",
        terms=_GROUPLENS_TERMS,
    )


_DATASETS = (
    _movielens(
        "movielens-100k",
        "MovieLens 100K",
        "ml-100k.zip",
        size=4_924_029,
        md5="0e33842e24a9c977be4e0107933c0723",
        sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    ),
    _movielens(
        "movielens-1m",
        "MovieLens 1M",
        "ml-1m.zip",
        size=5_917_549,
        md5="c4d9eecfca2ab87c1945afe126590906",
        sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    _movielens(
        "movielens-32m",
        "MovieLens 32M",
        "ml-32m.zip",
        size=238_950_008,
        md5="d472be332d4daa821edc399621853b57",
        sha256="e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee",
    ),
    Dataset(
        name="online-retail",
        title="Online Retail",
        url="https://archive.ics.uci.edu/static/public/352/online+retail.zip",
        size=23_715_478,
        checksums={"sha256": "f5385cbb54bbebf7196389109c6b0621faab0c304e3702548165e71c84aede8b"},
        checksum_source="UCI publishes none; this is what other projects recorded for the same address.",
        terms="CC BY 4.0, with acknowledgement (Chen 2015, doi:10.24432/C5BW33).",
    ),
)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _DATASETS}
