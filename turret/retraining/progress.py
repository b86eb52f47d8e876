"""Lines about the progress of a retraining, on standard error."""

import logging

from turret.data.progress import LOGGER


def report(line: str) -> None:
    """Write a line to the logger of progress, which the command line prints on standard error."""
    logging.getLogger(LOGGER).info("%s", line)
