"""`python -m experiments.scale`: the command where neither typer nor rich is installed."""

import sys

from experiments.scale.command import main

if __name__ == "__main__":
    try:
        main()
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
