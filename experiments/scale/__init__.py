"""What a graph needs: bytes and seconds of a hop, of a step, per device and per link.

`python -m experiments scale` fits what must be fitted (effective bandwidths) to some of the
measurements in results/, holds the formulas against the others, simulates the exchange between
partitions, and writes results/scale.json, results/scale.svg and .png, and the tables of
docs/scale.md. `--halo` first partitions graphs again, which takes minutes.
"""
