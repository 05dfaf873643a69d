"""`python -m subtree_attention` is the same as the command `sta`."""

import sys


def main() -> None:
    """Start the command line, or say what it lacks: the library works without typer and rich."""
    try:
        from .cli import main as command_line
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(
            f"error: the command line needs {package}, which is not installed: pip install "
            "typer rich. From Python, subtree_attention.fit and its siblings work without it."
        )
    command_line()


if __name__ == "__main__":
    main()
