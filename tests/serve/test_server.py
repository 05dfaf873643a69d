"""Who is answered and what, in words and numbers; many clients at a time; `sta serve` itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import subtree_attention as sta
from subtree_attention.runs.answering import Answering
from subtree_attention.serve import asked, server
from subtree_attention.serve.server import OPENAPI, Desk, create_app, is_local
from subtree_attention.show.pages import connections
from tests.runs.test_answering import EDGES, NEW, rows
from tests.serve.conftest import served

PORT = 8766
HERE = f"http://127.0.0.1:{PORT}"
Outcome = tuple[int, str, str]


@pytest.fixture(scope="module")
def client(desk: Desk) -> TestClient:
    return TestClient(create_app(desk, "127.0.0.1", PORT), base_url=HERE)


def schema_errors(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """What does not fit a JSON schema, as far as ours go."""
    if "$ref" in schema:
        found = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return schema_errors(value, found, root)
    errors: list[str] = []
    for word in ("anyOf", "oneOf"):
        if word in schema:
            fits = [not schema_errors(value, one, root) for one in schema[word]]
            errors += [] if any(fits) else [f"{value!r} fits none of {word}"]
    if "const" in schema and value != schema["const"]:
        errors.append(f"{value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        errors.append(f"{value!r} is none of {schema['enum']}")
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(isinstance(value, kinds[name]) for name in names):  # type: ignore[arg-type]
            errors.append(f"{value!r} is no {names}")
    if isinstance(value, dict):
        errors += [f"{name} is missing" for name in schema.get("required", ()) if name not in value]
        more = schema.get("additionalProperties", True)
        for name, inside in value.items():
            known = schema.get("properties", {}).get(name, more)
            if known is False:
                errors.append(f"{name} is not known")
            elif known is not True:
                errors += schema_errors(inside, known, root)
    if isinstance(value, list) and "items" in schema:
        errors += [text for each in value for text in schema_errors(each, schema["items"], root)]
    return errors


class TestOpenAPI:
    content: Any = json.loads(OPENAPI.read_text())

    def test_it_is_served_as_it_is(self, client: TestClient) -> None:
        answer = client.get("/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.content == OPENAPI.read_bytes()

    def test_it_has_every_route_and_no_other(self, client: TestClient, desk: Desk) -> None:
        app: Any = create_app(desk, "127.0.0.1", PORT)
        routes = {
            route.path: {method.lower() for method in route.methods} - {"head"}
            for route in app._app.routes
        }
        assert {path: set(about) for path, about in self.content["paths"].items()} == routes

    def test_it_is_an_openapi_document(self) -> None:
        assert self.content["openapi"].startswith("3.1.")
        assert {"title", "version"} <= self.content["info"].keys()
        for path, methods in self.content["paths"].items():
            assert path.startswith("/")
            for about in methods.values():
                assert about["operationId"]
                assert all(words["description"] for words in about["responses"].values())
        text = OPENAPI.read_text()
        for name in set(json.dumps(self.content).split('"#/components/schemas/')[1:]):
            assert name.partition('"')[0] in self.content["components"]["schemas"]
        assert text.endswith("\n")

    def test_answers_are_as_it_says(self, client: TestClient) -> None:
        answers = self.content["paths"]
        for path in ("/health", "/model"):
            said = answers[path]["get"]["responses"]["200"]["content"]["application/json"]
            errors = schema_errors(client.get(path).json(), said["schema"], self.content)
            assert not errors
        about = answers["/predict"]["post"]
        for body in ({"ids": ["p1", "p2"]}, {"nodes": rows(NEW), "edges": rows(EDGES)}):
            taken = about["requestBody"]["content"]["application/json"]["schema"]
            assert not schema_errors(body, taken, self.content)
            answer = client.post("/predict", json=body)
            said = about["responses"]["200"]["content"]["application/json"]["schema"]
            assert not schema_errors(answer.json(), said, self.content)

    def test_its_limits_are_those_of_the_program(self, client: TestClient) -> None:
        schemas, limits = self.content["components"]["schemas"], client.get("/model").json()
        most = {"ids": schemas["Known"]["properties"]["ids"]["maxItems"]}
        most |= {
            name: schemas["New"]["properties"][name]["maxItems"] for name in ("nodes", "edges")
        }
        assert limits["limits"] == {"bytes": asked.MOST_BYTES, **most}


class TestAnswers:
    def test_nodes_of_the_graph(self, client: TestClient, own_run: Path) -> None:
        run = sta.open(own_run, device="cpu")
        answer = client.post("/predict", json={"ids": run.dataset.node_ids})
        assert answer.status_code == 200
        found = answer.json()["predictions"]
        assert [row["id"] for row in found] == run.dataset.node_ids
        assert [row["prediction"] for row in found] == run.answers.predicted
        assert [row["known"] for row in found] == run.answers.known
        shares = [[row["probabilities"][name] for name in run.dataset.classes] for row in found]
        np.testing.assert_allclose(shares, run.probabilities, atol=1e-6)

    def test_new_nodes_are_those_of_sta_predict_join(
        self, client: TestClient, own_run: Path
    ) -> None:
        whole = sta.predict(own_run, NEW, EDGES, join=True, device="cpu")
        answer = client.post("/predict", json={"nodes": rows(NEW), "edges": rows(EDGES)})
        assert answer.status_code == 200
        found = answer.json()["predictions"]
        shares = [[row["probabilities"][name] for name in whole.classes] for row in found]
        np.testing.assert_allclose(shares, whole.probabilities, atol=1e-6)
        assert client.post("/predict", json={"ids": ["n0"]}).status_code == 404  # it is not kept

    def test_what_is_served(self, client: TestClient) -> None:
        about = client.get("/model").json()
        assert about["classes"] == ["k", "o", "r"]
        assert (about["hops"], about["nodes"], about["predicts"]) == (2, 60, "class")
        kinds = {column["name"]: column["kind"] for column in about["new_nodes"]["columns"]}
        assert kinds["age"] == "number"
        assert about["new_nodes"]["edge"]["weight"] == "strength"
        assert str(Path.home()) not in json.dumps(about)

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b"", 400, "not valid JSON"),
            (b"{", 400, "not valid JSON"),
            (b"\xff", 400, "not valid JSON"),
            (b"[" * 100_000, 400, "nested too deeply"),
            (b"[1]", 400, "must be an object"),
            (b"{}", 400, "ask either for ids"),
            ({"ids": ["p1"], "nodes": []}, 400, "ask either for ids"),
            ({"ids": ["p1"], "edges": []}, 400, "edges are those of new nodes"),
            ({"ids": []}, 400, "at least one id"),
            ({"ids": "p1"}, 400, "must be a list"),
            ({"ids": [None]}, 400, "an id must be a text or a whole number, got None"),
            ({"ids": [True]}, 400, "an id must be a text"),
            ({"ids": ["p1"], "path": "/etc/passwd"}, 400, "unknown 'path'"),
            ({"ids": ["zz"]}, 404, "there is no node 'zz'"),
            ({"ids": ["p1"] * 10_001}, 413, "10,001 ids are more than 10,000"),
            ({"nodes": []}, 400, "must not be empty"),
            ({"nodes": "/etc/passwd"}, 400, "nodes must be a list of objects"),
            ({"nodes": ["nodes.csv"]}, 400, "nodes[0] must be an object"),
            ({"nodes": [{"id": {"a": 1}}]}, 400, "a value is a text"),
            ({"nodes": [{"id": [[1]]}]}, 400, "a value is a text"),
            ({"nodes": [{}] * 1_001}, 413, "1,001 nodes are more than 1,000"),
            ({"nodes": [{"id": "n"}], "edges": [{}] * 100_001}, 413, "more than 100,000"),
            ({"nodes": [{"id": "n"}]}, 422, "has no column 'age'"),
            ({"nodes": [{}]}, 422, "has no rows"),
            ({"nodes": rows(NEW), "edges": [{"source": "n0", "target": "zz", "weight": 1}]}, 422,
             "an edge ends at 'zz'"),
            ({"nodes": rows(NEW), "edges": [{"source": "n0", "target": "p1", "weight": "x"}]}, 422,
             "not a finite number"),
            ({"nodes": rows({**NEW, "id": ["p1", "b", "c", "d", "e"]})}, 422, "is in the graph"),
            (b'{"ids": [NaN]}', 400, "NaN is no number of JSON"),
            (b'{"ids": [' + b"9" * 5000 + b"]}", 400, "not valid JSON"),
        ],
    )  # fmt: skip
    def test_mistakes_are_told_as_json(
        self, client: TestClient, body: Any, status: int, words: str
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"content-type": "application/json"}
        answer = client.post("/predict", content=content, headers=kind)
        assert answer.headers["content-type"] == "application/json"
        assert (answer.status_code, answer.json().keys()) == (status, {"error"})
        assert words in answer.json()["error"]

    def test_odd_values_are_answered_or_told(self, client: TestClient) -> None:
        for odd in (10**30, 1e308, -1e308, "", "\ud800", "x" * 100_000, True, [], [1, "a"], None):
            new = {**{name: values[0] for name, values in NEW.items()}, "age": odd, "city": odd}
            body, kind = json.dumps({"nodes": [new]}), {"content-type": "application/json"}
            answer = client.post("/predict", content=body, headers=kind)
            assert answer.status_code in (200, 422), answer.text
            assert answer.json()

    def test_a_body_that_is_too_large(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "MOST_BYTES", 100)
        answer = client.post("/predict", json={"ids": ["p1"] * 100})
        assert (answer.status_code, "at most 100 bytes" in answer.text) == (413, True)

        def trickle() -> Any:
            for _ in range(5):
                yield b" " * 30

        kind = {"content-type": "application/json"}
        answer = client.post("/predict", content=trickle(), headers=kind)
        assert answer.status_code == 413

    def test_only_json_is_read(self, client: TestClient) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = client.post("/predict", content=b"{}", headers={"content-type": kind})
            assert (answer.status_code, "must be JSON" in answer.text) == (415, True)

    def test_other_addresses_and_methods(self, client: TestClient) -> None:
        for path in ("/", "/predict/", "/../etc/passwd", "/static/x", "/docs"):
            assert client.get(path, follow_redirects=False).status_code in (404, 405)
        for method, path in (("GET", "/predict"), ("POST", "/health"), ("OPTIONS", "/predict")):
            answer = client.request(method, path)
            assert (answer.status_code, answer.json().keys()) == (405, {"error"})

    def test_a_fault_of_ours_shows_nothing_of_it(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = create_app(desk, "127.0.0.1", PORT)
        client = TestClient(app, HERE, raise_server_exceptions=False)
        monkeypatch.setattr(desk.answering, "nodes", lambda ids: 1 // 0)
        answer = client.post("/predict", json={"ids": ["p1"]})
        assert (answer.status_code, answer.json().keys()) == (500, {"error"})
        assert "Zero" not in answer.text

    def test_who_comes_while_too_many_wait_is_told(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "MOST_WAITING", 0)
        answer = client.post("/predict", json={"ids": ["p1"]})
        assert (answer.status_code, "ask again" in answer.text) == (503, True)


class TestGuard:
    @pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
    def test_this_machine_is_answered(self, client: TestClient, host: str) -> None:
        assert client.get("/health", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"evil.example:{PORT}", ""])
    def test_a_foreign_host_is_refused(self, client: TestClient, host: str) -> None:
        assert client.get("/model", headers={"host": host}).status_code == 421

    def test_on_a_network_any_name_is_right_but_no_other_site(self, desk: Desk) -> None:
        client = TestClient(create_app(desk, "0.0.0.0", PORT), base_url=HERE)
        assert client.get("/health", headers={"host": "box.example:1"}).status_code == 200
        foreign = {"host": "box.example:1", "origin": "http://evil.example"}
        assert client.get("/health", headers=foreign).status_code == 403

    def test_other_sites_are_refused_and_told_nothing(self, client: TestClient) -> None:
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            answer = client.post("/predict", json={"ids": ["p1"]}, headers=headers)
            assert answer.status_code == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]
        assert client.get("/health", headers={"origin": HERE}).status_code == 200

    def test_which_addresses_are_this_machine_only(self) -> None:
        assert all(map(is_local, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
        assert not any(map(is_local, ("0.0.0.0", "::", "10.0.0.5", "box.example")))


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"{url}/predict", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class TestConnections:
    def test_fifty_clients_at_a_time_without_an_error(
        self, desk: Desk, answering: Answering
    ) -> None:
        clients, each = 50, 6
        known = answering.nodes(["p1"]).predicted[0]
        new = answering.new(rows(NEW), rows(EDGES)).predicted
        begin = threading.Barrier(clients)

        def ask(number: int) -> None:
            begin.wait(timeout=20)
            for turn in range(each):
                if (number + turn) % 2:
                    found = post(url, {"ids": ["p1"]})["predictions"]
                    assert found[0]["prediction"] == known
                else:
                    found = post(url, {"nodes": rows(NEW), "edges": rows(EDGES)})["predictions"]
                    assert [row["prediction"] for row in found] == new

        with served(desk) as url, ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(ask, number) for number in range(clients)]:
                done.result(timeout=60)

    def test_a_large_body_comes_through_and_a_large_head_does_not(self, desk: Desk) -> None:
        with served(desk) as url:
            found = post(url, {"ids": ["p1"] * 10_000})
            assert len(found["predictions"]) == 10_000
            request = urllib.request.Request(f"{url}/health", headers={"X-Long": "x" * 20_000})
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(request, timeout=10)

    def test_who_does_not_send_the_rest_is_dropped(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "PATIENCE_S", 0.5)
        with served(desk) as url:
            place = url.removeprefix("http://")
            host, port = place.split(":")
            head = f"POST /predict HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json\r\n"
            with socket.create_connection((host, int(port))) as slow:
                slow.sendall(head.encode() + b"Content-Length: 100\r\n\r\n{")
                slow.settimeout(10)
                started = time.monotonic()
                try:
                    while slow.recv(1000):
                        pass
                except ConnectionError:
                    pass
                assert time.monotonic() - started < 5
            assert post(url, {"ids": ["p1"]})


class TestCommand:
    def test_it_serves_until_ctrl_c(self, own_run: Path) -> None:
        command = [sys.executable, "-m", "subtree_attention", "serve", str(own_run), "--port", "0"]
        running = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
            assert post(url, {"ids": ["p1"]})["predictions"][0]["id"] == "p1"
            running.send_signal(signal.SIGINT)
            out, errors = running.communicate(timeout=20)
        finally:
            running.kill()
        assert (running.returncode, out, errors) == (0, "ended\n", "")

    def test_mistakes_are_one_line(self, own_run: Path, run_sta: Callable[..., Outcome]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for arguments, words in (
                (["nowhere"], "nowhere is not a folder"),
                ([str(own_run), "--port", "70000"], "port must be between 0 and 65535, got 70000"),
                ([str(own_run), "--port", str(port)], f"port {port} cannot be had"),
                ([str(own_run), "--port", "0", "--host", "256.1.1.1"], "--host must be an address"),
                ([str(own_run), "--port", "0", "--memory", "x"], "memory must be a size"),
            ):
                code, out, err = run_sta("serve", *arguments)
                assert (code, out, len(err.splitlines())) == (2, "", 1), err
                assert words in err

    def test_without_the_extra_it_says_how_to_install(
        self, own_run: Path, run_sta: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        monkeypatch.delitem(sys.modules, "subtree_attention.serve.server")
        code, _, err = run_sta("serve", str(own_run))
        assert code == 1
        assert 'pip install "subtree-attention[serve]"' in err

    def test_help_teaches(self, run_sta: Callable[..., Outcome]) -> None:
        out = run_sta("serve", "--help")[1]
        assert "curl -H 'Content-Type: application/json' http://127.0.0.1:8766/predict" in out
        assert '"edges": [{"source": "dan", "target": "7"}]' in out
        assert 'pip install "subtree-attention[serve]"' in out
