"""The dashboard as a picture for docs/deploy.md, drawn from the Prometheus that scrapes two real replicas.

`python -m benchmarks.dashboard --prometheus PATH` starts Prometheus, a Redis and two replicas behind the
proxy of the production profile, sends requests at three rates, activates another version between two of them,
and draws every panel of `deploy/observing/dashboard.json` by its own queries. Needs `prometheus`,
`nginx` and `redis-server`.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from matplotlib.axes import Axes

from benchmarks.harness import RESULTS
from benchmarks.load import Load, run_load
from benchmarks.plots import figure
from benchmarks.processes import Running, local_proxy, post, running_service
from benchmarks.serving_shop import VERSIONS, served_shop
from tests.support.ports import free_port
from tests.support.redis_server import own_redis

DASHBOARD = Path(__file__).parent.parent / "deploy" / "observing" / "dashboard.json"
PICTURE = RESULTS / "dashboard.svg"
ITEMS, SCRAPE_SECONDS, RATE_INTERVAL = 2_000, 1, "8s"
PHASES = ((50.0, 16.0), (150.0, 16.0), (50.0, 16.0))  # requests/s, seconds
Series = list[tuple[str, list[float], list[float]]]


def main() -> None:
    """Run the services and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", default="prometheus", help="the program")
    options = parser.parse_args()
    shop = served_shop(ITEMS)
    with (
        tempfile.TemporaryDirectory() as folder,
        own_redis(Path(folder), appendfsync="everysec") as store,
        running_service(shop.bundles, 1, "--store", store.address) as first,
        running_service(shop.bundles, 1, "--store", store.address) as second,
        prometheus(options.prometheus, Path(folder), [first, second]) as port,
    ):
        ports = [int(one.url.rsplit(":", 1)[1]) for one in (first, second)]
        with local_proxy(Path(folder) / "proxy", ports) as (_, proxy_port):
            send(f"http://127.0.0.1:{proxy_port}", shop.bodies, first)
        time.sleep(2 * SCRAPE_SECONDS)
        draw(port, time.time() - sum(seconds for _, seconds in PHASES), time.time())


def send(url: str, bodies: tuple[str, ...], service: Running) -> None:
    """Send requests at each rate; from the second one on, with another live version and a shadow."""
    key = {"Authorization": f"Bearer {service.key}"}
    for number, (rate, seconds) in enumerate(PHASES):
        if number:
            service.activate(VERSIONS[number % 2])
            shadow = {"version": VERSIONS[1 - number % 2], "share": 0.5}
            post(service.admin, "/admin/routes", json.dumps({"shadow": shadow}), key)
        run_load(Load(url, "/v1/recommend", bodies, 8, seconds, rate))


@contextmanager
def prometheus(program: str, folder: Path, services: list[Running]) -> Iterator[int]:
    """Start a Prometheus that scrapes the services; yields its port."""
    targets = [one.url.removeprefix("http://") for one in services]
    interval = f"{SCRAPE_SECONDS}s"
    settings = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [{"job_name": "turret", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    port = free_port()
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/prometheus",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def query(port: int, expression: str, legend: str, begin: float, end: float) -> Series:
    """The series of an expression, each with its legend, minutes from the begin, and values."""
    asked = {"query": expression.replace("$__rate_interval", RATE_INTERVAL), "start": begin, "end": end}
    parameters = urlencode({**asked, "step": SCRAPE_SECONDS})
    with urlopen(f"http://127.0.0.1:{port}/api/v1/query_range?{parameters}", timeout=30) as found_series:
        answer = json.load(found_series)
    found = []
    for series in answer["data"]["result"]:
        name = legend
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            name = name.replace(f"{{{{{label}}}}}", series["metric"].get(label, "-"))
        points = [(float(moment) - begin, float(value)) for moment, value in series["values"]]
        found.append((name, [moment for moment, _ in points], [value for _, value in points]))
    return found


def draw(port: int, begin: float, end: float) -> None:
    """Draw the panels at their places."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    rows = 1 + max(panel["gridPos"]["y"] // 8 for panel in panels)
    with figure(PICTURE, (11, 2.4 * rows), 2 * rows, columns=2, share_y=False) as axes:
        for panel in panels:
            place = panel["gridPos"]
            draw_panel(axes[2 * (place["y"] // 8) + place["x"] // 12], panel, port, begin, end)


def draw_panel(axis: Axes, panel: dict[str, Any], port: int, begin: float, end: float) -> None:
    """Draw one panel. Raises RuntimeError if none of its queries has data."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    scale, label = {"s": (1e3, "ms"), "bytes": (1e-6, "MB"), "percentunit": (100, "%")}.get(unit, (1, ""))
    colors: dict[str, str] = {}  # of a legend: the replicas share one
    highest = 0.0
    for target in panel["targets"]:
        for name, moments, values in query(port, target["expr"], target["legendFormat"], begin, end):
            label_once = name if name not in colors else None
            color = colors.setdefault(name, f"C{len(colors)}")
            axis.plot(moments, [scale * value for value in values], label=label_once, color=color)
            highest = max(highest, *(scale * value for value in values if value == value))
    if not colors:
        raise RuntimeError(f"the panel {panel['title']} has no data")
    axis.set_title(f"{panel['title']}{', ' * bool(label)}{label}", fontsize="small", loc="left")
    axis.set_xlim(0, end - begin)
    axis.set_ylim(0, 1.5 * highest or 1.0)  # with room for the legend
    axis.tick_params(labelsize="x-small")
    axis.legend(fontsize="x-small", loc="upper left", ncols=3)


if __name__ == "__main__":
    main()
