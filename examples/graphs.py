"""One answer for each graph: molecules in three tables, from training to new molecules.

python examples/graphs.py
"""

import random

import subtree_attention as sta

chance = random.Random(0)


def molecules(count: int, prefix: str) -> tuple[dict, dict, dict]:
    """Rings of atoms are toxic, chains are not. Ids of atoms repeat from molecule to molecule."""
    atoms = {"molecule": [], "id": [], "element": []}
    bonds = {"molecule": [], "source": [], "target": []}
    table = {"molecule": [], "temperature": [], "toxic": []}
    for number in range(count):
        name, size, ring = f"{prefix}{number}", chance.randint(4, 9), number % 2 == 0
        for atom in range(size):
            values = name, f"a{atom}", chance.choice("CCCNO")
            for column, value in zip(atoms.values(), values, strict=True):
                column.append(value)
        for atom in range(size if ring else size - 1):
            values = name, f"a{atom}", f"a{(atom + 1) % size}"
            for column, value in zip(bonds.values(), values, strict=True):
                column.append(value)
        values = name, chance.gauss(20, 5), "yes" if ring else "no"
        for column, value in zip(table.values(), values, strict=True):
            column.append(value)
    return atoms, bonds, table


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
