"""How faithful explanations of STAGNN are, by GraphFramEx's protocol, and how long they take.

    python -m experiments.benchmarks.faithfulness cora edges \\
        --out results/faithfulness-cora-edges.json

and so for nodes, and for citeseer.

The protocol is that of Amara et al., 2022 (https://arxiv.org/abs/2206.09677): the paper's recipe
is trained once, and of 100 test nodes the predicted class is explained ("model focus") by the 10
edges, or nodes, that a method ranks first ("hard masks"; only what scores above 0). They are really
taken out of the graph, or are all that is left of it, and the model is run on the graph so built:

- fid+: without the explanation. The share of roots whose prediction changes, or the mean fall of
  the predicted class's probability; more is better.
- fid-: with the explanation only. Less is better.
- characterisation: the harmonic mean of fid+ and 1 - fid-.

An edge is a pair of nodes and is cut in both directions. A node goes with all its edges; the root
stays. Features are what they were. `rankings.py` has the methods. Those that ask a model often get
one that computes the root's answer only (`answers.py`), occlusion that of all removals at once.
`occlusion_by_passes` is how long a pass of the model for each of them would take, from the time of
passes on this graph.

Which form of ours is the one to compare is chosen on 100 validation nodes. All methods take turns
at each root, in one process, and seconds are those of the processor, so that other work on the
machine counts little.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain.metric import characterization_score

import subtree_attention as sta
from experiments.benchmarks.rankings import KINDS, Ranking, Subject, ours, rankings, search
from experiments.benchmarks.script import leave, parser
from subtree_attention import _check, fit, recipe

TOP = 10
SCREENED = 30
"""Candidates of the search, of which it takes the TOP."""
SEARCH, OCCLUSION = "Flows, then search", "Occlusion"
ENDINGS = ("", "_probability")
"""Of fields: by labels, and by probabilities."""
RESAMPLES = 2000
"""Of the roots, for the error of a difference."""


def main() -> None:
    options = parser(
        __doc__,
        "graph",
        "kind",
        nodes=(100, "test nodes that are explained, and validation nodes"),
        epochs=(100, "of GNNExplainer, for each root"),
        lr=(0.1, "of GNNExplainer; PyG's 0.01 did worse on validation nodes"),
        training=(0, "epochs of the model at most, instead of the recipe's"),
    )
    arguments = options.parse_args()
    kind = _check.known("kind", arguments.kind, KINDS)
    changes = {"epochs": arguments.training} if arguments.training else {}
    config = recipe(arguments.graph, runs=1, **changes)
    with tempfile.TemporaryDirectory() as folder:
        score = fit(config, Path(folder) / "run", device="cpu").mean
        run = sta.open(Path(folder) / "run")
        model: Any = run.model
        subject = Subject(model, run.dataset.features, run.dataset.edge_index)
        split = run.split
    validation, roots = (drawn(part, arguments.nodes) for part in (split.val, split.test))
    own, others = ours(subject, kind), rankings(subject, kind, arguments.epochs, arguments.lr)
    tried = evaluate(subject, kind, own, validation)
    chosen = max(tried, key=partial(_score, tried))
    searched: dict[str, Ranking] = {SEARCH: partial(search, subject, kind, TOP, SCREENED)}
    found = evaluate(subject, kind, {**own, **searched, **others}, roots)
    result = {
        "graph": arguments.graph,
        "kind": kind,
        "test": score,
        "roots": roots,
        "top": TOP,
        "screened": SCREENED,
        "gnn_explainer": {"epochs": arguments.epochs, "lr": arguments.lr},
        "chosen": chosen,
        "validation": {name: each.told() for name, each in tried.items()},
        "methods": {name: each.told() for name, each in found.items()},
        "compared": {name: compared(found[chosen], each) for name, each in found.items()},
        "occlusion_by_passes": by_passes(subject, kind, roots, found),
        "isolated": isolated(subject, roots).told(),
        "config": config.to_dict(),
    }
    print_table(result)
    leave(arguments.out, result)


@dataclass
class Measured:
    """What became of each of n roots; without the explanation first, then with nothing else."""

    changed: list[tuple[bool, bool]] = field(default_factory=list)
    fallen: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)

    def characterisation(self, roots: Tensor | None = None) -> Tensor:
        """By labels and by probabilities, [2]; or of samples of the roots [R, n], [R, 2]."""
        rows = torch.tensor([self.changed, self.fallen], dtype=torch.float64)  # [2, n, 2]
        rows = rows if roots is None else rows[:, roots]
        plus, minus = rows.mean(-2).unbind(-1)
        return characterised(plus, minus).movedim(0, -1)

    def told(self) -> dict[str, Any]:
        rows = torch.tensor([self.changed, self.fallen], dtype=torch.float64).mean(1).tolist()
        scores = self.characterisation().tolist()
        found: dict[str, Any] = {}
        for ending, (plus, minus), score in zip(ENDINGS, rows, scores, strict=True):
            found |= {f"fid+{ending}": rounded(plus), f"fid-{ending}": rounded(minus)}
            found[f"characterisation{ending}"] = rounded(score)
        found["seconds"] = statistics.median(self.seconds) if self.seconds else None
        found["changed_each"] = [[int(one) for one in pair] for pair in self.changed]
        found["fallen_each"] = [[rounded(one) for one in pair] for pair in self.fallen]
        return found


def _score(tried: Mapping[str, Measured], name: str) -> list[float]:
    """By labels; of equal ones, by probabilities."""
    return tried[name].characterisation().tolist()


def characterised(plus: Tensor, minus: Tensor) -> Tensor:
    """GraphFramEx's score by PyG, of fidelities from 0 to 1.

    Probabilities may rise where they should fall: such a fidelity counts as 0.
    """
    return characterization_score(plus.clamp(0, 1), minus.clamp(0, 1))


def drawn(nodes: Tensor, count: int) -> list[int]:
    """Some of these nodes, or of those in a mask: the same at every call."""
    nodes = nodes.nonzero().flatten() if nodes.dtype == torch.bool else nodes
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))
    return nodes[order[:count]].tolist()


def evaluate(
    subject: Subject, kind: str, methods: Mapping[str, Ranking], roots: list[int]
) -> dict[str, Measured]:
    """All methods in turns at each root."""
    found = {name: Measured() for name in methods}
    for root in roots:
        for name, rank in methods.items():
            started = time.process_time()
            scores = rank(root)
            found[name].seconds.append(time.process_time() - started)
            measure(subject, root, *masks(subject, kind, root, scores), found[name])
    return found


def masks(subject: Subject, kind: str, root: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs that are left without the explanation, and with it only: two masks [P]."""
    scores = scores.clone()
    if kind == "nodes":
        scores[root] = 0
    chosen = scores.topk(min(TOP, len(scores))).indices
    chosen = chosen[scores[chosen] > 0]
    without = torch.ones(subject.pairs.size(1), dtype=torch.bool)
    if kind == "edges":
        without[chosen] = False
        return without, ~without
    inside = torch.zeros(subject.num_nodes, dtype=torch.bool)
    inside[chosen] = inside[root] = True
    return ~subject.touching(chosen), inside[subject.pairs].all(0)


def measure(subject: Subject, root: int, without: Tensor, only: Tensor, into: Measured) -> None:
    """Run the model on both graphs, and keep what became of the prediction."""
    predicted = int(subject.predicted[root])
    before = subject.logits[root].softmax(-1)
    started = time.process_time()
    after = [subject.answer(root, pairs) for pairs in (without, only)]
    into.passes.append((time.process_time() - started) / 2)
    changed = (int(answer.argmax()) != predicted for answer in after)
    fallen = (float(before[predicted] - answer[predicted]) for answer in after)
    into.changed.append((next(changed), next(changed)))
    into.fallen.append((next(fallen), next(fallen)))


def isolated(subject: Subject, roots: list[int]) -> Measured:
    """What is left of the prediction if the root has no edges: as much as it says of itself."""
    found = Measured()
    for root in roots:
        none = torch.zeros(subject.pairs.size(1), dtype=torch.bool)
        measure(subject, root, none, none, found)
    return found


def compared(ours: Measured, other: Measured) -> dict[str, Any]:
    """Ours less the other: characterisations with errors over the roots, and ratio of seconds."""
    generator, size = torch.Generator().manual_seed(0), len(ours.changed)
    samples = torch.randint(size, (RESAMPLES, size), generator=generator)
    errors = (ours.characterisation(samples) - other.characterisation(samples)).std(0).tolist()
    means = (ours.characterisation() - other.characterisation()).tolist()
    pairs = zip(means, errors, strict=True)
    told = [{"mean": rounded(mean), "error": rounded(error)} for mean, error in pairs]
    ratios = [b / a for a, b in zip(ours.seconds, other.seconds, strict=True)]
    return {
        **{f"characterisation{ending}": each for ending, each in zip(ENDINGS, told, strict=True)},
        "times_our_seconds": statistics.median(ratios),
    }


def by_passes(
    subject: Subject, kind: str, roots: list[int], found: Mapping[str, Measured]
) -> dict[str, float]:
    """How long occlusion takes that runs the model once for each pair or node of a root."""
    counts = [len(subject.candidates(kind, root)) for root in roots]
    a_pass = statistics.median(second for each in found.values() for second in each.passes)
    middle = statistics.median(counts)
    return {"passes": middle, "seconds_of_a_pass": a_pass, "seconds": middle * a_pass}


def rounded(value: float) -> float:
    return round(value, 6)


def print_table(result: dict[str, Any]) -> None:
    print(f"{result['graph']}, {result['kind']}, ours: {result['chosen']}")
    heads = f"{'fid+':>7}{'fid-':>7}{'char.':>7}{'fid+ p':>9}{'fid- p':>9}{'char. p':>9}"
    print(f"  {'':<26}{heads}  seconds")
    for name, row in result["methods"].items():
        cells = "".join(f"{row[key]:>7.3f}" for key in ("fid+", "fid-", "characterisation"))
        for key in ("fid+", "fid-", "characterisation"):
            cells += f"{row[f'{key}_probability']:>9.3f}"
        print(f"  {name:<26}{cells}  {row['seconds']:.4f}", flush=True)


if __name__ == "__main__":
    main()
