"""Clients of `sta serve` in a process of their own: each asks request after request, and ends.

`serve.py` starts it by its path, so it imports nothing but Python's own library.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time


def main() -> None:
    """Read what is asked, ask it, and print what came of it."""
    asked = json.load(sys.stdin)
    place, times, errors = asked["url"].removeprefix("http://"), list[float](), list[str]()
    begin = threading.Barrier(asked["clients"])

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection(place, timeout=60)
        begin.wait()
        for turn in range(asked["requests"]):
            body = asked["bodies"][(number * asked["requests"] + turn) % len(asked["bodies"])]
            started = time.perf_counter()
            kind = {"Content-Type": "application/json"}
            connection.request("POST", "/predict", json.dumps(body), kind)
            answer = connection.getresponse()
            content = answer.read()
            times.append(time.perf_counter() - started)
            if answer.status != 200:
                errors.append(f"{answer.status} {content[:100]!r}")
        connection.close()

    def careful(number: int) -> None:
        try:
            ask(number)
        except Exception as error:
            errors.append(repr(error))

    started = time.perf_counter()
    threads = [threading.Thread(target=careful, args=[i]) for i in range(asked["clients"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    told = {"requests": len(times), "errors": len(errors), "first_errors": errors[:3]}
    told |= {"requests_a_second": round(len(times) / seconds, 1), **spread(times)}
    print(json.dumps(told))


def spread(seconds: list[float]) -> dict[str, float]:
    """Milliseconds in which half of them, and all but one in a hundred, were done."""
    ordered = sorted(seconds) or [0.0]
    half, most = (ordered[round(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return {"median_ms": round(1e3 * half, 2), "p99_ms": round(1e3 * most, 2)}


if __name__ == "__main__":
    main()
