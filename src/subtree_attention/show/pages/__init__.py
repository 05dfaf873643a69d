"""Pages for a browser on this machine: who is answered, how long is waited, and how it ends.

It needs `pip install "subtree-attention[explore]"`.
"""
