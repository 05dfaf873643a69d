"""Which links are missing? Friends of two tables, from training to suggestions.

python examples/links.py
"""

import random

import subtree_attention as sta

# Two tables: people with hobbies, and who knows whom. People know others of their town.
chance = random.Random(0)
towns, hobbies = ["Rome", "Oslo", "Lima"], ["chess", "music", "tennis"]
people = {
    "id": [f"person-{i}" for i in range(150)],
    "town": [towns[i % 3] for i in range(150)],
    "hobby": [chance.choice(hobbies) for _ in range(150)],
}
pairs = [(i, j) for i in range(150) for j in range(i) if (i - j) % 3 == 0 and chance.random() < 0.1]
friends = {
    "source": [people["id"][i] for i, _ in pairs],
    "target": [people["id"][j] for _, j in pairs],
}
data = sta.from_tables(people, friends)  # no target: the links are what is learnt

# 70 % of the links are learnt from and walked on, 10 % choose the epoch, 20 % test. As many random
# pairs that are no links are told from them; those of training are drawn anew in every step.
small = {"hidden_channels": 32, "layers": 2, "lr": 0.01, "epochs": 60, "runs": 1}
config = sta.recipe(data, task="link", graph="friends", metric="roc_auc", **small)
result = sta.fit(config, "runs/friends", data=data, resume=True)
print(f"test {config.task.words('metric')}: {100 * result.mean:.1f} %")

# From here on all known links count. Given pairs:
asked = {"one": ["person-0", "person-0"], "other": ["person-3", "person-1"]}
found = sta.predict_links("runs/friends", asked)
for (one, other), share in zip(found.ids, found.probabilities, strict=True):
    print(f"{one} and {other}: {100 * share:.0f} %")

# And the most probable links that are missing, out of all pairs:
found = sta.predict_links("runs/friends", top=5)
for (one, other), share in zip(found.ids, found.probabilities, strict=True):
    print(f"perhaps {one} knows {other}: {100 * share:.0f} %")
