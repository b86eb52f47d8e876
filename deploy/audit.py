"""Compare what is installed with the known vulnerabilities, and say in words if that can't be done."""

import json
import subprocess
import sys
from typing import Any

_COMMAND = ["-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off", "--format", "json"]


def main() -> int:
    """Run pip-audit on this environment; 0: nothing known, 1: something is, 2: it could not be asked."""
    run = subprocess.run([sys.executable, *_COMMAND], capture_output=True, text=True, check=False)
    try:
        found = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = run.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return _not_asked(why[0])
    return judge(found)


def judge(found: list[dict[str, Any]]) -> int:
    """Print what pip-audit found of each package, and give the exit status."""
    skipped = [one["name"] for one in found if "skip_reason" in one]
    if len(skipped) == len(found):
        return _not_asked("no package is known where it was asked; a mirror without that list, perhaps")
    vulnerable = [one for one in found if one.get("vulns")]
    for one in vulnerable:
        for known in one["vulns"]:
            fixed = ", ".join(known["fix_versions"]) or "no version yet"
            print(f"{one['name']} {one['version']}: {known['id']}, mended in {fixed}")
    if skipped:
        print(f"not known there, so not compared: {', '.join(skipped)}")
    print(f"{len(found) - len(skipped)} packages compared, {len(vulnerable)} with known vulnerabilities")
    return 1 if vulnerable else 0


def _not_asked(why: str) -> int:
    print(f"make audit: the known vulnerabilities can't be asked for from here ({why})", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
