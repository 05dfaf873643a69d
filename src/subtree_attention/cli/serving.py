"""The command `serve`: a run that others ask over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from .app import RunFolder, command, needs, say


@command()
def serve(
    run: RunFolder,
    *,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; another than this machine's is for a network."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of that address; 0 for any that is free.")] = 8766,
    memory: Annotated[
        str | None,
        typer.Option(
            help="What states may take that make answers faster, such as 4GB; 0 for none. "
            r"\[default: a quarter of what is free]"
        ),
    ] = None,
) -> None:
    """Answer about single nodes over HTTP, also about new ones that join the graph.

    A node is answered from the nodes that reach it within the hops of the model, and no others, so
    an answer takes milliseconds however large the graph is. The probabilities are those of
    'sta predict', also of new nodes (--join). What looks at the whole graph is refused in words:
    --correct and --global-attention; for new nodes also --encoding and a --reference of neighbours.

    \b
    GET  /health         {"status": "ok"}
    GET  /model          classes, columns of new nodes, hops, scores
    POST /predict        {"ids": [...]}, or {"nodes": [...], "edges": [...]}
    GET  /openapi.json   all of it, for programs

    New nodes join for one answer: nothing that is sent is kept. There is no password, and no
    encryption: on a network (--host), put a server before it that has both. Ctrl-C ends it. It
    needs pip install "subtree-attention\\[serve]".

    \b
    [bold]Examples[/bold]
    sta serve runs/mine
    curl -H 'Content-Type: application/json' http://127.0.0.1:8766/predict -d '{"ids": ["7"]}'
    curl -H 'Content-Type: application/json' http://127.0.0.1:8766/predict -d '{
        "nodes": \\[{"id": "dan", "age": 31, "city": "Rome"}],
        "edges": \\[{"source": "dan", "target": "7"}]}'
    """
    with needs("an endpoint", "serve"):
        from ..serve.server import serve as answer
        from ..show.pages.serving import address, listen
    from ..runs import open

    with listen(port, host) as listening:  # first: a port that is taken is known at once
        asked = open(run, device="cpu").answering(memory=memory)
        say(f"{run} answers at {address(listening)} (Ctrl-C ends)")
        answer(asked, listening)
    say("ended")
