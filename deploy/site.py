"""Build the site of the documents by Zensical, without a warning: `make site`, into var/site.

The front page is README.md, for a visitor from a search engine; the tables of docs/README.md are the
navigation, and `deploy.reference` makes pages from docstrings. Links to files outside of docs/ become plain
text: the site has the documents and their pictures alone. Beside each page is its Markdown, which llms.txt
lists and llms-full.txt has as a whole.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from deploy.llms import described_pages, llms_full_txt, llms_txt
from deploy.reference import write_reference

ROOT = Path(__file__).parents[1]
PLOTS = ROOT / "benchmarks" / "results"
FRONT, DOCUMENTS = "index.md", "documents.md"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?!https?://|#)[^)]+)\)")
_SOURCE = re.compile(r'\b(src|srcset)="((?!https?://)[^"]+)"')
_PAGE = re.compile(r"^\| \[([^\]]+)\]\((\w+\.md)\)", re.MULTILINE)
_HEAD = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_SECTION = re.compile(r"^\| ([^|\[]+?) \| \|$", re.MULTILINE)


def navigation(index: str) -> list[dict[str, object]]:
    """The sections of the index with their pages."""
    starts = list(_SECTION.finditer(index))
    ends = [*(start.start() for start in starts[1:]), len(index)]
    first = {
        "A messy shop": "messy_shop.md",
        "The first week": "first_week.md",
        "All documents": DOCUMENTS,
    }
    sections: list[dict[str, object]] = [{"Turret": [FRONT, *({name: page} for name, page in first.items())]}]
    for start, end in zip(starts, ends, strict=True):
        pages = [{name[0].upper() + name[1:]: page} for name, page in _PAGE.findall(index[start.end() : end])]
        sections.append({start[1].capitalize(): pages})
    return sections


def within_site(text: str, folder: Path, moved: dict[Path, str]) -> str:
    """The text of a page of `folder` whose links lead to files of the site (`moved`), or are no links."""

    def link(match: re.Match[str]) -> str:
        sign, words, target = match.groups()
        path, mark, anchor = target.partition("#")
        name = moved.get((folder / path).resolve())
        return words if name is None else f"{sign}[{words}]({name}{mark}{anchor})"

    def source(match: re.Match[str]) -> str:
        attribute, path = match.groups()
        return f'{attribute}="{moved[(folder / path).resolve()]}"'

    return _SOURCE.sub(source, _LINK.sub(link, text))


def write_sources(work: Path) -> list[dict[str, object]]:
    """Write the configuration and the pages; return the navigation."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "docs").mkdir(parents=True)
    settings = (ROOT / "deploy" / "site.toml").read_text("utf-8")
    project = tomllib.loads(settings)["project"]
    files = [path for path in sorted((ROOT / "docs").iterdir()) if path.is_file()]
    moved = {path: path.name for path in files}
    moved |= {ROOT / "README.md": FRONT, ROOT / "docs" / "README.md": DOCUMENTS}
    moved |= {path: "_".join(path.relative_to(PLOTS).parts) for path in sorted(PLOTS.rglob("*.svg"))}
    for path, name in moved.items():
        if path.suffix == ".md":
            text = within_site(path.read_text("utf-8"), path.parent, moved)
            text = (f"---\ntitle: {project['site_description']}\n---\n\n" if name == FRONT else "") + text
            (work / "docs" / name).write_text(text, "utf-8")
        else:
            shutil.copy(path, work / "docs" / name)
    reference = write_reference(work / "docs")
    pages = navigation((ROOT / "docs" / "README.md").read_text("utf-8"))
    pages.append({"Reference": [{title: name} for name, title in reference.items()]})
    # With this separator it is an inline table of TOML.
    nav = json.dumps(pages, ensure_ascii=False, separators=(", ", " = "))
    marked = settings.replace("[project.theme]", f"nav = {nav}\n\n[project.theme]", 1)
    (work / "zensical.toml").write_text(marked, "utf-8")
    return pages


def write_texts(work: Path, site: Path, sections: list[dict[str, object]]) -> None:
    """Write the Markdown of the pages, llms.txt and llms-full.txt into the site."""
    names = re.findall(r"\w+\.md", json.dumps(sections))
    texts = {name: _HEAD.sub("", (work / "docs" / name).read_text("utf-8")) for name in names}
    for name, text in texts.items():
        (site / name).write_text(text, "utf-8")
    project = tomllib.loads((work / "zensical.toml").read_text("utf-8"))["project"]
    index = llms_txt(
        project["site_name"], project["site_description"], sections, described_pages(texts[DOCUMENTS])
    )
    (site / "llms.txt").write_text(index, "utf-8")
    (site / "llms-full.txt").write_text(llms_full_txt(texts), "utf-8")


def main() -> int:
    """Build the site; the exit status is that of Zensical, which stops at a warning."""
    return build(ROOT / "var" / "site-source", ROOT / "var" / "site")


def build(work: Path, site: Path) -> int:
    """Build the site into `site`, with its sources in `work`; return the exit status."""
    sections = write_sources(work)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=work, check=False)
    if built.returncode == 0:
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(work / "site", site)
        write_texts(work, site, sections)
        print(f"the site is in {site}")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
