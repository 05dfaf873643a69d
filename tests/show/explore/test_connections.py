"""Clients that send half a request, or nothing, or do not read: the page answers all the same."""

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from subtree_attention.show.explore.server import STATIC, server
from subtree_attention.show.pages import connections
from subtree_attention.show.pages.serving import listen

Address = tuple[str, int]
ASKED = b"GET /api/graph HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"


@pytest.fixture(scope="module")
def patience() -> Iterator[float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "PATIENCE_S", 1.5)
        yield 1.5


@contextmanager
def served(views: object) -> Iterator[Address]:
    with listen(0) as listening:
        running = server(views, listening)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            running.should_exit = True
            thread.join(timeout=20)
            assert not thread.is_alive(), "it does not end by itself"


@pytest.fixture(scope="module")
def here(views, patience: float) -> Iterator[Address]:
    with served(views) as found:
        yield found


def get(here: Address, path: str = "/api/graph") -> int:
    with urllib.request.urlopen(f"http://{here[0]}:{here[1]}{path}", timeout=10) as answer:
        answer.read()
        return answer.status


def until_closed(client: socket.socket, seconds: float = 10) -> float:
    """How long a connection stays open from now on; whatever it answers is read."""
    started = time.monotonic()
    client.settimeout(seconds)
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started


def half_sent(port: int) -> dict[str, bytes]:
    head = ASKED % port
    return {
        "nothing": b"",
        "half a line": b"GET /api/gra",
        "half the headers": head + b"Accept: */",
        "no end of headers": head,
        "half a body": head + b"Content-Length: 1000\r\n\r\nhalf",
        "half a refused body": head.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\nhalf",
        "half a chunk": head + b"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf",
        "a body to be asked for": head + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n",
        "a second half": head + b"\r\nGET /api/gra",
        "an answer, then nothing": head + b"\r\n",
    }


@pytest.mark.parametrize("what", half_sent(0))
def test_half_a_request_is_dropped(what: str, here: Address, patience: float) -> None:
    with socket.create_connection(here) as client:
        client.sendall(half_sent(here[1])[what])
        assert 0.5 * patience < until_closed(client) < 2 * patience


@pytest.mark.parametrize("what", ["half a line", "half a body"])
def test_a_request_that_trickles_in_is_dropped_too(
    what: str, here: Address, patience: float
) -> None:
    started = time.monotonic()
    with socket.create_connection(here) as client:
        client.sendall(half_sent(here[1])[what])
        with pytest.raises(ConnectionError):  # noqa: PT012 - at whichever byte
            while time.monotonic() - started < 10:
                client.sendall(b"x")
                time.sleep(0.1)
    assert time.monotonic() - started < 2 * patience


def test_200_half_sent_requests_do_not_keep_the_page_from_others(
    here: Address, patience: float
) -> None:
    with ExitStack() as stack:
        parts = list(half_sent(here[1]).values())
        clients = [stack.enter_context(socket.create_connection(here)) for _ in range(200)]
        for number, client in enumerate(clients):
            client.sendall(parts[number % len(parts)])
        started = time.monotonic()
        assert [get(here) for _ in range(20)] == [200] * 20
        assert time.monotonic() - started < patience
        for client in clients:
            until_closed(client)
        assert time.monotonic() - started < 2 * patience


def test_of_too_many_connections_the_longest_waiting_is_dropped(
    here: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.sleep(0.2)  # those of other tests are gone
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(here)) for _ in range(4)]
        assert until_closed(clients[0]) < 0.5
        for client in clients[1:]:
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.recv(1)
        clients[3].sendall(ASKED % here[1] + b"\r\n")
        clients[3].settimeout(10)
        assert clients[3].recv(15) == b"HTTP/1.1 200 OK"


def test_a_client_that_does_not_read_is_dropped(here: Address, patience: float) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(here)
        path = b"/static/vendor/cytoscape.esm.min.mjs"
        client.sendall((ASKED.replace(b"/api/graph", path) % here[1] + b"\r\n") * 100)
        time.sleep(2.5 * patience)
        received = 0
        try:
            while some := client.recv(1 << 20):
                received += len(some)
        except ConnectionError:
            pass
    assert received < 20 * (STATIC / "vendor/cytoscape.esm.min.mjs").stat().st_size


def test_too_much_is_refused(here: Address) -> None:
    head = ASKED % here[1]
    for request in (
        b"GET /" + b"x" * 70_000,
        head + b"X: " + b"x" * 70_000,
        head + b"X: x\r\n" * 20_000,
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        b"\x00" * 100 + b"\r\n\r\n",
    ):
        with socket.create_connection(here) as client:
            try:
                client.sendall(request)
                assert client.recv(15) in (b"HTTP/1.1 400 Ba", b"")
            except ConnectionError:  # it hung up before we were done
                pass
            assert until_closed(client) < 10


def test_many_at_once_are_all_answered(here: Address) -> None:
    """50 clients, 500 requests, each on a connection of its own."""
    with ThreadPoolExecutor(50) as clients:
        assert set(clients.map(lambda _: get(here), range(500))) == {200}


def test_it_ends_while_requests_are_half_sent(views, patience: float, capfd) -> None:
    with ExitStack() as stack:
        with served(views) as there:
            for part in half_sent(there[1]).values():
                client = stack.enter_context(socket.create_connection(there))
                client.sendall(part)
            assert get(there) == 200
            started = time.monotonic()
        assert time.monotonic() - started < 5
    assert capfd.readouterr().err == ""
