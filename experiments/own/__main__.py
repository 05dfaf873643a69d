"""`python -m experiments.own`: the command where neither typer nor rich is installed."""

import sys

from experiments.own.command import main

if __name__ == "__main__":
    try:
        main()
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. What is done is kept; the same command goes on.")
