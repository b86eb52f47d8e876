"""Files as their plain content: decompressed, and text as UTF-8."""

import bz2
import codecs
import gzip
import lzma
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.encodings import encoding_sentence
from turret.data.reading.tables import Malformed, readable

COMPRESSED_NAME = re.compile(r"\.(gz|gzip|zst|zstd|bz2|xz|zip)$", re.IGNORECASE)
_CHUNK = 1 << 20
_LAYERS = 2  # such as a zip of one .csv.gz; some files decompress to themselves
DAMAGED = (
    OSError,
    EOFError,
    RuntimeError,  # encrypted
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    pl.exceptions.PolarsError,
)
# UTF-32 is before UTF-16, with whose mark it begins. Without a mark, two ASCII characters tell UTF-16.
_MARKS = {
    re.escape(codecs.BOM_UTF32_LE): "utf-32",
    re.escape(codecs.BOM_UTF32_BE): "utf-32",
    re.escape(codecs.BOM_UTF16_LE): "utf-16",
    re.escape(codecs.BOM_UTF16_BE): "utf-16",
    rb"[^\0]\0[^\0]\0": "utf-16-le",
    rb"\0[^\0]\0[^\0]": "utf-16-be",
}
MARKED = re.compile(b"|".join(_MARKS), re.DOTALL)
"""A pattern of the first four bytes of a text that is not in UTF-8, whatever encoding is stated."""


def unpacked(path: Path, work: Path) -> tuple[Path, str]:
    """Return a file with the decompressed content of `path`, and the name of that content.

    The compression follows from the first bytes: browsers decompress files and keep their names. A file
    without compression is returned as it is; other files are copied into the folder `work`. Raises
    SourceError for a damaged file and for a zip of several files.
    """
    content, name = path, path.name
    for _ in range(_LAYERS):
        with readable(path), content.open("rb") as stream:
            head = stream.read(10)
        unpack = next((unpack for magic, unpack in _UNPACK if re.match(magic, head)), None)
        if unpack is None:
            break
        target = new_file(work, "unpacked")
        try:
            name = unpack(content, target) or COMPRESSED_NAME.sub("", name)
        except DAMAGED as error:
            raise SourceError(f"{path} can't be decompressed: {error}; fetch or export it again") from None
        if content != path:
            content.unlink()
        content = target
    return content, name


def new_file(work: Path, suffix: str) -> Path:
    """Return the path of a new file in the folder `work`."""
    return work / f"{len(list(work.iterdir()))}.{suffix}"


def _stream(open_stream: Callable[[Path], Any]) -> Callable[[Path, Path], None]:
    def unpack(path: Path, target: Path) -> None:
        with open_stream(path) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _CHUNK)

    return unpack


def _unpack_zstandard(path: Path, target: Path) -> None:
    """Decompress UTF-8 text by Polars: Python learns zstd with 3.14."""
    lines = pl.scan_lines(path, glob=False)
    try:
        lines.sink_csv(target, include_header=False, quote_style="never", separator="\x1f")
    except pl.exceptions.ComputeError as error:
        if "utf8" not in str(error):
            raise
        raise SourceError(
            f"{path} is no text in UTF-8, which alone is read from zstd; decompress it with zstd -d"
        ) from None


def _unpack_zip(path: Path, target: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not re.search(r"/$|(^|/)(\.|__MACOSX/)", name)]
        if "[Content_Types].xml" in names:
            raise SourceError(f"{path} is a workbook; save its sheet as CSV")
        if len(names) != 1:
            shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            raise SourceError(
                f"{path} is a zip of {len(names):,} files ({shown}) and not of one; unpack it, and name "
                "the file or the folder"
            )
        with archive.open(names[0]) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _CHUNK)
    return PurePosixPath(names[0]).name


_UNPACK: tuple[tuple[bytes, Callable[[Path, Path], str | None]], ...] = (
    (rb"\x1f\x8b\x08", _stream(gzip.open)),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", _stream(bz2.open)),
    (rb"\xfd7zXZ\x00", _stream(lzma.open)),
    (rb"\x28\xb5\x2f\xfd", _unpack_zstandard),
    (rb"PK(\x03\x04|\x05\x06)", _unpack_zip),
)
COMPRESSED = re.compile(b"|".join(magic for magic, _ in _UNPACK))
"""A pattern of the first bytes, ten at most, of a file that `unpacked` decompresses."""


def as_utf8(content: Path, path: Path, encoding: str, work: Path) -> Path:
    """Return a file with the text of `content` in UTF-8: itself, or a copy in the folder `work`.

    A byte order mark decides before `encoding`, and so do characters beyond ASCII that are valid UTF-8: text
    in another encoding is not valid UTF-8 by chance. Thus one encoding can be stated for all files even if
    some are UTF-8. `path` is the name for messages. Raises SourceError for an unknown encoding and for text
    in another encoding.
    """
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise SourceError(
            f"unknown encoding {encoding!r}; give one of Python, such as utf-8, cp1252, gbk or utf-16"
        ) from None
    with content.open("rb") as stream:
        head = stream.read(4)
    encoding = next((name for mark, name in _MARKS.items() if re.match(mark, head, re.DOTALL)), encoding)
    if codecs.lookup(encoding).name == "utf-8" or _is_utf8(content):
        return content
    target = new_file(work, "utf8")
    try:
        with (
            content.open(encoding=encoding, newline="") as source,
            target.open("w", encoding="utf-8", newline="") as copy,
        ):
            shutil.copyfileobj(source, copy, _CHUNK)
    except UnicodeError:
        raise SourceError(encoding_sentence(path, encoding, content)) from None
    return target


def without_broken_lines(content: Path, work: Path) -> tuple[Path, Malformed] | None:
    """Copy text of which some lines are not UTF-8, with empty lines in place of these lines.

    Returns None for text in another encoding: of its lines that are not ASCII, most are not UTF-8.
    """
    broken, others = Malformed(), 0
    target = new_file(work, "utf8")
    with content.open("rb") as source, target.open("wb") as copy:
        for number, line in enumerate(source, 1):
            try:
                others += not line.isascii() and bool(line.decode())
            except UnicodeDecodeError as error:
                broken = broken.and_line(number, f"byte {error.start + 1} is no UTF-8")
                line = b"\n"
            copy.write(line)
    return (target, broken) if 0 < broken.count <= others else None


def _is_utf8(path: Path) -> bool:
    """Tell whether a file has characters beyond ASCII, and all of them in UTF-8."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            are_ascii = [chunk.isascii() for chunk in iter(lambda: stream.read(_CHUNK), "")]
    except UnicodeDecodeError:
        return False
    return not all(are_ascii)
