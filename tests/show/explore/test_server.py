"""Who is answered, and `sta explore` itself."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from subtree_attention import STAGNN, Dataset
from subtree_attention.datasets.told import Pictures, Told
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import STATIC, create_app
from tests.show.explore.odd import ODD
from tests.show.made import made_run

PORT = 8765
HERE = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="module")
def client(views):
    return TestClient(create_app(views, PORT), base_url=HERE)


def test_pictures_are_served_as_pictures():
    drawn = b"\x89PNG and so on"
    told = Told(pictures=Pictures.of([drawn, None]))
    data = Dataset(
        torch.randn(2, 3), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 1]), told=told
    )
    views = Views(made_run(STAGNN(3, 4, 2), data))
    client = TestClient(create_app(views, PORT), base_url=HERE)
    assert client.get("/api/graph").json()["pictures"]
    answer = client.get("/api/picture", params={"id": "0"})
    assert (answer.status_code, answer.content) == (200, drawn)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    for id in ("1", "2", "../x", ""):
        assert client.get("/api/picture", params={"id": id}).status_code == 404
    foreign = {"sec-fetch-site": "cross-site"}
    assert client.get("/api/picture", params={"id": "0"}, headers=foreign).status_code == 403


class TestGuard:
    @pytest.mark.parametrize(
        "host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}"]
    )
    def test_this_machine_is_answered(self, client, host):
        assert client.get("/api/graph", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            f"evil.example:{PORT}",
            "127.0.0.1",
            "127.0.0.1:80",
            f"127.0.0.1.evil:{PORT}",
            "",
        ],
    )
    def test_a_foreign_host_is_refused(self, client, host):
        for path in ("/", "/api/graph", "/static/page.js"):
            assert client.get(path, headers={"host": host}).status_code == 421

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{PORT}"]
    )
    def test_a_foreign_origin_is_refused(self, client, origin):
        answer = client.get("/api/graph", headers={"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        assert client.get("/api/graph", headers={"origin": HERE}).status_code == 200

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_another_site_may_link_to_the_page_and_nothing_more(self, client, site):
        document = {
            "sec-fetch-site": site,
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
        }
        assert client.get("/", headers=document).status_code == 200
        assert client.get("/api/graph", headers=document).status_code == 403
        for dest in ("iframe", "script", "empty"):
            assert client.get("/", headers={**document, "sec-fetch-dest": dest}).status_code == 403
        assert (
            client.get("/api/graph", headers={"sec-fetch-site": "same-origin"}).status_code == 200
        )

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_only_get(self, client, method):
        answer = client.request(method, "/api/graph")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        "path", ["/", "/api/graph", "/api/node?id=none", "/static/page.js", "/none"]
    )
    def test_every_answer_forbids_foreign_scripts_and_frames(self, client, path):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize(
        "path",
        [
            "/static/../server.py",
            "/static/%2e%2e/server.py",
            "/static/..%2fserver.py",
            "/static//etc/passwd",
        ],
    )
    def test_no_file_outside_of_the_page(self, client, path):
        assert client.get(path).status_code == 404

    def test_a_fault_of_ours_shows_nothing_of_it(self, views, monkeypatch):
        client = TestClient(create_app(views, PORT), HERE, raise_server_exceptions=False)
        monkeypatch.setattr(views, "graph", lambda: 1 / 0)
        answer = client.get("/api/graph")
        assert (answer.status_code, answer.text) == (500, "Internal Server Error")
        assert "content-security-policy" in answer.headers


class TestAnswers:
    @pytest.mark.parametrize("id", ODD)
    def test_odd_ids(self, client, id):
        answer = client.get("/api/node", params={"id": id})
        assert answer.status_code == 200
        assert answer.json()["id"] == id

    def test_options(self, client):
        asked = {"id": "p1", "hops": "2", "head": "2", "by": "contribution", "class": "yes"}
        view = client.get("/api/node", params=asked).json()
        assert view["class"] == "yes"
        assert {node["hop"] for node in view["nodes"]} == {0, 1, 2}
        assert view["parts"]["other_heads"] != 0

    def test_levels_are_opened(self, client):
        asked = {"id": "p1", "hops": "2", "open": "2:3,global:5"}
        assert client.get("/api/node", params=asked).status_code == 200

    @pytest.mark.parametrize(
        ("asked", "status", "words"),
        [
            ({"id": "<script>"}, 404, "there is no node '<script>'"),
            ({}, 404, "there is no node ''"),
            ({"id": "p1", "hops": "-1"}, 400, "hops must be a whole number, got '-1'"),
            ({"id": "p1", "hops": "1" * 400}, 400, "hops must be a whole number"),
            ({"id": "p1", "open": "2:x"}, 400, "open must be a whole number, got 'x'"),
            ({"id": "p1", "open": "here"}, 400, "open must be a whole number, got 'here'"),
            ({"id": "p1", "head": "9"}, 400, "there is no head 9"),
            ({"id": "p1", "by": "x"}, 400, "unknown order 'x'"),
            ({"id": "p1", "class": "x"}, 400, "unknown class 'x'"),
        ],
    )
    def test_mistakes_are_told_as_json(self, client, asked, status, words):
        answer = client.get("/api/node", params=asked)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
        assert words in answer.json()["error"]

    def test_search_and_lists(self, client):
        assert client.get("/api/search", params={"text": "p1"}).json()[0]["id"] == "p1"
        assert client.get("/api/list", params={"what": "confident"}).json()
        assert client.get("/api/list", params={"what": "x"}).status_code == 400

    def test_scripts_are_served_as_scripts(self, client):
        for path in ("page.js", "vendor/cytoscape.esm.min.mjs"):
            answer = client.get(f"/static/{path}")
            assert answer.headers["content-type"].startswith("text/javascript")

    def test_the_library_comes_with_its_licence(self):
        assert "Permission is hereby granted" in (STATIC / "vendor/cytoscape.LICENSE").read_text()


class TestCommand:
    def test_it_serves_until_ctrl_c(self, own_run):
        command = [sys.executable, "-m", "subtree_attention", "explore", str(own_run)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        running = subprocess.Popen([*command, "--port", "0", "--no-open"], env=environment, **pipes)
        try:
            line = running.stdout.readline()
            page = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
            with urllib.request.urlopen(page, timeout=20) as answer:
                assert b"sta explore" in answer.read()
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=20)
        finally:
            running.kill()
        assert (running.returncode, errors) == (0, "")

    def test_a_port_in_use_is_one_line(self, own_run, run_sta):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, out, err = run_sta("explore", str(own_run), "--port", str(port), "--no-open")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert f"port {port} cannot be had" in err
        assert "--port 0" in err

    def test_other_mistakes_are_one_line(self, own_run, run_sta):
        for arguments, words in (
            (["nowhere", "--port", "0"], "nowhere is not a folder"),
            ([str(own_run), "--port", "70000"], "port must be between 0 and 65535, got 70000"),
        ):
            code, _, err = run_sta("explore", *arguments, "--no-open")
            assert (code, len(err.splitlines())) == (2, 1)
            assert words in err

    def test_without_the_extra_it_says_how_to_install(self, own_run, run_sta, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        monkeypatch.delitem(sys.modules, "subtree_attention.show.explore.server")
        code, _, err = run_sta("explore", str(own_run))
        assert code == 1
        assert 'pip install "subtree-attention[explore]"' in err

    def test_help_teaches(self, run_sta):
        out = run_sta("explore", "--help")[1]
        assert "sta explore runs/mine --port 0 --no-open" in out
        assert 'pip install "subtree-attention[explore]"' in out


def test_no_file_of_the_page_is_too_long_to_read():
    for path in STATIC.glob("*.*"):
        assert len(path.read_text().splitlines()) < 300, path.name


def test_the_page_never_makes_markup_of_text():
    for path in Path(STATIC).glob("*.js"):
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in path.read_text(), path.name
