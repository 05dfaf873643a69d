"""How long a connection may keep the server waiting, and how many there may be.

uvicorn waits for ever for the rest of a request, and for a client that does not read its answer.
"""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE_S = 10.0
"""For a whole request, from the connection or the last answer on, however it trickles in; and for
a client to take some of an answer."""
MOST_CONNECTIONS = 128
"""A browser has six. Of more, the one that keeps us waiting longest is dropped for a new one."""


HEAD_BYTES = 16 * 1024
"""Of a request: its first line and its headers, since it has no body."""


class Connection(H11Protocol):
    """A connection with a clock, which runs while the other side has to do something."""

    connections: set[Connection]  # type: ignore[assignment]
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only where a socket says that it is TCP's, which ours does not: the body
        # of an answer would wait until its head is acknowledged, 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            min(self.connections, key=_patience).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._too_large(data):
            self.send_400_response("Request too large.")
            return
        super().data_received(data)
        if self._answering:
            self._stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # the next request may be here already
        self._stop()
        if not self._answering:
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answering:
            self._stop()

    def abort(self) -> None:
        """Drop it, without another word."""
        self.connections.discard(self)
        self.transport.abort()

    def _too_large(self, data: bytes) -> bool:
        """Of what has come: uvicorn counts only what is not complete yet."""
        return len(data) > HEAD_BYTES

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(PATIENCE_S, self.abort)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def _patience(connection: Connection) -> float:
    """When the clock of a connection runs out; never while an answer is made."""
    return float("inf") if connection._clock is None else connection._clock.when()
