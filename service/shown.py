"""Messages as they leave the process: with the names of files, without the folders of the machine."""

import os
import re
from pathlib import Path


def without_folder(message: str, root: Path) -> str:
    """Name files in `message` relative to the folder of bundles `root`, however the path to it is written.

    A path that is a single name, such as `b`, may also be a word: alone it stays.
    """
    written = {str(root), os.path.abspath(root), os.path.realpath(root)} - {"", ".", os.sep}
    for folder in sorted(written, key=len, reverse=True):
        path = rf"(?<![\w./-]){re.escape(folder)}"
        message = re.sub(path + re.escape(os.sep), "", message)
        if os.sep in folder:
            message = re.sub(rf"{path}(?![\w-])", "the folder of bundles", message)
    return message
