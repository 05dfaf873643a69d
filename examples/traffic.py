"""How much will a page be read? A number of every node, from raw files to intervals.

    python examples/traffic.py            a made-up wiki of 300 pages
    python examples/traffic.py FOLDER     one's own: edges.csv, features.json and target.csv

The three files are those of the Wikipedia graphs of MUSAE: links (id1,id2), the nouns of each page
({"0": [17, 4, ...]}, in JSON), and how often it was read (id,target).
"""

import csv
import json
import math
import random
import sys
from pathlib import Path

import subtree_attention as sta


def make(folder: Path, pages: int = 300) -> None:
    """Files of the same form: pages that link to each other are of one topic, and read alike."""
    chance, topics = random.Random(0), 6
    topic = [chance.randrange(topics) for _ in range(pages)]
    nouns = {p: [10 * topic[p] + chance.randrange(14) for _ in range(5)] for p in range(pages)}
    same = [[p for p in range(pages) if topic[p] == t] for t in range(topics)]
    links = [(p, chance.choice(same[topic[p]])) for p in range(pages) for _ in range(4)]
    read = [(p, int(math.exp(2 + topic[p] + chance.gauss(0, 0.4))) + 1) for p in range(pages)]
    folder.mkdir(exist_ok=True)
    (folder / "features.json").write_text(json.dumps(nouns))
    tables = {"edges": [("id1", "id2"), *links], "target": [("id", "target"), *read]}
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("wiki")
if len(sys.argv) == 1:
    make(folder)

# A table of nodes is a dictionary of columns: ids, a list of tags for each page, and the number.
with (folder / "target.csv").open() as file:
    rows = list(csv.DictReader(file))
nouns = json.loads((folder / "features.json").read_text())
pages = {
    "id": [row["id"] for row in rows],
    "nouns": [nouns[row["id"]] for row in rows],
    "traffic": [int(row["target"]) for row in rows],
}
pages["traffic"][0] = None  # let us say that we do not know the first
data = sta.from_tables(pages, folder / "edges.csv", target="traffic", task="regression")
print(data)

# Traffic is very uneven, so its logarithm is learnt; scores are of the logarithm, too.
quick = {"runs": 1, "epochs": 100, "patience": 30, "hops": 2}
config = sta.recipe(data, graph="pages", log_target=True, **quick)
result = sta.fit(config, "runs/pages", data=data, resume=True)
print(f"test R2 of the logarithm: {result.mean:.3f}")

# Predictions are in visits again, with an interval that holds 90 % of the validation pages.
found = sta.predict("runs/pages")
low, high = (found.answers.columns[end][0] for end in ("low", "high"))
print(f"page 0: {found.predicted[0]:.0f} visits, likely between {low:.0f} and {high:.0f}")
print(f"page 1: {found.predicted[1]:.0f} visits, it had {found.known[1]:.0f}")
inside = found.calibration.test
print(f"{100 * inside.share:.0f} % of {inside.nodes} test pages are in their interval")
