"""t-SNE of some rows, with the others beside those they are nearest to.

This is a program of its own, so that a server goes on answering meanwhile: rows come in, places go
out, and what the library says of its progress goes to stderr.

    python -P landmarks.py MOST < rows.npy > places.npy
"""

import os
import sys
from contextlib import redirect_stdout
from io import BytesIO

import numpy as np

ITERATIONS = 1000
PERPLEXITY = 30.0
NEAREST = 3
"""Landmarks between which another row is placed."""
SEED = 0


def embed(rows: np.ndarray, most: int) -> np.ndarray:
    """Places [N, 2] of rows [N, D] that tell most first: principal components, N >= 4.

    Args:
        rows: what is near to each other here is to be near on the map.
        most: rows that are landmarks, drawn evenly; the others are placed beside them.
    """
    from sklearn.manifold import TSNE  # here: slow to import

    count = len(rows)
    drawn = np.random.default_rng(SEED).permutation(count)[:most]
    landmarks = np.sort(drawn) if count > most else np.arange(count)
    start = np.zeros((len(landmarks), 2))
    start[:, : rows.shape[1]] = rows[landmarks, :2]
    spread = start[:, 0].std() or 1.0  # as the library would scale what it starts from
    tsne = TSNE(
        perplexity=min(PERPLEXITY, (len(landmarks) - 1) / 3),
        init=(1e-4 / spread * start).astype(np.float32),
        max_iter=ITERATIONS,
        random_state=SEED,
        verbose=2,
    )
    places = tsne.fit_transform(rows[landmarks])
    return places if count <= most else _beside(rows, landmarks, places)


def _beside(rows: np.ndarray, landmarks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Places [N, 2] of all rows: between the nearest landmarks, the nearer the closer."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(NEAREST, len(landmarks))).fit(rows[landmarks])
    far, which = near.kneighbors(rows)
    pull = 1 / np.maximum(far, 1e-9) ** 2
    pull /= pull.sum(1, keepdims=True)
    among = (pull[:, :, None] * places[which]).sum(1)
    among[landmarks] = places
    return among.astype(np.float32)


def main() -> None:
    if hasattr(os, "nice"):
        os.nice(5)  # who looks at the page comes first
    rows = np.load(BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    with redirect_stdout(sys.stderr):
        places = embed(rows, int(sys.argv[1]))
    np.save(sys.stdout.buffer, places, allow_pickle=False)


if __name__ == "__main__":
    main()
