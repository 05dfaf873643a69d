"""How long the map of `sta explore` takes with many nodes: on the server, and in a browser.

    python -m experiments.benchmarks.map --out results/map-cpu.json

Logits are made up, in a blob for each class; nothing is trained. In the browser (chromium, through
Playwright; left out where there is none) frames say little without a GPU, so what is timed is what
the page does itself: until it has drawn the map for the first time, and again for another filter.
"""

import os
import shutil
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.benchmarks.script import leave, parser
from subtree_attention.datasets.splits import random_split
from subtree_attention.show.explore.choosing import Choosing
from subtree_attention.show.explore.map import LANDMARKS, Map
from subtree_attention.show.explore.server import create_app
from subtree_attention.show.pages import serving

CLASSES = 10
ROUNDS = 5
FILTER = """async ([nodes, rounds]) => {
    const { Points } = await import("/static/points.js");
    const points = await new Points(nodes).load(), places = points.places.get("pca");
    const { Scatter } = await import("/static/map.js"), times = [];
    const stub = { setProps() {} };
    const scatter = Object.create(Scatter.prototype);
    Object.assign(scatter, { map: stub, shapes: Array(5).fill(class {}), canvas: document.body,
        line: document.createElement("i"), view: { x: 0, y: 0, zoom: 0 },
        names: { of() {}, put() {} } });
    for (let i = 0; i < rounds; i += 1) {
        const begun = performance.now();
        const chosen = points.sort({ split: ["test", "val", "train"][i % 3] });
        scatter.show(places, chosen, { fill: points.predicted, ring: points.true }, null);
        times.push(performance.now() - begun);
    }
    return times;
}"""


def made_up(nodes: int) -> Any:
    """What the page asks of a run, of which there are only logits."""
    random = np.random.default_rng(0)
    target = random.integers(CLASSES, size=nodes)
    logits = 5 * random.normal(size=(CLASSES, CLASSES))[target]
    logits += 4 * random.normal(size=(nodes, CLASSES))
    names = [str(cls) for cls in range(CLASSES)]
    choosing = Choosing(names, target, logits.argmax(1), random_split(nodes, "B", 0))
    run: Any = SimpleNamespace(folder=Path("nowhere"), logits=logits)
    about = {
        "title": "made up",
        "nodes": nodes,
        "edges": 0,
        "classes": names,
        "hops": 1,
        "heads": 1,
    }
    return SimpleNamespace(
        map=Map(run),
        choosing=choosing,
        graph=lambda: {**about, "splits": choosing.counts(), "pictures": False},
        listed=lambda *_, **__: [],
    )


def in_browser(views: Any, nodes: int, chromium: str) -> dict[str, Any]:
    """Seconds until the map is drawn, and milliseconds of another filter."""
    from playwright.sync_api import sync_playwright

    with (
        serving.listen(0) as listening,
        serving.serving(serving.server(create_app(views, listening.getsockname()[1])), listening),
        sync_playwright() as playwright,
    ):
        arguments = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(300_000)
        started = time.perf_counter()
        page.goto(f"{serving.address(listening)}/#/?by=pca&split=all")
        page.locator("#map-names li").first.wait_for(state="attached")
        drawn = time.perf_counter() - started
        times = page.evaluate(FILTER, [nodes, ROUNDS])
        browser.close()
    told = {
        "median": round(statistics.median(times), 1),
        "milliseconds": [round(t, 1) for t in times],
    }
    return {"first_map_seconds": round(drawn, 2), "filter": told}


def tsne(made: Map) -> float:
    """Seconds until the map by t-SNE is there, in its own process."""
    started = time.perf_counter()
    while made.status()["tsne"] == "made":
        time.sleep(0.1)
    return round(time.perf_counter() - started, 1)


def main() -> None:
    """Measure and write the file."""
    arguments = parser(__doc__, nodes=1_000_000).parse_args()
    views, nodes = made_up(arguments.nodes), arguments.nodes
    started = time.perf_counter()
    places = views.map.positions("pca")
    result: dict[str, Any] = {"nodes": nodes, "classes": CLASSES, "landmarks": LANDMARKS}
    result["pca_seconds"] = round(time.perf_counter() - started, 2)
    result["bytes"] = len(views.choosing.points()) + places.nbytes
    result["tsne_seconds"] = tsne(views.map)
    if chromium := shutil.which("chromium") or shutil.which("chromium-browser"):
        result["browser"] = in_browser(views, nodes, chromium)
    print(result)
    leave(arguments.out, result, load=round(os.getloadavg()[0], 1))


if __name__ == "__main__":
    main()
