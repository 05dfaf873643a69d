"""The command `sta`, a file for each group of commands.

A mistake of the user's ends in one or two lines and exit code 2, anything else that went wrong
in exit code 1; neither shows a traceback.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import typer

from .. import _check
from ..show.text import plain
from .app import app as sta
from .app import err_console

# Each adds its commands to the app, in the order in which --help lists them.
from . import training, watching, runs, serving, making, about  # isort: skip

__all__ = ["about", "main", "making", "runs", "serving", "training", "watching"]


def main(arguments: list[str] | None = None, app: typer.Typer = sta) -> None:
    """Entry point: errors in plain words. `STA_TRACEBACK=1` shows where they come from."""
    command = typer.main.get_command(app)
    try:  # not app(), which makes a silent end of Ctrl-C
        words = sys.argv[1:] if arguments is None else arguments
        with command.make_context(app.info.name, words) as here:
            sys.exit(command.invoke(here))
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except BrokenPipeError:  # who reads has had enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to come
        sys.exit(1)
    except (ValueError, FileNotFoundError) as error:
        _fail(error, str(error), 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser of the command line
            if not error.format_message():  # no command was given, and help was shown
                sys.exit(2)
            _fail(error, f"{error.format_message()}\nsee: {_command(error)} --help", 2)
        if _check.out_of_memory(error):
            _fail(error, _memory(error), 1)
        _fail(error, str(error) or type(error).__name__, 1)


def _command(error: Any) -> str:
    """The command whose words could not be parsed."""
    context = getattr(error, "ctx", None)
    return "sta" if context is None else context.command_path


def _memory(error: Exception) -> str:
    """What did not fit, and what to try."""
    asked = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
    what = f"{asked[1]} did not fit into memory" if asked else str(error) or "memory is used up"
    place = " of the GPU" if type(error).__name__ == "OutOfMemoryError" else ""
    return (
        f"{what}{place}: try fewer --hidden-channels, --heads, --hops or --encoding, "
        "--together 1, or another --device"
    )


def _fail(error: Exception, message: str, code: int) -> None:
    message = _check.without_passwords(message)  # what was given may be an address of a database
    if os.environ.get("STA_TRACEBACK"):
        error.args = tuple(_check.without_passwords(str(each)) for each in error.args)
        if hasattr(error, "message"):  # the parser's
            error.message = message
        raise error
    message = "\n".join(plain(line) for line in message.split("\n"))  # it may quote anything
    err_console.print(f"[red]error:[/red] {message}", soft_wrap=True)
    sys.exit(code)
