"""The peer's side of the protocol, run by the peer's own interpreter: it imports the standard library alone.

    python -P child.py SCRIPT DATA SETTINGS

SCRIPT has a function `prepare(data, settings)`, which gets the path of the data and the settings (a JSON
object), and returns a function from a number of steps to a result, `{"examples": ..., "seconds": ...}`.
The child answers with lines of JSON: one when it is prepared, and a result for each line `run STEPS` that it
reads. It ends with its standard input. Whatever else is printed goes to standard error.
"""

import json
import os
import runpy
import sys


def main() -> None:
    """Prepare, then train as many steps as each line asks for."""
    script, data, settings = sys.argv[1:]
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        # Libraries print while they train; the protocol must not be mixed with that.
        os.dup2(2, 1)
        run = runpy.run_path(script)["prepare"](data, json.loads(settings))
        print(json.dumps({"prepared": True}), file=answers)
        for line in sys.stdin:
            steps = int(line.removeprefix("run "))
            print(json.dumps(run(steps)), file=answers)


if __name__ == "__main__":
    main()
