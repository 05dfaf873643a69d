"""`python -m experiments bench|reproduce|field|own|scale`: see `cli`."""

from subtree_attention.__main__ import main

if __name__ == "__main__":
    main("experiments.cli")
