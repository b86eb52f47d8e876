"""`turret`, and `python -m turret`."""

import gc
import sys

from turret.data.extras import install_hint
from turret.terminal import write_readably


def main() -> None:
    """Run the command line; without its extra, say how to install it."""
    # By Python's 700 objects, 132 collections look at the imports of `turret recommend`, and take 44 of its
    # 294 milliseconds of processor time; 4 collections take 12.
    gc.set_threshold(50_000)
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
