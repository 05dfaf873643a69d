r"""Theorem 1 on the paper's graphs: how many hops until STA_k is global attention?

The theorem speaks of the walk A_rw on a connected graph that is not bipartite; so everything here
happens on a graph's largest component. With gap = 1 - max(lambda_2, |lambda_N|), pi_i proportional
to the degree of i, and N nodes, the paper's proof gives

    K0 = log(N / epsilon) / gap:  sum_i |A^k_ij - pi_i| <= epsilon                          k >= K0
    K1 = 2 log(N / eta) / gap:    (1-eta)/(1+eta) <= STA_k / SA <= (1+eta)/(1-eta), V >= 0  k >= K1

(the appendix writes 1 - gap where it means the gap). K1 comes from |A^k_ij - pi_i| <= eta pi_i. The
appendix takes epsilon = eta / N^2 for that, which in K0 would give log(N^3 / eta) / gap; K1 holds
all the same, since |A^k_ij - pi_i| / pi_i <= (1 - gap)^k / sqrt(pi_i pi_j) <= N^2 exp(-k gap).

`spectrum.py` finds the gap, `walks.py` walks, `measure.py` notes both bounds and from which hop on
the distances really are that small; `words.py` and `drawing.py` say and show it. Beyond 256 nodes
nothing of size N x N is formed. All numbers are float64.
"""

GRAPHS = (
    "cora", "citeseer", "deezer", "actor", "pubmed", "computer", "photo", "cs", "physics",
)  # fmt: skip
FILE = "theorem.json"
