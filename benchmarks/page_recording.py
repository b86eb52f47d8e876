"""A recording of the page in Chromium for README: somebody makes a history, and asks why.

`python -m benchmarks.page_recording --data ../shared/data` trains the models of `benchmarks.page_pictures`,
unless its `--work DIR` has them, and writes docs/page_light.gif and docs/page_dark.gif.
"""

import argparse
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote_plus

from PIL import Image
from playwright.sync_api import Page, ViewportSize

from benchmarks.harness import DATA
from benchmarks.page_pictures import DOCS, RESULTS, WORK, chromium, movies_bundles
from benchmarks.processes import running_service

SIZE = ViewportSize(width=1280, height=760)
COLOURS = 64
LARGEST_BYTES = 1_000_000
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# Words of a search; the first film found is added to the history.
SEARCHES = ("toy story", "aladdin", "lion king")
ADDED = """count => document.querySelectorAll('#history > li').length === count
  && document.querySelector('#results .towers')"""


class Frame(NamedTuple):
    """A picture of the page, and the milliseconds for which it is shown."""

    picture: Image.Image
    milliseconds: int


def main() -> None:
    """Record the page in both colour schemes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help=f"the folder of the data sets ({DATA})")
    parser.add_argument("--work", type=Path, default=WORK, help=f"where models are kept ({WORK})")
    options = parser.parse_args()
    bundles = movies_bundles(options.work, options.data)
    with chromium() as browser, running_service(bundles) as service:
        for scheme in SCHEMES:
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(f"{service.url}/#try?k=8")
            page.wait_for_function(RESULTS)
            write(list(frames(page)), DOCS / f"page_{scheme}.gif")
            page.close()


def frames(page: Page) -> Iterator[Frame]:
    """Search for films, add each to the history, and ask why the first recommendation is there."""
    yield taken(page, 1_200)
    for count, words in enumerate(SEARCHES, start=1):
        page.get_by_role("combobox", name="Add an item").focus()
        for letter in words[:-1]:
            page.keyboard.type(letter)
            yield taken(page, 110)
        with page.expect_response(re.compile(rf"[?]query={re.escape(quote_plus(words))}&")):
            page.keyboard.type(words[-1])
        page.wait_for_load_state("networkidle")
        yield taken(page, 900)
        page.keyboard.press("Enter")
        page.wait_for_function(ADDED, arg=count)
        page.wait_for_load_state("networkidle")
        yield taken(page, 1_400)
    page.locator("#results").get_by_role("button", name="Why").first.click()
    page.locator(".nearest li").first.wait_for()
    yield taken(page, 3_500)


def taken(page: Page, milliseconds: int) -> Frame:
    """The page as it is, once its animations have ended."""
    picture = page.screenshot(animations="disabled", caret="initial")
    return Frame(Image.open(io.BytesIO(picture)).convert("RGB"), milliseconds)


def write(recording: list[Frame], path: Path) -> None:
    """Write a GIF with one palette for all frames, which keeps equal parts equal and the file small.

    Raises:
        SystemExit: the file is larger than LARGEST_BYTES.
    """
    last = recording[-1].picture
    both = Image.new("RGB", (last.width, 2 * last.height))
    both.paste(recording[0].picture, (0, 0))
    both.paste(last, (0, last.height))
    palette = both.quantize(COLOURS, dither=Image.Dither.NONE)
    pictures = [frame.picture.quantize(palette=palette, dither=Image.Dither.NONE) for frame in recording]
    times = [frame.milliseconds for frame in recording]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)
    if (size := path.stat().st_size) > LARGEST_BYTES:
        raise SystemExit(
            f"{path} has {size:,} bytes, above {LARGEST_BYTES:,}: record fewer frames or colours"
        )
    print(f"{path}: {len(recording)} frames, {size:,} bytes")


if __name__ == "__main__":
    main()
