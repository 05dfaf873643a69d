"""A local page with the curves of a training that goes on, or has ended.

`follow` reads a run folder as it grows, `server` brings it to the browser, `page` does so while
this process trains. All of it is in files: whoever trains, here or elsewhere, is watched in the
same way and waits for nobody. It needs `pip install "subtree-attention[explore]"`.
"""

from .follow import Followed

__all__ = ["Followed"]
