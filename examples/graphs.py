"""One answer for each graph: molecules in three tables, from training to new molecules.

python examples/graphs.py
"""

import random

import subtree_attention as sta

chance = random.Random(0)


def molecules(count: int, prefix: str) -> tuple[dict, dict, dict]:
    """Chains of atoms; those with two neighbours Cl and O are toxic. Ids of atoms repeat."""
    atoms, bonds, table = [], [], []
    for number in range(count):
        name, toxic = f"{prefix}{number}", number % 2 == 0
        elements = chance.choices(["C", "C", "C", "N"], k=chance.randint(4, 9))
        place = chance.randrange(len(elements) - 1)
        elements[place : place + 2] = ["Cl", "O"] if toxic else ["Cl", "C", "O"]
        atoms += [(name, f"a{at}", element) for at, element in enumerate(elements)]
        bonds += [(name, f"a{at}", f"a{at + 1}") for at in range(len(elements) - 1)]
        table.append((name, round(chance.gauss(20, 5), 1), "yes" if toxic else "no"))
    return (
        columns(("molecule", "id", "element"), atoms),
        columns(("molecule", "source", "target"), bonds),
        columns(("molecule", "temperature", "toxic"), table),
    )


def columns(names: tuple[str, ...], rows: list[tuple]) -> dict[str, list]:
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


# A column of the atoms names their molecule; the table of molecules has the target, and columns
# that are features of all atoms of a molecule. `from_graphs` takes a list of PyG's Data instead.
atoms, bonds, table = molecules(120, "known-")
data = sta.from_tables(atoms, bonds, "toxic", graph_column="molecule", graphs=table)
print(data)

# Nodes are encoded, pooled (mean, sum and maximum side by side), and an MLP has the last word.
small = {"hidden_channels": 32, "layers": 2, "lr": 0.01, "epochs": 60, "runs": 1}
config = sta.recipe(data, graph="molecules", pooling="all", **small)
result = sta.fit(config, "runs/molecules", data=data, resume=True)
print(f"test accuracy: {100 * result.mean:.1f} %")

atoms, bonds, table = molecules(4, "new-")
del table["toxic"]
new = sta.predict("runs/molecules", atoms, bonds, graphs=table)
for id, answer, shares in zip(new.ids, new.predicted, new.probabilities, strict=True):
    print(f"{id}: {answer} ({100 * shares.max():.0f} %)")
