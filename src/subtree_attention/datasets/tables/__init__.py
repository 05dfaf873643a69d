"""The user's own tables: reading them, and how their columns become features; see `..tabular`.

Tables are read with polars: `pip install "subtree-attention[tables]"`.
"""
