"""Download the third-party files of the page: `python -m deploy.vendored`.

Packages come from npm and are checked against the SHA-512 below; the files are stored unchanged, so that an
installation needs neither npm nor a network.
"""

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "service" / "page" / "static" / "vendored"


@dataclass(frozen=True)
class Package:
    """One npm package: its `integrity` as npm publishes it, and the stored name of each of its `files`."""

    name: str
    version: str
    licence: str
    use: str
    integrity: str
    files: dict[str, str]


PACKAGES = (
    Package(
        name="uplot",
        version="1.6.32",
        licence="MIT",
        use="plots of the view Service",
        integrity="sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        files={
            "dist/uPlot.iife.min.js": "uplot.min.js",
            "dist/uPlot.min.css": "uplot.min.css",
            "LICENSE": "uplot.LICENSE.txt",
        },
    ),
    Package(
        name="@fontsource-variable/inter",
        version="5.3.0",
        licence="OFL-1.1",
        use="the typeface, weights 100 to 900 of the Latin script",
        integrity="sha512-OupL48va4JNofb97w6NYeF9S7W/kHNKM0Er8Dem5nqi4jeOLrVJDoE8tZEpnMJmtkvNbB1EIPPwHcdkF6b1oUA==",
        files={"files/inter-latin-wght-normal.woff2": "inter.woff2", "LICENSE": "inter.LICENSE.txt"},
    ),
)


_README = """# Third-party files of the page

Unchanged files of npm packages, written by `python -m deploy.vendored`, which checks each
package against its SHA-512.

| file | package | licence | use | SHA-256 |
|---|---|---|---|---|
"""


def main() -> None:
    """Write the files of every package, and a README with their origin."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = [row for package in PACKAGES for row in _store(package)]
    (FOLDER / "README.md").write_text(_README + "".join(rows), encoding="utf-8")


def _store(package: Package) -> list[str]:
    """Download, check and unpack a package; return the rows of its files in the README."""
    named, rows = f"{package.name}@{package.version}", []
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", named, "--pack-destination", folder, "--silent"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        found = f"sha512-{base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()}"
        if found != package.integrity:
            raise SystemExit(
                f"{named} has the integrity {found}, not {package.integrity}; nothing was stored"
            )
        with tarfile.open(archive) as files:
            for path, name in package.files.items():
                member = files.extractfile(f"package/{path}")
                assert member is not None, "npm's files are no folders"
                content = member.read()
                (FOLDER / name).write_bytes(content)
                rows.append(
                    f"| `{name}` | {package.name} {package.version}, `{path}` | {package.licence} "
                    f"| {package.use} | `{hashlib.sha256(content).hexdigest()}` |\n"
                )
    return rows


if __name__ == "__main__":
    main()
