"""The user's own graphs: from tables of nodes and edges to a `Dataset` that knows its columns.

Tables are read with polars: `pip install "subtree-attention[tables]"`.
"""
