"""The moving picture of the README: a walk through `sta explore`, as its page looks.

    sta train digits --runs 1 --out runs/tour
    python -m experiments.tour runs/tour docs/assets

It writes tour-light.webp and tour-dark.webp, which come to rest after some rounds. It needs the
extras `explore` and `dev`, and the browser chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from subtree_attention.explanations import Changes
from subtree_attention.runs import SavedRun
from subtree_attention.runs import open as open_run
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import server
from subtree_attention.show.pages.serving import address, listen, serving

SIZE = {"width": 1180, "height": 930}
SCALE = 0.8
"""Of the picture, which is read at the width of a README."""
SECONDS = 3.2
"""That a step is shown."""
ROUNDS = 3
SOFTWARE = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("out", type=Path, help="folder of the pictures")
    given = parser.parse_args()
    run = open_run(given.run, device="cpu")
    root, without = turned(run)
    with listen(0) as listening, serving(server(Views(run), listening), listening):
        for scheme in ("light", "dark"):
            frames = list(steps(address(listening), scheme, run.dataset.id(root), without))
            keep(frames, given.out / f"tour-{scheme}.webp")


def turned(run: SavedRun) -> tuple[int, str]:
    """A test node that is mistaken, and the neighbour without which it would not be: of these the
    one that is then most surely right."""
    found: list[tuple[float, int, str]] = []
    sources, targets = run.dataset.edge_index
    for root in run.answers.mistakes(run.split.test.numpy()):
        true = int(run.dataset.y[root])
        for node in sources[targets == root].tolist():
            changed = run.explainer(root, Changes(nodes=(node,)))
            if changed.predicted == true:
                share = float(changed.logits.softmax(0)[true])
                found.append((share, root, run.dataset.id(node)))
    if not found:
        raise SystemExit("no mistake of this run hangs on a single neighbour: try another run")
    _, root, without = max(found)
    return root, without


def steps(url: str, scheme: str, root: str, without: str) -> Iterator[Image.Image]:
    """What is seen, one step after the other."""
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=shutil.which("chromium"), args=SOFTWARE)
        look: Any = {"viewport": SIZE, "color_scheme": scheme, "device_scale_factor": 2}
        page = browser.new_page(**look)
        page.goto(f"{url}/#/")
        page.wait_for_selector("#map-way input[value=tsne]:checked", timeout=300_000)
        yield seen(page, "Every node by its logits: which mistakes does the model make, and where?")
        page.goto(f"{url}/#/node/{quote(root)}")
        yield seen(page, "A mistake, and the nodes that its subtree attends to, hop by hop.")
        page.goto(f"{url}/#/node/{quote(root)}?by=contribution")
        yield seen(page, "What each node, hop and head adds to the logit. It adds up.")
        page.goto(f"{url}/#/node/{quote(root)}?without=node%3A{quote(without)}")
        yield seen(page, f"What if {without} were not there? Exactly this.")
        browser.close()


def seen(page: Page, caption: str) -> Image.Image:
    """The page as it stands, with a line below."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(2500)
    page.evaluate(CAPTION, caption)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    size = [round(SCALE * each) for each in SIZE.values()]
    return picture.resize(tuple(size), Image.Resampling.LANCZOS)  # type: ignore[arg-type]


CAPTION = """caption => {
  let line = document.getElementById("tour");
  if (!line) {
    line = document.body.appendChild(document.createElement("p"));
    line.id = "tour";
    Object.assign(line.style, {
      position: "fixed", left: 0, right: 0, bottom: 0, margin: 0, padding: "0.7rem 1.5rem",
      font: "600 1.25rem/1.3 system-ui, sans-serif", zIndex: 100,
      background: "var(--ink)", color: "var(--paper)",
    });
  }
  line.textContent = caption;
}"""


def keep(frames: list[Image.Image], name: Path) -> None:
    """The steps as one moving picture."""
    how: Any = {"save_all": True, "append_images": frames[1:], "quality": 82, "method": 6}
    frames[0].save(name, duration=round(1000 * SECONDS), loop=ROUNDS, **how)


if __name__ == "__main__":
    main()
