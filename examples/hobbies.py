"""Which hobbies has everybody? Any number of labels of every node, from tables to a file.

python examples/hobbies.py
"""

import csv
import random
from pathlib import Path

import subtree_attention as sta
from subtree_attention.runs import evaluate
from subtree_attention.runs.predictions import write

# People share hobbies with their friends; of every sixth we do not know any.
chance = random.Random(0)
names = ["chess", "golf", "music", "tea"]
clubs = [chance.sample(names, chance.randint(0, 3)) for _ in range(12)]
people = {
    "id": [f"person-{i}" for i in range(180)],
    "age": [chance.gauss(30 + i % 12, 5) for i in range(180)],
    "hobbies": [None if i % 6 == 5 else clubs[i % 12] for i in range(180)],
}
friends = {"source": [], "target": []}
for i in range(180):
    for _ in range(3):  # two of three are of the same club
        j = chance.randrange(i % 12, 180, 12) if chance.random() < 0.67 else chance.randrange(180)
        friends["source"].append(f"person-{i}")
        friends["target"].append(f"person-{j}")

# An empty list is known to be empty; None is what is to be predicted. In CSV it is ["chess","tea"].
data = sta.from_tables(people, friends, target="hobbies", task="multilabel")
print(data)

# Positions in the graph are features here: 16 eigenvectors of its Laplacian.
quick = {"runs": 1, "epochs": 150, "patience": 40, "hops": 3, "encoding": 16}
config = sta.recipe(data, graph="people", metric="micro_f1", **quick)
result = sta.fit(config, "runs/people", data=data, resume=True)
print(f"test {config.task.words('metric')}: {100 * result.mean:.1f} %")

(scores,) = evaluate("runs/people")
for name, label in zip(data.classes, scores.quality.labels, strict=True):
    print(f"{name}: {label.units} of the test nodes, given to {label.given}, F1 {label.f1:.2f}")

found = sta.predict("runs/people")
print("person-5:", ", ".join(found.predicted[5]) or "none of them")
for name, share in zip(found.classes, found.probabilities[5], strict=True):
    print(f"   {name} {100 * share:.0f} %")
write(found, Path("hobbies.csv"), force=True)
with open("hobbies.csv", newline="") as file:
    print(next(csv.DictReader(file)))
