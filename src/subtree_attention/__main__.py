"""`python -m subtree_attention` is the same as the command `sta`."""

from .cli import main

main()
