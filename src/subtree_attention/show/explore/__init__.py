"""A local page to walk through a run: subtrees, attention and what the logits are made of.

`views` says what is shown, `..subtree` which nodes, `server` brings it to the browser. The page
itself lies in `static/`. It needs `pip install "subtree-attention[explore]"`.
"""

from .views import Views

__all__ = ["Views"]
