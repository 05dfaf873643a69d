"""Small tables of people in three cities, of which the city tells the label."""

import csv
import io
import json
import random


def people(count: int = 60, seed: int = 0, prefix: str = "p") -> dict[str, list]:
    """A table of nodes with every kind of column; a sixth of the labels is missing."""
    chance = random.Random(seed)
    cities = [chance.choice(["Rome", "Oslo", "Köln"]) for _ in range(count)]
    words = ["cat", "dog", "tree", "house", "sun"]
    return {
        "id": [f"{prefix}{i}" for i in range(count)],
        "age": [None if i % 9 == 0 else chance.gauss(40, 10) for i in range(count)],
        "city": cities,
        "about": [" ".join(chance.choices([*words, city], k=7)) for city in cities],
        "tags": [json.dumps(chance.choices(["a", "b", "c"], k=2)) for _ in range(count)],
        "label": [None if i % 6 == 0 else city[0].lower() for i, city in enumerate(cities)],
    }


def friends(count: int = 60, edges: int = 150, seed: int = 0, prefix: str = "p") -> dict[str, list]:
    """A table of weighted edges between them."""
    chance = random.Random(seed)
    ends = [[f"{prefix}{chance.randrange(count)}" for _ in range(edges)] for _ in range(2)]
    weights = [chance.randint(1, 5) for _ in range(edges)]
    return {"source": ends[0], "target": ends[1], "strength": weights}


def csv_text(columns: dict[str, list]) -> str:
    """Columns as the text of a CSV file; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
