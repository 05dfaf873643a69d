"""The numbers of docs/large.md are those of the committed files."""

import json

from tests.docs.snippets import ROOT

NAMES = {"pubmed": "Pubmed", "computer": "Computer", "planted": "made up"}
WORDS = {"whole": "whole graph", "sampled": "samples"}


def test_the_table_is_that_of_the_file() -> None:
    graphs = json.loads((ROOT / "results/sampled-cpu.json").read_text())["graphs"]
    page = (ROOT / "docs/large.md").read_text()
    for graph, name in NAMES.items():
        for way, words in WORDS.items():
            row = graphs[graph][way]
            there = "not reached"
            if row["there_epochs"] is not None:
                there = f"{row['there_seconds']:.0f} s ({row['there_epochs']} epochs)"
            cells = f"{100 * row['test']:.2f} | {row['epochs']} | {row['seconds']:.0f} | {there} |"
            assert f"| {words} | {cells}" in page, (name, words)
