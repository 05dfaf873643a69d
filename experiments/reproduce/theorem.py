r"""Theorem 1 on the paper's graphs: how many hops until STA_k is global attention?

The theorem speaks of the walk A_rw on a connected graph that is not bipartite; so everything here
happens on a graph's largest component. With gap = 1 - max(lambda_2, |lambda_N|), pi_i proportional
to the degree of i, and N nodes, the paper's proof gives

    K0 = log(N / epsilon) / gap:  sum_i |A^k_ij - pi_i| <= epsilon                          k >= K0
    K1 = 2 log(N / eta) / gap:    (1-eta)/(1+eta) <= STA_k / SA <= (1+eta)/(1-eta), V >= 0  k >= K1

(the appendix writes 1 - gap where it means the gap). K1 comes from |A^k_ij - pi_i| <= eta pi_i. The
appendix takes epsilon = eta / N^2 for that, which in K0 would give log(N^3 / eta) / gap; K1 holds
all the same, since |A^k_ij - pi_i| / pi_i <= (1 - gap)^k / sqrt(pi_i pi_j) <= N^2 exp(-k gap).

`measure` computes the gap and both bounds, walks, and notes from which hop on the distances really
are that small. Beyond 256 nodes nothing of size N x N is formed. All numbers are float64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch_geometric.utils import is_undirected, subgraph

from subtree_attention import datasets
from subtree_attention.datasets.folders import Folder
from subtree_attention.graph import Graph
from subtree_attention.nn.everywhere import global_attention
from subtree_attention.ops import map_features, recurrence
from subtree_attention.runs.folder import environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRAPHS = (
    "cora", "citeseer", "deezer", "actor", "pubmed", "computer", "photo", "cs", "physics",
)  # fmt: skip
FILE = "theorem.json"

TOLERANCES = (0.1, 0.01)
"""What epsilon and eta are set to."""

CAP = 2**14
"""Most hops walked."""

BADLY_CONDITIONED = 2e-3
"""A gap below this is called bad: from 2,200 nodes on, K1 at eta = 0.1 then exceeds 10,000 hops."""

STARTS = 8
"""Start nodes j whose columns of A^k are walked."""

KEY_CHANNELS, VALUE_CHANNELS = 4, 2
"""Sizes of the random queries, keys and values."""

LOOKS_PER_DOUBLING = 8
"""How often distances are computed while k doubles: a measured k is at most 9 % too large."""

MARGIN = 5
"""The walk ends when its distance is so many times below the smallest tolerance."""

DENSE_UP_TO = 256
LANCZOS_VECTORS, RESTARTS, EIGEN_TOLERANCE = 64, 4000, 1e-10
"""As in `data.encoding`: dense up to so many nodes, ARPACK with so many vectors beyond."""

COLUMNS = (
    "graph", "nodes", "lambda_2", "lambda_N", "gap", "epsilon = eta",
    "K0", "k: sum", "K1", "k: relative", "k: STA", "K0 / k", "K1 / k: relative", "K1 / k: STA",
)  # fmt: skip
"""What the rows of `table` hold."""


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of A_rw that decide how fast it mixes, with vectors of A_sym, [N] each."""

    lambda_2: float
    lambda_N: float  # noqa: N815
    vector_2: np.ndarray
    vector_N: np.ndarray  # noqa: N815
    residual: float  # the larger |A_sym v - lambda v|: no eigenvalue is farther off than this


# -------------------------------------------------------------------------------------- measuring


def measure(
    graph_name: str,
    data_dir: Folder | None = None,
    mirror: Folder | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Theorem 1 on the largest component of a graph of the registry.

    Args:
        graph_name: one of `datasets.names()`.
        data_dir: as in `datasets.load`.
        mirror: as in `datasets.load`.
        options: as in `measure_edges`.

    Returns:
        The record that `measure_edges` describes.
    """
    data = datasets.load(graph_name, data_dir=data_dir, mirror=mirror)
    title = datasets.info(graph_name).title
    return measure_edges(data.edge_index, int(data.num_nodes), name=title, **options)


def measure_edges(
    edge_index: Tensor,
    num_nodes: int,
    name: str = "graph",
    tolerances: Iterable[float] = TOLERANCES,
    cap: int = CAP,
    starts: int = STARTS,
    seed: int = 0,
) -> dict[str, Any]:
    """Theorem 1 on the largest component of any undirected graph.

    Args:
        edge_index: [2, E], both directions of every edge; self-loops are allowed.
        num_nodes: N.
        name: what the graph is called in tables.
        tolerances: values of epsilon and eta, between 0 and 1.
        cap: most hops walked.
        starts: how many columns of A^k are walked; those that look worst are among them.
        seed: of the remaining start nodes, and of queries, keys and values.

    Returns:
        A record that JSON can hold. `nodes`, `edges` (directed) and `self_loops` are those of the
        component, `epsilon` and `eta` hold by tolerance the `bound` and the first hop from which
        on each distance is within it (None: not up to the last hop walked), and `curves` the
        distances themselves by hop:

        - `walk`: over the sampled start nodes j and all i, the largest `sum` over i of
          |A^k_ij - pi_i|, the largest `entry` |A^k_ij - pi_i|, and the largest `relative` one,
          |A^k_ij - pi_i| / pi_i.
        - `attention`: over all nodes and channels, the smallest eta that the ratio STA_k / SA
          allows, |STA_k - SA| / (STA_k + SA): its `largest` and its `median`.
    """
    began = time.perf_counter()
    tolerances = sorted(tolerances, reverse=True)
    component, components = largest_component(edge_index, num_nodes)
    bipartite = two_colourable(component)
    spectrum = extreme_eigenvalues(component)
    gap = spectral_gap(spectrum, bipartite)
    sample = start_nodes(component, spectrum, starts, seed)
    floor = tolerances[-1] / MARGIN
    with ThreadPoolExecutor(2) as pool:  # scipy's products let go of the interpreter
        walk = pool.submit(walk_curve, component, sorted(sample), cap, floor)
        attention = pool.submit(attention_curve, component, cap, floor, seed)
    curves = {"walk": walk.result(), "attention": attention.result()}
    source, target = component.edge_index
    n, stationary = component.num_nodes, _stationary(component)
    return {
        "graph": name,
        "nodes": n,
        "edges": component.num_edges,
        "self_loops": int((source == target).sum()),
        "components": components,
        "share_of_nodes": n / num_nodes,
        "lambda_2": spectrum.lambda_2,
        "lambda_N": spectrum.lambda_N,
        "residual": spectrum.residual,
        "gap": gap,
        "bipartite": bipartite,
        "badly_conditioned": gap < BADLY_CONDITIONED,
        "badly_conditioned_below": BADLY_CONDITIONED,
        "smallest_pi": float(stationary.min()),
        "epsilon": {str(e): _first_part(e, n, gap, curves["walk"]) for e in tolerances},
        "eta": {str(e): _second_part(e, n, gap, stationary, curves) for e in tolerances},
        "start_nodes": sample,
        "cap": cap,
        "seed": seed,
        "channels": {"key": KEY_CHANNELS, "value": VALUE_CHANNELS},
        "curves": curves,
        "seconds": round(time.perf_counter() - began, 2),
    }


def largest_component(edge_index: Tensor, num_nodes: int) -> tuple[Graph, int]:
    """The walk on the largest connected component, and how many components there are."""
    if not is_undirected(edge_index, num_nodes=num_nodes):
        raise ValueError("Theorem 1 is about undirected graphs: make it one with to_undirected")
    source, target = edge_index.cpu().numpy()
    ones = np.ones(len(source), dtype=np.int8)
    adjacency = scipy.sparse.coo_array((ones, (source, target)), (num_nodes, num_nodes))
    count, label = connected_components(adjacency, directed=False)
    nodes = np.flatnonzero(label == np.bincount(label).argmax()) if num_nodes else label
    if len(nodes) < 2:
        raise ValueError(f"the graph has no edge between two of its {num_nodes} nodes")
    inside, _ = subgraph(
        torch.from_numpy(nodes), edge_index.cpu(), relabel_nodes=True, num_nodes=num_nodes
    )
    return Graph(inside, len(nodes)), int(count)


def two_colourable(component: Graph) -> bool:
    """Whether a connected graph is bipartite.

    In its double cover every edge (i, j) leads from i to the copy of j and from the copy of i to j.
    Walks of even and of odd length meet in some node, and so the cover is connected, exactly if
    the graph has an odd cycle; otherwise its two halves are the two colourings.
    """
    source, target = component.edge_index.numpy()
    n = component.num_nodes
    cover = (np.r_[source, source + n], np.r_[target + n, target])
    ones = np.ones(2 * len(source), dtype=np.int8)
    matrix = scipy.sparse.coo_array((ones, cover), (2 * n, 2 * n))
    return connected_components(matrix, directed=False, return_labels=False) == 2


def extreme_eigenvalues(component: Graph) -> Spectrum:
    """lambda_2 and lambda_N of A_sym, which has the eigenvalues of A_rw."""
    matrix = _scipy(Graph(component.edge_index, component.num_nodes, transition="sym"))
    with threadpool_limits(limits=1, user_api="blas"):  # the same sums in the same order
        solve = _solve_dense if component.num_nodes <= DENSE_UP_TO else _solve_sparse
        pairs = solve(matrix, _stationary(component))
    residuals = [float(np.linalg.norm(matrix @ v - value * v)) for value, v in pairs]
    (lambda_2, vector_2), (lambda_N, vector_N) = pairs
    return Spectrum(lambda_2, lambda_N, vector_2, vector_N, max(residuals))


def spectral_gap(spectrum: Spectrum, bipartite: bool) -> float:
    """1 - max(lambda_2, |lambda_N|), and 0 for a bipartite graph, where lambda_N = -1.

    Raises:
        RuntimeError: the eigenvalues are too inexact to tell, or contradict the colouring.
    """
    accurate = max(10 * spectrum.residual, 1e-10)
    if bipartite:
        if abs(1 + spectrum.lambda_N) > accurate:
            raise RuntimeError(f"bipartite, but lambda_N = {spectrum.lambda_N}, which is not -1")
        return 0.0
    gap = 1 - max(spectrum.lambda_2, abs(spectrum.lambda_N))
    if gap < 100 * spectrum.residual or gap <= 0:
        raise RuntimeError(f"gap {gap:.2g}, but eigenvalues only to {spectrum.residual:.2g}")
    return gap


def start_nodes(component: Graph, spectrum: Spectrum, count: int, seed: int) -> dict[int, str]:
    """Nodes j whose columns of A^k are walked, and why each was taken.

    With u = D^-1/2 v the slowest part of A^k_ij / pi_i - 1 is lambda^k u_i u_j, up to a factor. So
    the node with the largest |u| is the worst start for large k, and the sample's distance is then
    that of all starts; for small k it is only that of the sample.
    """
    root = _stationary(component).sqrt().numpy()
    slow, flip = np.abs(spectrum.vector_2) / root, np.abs(spectrum.vector_N) / root
    side = np.sign(spectrum.vector_2)
    opposite = np.where(side == side[slow.argmax()], 0, slow)
    reasons = {
        "farthest in lambda_2's vector": slow.argmax(),
        "farthest on its other side": opposite.argmax(),
        "farthest in lambda_N's vector": flip.argmax(),
        "smallest degree": root.argmin(),
        "largest degree": root.argmax(),
    }
    chosen: dict[int, str] = {}
    for reason, node in reasons.items():
        chosen.setdefault(int(node), reason)
    for node in np.random.RandomState(seed).permutation(component.num_nodes):  # a frozen stream
        chosen.setdefault(int(node), "random")
        if len(chosen) >= count:
            break
    return dict(list(chosen.items())[:count])


# --------------------------------------------------------------------------------------- walking


def walk_curve(component: Graph, starts: list[int], cap: int, floor: float) -> dict[str, Any]:
    """How far columns of A^k are from pi: see `measure_edges`."""
    stationary = _stationary(component).numpy()[:, None]  # [N, 1]
    columns = np.zeros((component.num_nodes, len(starts)))
    columns[starts, range(len(starts))] = 1.0
    curve: dict[str, Any] = {"hops": [], "sum": [], "entry": [], "relative": []}
    for hop, walked in _walk(_scipy(component), columns, cap):
        away = np.abs(walked - stationary)
        curve["hops"].append(hop)
        curve["sum"].append(_short(away.sum(0).max()))
        curve["entry"].append(_short(away.max()))
        curve["relative"].append(_short((away / stationary).max()))
        if curve["relative"][-1] <= floor:
            break
    return curve


def attention_curve(component: Graph, cap: int, floor: float, seed: int) -> dict[str, Any]:
    """How far STA_k of random queries, keys and values is from SA: see `measure_edges`."""
    query, key, value = random_attention(component.num_nodes, seed)
    everywhere = global_attention(query, key, value, eps=0.0)  # [N, 1, c]
    query, key = map_features("elu", query, key)
    state = recurrence.first_state(key, value)  # [N, 1, d, c + 1]
    curve: dict[str, Any] = {"hops": [], "largest": [], "median": []}
    for hop, walked in _walk(_scipy(component), state.flatten(1).numpy(), cap):
        readout = recurrence.read(query, torch.from_numpy(walked).view_as(state))
        distance = ratio_distance(recurrence.quotient(readout, 0.0), everywhere)
        curve["hops"].append(hop)
        curve["largest"].append(_short(distance.max()))
        curve["median"].append(_short(distance.median()))
        if curve["largest"][-1] <= floor:
            break
    return curve


def random_attention(num_nodes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys [N, 1, d], and values [N, 1, c] >= 0 by ReLU, as the theorem asks."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(num_nodes, 1, channels, generator=generator, dtype=torch.float64)
        for channels in (KEY_CHANNELS, KEY_CHANNELS, VALUE_CHANNELS)
    )
    return query, key, value.relu()


def ratio_distance(level: Tensor, everywhere: Tensor) -> Tensor:
    """The smallest eta with (1 - eta) / (1 + eta) <= level / everywhere <= (1 + eta) / (1 - eta).

    It is 0 where both are equal and 1 where one of them is 0. Shapes: any, all the same.
    """
    return recurrence.divide((level - everywhere).abs(), level + everywhere)


def looks(cap: int) -> list[int]:
    """Hops up to `cap` at which distances are computed: powers of 2, and some between them."""
    last = math.ceil(LOOKS_PER_DOUBLING * math.log2(max(cap, 1)))
    hops = {round(2 ** (j / LOOKS_PER_DOUBLING)) for j in range(last + 1)}
    hops |= set(range(1, 2 * LOOKS_PER_DOUBLING))  # rounding must not pass over a small one
    return sorted(hop for hop in hops | {cap} if hop <= cap)


def settled(hops: list[int], distances: list[float], tolerance: float) -> int | None:
    """The first hop from which on every distance is within the tolerance; None if there is none.

    `sum` and `relative` never grow from hop to hop (A_rw does not stretch the one, nor its
    transpose the other), so what holds at the last hop holds for good.
    """
    found = None
    for hop, distance in zip(reversed(hops), reversed(distances), strict=True):
        if distance > tolerance:
            break
        found = hop
    return found


def _walk(
    matrix: scipy.sparse.csr_array, block: np.ndarray, cap: int
) -> Iterator[tuple[int, np.ndarray]]:
    """A^k times block [N, w], at each of `looks(cap)`.

    scipy's product, not `recurrence.step`: on thin blocks of float64 it is several times faster.
    """
    done = 0
    for hop in looks(cap):
        for _ in range(hop - done):
            block = matrix @ block
        done = hop
        yield hop, block


# ----------------------------------------------------------------------------------------- bounds


def first_bound(epsilon: float, num_nodes: int, gap: float) -> int | None:
    """K0 = log(N / epsilon) / gap, rounded up; None without a gap."""
    return math.ceil(math.log(num_nodes / epsilon) / gap) if gap > 0 else None


def second_bound(eta: float, num_nodes: int, gap: float) -> int | None:
    """K1 = 2 log(N / eta) / gap, rounded up; None without a gap."""
    return math.ceil(2 * math.log(num_nodes / eta) / gap) if gap > 0 else None


def sharper_bound(eta: float, smallest_pi: float, gap: float) -> int | None:
    """The k with (1 - gap)^k / pi_min <= eta: as K1, without the two roundings up of the paper."""
    if gap <= 0:
        return None
    rate = -math.log1p(-gap) if gap < 1 else math.inf
    return max(1, math.ceil(math.log(1 / (eta * smallest_pi)) / rate))


def _first_part(epsilon: float, n: int, gap: float, walk: dict[str, Any]) -> dict[str, int | None]:
    return {
        "bound": first_bound(epsilon, n, gap),
        "measured_sum": settled(walk["hops"], walk["sum"], epsilon),
        "measured_entry": settled(walk["hops"], walk["entry"], epsilon),
    }


def _second_part(
    eta: float, n: int, gap: float, stationary: Tensor, curves: dict[str, Any]
) -> dict[str, int | None]:
    walk, attention = curves["walk"], curves["attention"]
    return {
        "bound": second_bound(eta, n, gap),
        "sharper_bound": sharper_bound(eta, float(stationary.min()), gap),
        "measured_relative": settled(walk["hops"], walk["relative"], eta),
        "measured_attention": settled(attention["hops"], attention["largest"], eta),
        "measured_median_attention": settled(attention["hops"], attention["median"], eta),
    }


# ---------------------------------------------------------------------------------- linear algebra


def _stationary(component: Graph) -> Tensor:
    """pi, [N]: degree over the sum of degrees."""
    degree = component.matrix(torch.float64).rowptr.diff().double()
    return degree / degree.sum()


def _scipy(graph: Graph) -> scipy.sparse.csr_array:
    """The transition matrix [N, N], float64, rows receive."""
    rowptr, col, weight = (t.numpy() for t in graph.matrix(torch.float64)[:3])
    return scipy.sparse.csr_array((weight, col, rowptr), (graph.num_nodes, graph.num_nodes))


Pairs = list[tuple[float, np.ndarray]]  # lambda_2 and lambda_N with their vectors [N]


def _solve_dense(matrix: scipy.sparse.csr_array, _: Tensor) -> Pairs:
    values, vectors = np.linalg.eigh(matrix.toarray())  # ascending
    return [(float(values[place]), vectors[:, place]) for place in (-2, 0)]


def _solve_sparse(matrix: scipy.sparse.csr_array, stationary: Tensor) -> Pairs:
    known = stationary.sqrt().numpy()  # lambda_1's vector, of norm 1

    def without_first(v: np.ndarray) -> np.ndarray:
        """A_sym with lambda_1 moved from 1 to -2, out of lambda_2's way."""
        v = v.ravel()
        return matrix @ v - 3 * known * (known @ v)

    operator = LinearOperator(matrix.shape, matvec=without_first, dtype=np.float64)
    return [_extreme(operator, "LA"), _extreme(matrix, "SA")]


def _extreme(operator: Any, which: str) -> tuple[float, np.ndarray]:
    """The largest ("LA") or smallest ("SA") eigenvalue and its vector, by ARPACK."""
    n = operator.shape[0]
    values, vectors = eigsh(
        operator,
        k=1,
        which=which,
        v0=np.random.RandomState(0).standard_normal(n),
        ncv=min(n, LANCZOS_VECTORS),
        tol=EIGEN_TOLERANCE,
        maxiter=RESTARTS,
    )
    return float(values[0]), vectors[:, 0]


def _short(number: Any) -> float:
    """Six digits are enough for a curve."""
    return float(f"{float(number):.6g}")


# -------------------------------------------------------------------------------------- reporting


def table(records: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Rows of `COLUMNS`: two bounds and three measured k for each graph and tolerance."""
    rows = []
    for record in records:
        for tolerance, first in record["epsilon"].items():
            second = record["eta"][tolerance]
            total, relative = first["measured_sum"], second["measured_relative"]
            attention = second["measured_attention"]
            rows.append(
                [
                    record["graph"],
                    f"{record['nodes']:,}",
                    f"{record['lambda_2']:.4f}",
                    f"{record['lambda_N']:.4f}",
                    f"{record['gap']:.2g}",
                    tolerance,
                    *map(_hops, (first["bound"], total, second["bound"], relative, attention)),
                    _ratio(first["bound"], total),
                    _ratio(second["bound"], relative),
                    _ratio(second["bound"], attention),
                ]
            )
    return rows


def sentence(record: dict[str, Any]) -> str:
    """Where the claim holds on a graph, where its bound is loose, and where it cannot hold."""
    return f"{record['graph']}: {_where(record)}. {_verdict(record)}"


def holds(record: dict[str, Any]) -> bool | None:
    """Whether every distance got within its tolerance by the paper's K; None if never seen.

    None stands for a graph that is bipartite or whose K lies beyond the last hop walked.
    """
    pairs = []
    for first, second in zip(record["epsilon"].values(), record["eta"].values(), strict=True):
        pairs += [(first["bound"], first[key]) for key in ("measured_sum", "measured_entry")]
        measured = ("measured_relative", "measured_attention")
        pairs += [(second["bound"], second[key]) for key in measured]
    if any(bound is not None and k is not None and k > bound for bound, k in pairs):
        return False
    if any(k is None and bound is not None and bound <= record["cap"] for bound, k in pairs):
        return False
    return None if any(k is None or bound is None for bound, k in pairs) else True


def _where(record: dict[str, Any]) -> str:
    """What was measured: the whole graph or its largest component."""
    if record["components"] == 1:
        return f"connected, {record['nodes']:,} nodes"
    return (
        f"{record['components']:,} components, between which no walk mixes; in the largest, "
        f"{record['nodes']:,} nodes ({record['share_of_nodes']:.0%})"
    )


def _verdict(record: dict[str, Any]) -> str:
    if record["bipartite"]:
        return (
            "It is bipartite (lambda_N = -1): walks of even and of odd length end on different "
            "sides, A^k does not converge, and the claim cannot hold."
        )
    gap = f"gap {record['gap']:.2g}" + (
        ", badly conditioned" if record["badly_conditioned"] else ""
    )
    tolerance, first = list(record["epsilon"].items())[-1]
    second = record["eta"][tolerance]
    outcome = {
        True: "The claim holds",
        False: "The claim does NOT hold",
        None: f"Not seen within {record['cap']:,} hops",
    }[holds(record)]
    walk, attention = second["measured_relative"], second["measured_attention"]
    parts = [
        f"the sampled columns of A^k are within epsilon of pi, summed over nodes, from hop "
        f"{_hops(first['measured_sum'])} on, where K0 = {_hops(first['bound'])}"
        f"{_looseness(first['bound'], first['measured_sum'])}",
        f"their entries are within eta pi from hop {_hops(walk)} on and STA_k of random values "
        f"keeps the ratio from hop {_hops(attention)} on, where K1 = {_hops(second['bound'])}"
        f"{_looseness(second['bound'], walk, attention)}",
    ]
    return f"{outcome} ({gap}): at {tolerance}, {'; '.join(parts)}.{_shallow(record)}"


def _shallow(record: dict[str, Any], hops: int = 10) -> str:
    """How near global attention is at the largest K that the paper's recipes train with."""
    found = record["curves"]["attention"]
    if hops not in found["hops"]:
        return ""
    at = found["hops"].index(hops)
    return (
        f" At {hops} hops eta is still {found['largest'][at]:.2f} at the farthest node, "
        f"{found['median'][at]:.3f} at the median."
    )


def _looseness(bound: int | None, *measured: int | None) -> str:
    """(2.3 times as many), or with two of them (2.3 and 7.2 times as many)."""
    if not bound or not all(measured):
        return ""
    return f" ({' and '.join(_ratio(bound, k) for k in measured)} times as many)"


def _hops(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _ratio(bound: int | None, measured: int | None) -> str:
    return f"{bound / measured:.1f}" if bound and measured else "-"


# ----------------------------------------------------------------------------------------- drawing

INK, FAINT = "#22252f", "#9a9da6"
TRAINED_HOPS = (3, 10)
"""The smallest and the largest K of the paper's recipes."""


def draw(records: list[dict[str, Any]], path_without_suffix: str | Path) -> list[Path]:
    """Draw the distances against k, with the bounds' K marked; -> the SVG and the PNG."""
    from matplotlib import colormaps, rc_context
    from matplotlib.figure import Figure

    records = sorted(records, key=lambda record: record["gap"])
    colours = [colormaps["tab10"](i) for i in range(10)]
    with rc_context({"svg.hashsalt": "theorem", "font.size": 10}):
        figure = Figure(figsize=(14, 5.4), layout="constrained")
        panels = figure.subplots(1, 3, sharex=True)
        for panel, (title, part, curve, quantity) in zip(panels, _PANELS, strict=True):
            for rank, record in enumerate(records):
                _draw_curve(panel, record, part, curve, quantity, colours[rank % 10])
            _dress(panel, title, part, records)
        figure.legend(
            *_legend(records, colours),
            loc="outside lower center",
            ncols=6,
            frameon=False,
            fontsize=9,
        )
        path = Path(path_without_suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        files = [path.parent / (path.name + suffix) for suffix in (".svg", ".png")]
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], dpi=150)
    return files


_PANELS = (
    (r"walk: largest $\Sigma_i\, |A^k_{ij} - \pi_i|$", "epsilon", "walk", "sum"),
    (r"walk: largest $|A^k_{ij} - \pi_i| \,/\, \pi_i$", "eta", "walk", "relative"),
    (r"attention: $\eta$ of $\mathrm{STA}_k / \mathrm{SA}$", "eta", "attention", "largest"),
)  # title, bound, curve, quantity


def _draw_curve(
    panel: Axes, record: dict[str, Any], part: str, curve: str, quantity: str, colour: Any
) -> None:
    """One graph in one panel: its distances, and a mark at the bound for each tolerance."""
    found = record["curves"][curve]
    panel.plot(found["hops"], found[quantity], color=colour, lw=1.7)
    if "median" in found:
        panel.plot(found["hops"], found["median"], color=colour, lw=0.9, ls=(0, (3, 2)), alpha=0.8)
    for tolerance, bounds in record[part].items():
        if bounds["bound"]:
            panel.plot(bounds["bound"], float(tolerance), "|", color=colour, ms=15, mew=2, zorder=3)


def _dress(panel: Axes, title: str, part: str, records: list[dict[str, Any]]) -> None:
    """Axes, grid, and a line at each tolerance."""
    tolerances = [float(tolerance) for tolerance in records[0][part]] if records else []
    symbol = {"epsilon": r"\epsilon", "eta": r"\eta"}[part]
    panel.set(xscale="log", yscale="log", xlabel="hop k")
    panel.set_ylim(bottom=min(tolerances, default=0.01) / 5)
    panel.set_title(title, color=INK, fontsize=11, loc="left")
    for tolerance in tolerances:
        panel.axhline(tolerance, color=FAINT, lw=0.9, ls=(0, (4, 3)), zorder=0)
        at = (0.01, tolerance)
        label = f"${symbol} = {tolerance:g}$"
        where = panel.get_yaxis_transform()
        text = panel.text(*at, label, transform=where, color=INK, fontsize=9, va="bottom")
        text.set_bbox({"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.8})
    panel.axvspan(*TRAINED_HOPS, color=FAINT, alpha=0.18, lw=0, zorder=0)
    panel.grid(alpha=0.2)
    panel.spines[["top", "right"]].set_visible(False)


def _legend(records: list[dict[str, Any]], colours: Any) -> tuple[list[Any], list[str]]:
    """A line for each graph with its gap, and what the marks are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines: list[Any] = [Line2D([], [], color=colours[i % 10], lw=2) for i in range(len(records))]
    labels = [f"{record['graph']}, gap {record['gap']:.2g}" for record in records]
    marks = {
        "the paper's bounds K0 and K1": Line2D([], [], color=INK, marker="|", ls="", ms=13, mew=2),
        "median over nodes and channels": Line2D([], [], color=INK, lw=0.9, ls=(0, (3, 2))),
        "K of the paper's recipes": Patch(color=FAINT, alpha=0.3, lw=0),
    }
    return [*lines, *marks.values()], [*labels, *marks]


# ------------------------------------------------------------------------------------- all of them


def report(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the JSON file holds; its environment is that of the last measurement."""
    return {
        "experiment": "theorem",
        "note": "Columns of A^k are those of a sample of start nodes, listed in each record; "
        "attention is that of random queries, keys and values, which average out: the columns are "
        "the harder case. A measured k is the first that was "
        f"looked at, {LOOKS_PER_DOUBLING} times while k doubles.",
        "records": records,
        "table": {"columns": list(COLUMNS), "rows": table(records)},
        "sentences": [sentence(record) for record in records],
        "environment": environment(torch.device("cpu")),
    }
