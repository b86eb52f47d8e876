"""`turret`, and `python -m turret`."""

import sys

from turret.data.extras import install_hint
from turret.terminal import write_readably


def main() -> None:
    """Run the command line; without its extra, say how to install it."""
    write_readably()
    try:
        from turret.cli import main as run
    except ModuleNotFoundError as error:
        if (hint := install_hint(error)) is None:
            raise
        sys.exit(f"turret: {hint}")
    run()


if __name__ == "__main__":
    main()
